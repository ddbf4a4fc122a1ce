"""The conversation store: what survives a crash, and in which order it gets to the disk.

A message's life: accepted (inbox, `waiting`) → turn begun → model's calls recorded (open) →
their results → answer stored together with the end of the turn and of the inbox row (one
transaction) → each part sent, then marked with Signal's timestamp. Whatever is `waiting` when
a process starts is where it goes on.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from conversation_store import (
    approvals,
    audit_log,
    backup,
    deletions,
    doubts,
    edits,
    exchanges,
    expiry,
    history,
    inbox,
    metadata,
    outgoing,
    overheard,
    times,
    turn_files,
    turns,
    upkeep,
)
from conversation_store.database import (
    MAX_LOG_BYTES,
    Committed,
    Database,
    Execute,
    locked,
    open_database,
)
from conversation_store.migrations import migrate
from conversation_store.models import (
    AcceptedMessage,
    AnswerPart,
    ApprovalState,
    AuditEntry,
    EditOutcome,
    ExchangeState,
    Expired,
    History,
    Interrupted,
    NewExchange,
    OutgoingMessage,
    OverheardMessage,
    ReceivedMessage,
    Resent,
    SendsInDoubt,
    StoredApproval,
    StoredAttachment,
    StoredExchange,
    StoredImage,
    StoredMessage,
    StoredQuote,
    StoreSizes,
    Turn,
    TurnStatus,
    TurnUsage,
    UnfinishedWork,
)
from conversation_store.pairings import Pairings

DAY_MS: Final = 86_400_000

PURGE_ROWS: Final = 100
"""Rows that go in one write."""

PINGED: Final = "pinged_at"
"""Name of the fact that shows whether anything can be written."""

DUPLICATES_KNOWN_DAYS: Final = 45
"""Signal's server keeps undelivered messages about that long (SIGNAL_WIRE 5.2), so the key of a
message must be remembered at least as long to know it again."""


@asynccontextmanager
async def open_store(
    path: Path,
    *,
    key: str | None = None,
    retention_days: int = 30,
    committed: Committed = lambda _writes, _seconds: None,
    clock: Callable[[], float] = time.time,
) -> AsyncIterator["ConversationStore"]:
    """Open or create the store, bring its schema up to date and keep its writer running.

    What is of an earlier schema is kept beside it for a day; see `backup.upgrade`.

    Args:
        path: the database file; a missing folder is made.
        key: encrypts it at rest; None leaves it plain.
        retention_days: messages older than this are deleted by `purge`; 0 keeps nothing of a
            turn once it has ended.
        committed: told after every commit how many writes it took and how many seconds.
        clock: seconds since 1970.

    Raises:
        StoreError: see `conversation_store.errors`.
    """
    with locked(path) as real:
        backup.upgrade(real, key)  # blocks: nothing is to happen before it has ended
        async with open_database(real, key, prepare=migrate, committed=committed) as database:
            yield ConversationStore(database, real, retention_days=retention_days, clock=clock)


class ConversationStore:
    """Everything the bot remembers. Made by `open_store`; every write is on disk on return.

    Attributes:
        pairings: who was let in by a code, and who waits for it.
        retention_days: may be changed at any time; it counts from the next `purge` on.
    """

    def __init__(
        self,
        database: Database,
        path: Path,
        *,
        retention_days: int,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.pairings = Pairings(database)
        self._database = database
        self._path = path
        self.retention_days = retention_days
        self._clock = clock

    @property
    def refusal(self) -> str | None:
        """Why the disk takes nothing now, in words; None while it does.

        Whoever writes meanwhile waits.
        """
        return self._database.refusal

    async def refusal_other_than(self, known: str | None) -> str | None:
        """Wait until `refusal` is another one, and return it."""
        return await self._database.refusal_other_than(known)

    async def accept(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[AcceptedMessage | None, ...]:
        """Store messages, edits and deletions that now owe an answer.

        Returns:
            one for each; None where it is a duplicate, or was deleted or edited before it came.
        """

        def insert(execute: Execute) -> tuple[AcceptedMessage | None, ...]:
            return tuple(inbox.insert(execute, message) for message in messages)

        return await self._database.write(insert)

    async def overhear(self, messages: Sequence[ReceivedMessage]) -> None:
        """Keep what people say to each other, for the chat's next turn; bounded for each chat."""
        if self.retention_days == 0:
            return

        def insert(execute: Execute) -> None:
            for message in messages:
                if not inbox.is_deleted(execute, message):
                    overheard.add(execute, message)
            for chat in {message.chat for message in messages}:
                overheard.trim(execute, chat)

        await self._database.write(insert)

    async def overheard(self, chat: str) -> tuple[OverheardMessage, ...]:
        """Return what was said in a chat and no turn was told yet, oldest first."""
        return await self._database.read(lambda execute: overheard.waiting(execute, chat))

    async def is_past(self, message: ReceivedMessage) -> bool:
        """Whether nobody will look at a message: it was deleted or edited before it came."""
        return await self._database.read(lambda execute: inbox.is_past(execute, message))

    async def find_target(self, message: ReceivedMessage) -> int | None:
        """Return the inbox row that an edit or a deletion is about, in whatever state it is.

        Where a message and its edits are several rows, it is the latest that still waits.
        """
        return await self._database.read(lambda execute: inbox.find_target(execute, message))

    async def knows_target(self, message: ReceivedMessage) -> bool:
        """Whether an edit or a deletion is about anything that was received or overheard."""

        def look(execute: Execute) -> bool:
            if inbox.find_target(execute, message) is not None:
                return True
            return overheard.is_known(execute, message, *inbox.target(execute, message))

        return await self._database.read(look)

    async def edit_overheard(self, edit: ReceivedMessage) -> None:
        """Let what was said to others read otherwise; nothing is kept of an edit of anything else.

        What a turn was told stays as it was told.
        """
        if await self._database.write(lambda execute: edits.change_overheard(execute, edit)):
            await self._database.scrub()

    async def merge_edit(self, edit: AcceptedMessage, target: AcceptedMessage) -> AcceptedMessage:
        """Let a message that waits read as its edit says, and end the edit; return it so."""
        merged = await self._database.write(lambda execute: edits.merge(execute, edit, target))
        self._database.scrub_soon()
        return merged

    async def settle_edit(
        self, edit: AcceptedMessage, *, answered_within_ms: int
    ) -> tuple[EditOutcome, AcceptedMessage]:
        """Find out what an edit is about, when nothing of its chat waits before it.

        Args:
            edit: the edit.
            answered_within_ms: an older answer stays as it is.

        Returns:
            UNKNOWN: the edit waits on, to be answered as a message. TOO_LATE: it is closed.
            ANSWERED: the turn of the earlier answer is forgotten, and the edit, which is returned
            with `replaces`, waits to be answered in its place.
        """

        def settle(execute: Execute) -> tuple[EditOutcome, AcceptedMessage]:
            return edits.settle(execute, edit, self._now_ms() - answered_within_ms)

        outcome, settled = await self._database.write(settle)
        if outcome is not EditOutcome.UNKNOWN:
            await self._database.scrub()
        return outcome, settled

    async def forget(self, deletion: AcceptedMessage) -> tuple[int, ...]:
        """Carry out a deletion: its message goes with all that was derived from it.

        A turn that runs and was told an overheard message that is deleted goes when it ends.
        What comes after its deletion is refused.

        Returns:
            inbox rows that waited and are closed now, whose turns are to be stopped. Other
            messages of such a turn wait on, without a turn.
        """
        closed = await self._database.write(lambda execute: deletions.perform(execute, deletion))
        await self._database.scrub()
        return closed

    async def expire(self, now_ms: int | None = None) -> Expired:
        """Forget everything that has disappeared; what is in a turn that runs goes when it ends.

        The log is emptied every time: it still holds what was said in answers that were sent, and
        what could not be emptied before because somebody was reading.

        Args:
            now_ms: the time that counts as now; None takes the clock.

        Returns:
            when to come again, and the messages that disappeared before their turn began, without
            their text and the names of their files: they still owe an answer.
        """
        now = self._now_ms() if now_ms is None else now_ms
        expired = await self._database.write(lambda execute: expiry.expire(execute, now))
        await self._database.scrub()
        return expired

    def begin_turn(
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
            turns.begin(execute, turn, pieces, overheard, self._now_ms())

        self._database.write_later(insert)
        return turn

    async def resume_turn(self, accepted: AcceptedMessage) -> Turn | None:
        """Go on with the turn that a crash or a restart has left; counts one more attempt.

        None where it was forgotten, because one of its messages was deleted.
        """
        return await self._database.write(lambda execute: turns.resume(execute, accepted.id))

    async def waiting_of(self, accepted: Sequence[AcceptedMessage]) -> tuple[AcceptedMessage, ...]:
        """Return those of some messages that still owe an answer."""

        def select(execute: Execute) -> tuple[AcceptedMessage, ...]:
            return tuple(one for one in accepted if inbox.is_waiting(execute, one.id))

        return await self._database.read(select)

    async def restart_turn(self, turn_id: int) -> None:
        """Forget what was begun, so that its messages, which wait on, can begin afresh."""
        await self._database.write(lambda execute: turns.forget(execute, turn_id))
        self._database.scrub_soon()

    async def history(
        self,
        chat: str,
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

        return await self._database.read(select, latest=False)  # of turns that are over

    async def has_result_with(self, chat: str, words: str) -> bool:
        """Whether anything that is kept of what tools returned or people sent has these words."""
        return await self._database.read_aside(
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
        stored behind it (`approval`, `begin_allowed`).

        Args:
            turn_id: the turn.
            assistant: the model's message.
            exchanged: the exchanges that it came from, where their signatures are to be checked.
        """

        def insert(execute: Execute) -> None:
            if not turns.is_there(execute, turn_id):
                return
            exchanges.add(execute, turn_id, exchanged)
            now = self._now_ms()
            turns.add_message(execute, turn_id, assistant, now)
            for call in assistant.tool_calls:
                started = StoredMessage("tool", None, tool_call_id=call.id)
                turns.add_message(execute, turn_id, started, now)

        await self._database.write_ordered(insert)

    async def record_result(
        self,
        turn_id: int,
        tool_call_id: str,
        content: str,
        entry: AuditEntry,
        files: Sequence[StoredAttachment] = (),
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

        await self._database.write_ordered(update)

    async def approval(
        self, turn_id: int, tool_call_id: str, *, chat: str, asker: str, fingerprint: str
    ) -> StoredApproval | None:
        """Return the question about an open call, made now if there is none yet.

        Args:
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            chat: where to ask.
            asker: ACI of the person that the call is made for.
            fingerprint: of the call; the one that is stored counts.
        """

        def find(execute: Execute) -> StoredApproval | None:
            open_call = turns.open_call(execute, turn_id, tool_call_id)
            if open_call is None:
                return None
            return approvals.open_or_find(
                execute, open_call, chat=chat, asker=asker, fingerprint=fingerprint
            )

        return await self._database.write(find)

    async def mark_asked(self, approval: int, signal_timestamp: int, expires_at: int) -> None:
        """Remember the question's message, and until when (ms) its answer counts."""

        def update(execute: Execute) -> None:
            approvals.mark_asked(execute, approval, signal_timestamp, expires_at)

        await self._database.write(update)

    async def decide(
        self,
        approval: int,
        state: ApprovalState,
        *,
        by: str | None = None,
        answer: AcceptedMessage | None = None,
    ) -> ApprovalState | None:
        """Decide an open question and return how it is decided now; None if it is gone.

        Args:
            approval: the question.
            state: YES, NO or SILENCE; ignored where it is decided already.
            by: ACI of the person who answered.
            answer: the message that answers, which owes no other answer then.
        """

        def update(execute: Execute) -> ApprovalState | None:
            if answer is not None:
                inbox.close(execute, answer.id, "approval")
            return approvals.decide(execute, approval, state, by=by, now_ms=self._now_ms())

        decided = await self._database.write(update)
        if answer is not None:
            self._leave_no_words(_has_disappeared(answer, self._now_ms()))
        return decided

    async def begin_allowed(self, turn_id: int, tool_call_id: str) -> None:
        """Store that a call that somebody has allowed runs now, so that it never does again."""

        def update(execute: Execute) -> None:
            open_call = turns.open_call(execute, turn_id, tool_call_id)
            if open_call is not None:
                approvals.begin(execute, open_call)

        await self._database.write(update)

    async def waiting_approvals(self) -> tuple[StoredApproval, ...]:
        """Return the questions that were sent and have no answer."""
        return await self._database.read(approvals.waiting)

    def record_progress(self, turn_id: int, signal_timestamp: int) -> None:
        """Remember the turn's progress message, so that a restart edits it, not a second one.

        Does not wait for the disk: the sign is not worth it.
        """

        def update(execute: Execute) -> None:
            execute(
                "UPDATE turns SET progress_timestamp = ? WHERE id = ?", (signal_timestamp, turn_id)
            )

        self._database.write_later(update)

    async def finish_turn(
        self,
        turn: Turn,
        *,
        state: TurnStatus,
        answer: str,
        parts: Sequence[str | AnswerPart],
        model: str,
        usage: TurnUsage,
        exchanged: Sequence[NewExchange] = (),
        quote: StoredQuote | None = None,
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
            now = self._now_ms()
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
            elif self.retention_days == 0:
                turns.drop_history(execute, turn.id)
            return outgoing_parts, has_expired

        to_send, has_expired = await self._database.write(finish)
        self._leave_no_words(has_expired)
        return to_send

    async def answer(
        self,
        accepted: AcceptedMessage,
        parts: Sequence[str | AnswerPart],
        *,
        outcome: str,
        attachments: Sequence[StoredAttachment] = (),
        quote: StoredQuote | None = None,
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
            quote: see `finish_turn`.
            always_quote: see `finish_turn`.
            joined: messages that are answered with it.

        Returns:
            what is to be sent: nothing when the message was deleted meanwhile.
        """

        def close(execute: Execute) -> tuple[OutgoingMessage, ...]:
            chat = accepted.message.chat
            if inbox.outcome(execute, accepted.id) == "deleted":
                return ()
            now = self._now_ms()
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

        to_send = await self._database.write(close)
        self._leave_no_words(
            any(_has_disappeared(one, self._now_ms()) for one in (accepted, *joined))
        )
        return to_send

    async def said(self, chat: str, signal_timestamp: int) -> str:
        """Return what the model said in a message of the bot, by Signal's timestamp of it (ms).

        Empty where the bot sent no such message to that chat, or where its words are not kept, or
        are not the model's.
        """
        return await self._database.read(
            lambda execute: outgoing.said(execute, chat, signal_timestamp)
        )

    async def add_note(self, chat: str, text: str) -> OutgoingMessage:
        """Store a message of the bot's own accord, which is to be sent."""

        def add(execute: Execute) -> OutgoingMessage:
            return outgoing.note(execute, chat=chat, text=text, now_ms=self._now_ms())

        return await self._database.write(add)

    async def stop(self, inbox_ids: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, with what they began."""

        def close(execute: Execute) -> None:
            for inbox_id in inbox_ids:
                if inbox.outcome(execute, inbox_id) != "deleted":
                    turns.abandon(execute, inbox_id, self._now_ms())
                    inbox.close(execute, inbox_id, "stopped")
                    inbox.close_joined(execute, inbox_id)

        await self._database.write(close)
        self._database.scrub_soon()

    async def get_metadata(self, name: str) -> str | None:
        """Return what the bot remembers about itself by a name."""
        return await self._database.read(lambda execute: metadata.find(execute, name))

    async def set_metadata(self, name: str, value: str) -> None:
        """Remember something about the bot itself, instead of what was known by the name."""
        await self._database.write(lambda execute: metadata.put(execute, name, value))

    async def clear(self, chat: str) -> int:
        """Forget a chat's history and return how many turns that were.

        With it go answers that could not be sent; one that is still to be sent stays until it is.
        """

        def delete(execute: Execute) -> int:
            outgoing.forget_given_up(execute, chat)
            overheard.forget_chat(execute, chat)
            return turns.clear(execute, chat)

        forgotten = await self._database.write(delete)
        await self._database.scrub()
        return forgotten

    async def as_waiting(self, part: OutgoingMessage) -> OutgoingMessage | None:
        """Return a message as it may be sent now: without what it quotes, where that is gone.

        None where it is not to be sent any more: what it answers was deleted, or disappeared long
        ago.
        """
        return await self._database.read(lambda execute: outgoing.as_waiting(execute, part))

    async def mark_sent(self, part: OutgoingMessage, signal_timestamp: int) -> None:
        """Mark a part as sent and forget what was in it; the history has the answer."""

        def update(execute: Execute) -> bool:
            doubts.note_if_forgotten(execute, part.id, signal_timestamp)
            return outgoing.mark_sent(execute, part.id, signal_timestamp, self._now_ms())

        self._leave_no_words(await self._database.write(update))

    def note_unnamed(self, sending: Interrupted) -> None:
        """Remember a message that may have been sent without anybody's telling its timestamp.

        Does not wait for the disk. `until` is when its sending ended; signal-cli may be late.
        """
        late = replace(sending, until=sending.until + doubts.LATE_MS)
        self._database.write_later(lambda execute: doubts.note_unnamed(execute, late))

    async def mark_failed(self, part: OutgoingMessage, *, give_up: bool) -> None:
        """Count a failed attempt; a part that is given up keeps its text."""

        def update(execute: Execute) -> None:
            outgoing.mark_failed(execute, part.id, give_up=give_up)

        await self._database.write(update)

    async def doubts(self, now_ms: int, *, reaction_ms: int | None) -> SendsInDoubt:
        """Return what a start does not know about the messages of earlier processes.

        Args:
            now_ms: the time by signal-cli's clock; this process has sent nothing before it.
            reaction_ms: how long after a message the bot's reaction to it may be sent; None where
                it gives none.
        """
        return await self._database.read_aside(
            lambda execute: doubts.load(execute, now_ms, reaction_ms=reaction_ms)
        )

    async def resent(self, now_ms: int) -> tuple[Resent, ...]:
        """Return the messages of which there may be other copies that can still be deleted."""
        return await self._database.read_aside(lambda execute: doubts.resent(execute, now_ms))

    async def known_timestamps(self, timestamps: Sequence[int]) -> frozenset[int]:
        """Return those of some timestamps that belong to messages whose sending is stored."""
        return await self._database.read(lambda execute: doubts.known(execute, timestamps))

    def confirm(self, confirmed: Sequence[tuple[int, str]]) -> None:
        """Keep what phones confirmed; does not wait for the disk."""
        self._database.write_later(lambda execute: doubts.confirm(execute, confirmed))

    async def mark_proven(self, part: OutgoingMessage, sending: Interrupted, proof: int) -> None:
        """Mark a message as sent by an earlier process, with the timestamp that proves it."""

        def update(execute: Execute) -> bool:
            doubts.extend(execute, sending)
            return outgoing.mark_sent(execute, part.id, proof, self._now_ms())

        self._leave_no_words(await self._database.write(update))

    async def expect_copy(self, sending: Interrupted) -> None:
        """Remember, before a message is sent again, that there may be one copy more of it."""
        await self._database.write(lambda execute: doubts.expect_copy(execute, sending))

    async def expect_deletion(self, part: int, *, since_ms: int, now_ms: int) -> None:
        """Remember, before a copy is deleted, that phones will confirm the deletion as well.

        Args:
            part: the message's row in the outbox.
            since_ms: the earliest timestamp that the deletion can have.
            now_ms: the time.
        """

        def update(execute: Execute) -> None:
            doubts.expect_deletion(execute, part, since_ms, now_ms)

        await self._database.write(update)

    async def copy_found(self, part: int, *, copy: int, standing: int) -> None:
        """Remember which copy of a message people see.

        Args:
            part: the message's row in the outbox.
            copy: Signal's timestamp that was not known.
            standing: Signal's timestamp of the copy that stays.
        """

        def update(execute: Execute) -> None:
            doubts.copy_found(execute, part, copy=copy, standing=standing)

        await self._database.write(update)

    async def unchecked_exchanges(self, limit: int) -> tuple[StoredExchange, ...]:
        """Return exchanges of finished turns whose signature is not checked, oldest first."""
        return await self._database.read(lambda execute: exchanges.waiting(execute, limit))

    async def last_exchanges(self, chat: str) -> tuple[StoredExchange, ...]:
        """Return the exchanges behind the last answer in a chat, in their order."""
        return await self._database.read(lambda execute: exchanges.of_last_turn(execute, chat))

    async def settle_exchange(
        self,
        exchange: StoredExchange,
        state: ExchangeState,
        *,
        kind: str,
        words: str,
        warning: str | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store what a signature said; return what is to be sent because of it.

        Args:
            exchange: which; one that is settled already, or forgotten, stays as it is.
            state: what was found.
            kind: of the signature.
            words: what that means.
            warning: sent behind the turn's answer, once for all of its exchanges.
        """

        def settle(execute: Execute) -> tuple[OutgoingMessage, ...]:
            warned = exchanges.has_wrong(execute, exchange.turn_id)
            if not exchanges.settle(execute, exchange, state, kind, words):
                return ()
            if warning is None or warned:
                return ()
            chats = list(execute("SELECT chat FROM inbox WHERE id = ?", (exchange.turn_id,)))
            return tuple(
                outgoing.follow_up(
                    execute,
                    inbox_id=exchange.turn_id,
                    chat=chat,
                    text=warning,
                    now_ms=self._now_ms(),
                )
                for (chat,) in chats
            )

        return await self._database.write(settle)

    async def unfinished(self) -> UnfinishedWork:
        """Return what a start has to go on with."""

        def select(execute: Execute) -> UnfinishedWork:
            return UnfinishedWork(outgoing.waiting(execute), inbox.waiting(execute))

        return await self._database.read_aside(select)

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete what is older than the retention and return how many turns that were.

        Args:
            now_ms: the time that counts as now; None takes the clock.
        """
        now = self._now_ms() if now_ms is None else now_ms
        before = now - self.retention_days * DAY_MS
        keys_before = now - max(self.retention_days, DUPLICATES_KNOWN_DAYS) * DAY_MS

        deleted = await self._in_steps(partial(turns.purge, before=before))
        await self._in_steps(partial(outgoing.purge, before=before))
        await self._in_steps(partial(overheard.purge, before=before))
        await self._in_steps(exchanges.purge)
        await self._in_steps(partial(inbox.purge, before=keys_before))
        await self._in_steps(partial(audit_log.purge, before=before))
        await self._database.write(lambda execute: doubts.purge(execute, now))
        return deleted

    async def _in_steps(self, purge: Callable[..., int]) -> int:
        """Delete a few rows at a time, so that no message waits behind all of them."""
        deleted = 0
        while step := await self._database.write(partial(purge, at_most=PURGE_ROWS)):
            deleted += step
        return deleted

    async def give_back(self) -> int:
        """Give the file system back what the file holds no more; return how many bytes.

        A store that was made by a version before this one keeps its size, and uses it again.
        """
        log_bytes = await self._database.read_aside(lambda _: upkeep.log_bytes(self._path))
        given_back = 0
        while step := await self._database.write(upkeep.give_back):
            given_back += step
        if log_bytes > MAX_LOG_BYTES:
            await self._database.scrub()
        return given_back

    async def forget_before_upgrade(self, now_ms: int) -> int:
        """Delete the store as it was before an upgrade, once that is long ago; return how many.

        Args:
            now_ms: the time that counts as now.

        Raises:
            StoreFailed: the disk does not let it.
        """
        return await asyncio.to_thread(backup.forget_before_upgrade, self._path, now_ms)

    async def newest(self) -> float | None:
        """Return when the newest message was received, in seconds since 1970; None without any."""
        received_at = await self._database.read(times.newest)
        return None if received_at is None else received_at / 1_000

    async def set_back(self) -> None:
        """Let what was stored in the future, by a clock that was wrong, have been stored now.

        Its timers begin anew; else it would stay for as long as the clock was ahead.
        """
        await self._database.write(lambda execute: times.set_back(execute, self._now_ms()))

    async def sizes(self) -> StoreSizes:
        """Return how large the store is and how much waits in it; cheap.

        Raises:
            StoreFailed: the disk is broken.
        """
        return await self._database.read_aside(lambda execute: upkeep.sizes(execute, self._path))

    async def ping(self) -> None:
        """Write something and wait until it is on disk; see `refusal` for how long that takes.

        Raises:
            StoreError: the store cannot do its work.
        """
        now = str(self._now_ms())
        await self._database.write(lambda execute: metadata.put(execute, PINGED, now))

    def _leave_no_words(self, have_disappeared: bool) -> None:
        """Have the log forget what was just dropped from rows, where nobody is to find it again."""
        if have_disappeared or self.retention_days == 0:
            self._database.scrub_soon()

    def _now_ms(self) -> int:
        return int(self._clock() * 1_000)


def _has_disappeared(accepted: AcceptedMessage, now_ms: int) -> bool:
    expires_at = accepted.message.expires_at
    return expires_at is not None and expires_at <= now_ms


def _is_apart(execute: Execute, inbox_id: int, chat: str) -> bool:
    """Whether something else stands between a message and its answer."""
    return inbox.came_between(execute, inbox_id, chat) or outgoing.said_between(
        execute, inbox_id, chat
    )
