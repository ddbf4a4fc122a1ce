"""What the model is shown, says and calls, up to the answer."""

from collections.abc import Sequence
from dataclasses import replace

from conversation_store import (
    audit_log,
    exchanges,
    history,
    inbox,
    outgoing,
    overheard,
    turn_files,
    turns,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    History,
    NewExchange,
    OutgoingMessage,
    OverheardMessage,
    Quote,
    StoredImage,
    StoredMessage,
    StyledText,
    Turn,
    TurnStatus,
    TurnUsage,
)
from conversation_store.sections.context import StoreContext


class TurnStore:
    """What the model is shown, says and calls, up to the answer.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    def begin(
        self,
        pieces: Sequence[AcceptedMessage],
        content: str,
        *,
        images: Sequence[StoredImage] = (),
        notices: Sequence[str] = (),
        overheard: Sequence[OverheardMessage] = (),
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
        """
        turn = Turn(
            pieces[0].id,
            1,
            (StoredMessage("user", content, images=tuple(images)),),
            notices=tuple(notices),
        )

        def insert(execute: Execute) -> None:
            turns.begin(execute, turn, pieces, overheard, self._context.now_ms())

        self._context.database.write_later(insert)
        return turn

    async def resume(self, accepted: AcceptedMessage) -> Turn | None:
        """Go on with the turn that a crash or a restart has left; counts one more attempt.

        None where it was forgotten, because one of its messages was deleted.
        """
        return await self._context.database.write(
            lambda execute: turns.resume(execute, accepted.id)
        )

    async def restart(self, turn_id: int) -> None:
        """Forget what was begun, so that its messages, which wait on, can begin afresh."""
        await self._context.database.write(lambda execute: turns.forget(execute, turn_id))
        self._context.database.scrub_soon()

    async def history(
        self,
        chat: ChatId,
        *,
        max_bytes: int,
        max_messages: int = history.MAX_HISTORY_ROWS,
        first_turn: int = 0,
    ) -> History:
        """Return the newest whole turns of a chat that fit, oldest first.

        Args:
            chat: the chat.
            max_bytes: UTF-8 bytes of contents and calls; a turn that does not fit ends it. The
                newest images come along beside that, at most `history.HISTORY_IMAGES`.
            max_messages: of all turns together.
            first_turn: nothing older is read.
        """

        def select(execute: Execute) -> History:
            return history.of_chat(
                execute, chat, max_bytes=max_bytes, max_rows=max_messages, first_turn=first_turn
            )

        return await self._context.database.read(select, latest=False)  # of turns that are over

    async def has_result_with(self, chat: ChatId, words: str) -> bool:
        """Whether anything that is kept of what tools returned or people sent has these words."""
        return await self._context.database.read_aside(
            lambda execute: history.has_result_with(execute, chat, words)
        )

    async def record_calls(
        self,
        turn_id: int,
        assistant: StoredMessage,
        exchanged: Sequence[NewExchange] = (),
    ) -> None:
        """Store that the model asks for calls, each as started, before any of them runs.

        Returns before it is on disk: what must not run twice is asked about first, and that is
        stored behind it (`ApprovalStore`).

        Args:
            turn_id: the turn.
            assistant: the model's message.
            exchanged: the exchanges that it came from, where their signatures are to be checked.
        """

        def insert(execute: Execute) -> None:
            if not turns.is_there(execute, turn_id):
                return
            exchanges.add(execute, turn_id, exchanged)
            now = self._context.now_ms()
            turns.add_message(execute, turn_id, assistant, now)
            for call in assistant.tool_calls:
                started = StoredMessage("tool", None, tool_call_id=call.id)
                turns.add_message(execute, turn_id, started, now)

        await self._context.database.write_ordered(insert)

    async def record_result(
        self,
        turn_id: int,
        tool_call_id: str,
        content: str,
        entry: AuditEntry,
        files: Sequence[Attachment] = (),
    ) -> None:
        """Store what a call came to, before the model sees it; on disk before the answer is.

        Of a turn that was forgotten only that the call ran is stored, without its arguments.

        Args:
            turn_id: the turn.
            tool_call_id: the call.
            content: its result.
            entry: for the audit.
            files: go out with the turn's answer, as far as they fit.
        """

        def update(execute: Execute) -> None:
            open_call = turns.open_call(execute, turn_id, tool_call_id)
            known = entry if open_call is not None else replace(entry, arguments=None)
            execute("UPDATE messages SET content = ? WHERE id = ?", (content, open_call))
            audit_log.append(execute, known, open_call)
            turn_files.keep(execute, turn_id, files)

        await self._context.database.write_ordered(update)

    def record_progress(self, turn_id: int, signal_timestamp: int) -> None:
        """Remember the turn's progress message, so that a restart edits it, not a second one.

        Does not wait for the disk: the sign is not worth it.
        """

        def update(execute: Execute) -> None:
            execute(
                "UPDATE turns SET progress_timestamp = ? WHERE id = ?", (signal_timestamp, turn_id)
            )

        self._context.database.write_later(update)

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
        quote: Quote | None = None,
        always_quote: bool = False,
        replaces: int | None = None,
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
            quote: what the answer is shown as a reply to, where that is needed.
            always_quote: it is needed even when nothing else was said in the chat meanwhile.
            replaces: inbox row whose answer it takes the place of; see AcceptedMessage.

        Returns:
            what is to be sent: nothing when the message, or the turn, was forgotten meanwhile.
        """

        def finish(execute: Execute) -> tuple[tuple[OutgoingMessage, ...], bool]:
            now = self._context.now_ms()
            ended = turns.end(
                execute, turn, state=state, answer=answer, model=model, usage=usage, now_ms=now
            )
            if ended is None:
                return (), False
            exchanges.add(execute, turn.id, exchanged)
            quoted = quote if always_quote or _is_apart(execute, turn.id, ended.chat) else None
            outgoing_parts = outgoing.answer(
                execute,
                inbox_id=turn.id,
                chat=ended.chat,
                parts=parts,
                attachments=turn_files.take(execute, turn.id),
                quote=quoted,
                replaces=replaces,
                expires_at=ended.expires_at,
                now_ms=now,
            )
            inbox.close(execute, turn.id, state)
            inbox.close_joined(execute, turn.id)
            has_expired = ended.expires_at is not None and ended.expires_at <= now
            if has_expired:
                turns.forget(execute, turn.id)
            elif self._context.retention_days == 0:
                turns.drop_history(execute, turn.id)
            return outgoing_parts, has_expired

        to_send, has_expired = await self._context.database.write(finish)
        self._context.leave_no_words(have_disappeared=has_expired)
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

        Returns:
            what is to be sent: nothing when the message was deleted meanwhile.
        """

        def close(execute: Execute) -> tuple[OutgoingMessage, ...]:
            chat = accepted.message.chat
            if inbox.outcome(execute, accepted.id) == "deleted":
                return ()
            now = self._context.now_ms()
            turns.abandon(execute, accepted.id, now)
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
            )
            inbox.close(execute, accepted.id, outcome)
            inbox.close_joined(execute, accepted.id)
            return outgoing_parts

        to_send = await self._context.database.write(close)
        self._context.leave_no_words(
            have_disappeared=any(self._context.has_disappeared(one) for one in (accepted, *joined))
        )
        return to_send

    async def clear(self, chat: ChatId) -> int:
        """Forget a chat's history and return how many turns that were.

        With it go answers that could not be sent; one that is still to be sent stays until it is.
        """

        def delete(execute: Execute) -> int:
            outgoing.forget_given_up(execute, chat)
            overheard.forget_chat(execute, chat)
            return turns.clear(execute, chat)

        forgotten = await self._context.database.write(delete)
        await self._context.database.scrub()
        return forgotten


def _is_apart(execute: Execute, inbox_id: int, chat: ChatId) -> bool:
    """Whether something else stands between a message and its answer."""
    return inbox.came_between(execute, inbox_id, chat) or outgoing.said_between(
        execute, inbox_id, chat
    )
