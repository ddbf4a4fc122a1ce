"""The conversation store: what survives a crash, and in which order it gets to the disk.

A message's life: accepted (inbox, `waiting`) → turn begun → model's calls recorded (open) →
their results → answer stored together with the end of the turn and of the inbox row (one
transaction) → each part sent, then marked with Signal's timestamp. Whatever is `waiting` when
a process starts is where it goes on.
"""

import json
import time
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final

from conversation_store import approvals, audit_log, exchanges, outgoing
from conversation_store.database import Database, Execute, Row, copy_database, open_database
from conversation_store.migrations import migrate
from conversation_store.models import (
    AcceptedMessage,
    ApprovalState,
    AuditEntry,
    ExchangeState,
    NewExchange,
    OutgoingMessage,
    ReceivedFile,
    ReceivedKind,
    ReceivedMessage,
    ReceivedQuote,
    StoredApproval,
    StoredAttachment,
    StoredExchange,
    StoredMessage,
    StoredToolCall,
    Turn,
    TurnState,
    TurnUsage,
    UnfinishedWork,
)

DAY_MS: Final = 86_400_000

DUPLICATES_KNOWN_DAYS: Final = 45
"""Signal's server keeps undelivered messages about that long (SIGNAL_WIRE 5.2), so the key of a
message must be remembered at least as long to know it again."""

MAX_HISTORY_ROWS: Final = 2_000
"""Messages read for one prompt; bounds a chat of thousands of one-word turns."""

INTERRUPTED: Final = "Interrupted: this call was cut off before its result was known."

HISTORY_SQL: Final = """
    SELECT turns.id, role, content, tool_calls, tool_call_id
    FROM turns JOIN messages ON messages.turn_id = turns.id
    WHERE turns.chat = ? AND turns.state IN ('answered', 'failed')
    ORDER BY turns.id DESC, messages.id DESC
    LIMIT ?
"""


@asynccontextmanager
async def open_store(
    path: Path, *, key: str | None = None, retention_days: int = 30
) -> AsyncIterator["ConversationStore"]:
    """Open or create the store, bring its schema up to date and keep its writer running.

    Args:
        path: the database file.
        key: encrypts it at rest; None leaves it plain.
        retention_days: messages older than this are deleted by `purge`; 0 keeps nothing of a
            turn once it has ended.

    Raises:
        StoreError: see `conversation_store.errors`.
    """
    async with open_database(path, key, prepare=migrate) as database:
        yield ConversationStore(database, retention_days=retention_days)


def backup(path: Path, key: str | None, target: Path) -> None:
    """Write a consistent copy of the store, under the same key. Blocks; see `copy_database`."""
    copy_database(path, key, target)


