"""What the model is shown, says and calls, up to the answer."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conversation_store import (
    catch_up,
    history,
    inbox,
    outgoing,
    overheard,
    reminders,
    second_thoughts,
    token_usage,
    turns,
)
from conversation_store.connections import Execute
from conversation_store.models import (
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    EndedCalls,
    History,
    Image,
    Message,
    NewExchange,
    OutgoingMessage,
    OverheardMessage,
    Question,
    Quote,
    ReceivedKind,
    Role,
    StyledText,
    TokenSpend,
    Turn,
    TurnStatus,
    TurnUsage,
)
from conversation_store.sections.section import (
    Section,
    reads,
    reads_aside,
    writes,
    writes_later,
    writes_ordered,
)

MAX_IMAGES_OF_RESULTS: Final = 10
"""Of one turn; a model is shown no more in one request."""
MAX_FILES_BYTES: Final = 32 * 1024 * 1024
"""Of the files that tools give in one turn; what does not fit any more is left out."""


class TurnStore(Section):
    """What the model is shown, says and calls, up to the answer."""

    def begin(
        self,
        pieces: Sequence[AcceptedMessage],
        content: str,
        *,
        images: Sequence[Image] = (),
        notices: Sequence[str] = (),
        overheard: Sequence[OverheardMessage] = (),
        retries: int | None = None,
    ) -> Turn:
        """Begin the one turn of messages that have none.

        Does not wait for the disk: writes keep their order, so nothing of the turn can be stored
        before its beginning. When one of the messages is forgotten meanwhile, it is not begun,
        and nothing of it is stored later.

        Args:
            pieces: the messages to be answered, oldest first; the turn has the id of the first.
            content: the user message as the model sees it.
            images: shown with it.
            notices: lines for the person above the answer.
            overheard: what the content tells of things said to others.
            retries: the earlier turn whose question it answers anew; without that one, it is not
                begun either.
        """
        turn = Turn(
            pieces[0].id,
            1,
            (Message(Role.USER, content, images=tuple(images)),),
            notices=tuple(notices),
        )
        self._begin(turn, pieces, overheard, retries)
        return turn

    @writes_later
    def _begin(
        self,
        execute: Execute,
        turn: Turn,
        pieces: Sequence[AcceptedMessage],
        told: Sequence[OverheardMessage],
        retries: int | None,
    ) -> None:
        turns.begin(execute, turn, pieces, told, retries=retries, now_ms=self._context.now_ms())

    @reads
    def last_question(
        self, execute: Execute, chat: ChatId, before: int, *, or_stopped: bool
    ) -> Question | None:
        """Return the last question of a chat that came before an inbox row; None without one.

        Args:
            execute: runs a statement.
            chat: the chat.
            before: the row.
            or_stopped: one that was stopped counts as well, though nothing is kept of it.
        """
        return second_thoughts.last_question(execute, chat, before, or_stopped=or_stopped)

    @reads
    def find(self, execute: Execute, turn_id: int) -> Turn | None:
        """Return what is stored of a turn; None for one that is gone."""
        return turns.find(execute, turn_id)

    @writes
    def resume(self, execute: Execute, accepted: AcceptedMessage) -> Turn | None:
        """Go on with the turn that a crash or a restart has left; counts one more attempt.

        None where it was forgotten, because one of its messages was deleted.
        """
        return turns.resume(execute, accepted.id)

    @writes
    def hear(
        self, execute: Execute, turn_id: int, pieces: Sequence[AcceptedMessage], content: str
    ) -> bool:
        """Let a turn that runs answer further messages as well.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            pieces: the messages.
            content: what they say, as the model sees it.

        Returns:
            False where the turn or one of them was forgotten meanwhile; then nothing is stored.
        """
        return turns.hear(execute, turn_id, pieces, content, self._context.now_ms())

    async def restart(self, turn_id: int) -> None:
        """Forget what was begun, so that its messages, which wait on, can begin afresh."""
        await self._forget(turn_id)
        self._database.scrub_soon()

    @writes
    def _forget(self, execute: Execute, turn_id: int) -> None:
        turns.forget(execute, turn_id)

    async def history(
        self,
        chat: ChatId,
        *,
        max_bytes: int,
        max_messages: int = history.MAX_HISTORY_ROWS,
        first_turn: int = 0,
        before: int | None = None,
    ) -> History:
        """Return the newest whole turns of a chat that fit, oldest first.

        Args:
            chat: the chat.
            max_bytes: UTF-8 bytes of contents and calls; a turn that does not fit ends it. The
                newest images come along beside that, at most `history.HISTORY_IMAGES`.
            max_messages: of all turns together.
            first_turn: nothing older is read.
            before: neither is this turn, nor any later one.
        """

        def select(execute: Execute) -> History:
            return history.of_chat(
                execute,
                chat,
                max_bytes=max_bytes,
                max_rows=max_messages,
                first_turn=first_turn,
                before=before,
            )

        return await self._database.read(select, latest=False)  # of turns that are over

    @reads_aside
    def has_result_with(self, execute: Execute, chat: ChatId, words: str) -> bool:
        """Whether anything that is kept of what tools returned or people sent has these words."""
        return history.has_result_with(execute, chat, words)

    @writes_ordered
    def record_calls(
        self,
        execute: Execute,
        turn_id: int,
        assistant: Message,
        exchanged: Sequence[NewExchange] = (),
        spent: Sequence[TokenSpend] = (),
        *,
        helper: int | None = None,
    ) -> None:
        """Store that the model asks for calls, each as started, before any of them runs.

        Returns before it is on disk: what must not run twice is asked about first, and that is
        stored behind it (`ApprovalStore`).

        Args:
            execute: runs a statement.
            turn_id: the turn.
            assistant: the model's message.
            exchanged: the exchanges that it came from, where their signatures are to be checked.
            spent: what it took, which counts also where the turn is gone.
            helper: see `HelperStore`; None: the turn itself asks.
        """
        token_usage.add(execute, spent, self._context.now_ms())
        if not turns.is_there(execute, turn_id):
            return
        turns.add_exchanges(execute, turn_id, exchanged)
        turns.add_calls(execute, turn_id, assistant, self._context.now_ms(), helper)

    @writes_ordered
    def record_result(
        self,
        execute: Execute,
        turn_id: int,
        tool_call_id: str,
        content: str,
        entry: AuditEntry,
        *,
        images: Sequence[Image] = (),
        files: Sequence[Attachment] = (),
        helper: int | None = None,
    ) -> None:
        """Store what a call came to, before the model sees it; on disk before the answer is.

        Of a turn that was forgotten only that the call ran is stored, without its arguments.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            tool_call_id: the call.
            content: its result.
            entry: for the audit.
            images: shown with it; of a turn the newest are kept, `MAX_IMAGES_OF_RESULTS` of them.
            files: go out with the turn's answer, as far as they fit.
            helper: see `HelperStore`; None: the call is one of the turn itself.
        """
        open_call = turns.open_call(execute, turn_id, tool_call_id, helper)
        known = entry if open_call is not None else replace(entry, arguments=None)
        execute(
            "UPDATE messages SET content = ?, outcome = ? WHERE id = ?",
            (content, entry.outcome, open_call),
        )
        if open_call is not None and images:
            turns.add_images_of_result(execute, turn_id, open_call, images, MAX_IMAGES_OF_RESULTS)
        _add_to_audit(execute, known, open_call)
        _keep_files(execute, turn_id, files)

    @reads
    def ended_calls(self, execute: Execute, turn_id: int) -> EndedCalls:
        """Return how those calls of a turn and of its helpers ended that have ended."""
        return history.ended_calls(execute, turn_id)

    @writes_later
    def record_progress(self, execute: Execute, turn_id: int, signal_timestamp: int) -> None:
        """Remember the turn's progress message, so that a restart edits it, not a second one.

        Does not wait for the disk: the sign is not worth it.
        """
        execute(
            "UPDATE turns SET progress_edits = progress_edits + (progress_timestamp NOT NULL),"
            " progress_timestamp = ? WHERE id = ?",
            (signal_timestamp, turn_id),
        )

    async def finish(
        self,
        turn: Turn,
        *,
        state: TurnStatus,
        answer: str,
        parts: Sequence[str | StyledText],
        model: str,
        usage: TurnUsage,
        exchanged: Sequence[NewExchange] = (),
        spent: Sequence[TokenSpend] = (),
        quote: Quote | None = None,
        always_quote: bool = False,
        replaces: int | None = None,
        retried: Question | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """End a turn with its answer: history, inbox and outbox change together.

        Args:
            turn: the turn, of state `running`.
            state: ANSWERED, or FAILED with a plain sentence as its answer.
            answer: the answer as the model is shown it later.
            parts: the answer as it is sent.
            model: what answered.
            usage: what it cost.
            exchanged: exchanges with the model that are not stored yet, where their signatures are
                to be checked.
            spent: what is not counted yet, which counts also where the turn is gone.
            quote: what the answer is shown as a reply to, where that is needed.
            always_quote: it is needed even when nothing else was said in the chat meanwhile.
            replaces: inbox row whose answer it takes the place of; see AcceptedMessage.
            retried: the question that it answers anew; what came of it before is forgotten.

        Returns:
            what is to be sent: nothing when the message, or the turn, was forgotten meanwhile.
        """

        def finish(execute: Execute) -> tuple[tuple[OutgoingMessage, ...], bool]:
            now = self._context.now_ms()
            token_usage.add(execute, spent, now)
            ended = turns.end(
                execute, turn, state=state, answer=answer, model=model, usage=usage, now_ms=now
            )
            if ended is None:
                return (), False
            turns.add_exchanges(execute, turn.id, exchanged)
            quoted = quote if always_quote or _is_apart(execute, turn.id, ended.chat) else None
            in_place_of = replaces
            if retried is not None:
                in_place_of = second_thoughts.conclude(execute, turn.id, retried, now)
            outgoing_parts = outgoing.answer(
                execute,
                inbox_id=turn.id,
                chat=ended.chat,
                parts=parts,
                attachments=_take_files(execute, turn.id),
                quote=quoted,
                replaces=in_place_of,
                expires_at=ended.expires_at,
                now_ms=now,
            )
            inbox.close(execute, turn.id, state if retried is None else inbox.RETRIED)
            has_failed = state is not TurnStatus.ANSWERED
            reminders.count_run(execute, turn.id, has_failed=has_failed, now_ms=now)
            inbox.close_joined(execute, turn.id)
            has_expired = ended.expires_at is not None and ended.expires_at <= now
            if has_expired:
                turns.forget(execute, turn.id, time_is_over=True)
            elif self._context.retention_days == 0:
                turns.drop_history(execute, turn.id)
            return outgoing_parts, has_expired

        to_send, has_expired = await self._database.write(finish)
        self._context.leave_no_words(have_disappeared=has_expired or retried is not None)
        return to_send

    async def answer(
        self,
        accepted: AcceptedMessage,
        parts: Sequence[str | StyledText],
        *,
        outcome: str,
        attachments: Sequence[Attachment] = (),
        quote: Quote | None = None,
        always_quote: bool = False,
        joined: Sequence[AcceptedMessage] = (),
        undone: Question | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Answer a message otherwise than by its turn (a command, a notice), or with no words.

        A turn that a bug has ended is forgotten: half of it is no history.

        Args:
            accepted: the message; with `replaces`, its answer takes the place of an earlier one.
            parts: the answer as it is sent.
            outcome: how the message ends.
            attachments: files that go with the first part.
            quote: see `finish`.
            always_quote: see `finish`.
            joined: messages that are answered with it.
            undone: a question that is forgotten with its answer, which is deleted for everyone.

        Returns:
            what is to be sent: nothing when the message was deleted meanwhile.
        """

        def close(execute: Execute) -> tuple[OutgoingMessage, ...]:
            chat = accepted.message.chat
            if inbox.outcome(execute, accepted.id) == "deleted":
                return ()
            now = self._context.now_ms()
            turns.abandon(execute, accepted.id, now)
            removals = [] if undone is None else second_thoughts.undo(execute, undone, now)
            for piece in joined:
                inbox.join(execute, piece.id, accepted.id)
            expiry = [one.message.expires_at for one in (accepted, *joined)]
            quoted = quote if always_quote or _is_apart(execute, accepted.id, chat) else None
            outgoing_parts = outgoing.answer(
                execute,
                inbox_id=accepted.id,
                chat=chat,
                parts=parts,
                attachments=attachments,
                quote=quoted,
                replaces=accepted.replaces,
                expires_at=min((at for at in expiry if at is not None), default=None),
                now_ms=now,
                removals=removals,
            )
            inbox.close(execute, accepted.id, outcome)
            if accepted.message.kind is ReceivedKind.SCHEDULED:
                reminders.count_run(execute, accepted.id, has_failed=True, now_ms=now)
            inbox.close_joined(execute, accepted.id)
            return outgoing_parts

        to_send = await self._database.write(close)
        if undone is not None:
            await self._database.scrub()
        self._context.leave_no_words(
            have_disappeared=any(self._context.has_disappeared(one) for one in (accepted, *joined))
        )
        return to_send

    async def clear(self, chat: ChatId) -> int:
        """Forget a chat's history and return how many turns that were.

        With it go answers that could not be sent; one that is still to be sent stays until it is.
        """
        forgotten = await self._clear(chat)
        await self._database.scrub()
        return forgotten

    @writes
    def _clear(self, execute: Execute, chat: ChatId) -> int:
        outgoing.forget_given_up(execute, chat)
        overheard.forget_chat(execute, chat)
        turns.forget_with_answers(execute, catch_up.forget_chat(execute, chat))
        return turns.clear(execute, chat)


