"""Writes for tests of the store, and queries for the rest after a deletion."""

import time
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import apsw

from conversation_store.models import (
    AcceptedMessage,
    AuditEntry,
    ChatId,
    EditOutcome,
    Message,
    OutgoingMessage,
    QuestionTerms,
    ReceivedMessage,
    Role,
    StoredTurn,
    StyledText,
    ToolCall,
    TurnEnd,
)
from conversation_store.store import ConversationStore, open_store

ACCOUNT = "+4915100000000"
ADA = ChatId.parse("direct:ada")
GROUP = ChatId.parse("group:g")
CALL = ToolCall("call_1", "calculate", '{"expression": "127*43"}')
MAY_RUN = QuestionTerms("call", "ada", fingerprint="f")
TEN_MINUTES_MS = 600_000


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def store_at(
    folder: Path, *, retention_days: int = 30
) -> AbstractAsyncContextManager[ConversationStore]:
    return open_store(folder / "store.db", retention_days=retention_days)


def received(
    timestamp: int, text: str = "hello", chat: ChatId = ADA, *, author: str = "ada", **more: Any
) -> ReceivedMessage:
    more.setdefault("received_at", now_ms())
    return ReceivedMessage(ACCOUNT, author, timestamp, chat, text, author_name="Ada", **more)


def edit_of(
    target: int, timestamp: int, text: str, chat: ChatId = ADA, *, author: str = "ada", **more: Any
) -> ReceivedMessage:
    return received(
        timestamp,
        text,
        chat,
        author=author,
        kind="edit",
        target_author=author,
        target_timestamp=target,
        **more,
    )


def deletion_of(
    target: int, timestamp: int, chat: ChatId = ADA, *, author: str = "ada", of: str | None = None
) -> ReceivedMessage:
    return received(
        timestamp,
        "",
        chat,
        author=author,
        kind="deletion",
        target_author=of or author,
        target_timestamp=target,
    )


async def accept(store: ConversationStore, message: ReceivedMessage) -> AcceptedMessage:
    (accepted,) = await store.messages.accept([message])
    assert accepted is not None
    return accepted


async def begin(
    store: ConversationStore, message: ReceivedMessage, words: str = "", **more: Any
) -> StoredTurn:
    """Accept a message and begin its turn."""
    accepted = await accept(store, message)
    return store.turns.begin([accepted], words or message.text, **more)


async def forget(
    store: ConversationStore, target: int, timestamp: int, chat: ChatId = ADA, **more: Any
) -> tuple[int, ...]:
    """Delete a message, and return the rows that owed an answer."""
    deletion = await accept(store, deletion_of(target, timestamp, chat, **more))
    return (await store.changes.forget(deletion))[0]


async def settle(
    store: ConversationStore, message: ReceivedMessage, *, within_ms: int = TEN_MINUTES_MS
) -> tuple[EditOutcome, AcceptedMessage]:
    """Accept an edit, and find out what it is about."""
    accepted = await accept(store, message)
    return await store.changes.settle_edit(accepted, answered_within_ms=within_ms)


async def finish(
    store: ConversationStore,
    turn: StoredTurn,
    parts: Sequence[str | StyledText] = ("a",),
    **more: Any,
) -> tuple[OutgoingMessage, ...]:
    said = " ".join(part if isinstance(part, str) else part.text for part in parts)
    shown = {name: more.pop(name) for name in ("quote", "replaces", "to_make") if name in more}
    ended = TurnEnd("answered", said, **more)
    return await store.turns.finish(turn, ended, parts, **shown)


async def answer(
    store: ConversationStore,
    message: ReceivedMessage,
    parts: Sequence[str | StyledText] = ("a",),
    *,
    sent_at: int = 9_000,
) -> AcceptedMessage:
    """Accept a message, answer it in a turn, and mark the parts as sent from `sent_at` on."""
    accepted = await accept(store, message)
    await mark(
        store, await finish(store, store.turns.begin([accepted], message.text), parts), sent_at
    )
    return accepted


async def mark(store: ConversationStore, parts: Sequence[OutgoingMessage], sent_at: int) -> None:
    for number, part in enumerate(parts):
        await store.outbox.mark_sent(part, sent_at + number)


async def call(store: ConversationStore, turn: StoredTurn, result: str, **more: Any) -> None:
    """Record a turn's call of a tool and its result."""
    await store.turns.record_calls(turn.id, Message(Role.ASSISTANT, None, (CALL,)))
    entry = AuditEntry(1, ADA, "ada", turn.id, "calculate", "00" * 32, "ok", 3)
    await store.turns.record_result(CALL.id, result, entry, **more)


async def questions(store: ConversationStore, chat: ChatId = ADA) -> list[str | None]:
    """Return people's messages in the history of a chat."""
    return [
        turn[0].content for turn in (await store.turns.history(chat, max_bytes=1_000_000)).turns
    ]


async def waiting(store: ConversationStore) -> list[int]:
    return [accepted.id for accepted in await store.messages.unfinished()]


def rows(folder: Path, sql: str) -> list[Any]:
    """Return the rows of a query, also while the store is open.

    Uses the store's own SQLite: a second copy of it in this process would break its locks.
    """
    database = apsw.Connection(str(folder / "store.db"))
    try:
        return database.execute(sql).fetchall()
    finally:
        database.close()


def is_left(folder: Path, words: str) -> bool:
    """Whether the raw files of the store hold words anywhere, also where SQLite looks no more."""
    return any(words.encode() in path.read_bytes() for path in sorted(folder.glob("store.db*")))