class ConversationStore:
    """Everything the bot remembers. Made by `open_store`; every write is on disk on return."""

    def __init__(self, database: Database, *, retention_days: int) -> None:
        self._database = database
        self._retention_days = retention_days

    async def accept(
        self, messages: Sequence[ReceivedMessage]
    ) -> tuple[AcceptedMessage | None, ...]:
        """Store messages that now owe an answer; None where one is a duplicate."""

        def insert(execute: Execute) -> tuple[AcceptedMessage | None, ...]:
            return tuple(_insert_message(execute, message) for message in messages)

        return await self._database.write(insert)

    def begin_turn(self, accepted: AcceptedMessage, content: str) -> Turn:
        """Begin the turn of a message that has none.

        Does not wait for the disk: writes keep their order, so nothing of the turn can be stored
        before its beginning.

        Args:
            accepted: the message to be answered.
            content: the user message as the model sees it.
        """
        turn = Turn(accepted.id, 1, (StoredMessage("user", content),))

        def insert(execute: Execute) -> None:
            execute(
                "INSERT INTO turns (id, chat, state, attempts, started_at)"
                " VALUES (?, ?, 'running', 1, ?)",
                (turn.id, accepted.message.chat, _now_ms()),
            )
            _insert_turn_message(execute, turn.id, turn.messages[0])

        self._database.write_later(insert)
        return turn

    async def resume_turn(self, accepted: AcceptedMessage) -> Turn:
        """Go on with the turn that a crash or a restart has left; counts one more attempt."""

        def resume(execute: Execute) -> Turn:
            ((attempts, progress_timestamp),) = execute(
                "UPDATE turns SET attempts = attempts + 1 WHERE id = ?"
                " RETURNING attempts, progress_timestamp",
                (accepted.id,),
            )
            messages = execute(
                "SELECT role, content, tool_calls, tool_call_id FROM messages"
                " WHERE turn_id = ? ORDER BY id",
                (accepted.id,),
            )
            stored = tuple(_stored_message(row) for row in messages)
            return Turn(accepted.id, attempts, stored, progress_timestamp)

        return await self._database.write(resume)

    async def history(self, chat: str, *, max_bytes: int) -> tuple[tuple[StoredMessage, ...], ...]:
        """Return the newest whole turns of a chat that fit, oldest first.

        Args:
            chat: the chat.
            max_bytes: UTF-8 bytes of contents and calls; a turn that does not fit ends it.
        """

        def select(execute: Execute) -> tuple[tuple[StoredMessage, ...], ...]:
            return _newest_turns(execute(HISTORY_SQL, (chat, MAX_HISTORY_ROWS)), max_bytes)

        return await self._database.read(select)

    async def has_result_with(self, chat: str, words: str) -> bool:
        """Whether any tool's result that is kept of a chat contains these words."""

        def select(execute: Execute) -> bool:
            rows = execute(
                "SELECT 1 FROM turns JOIN messages ON messages.turn_id = turns.id"
                " WHERE turns.chat = ? AND role = 'tool' AND instr(content, ?) LIMIT 1",
                (chat, words),
            )
            return next(iter(rows), None) is not None

        return await self._database.read(select)

    async def record_calls(
        self,
        turn_id: int,
        assistant: StoredMessage,
        exchanged: Sequence[NewExchange] = (),
    ) -> None:
        """Store that the model asks for calls, each as started, before any of them runs.

        Args:
            turn_id: the turn.
            assistant: the model's message.
            exchanged: the exchanges that it came from, where their signatures are to be checked.
        """

        def insert(execute: Execute) -> None:
            exchanges.add(execute, turn_id, exchanged)
            _insert_turn_message(execute, turn_id, assistant)
            for call in assistant.tool_calls:
                _insert_turn_message(
                    execute, turn_id, StoredMessage("tool", None, tool_call_id=call.id)
                )

        await self._database.write(insert)

    async def record_result(
        self, turn_id: int, tool_call_id: str, content: str, entry: AuditEntry
    ) -> None:
        """Store what a call came to, before the model sees it."""

        def update(execute: Execute) -> None:
            open_call = _open_call(execute, turn_id, tool_call_id)
            execute("UPDATE messages SET content = ? WHERE id = ?", (content, open_call))
            audit_log.append(execute, entry, open_call)

        await self._database.write(update)

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
            open_call = _open_call(execute, turn_id, tool_call_id)
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
                _close_inbox(execute, answer.id, "approval")
            return approvals.decide(execute, approval, state, by=by, now_ms=_now_ms())

        return await self._database.write(update)

    async def begin_allowed(self, turn_id: int, tool_call_id: str) -> None:
        """Store that a call that somebody has allowed runs now, so that it never does again."""

        def update(execute: Execute) -> None:
            open_call = _open_call(execute, turn_id, tool_call_id)
            if open_call is not None:
                approvals.begin(execute, open_call)

        await self._database.write(update)

    async def waiting_approvals(self) -> tuple[StoredApproval, ...]:
        """Return the questions that were sent and have no answer."""
        return await self._database.read(approvals.waiting)

    async def record_progress(self, turn_id: int, signal_timestamp: int) -> None:
        """Remember the turn's progress message, so that a restart edits it, not a second one."""

        def update(execute: Execute) -> None:
            execute(
                "UPDATE turns SET progress_timestamp = ? WHERE id = ?", (signal_timestamp, turn_id)
            )

        await self._database.write(update)

    async def finish_turn(
        self,
        turn: Turn,
        *,
        state: TurnState,
        answer: str,
        parts: Sequence[str],
        model: str,
        usage: TurnUsage,
        exchanged: Sequence[NewExchange] = (),
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
        """

        def finish(execute: Execute) -> tuple[OutgoingMessage, ...]:
            execute(
                "UPDATE messages SET content = ?"
                " WHERE turn_id = ? AND role = 'tool' AND content IS NULL",
                (INTERRUPTED, turn.id),
            )
            approvals.close_of_turn(execute, turn.id)
            exchanges.add(execute, turn.id, exchanged)
            _insert_turn_message(execute, turn.id, StoredMessage("assistant", answer))
            execute(
                "UPDATE turns SET state = ?, finished_at = ?, model = ?, requests = ?,"
                " prompt_tokens = ?, completion_tokens = ? WHERE id = ?",
                (
                    state,
                    _now_ms(),
                    model,
                    usage.requests,
                    usage.prompt_tokens,
                    usage.completion_tokens,
                    turn.id,
                ),
            )
            if self._retention_days == 0:
                execute("DELETE FROM turns WHERE id = ?", (turn.id,))
            return _answer(execute, turn.id, parts, state)

        return await self._database.write(finish)

    async def answer(
        self,
        accepted: AcceptedMessage,
        parts: Sequence[str],
        *,
        outcome: str,
        attachments: Sequence[StoredAttachment] = (),
    ) -> tuple[OutgoingMessage, ...]:
        """Answer a message otherwise than by its turn (a command, a notice), or with no words.

        A turn that a bug has ended is forgotten: half of it is no history.

        Args:
            accepted: the message.
            parts: the answer as it is sent.
            outcome: how the message ends.
            attachments: files that go with the first part.
        """

        def close(execute: Execute) -> tuple[OutgoingMessage, ...]:
            _abandon_turn(execute, accepted.id)
            return _answer(execute, accepted.id, parts, outcome, attachments)

        return await self._database.write(close)

    async def stop(self, inbox_ids: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, with what they began."""

        def close(execute: Execute) -> None:
            for inbox_id in inbox_ids:
                _abandon_turn(execute, inbox_id)
                _close_inbox(execute, inbox_id, "stopped")

        await self._database.write(close)

    async def clear(self, chat: str) -> int:
        """Forget a chat's history and return how many turns that were.

        With it go answers that could not be sent; one that is still to be sent stays until it is.
        """

        def delete(execute: Execute) -> int:
            outgoing.forget_given_up(execute, chat)
            sql = "DELETE FROM turns WHERE chat = ? AND state != 'running' RETURNING id"
            forgotten = [turn_id for (turn_id,) in execute(sql, (chat,))]
            for turn_id in forgotten:
                exchanges.forget_of_turn(execute, turn_id)
            return len(forgotten)

        return await self._database.write(delete)

    async def mark_sent(self, part: OutgoingMessage, signal_timestamp: int) -> None:
        """Mark a part as sent and forget what was in it; the history has the answer."""

        def update(execute: Execute) -> None:
            outgoing.mark_sent(execute, part.id, signal_timestamp)

        await self._database.write(update)

    async def mark_failed(self, part: OutgoingMessage, *, give_up: bool) -> None:
        """Count a failed attempt; a part that is given up keeps its text."""

        def update(execute: Execute) -> None:
            outgoing.mark_failed(execute, part.id, give_up=give_up)

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
            chats = execute("SELECT chat FROM inbox WHERE id = ?", (exchange.turn_id,))
            return tuple(
                outgoing.follow_up(
                    execute,
                    inbox_id=exchange.turn_id,
                    chat=chat,
                    text=warning,
                    now_ms=_now_ms(),
                )
                for (chat,) in list(chats)
            )

        return await self._database.write(settle)

    async def unfinished(self) -> UnfinishedWork:
        """Return what a start has to go on with."""

        def select(execute: Execute) -> UnfinishedWork:
            accepted = execute(
                "SELECT id, account, author, timestamp, kind, chat, body, received_at,"
                " EXISTS (SELECT 1 FROM turns WHERE turns.id = inbox.id)"
                " FROM inbox WHERE state = 'waiting' ORDER BY id"
            )
            return UnfinishedWork(
                outgoing=outgoing.waiting(execute),
                accepted=tuple(_accepted(row) for row in accepted),
            )

        return await self._database.read(select)

    async def purge(self, now_ms: int | None = None) -> int:
        """Delete what is older than the retention and return how many turns that were.

        Args:
            now_ms: the time that counts as now; None takes the clock.
        """
        now = _now_ms() if now_ms is None else now_ms
        before = now - self._retention_days * DAY_MS
        keys_before = now - max(self._retention_days, DUPLICATES_KNOWN_DAYS) * DAY_MS

        def delete(execute: Execute) -> int:
            old_turns = "DELETE FROM turns WHERE started_at < ? AND state != 'running' RETURNING id"
            deleted = len(list(execute(old_turns, (before,))))
            outgoing.purge(execute, before)
            exchanges.purge(execute)
            # The newest row stays, so that its number, which turn and answer share, is not given
            # out again.
            execute(
                "DELETE FROM inbox WHERE received_at < ? AND state = 'done'"
                " AND id < (SELECT max(id) FROM inbox)",
                (keys_before,),
            )
            audit_log.purge(execute, before)
            return deleted

        return await self._database.write(delete)

    async def ping(self) -> None:
        """Read from the database and commit an empty transaction.

        Raises:
            StoreError: the store cannot do its work.
        """
        await self._database.write(lambda execute: list(execute("SELECT 1")))


def _insert_message(execute: Execute, message: ReceivedMessage) -> AcceptedMessage | None:
    body = {
        "text": message.text,
        "author_number": message.author_number,
        "author_name": message.author_name,
        "sent_at": message.sent_at,
        "files": [asdict(file) for file in message.files],
        "quote": None if message.quote is None else asdict(message.quote),
    }
    rows = execute(
        "INSERT INTO inbox (account, author, timestamp, kind, chat, body, received_at, state)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, 'waiting') ON CONFLICT DO NOTHING RETURNING id",
        (
            message.account,
            message.author,
            message.timestamp,
            message.kind,
            message.chat,
            json.dumps(body, ensure_ascii=False),
            message.received_at,
        ),
    )
    for (inbox_id,) in rows:
        return AcceptedMessage(inbox_id, message)
    return None


def _accepted(row: Row) -> AcceptedMessage:
    inbox_id, account, author, timestamp, kind, chat, body, received_at, begun = row
    known = json.loads(body)
    message = ReceivedMessage(
        account=account,
        author=author,
        timestamp=timestamp,
        kind=ReceivedKind(kind),
        chat=chat,
        received_at=received_at,
        text=known["text"],
        author_number=known["author_number"],
        author_name=known["author_name"],
        sent_at=known.get("sent_at", received_at),
        files=tuple(ReceivedFile(**file) for file in known.get("files", ())),
        quote=ReceivedQuote(**known["quote"]) if known.get("quote") else None,
    )
    return AcceptedMessage(inbox_id, message, bool(begun))


def _insert_turn_message(execute: Execute, turn_id: int, message: StoredMessage) -> None:
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    execute(
        "INSERT INTO messages (turn_id, role, content, tool_calls, tool_call_id, created_at)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            turn_id,
            message.role,
            message.content,
            json.dumps(calls, ensure_ascii=False) if calls else None,
            message.tool_call_id,
            _now_ms(),
        ),
    )