def _is_apart(execute: Execute, inbox_id: int, chat: ChatId) -> bool:
    """Whether something else stands between a message and its answer."""
    return inbox.came_between(execute, inbox_id, chat) or outgoing.said_between(
        execute, inbox_id, chat
    )


def _add_to_audit(execute: Execute, entry: AuditEntry, open_call: int | None) -> None:
    """Add who called which tool, what came of it, and by the call's row who allowed it."""
    execute(
        "INSERT INTO audit (at, chat, author, turn_id, tool, arguments_sha256, outcome,"
        " duration_ms, arguments, allowed_by) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?,"
        " (SELECT decided_by FROM approvals WHERE id = ? AND state = 'begun'))",
        (
            *(entry.at, entry.chat, entry.author, entry.turn_id, entry.tool),
            *(entry.arguments_sha256, entry.outcome, entry.duration_ms, entry.arguments),
            open_call,
        ),
    )


def _keep_files(execute: Execute, turn_id: int, files: Sequence[Attachment]) -> None:
    """Keep the files of a call as far as they fit; none of a turn that is gone."""
    if not files:
        return
    ((size,),) = execute(
        "SELECT coalesce(sum(length(data)), 0) FROM turn_files WHERE turn_id = ?", (turn_id,)
    )
    for file in files:
        if size + len(file.data) > MAX_FILES_BYTES:
            continue
        size += len(file.data)
        execute(
            "INSERT INTO turn_files (turn_id, name, content_type, data)"
            " SELECT id, ?, ?, ? FROM turns WHERE id = ?",
            (file.name, file.content_type, file.data, turn_id),
        )


def _take_files(execute: Execute, turn_id: int) -> tuple[Attachment, ...]:
    """Return the files that tools gave in a turn, and keep them no longer."""
    rows = list(
        execute(
            "SELECT name, content_type, data FROM turn_files WHERE turn_id = ? ORDER BY id",
            (turn_id,),
        )
    )
    if rows:
        execute("DELETE FROM turn_files WHERE turn_id = ?", (turn_id,))
    return tuple(Attachment(*row) for row in rows)