def _open_call(execute: Execute, turn_id: int, tool_call_id: str) -> int | None:
    """Return the row of an open call: a careless endpoint may use an id again in a later round."""
    rows = execute(
        "SELECT id FROM messages WHERE turn_id = ? AND tool_call_id = ?"
        " AND role = 'tool' AND content IS NULL ORDER BY id LIMIT 1",
        (turn_id, tool_call_id),
    )
    return next((row_id for (row_id,) in rows), None)


def _stored_message(row: Row) -> StoredMessage:
    role, content, tool_calls, tool_call_id = row
    calls = tuple(StoredToolCall(**call) for call in json.loads(tool_calls or "[]"))
    return StoredMessage(role, content, calls, tool_call_id)


def _newest_turns(rows: Iterable[Row], max_bytes: int) -> tuple[tuple[StoredMessage, ...], ...]:
    """Collect whole turns from rows that run from the newest message to the oldest."""
    turns: list[tuple[StoredMessage, ...]] = []
    size = 0
    for _, newest_first in groupby(rows, key=itemgetter(0)):
        turn = [_stored_message(row[1:]) for row in newest_first]
        turn.reverse()
        size += sum(_size(message) for message in turn)
        # A turn opens with the person's message, unless the limit on rows has cut it.
        if size > max_bytes or turn[0].role != "user":
            break
        turns.append(tuple(turn))
    return tuple(reversed(turns))


def _size(message: StoredMessage) -> int:
    return len((message.content or "").encode()) + sum(
        len(call.name.encode()) + len(call.arguments.encode()) for call in message.tool_calls
    )


def _answer(
    execute: Execute,
    inbox_id: int,
    parts: Sequence[str],
    outcome: str,
    attachments: Sequence[StoredAttachment] = (),
) -> tuple[OutgoingMessage, ...]:
    ((chat,),) = execute("SELECT chat FROM inbox WHERE id = ?", (inbox_id,))
    _close_inbox(execute, inbox_id, outcome)
    return outgoing.answer(
        execute,
        inbox_id=inbox_id,
        chat=chat,
        parts=parts,
        attachments=attachments,
        now_ms=_now_ms(),
    )


def _abandon_turn(execute: Execute, turn_id: int) -> None:
    """End a turn without an answer of its own and forget what was said in it."""
    execute("DELETE FROM messages WHERE turn_id = ?", (turn_id,))
    exchanges.forget_of_turn(execute, turn_id)
    execute(
        "UPDATE turns SET state = 'stopped', finished_at = ? WHERE id = ?", (_now_ms(), turn_id)
    )


def _close_inbox(execute: Execute, inbox_id: int, outcome: str) -> None:
    execute(
        "UPDATE inbox SET state = 'done', body = NULL, outcome = ? WHERE id = ?",
        (outcome, inbox_id),
    )


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
