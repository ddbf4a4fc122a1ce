"""Answers that are retried, held back and given up; on a real store."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bot.backoff import Backoff
from bot.chat import outbox as outbox_module
from bot.chat.outbox import Outbox
from bot.signal.account import OwnIdentity
from bot.signal.errors import (
    SignalError,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from conversation_store.models import (
    Attachment,
    ChatId,
    OutgoingMessage,
    Quote,
    ReceivedMessage,
    TurnEnd,
)
from conversation_store.store import ConversationStore, open_store
from tests import exposition
from tests.fakes.partial_messenger import PartialMessenger

FAST: Final = Backoff(first_seconds=0.001, longest_seconds=0.002)


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try three times, with short pauses."""
    monkeypatch.setattr(outbox_module, "MAX_ATTEMPTS", 3)
    monkeypatch.setattr(outbox_module, "RETRY", FAST)
    for name in ("PAUSES", "LIMITED_PAUSES"):
        monkeypatch.setattr(outbox_module, name, (0.001, 0.002))
    names = ("RECEIPT_SECONDS", "PASSED_OVER_SECONDS", "PROOF_SECONDS", "RECONNECT_POLL_SECONDS")
    for name in names:
        monkeypatch.setattr(outbox_module, name, 0.001)


class ScriptedMessenger(PartialMessenger):
    """A Messenger whose sends go as they are told to."""

    def __init__(self, *troubles: SignalError) -> None:
        self.troubles = list(troubles)
        self.attempts: list[str] = []
        self.attempted = asyncio.Event()

    async def send(
        self,
        chat: ChatId,
        text: str,
        *,
        replaces: int | None = None,
        attachments: Sequence[Attachment] = (),
        **_: object,
    ) -> int:
        text += f" with {len(attachments)}" if attachments else ""
        self.attempts.append(text if replaces is None else f"{text} for {replaces}")
        self.attempted.set()
        self.stumble()
        return 1_000 + len(self.attempts)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        self.attempts.append(f"{emoji} on {timestamp}")
        if self.troubles:
            raise self.troubles.pop(0)

    async def delete(self, chat: ChatId, timestamp: int) -> None:
        self.attempts.append(f"delete {timestamp}")
        self.stumble()

    async def own_identity(self) -> OwnIdentity:
        raise SignalRejected("not here")


@asynccontextmanager
async def stored(
    folder: Path, *texts: str
) -> AsyncIterator[tuple[ConversationStore, tuple[OutgoingMessage, ...]]]:
    async with open_store(folder / "store.db") as store:
        (accepted,) = await store.messages.accept(
            [ReceivedMessage("+49", "a", 1, ChatId.parse("direct:a"), "q", 1)]
        )
        assert accepted is not None
        yield store, await store.turns.answer(accepted, texts, outcome="command")


@pytest.mark.parametrize(
    ("troubles", "attempts"),
    [
        ([], ["one", "two"]),
        ([SignalUnavailable("x"), SignalTimeout("x")], ["one", "one", "one", "two"]),
        ([SignalPassedOver("x")] * 5, ["one"] * 6 + ["two"]),
        ([SignalRejected("x")], ["one", "two"]),
    ],
    ids=["no trouble", "failed", "passed over, never given up", "refused"],
)
async def test_parts_are_sent_in_order_however_the_first_fares(
    tmp_path: Path, troubles: list[SignalError], attempts: list[str]
) -> None:
    messenger = ScriptedMessenger(*troubles)
    async with stored(tmp_path, "one", "two") as (store, parts):
        is_refused = any(isinstance(one, SignalRejected) for one in troubles)
        assert await Outbox(messenger, store).deliver(parts) is not is_refused
        assert messenger.attempts == attempts
        assert await store.outbox.unfinished() == ()


@pytest.mark.parametrize(
    ("text", "troubles", "attempts"),
    [
        ("new words", [SignalRejected("x")], ["new words for 7", "new words"]),
        ("", [], ["delete 7"]),
        ("", [SignalRejected("x")], ["delete 7"]),
    ],
    ids=["refused edit is a new message", "no text deletes", "refused deletion is given up"],
)
async def test_part_replaces_an_earlier_message(
    tmp_path: Path, text: str, troubles: list[SignalError], attempts: list[str]
) -> None:
    async with stored(tmp_path, "old") as (store, (part,)):
        messenger = ScriptedMessenger(*troubles)
        await Outbox(messenger, store).deliver((replace(part, text=text, replaces=7),))
        assert messenger.attempts == attempts
        assert await store.outbox.unfinished() == ()


@pytest.mark.parametrize(
    ("troubles", "attempts", "is_sent"),
    [
        ([], 1, True),
        ([SignalTimeout("x"), SignalUnavailable("x")], 3, True),
        ([SignalRejected("x")], 1, False),
    ],
    ids=["no trouble", "in doubt, sent again", "refused"],
)
async def test_reaction_is_sent_again_and_never_becomes_words(
    tmp_path: Path, troubles: list[SignalError], attempts: int, is_sent: bool
) -> None:
    messenger = ScriptedMessenger(*troubles)
    asked = ReceivedMessage("+49", "ada", 7, ChatId.parse("direct:ada"), "thanks", 1)
    async with open_store(tmp_path / "store.db") as store:
        (accepted,) = await store.messages.accept([asked])
        assert accepted is not None
        turn, end = store.turns.begin([accepted], "thanks"), TurnEnd("answered", "", reaction="👍")
        parts = await store.turns.finish(turn, end, (), quote=Quote(7, "ada", "thanks"))
        assert parts == await store.outbox.unfinished()
        assert await Outbox(messenger, store).deliver(parts, just_stored=True) is is_sent
        assert messenger.attempts == ["👍 on 7"] * attempts
        assert await store.outbox.unfinished() == ()


async def test_reaction_to_a_message_that_has_disappeared_is_withdrawn(tmp_path: Path) -> None:
    messenger = ScriptedMessenger()
    async with stored(tmp_path, "👍") as (store, (part,)):
        assert not await Outbox(messenger, store).deliver((replace(part, is_reaction=True),))
        assert messenger.attempts == []


async def test_file_is_made_once_and_sent_with_its_message(tmp_path: Path) -> None:
    messenger = ScriptedMessenger(SignalUnavailable("x"), SignalUnavailable("x"))
    sources: list[str] = []

    async def make(source: str) -> Attachment | None:
        sources.append(source)
        return Attachment("table.png", "image/png", b"png") if len(sources) == 1 else None

    async with stored(tmp_path, "one", "two", "") as (store, parts):
        outbox = Outbox(messenger, store, make_file=make)
        with_files = [replace(part, unmade=f"source of {part.text}") for part in parts]
        assert not await outbox.deliver(with_files)
        assert sources == ["source of one", "source of two", "source of "]
        assert messenger.attempts == ["one with 1"] * 3 + ["two"]
        assert await store.outbox.unfinished() == ()


async def test_part_is_given_up_after_too_many_attempts_and_the_next_is_sent(
    tmp_path: Path,
) -> None:
    messenger = ScriptedMessenger(*(SignalUnavailable("x") for _ in range(3)))
    given_up = exposition.now().value("messages_given_up_total")
    async with stored(tmp_path, "one", "two") as (store, parts):
        assert not await Outbox(messenger, store).deliver(parts)
        assert messenger.attempts == ["one"] * 3 + ["two"]
        assert await store.outbox.unfinished() == ()
    assert exposition.now().value("messages_given_up_total") == given_up + 1


async def test_outbox_waits_for_a_connection_without_counting_attempts(tmp_path: Path) -> None:
    messenger = ScriptedMessenger()
    messenger.connected = False
    async with stored(tmp_path, "one") as (store, parts), asyncio.TaskGroup() as tasks:
        delivering = tasks.create_task(Outbox(messenger, store).deliver(parts))
        for _ in range(20):
            await store.upkeep.ping()
        assert messenger.attempts == []
        assert not delivering.done()
        messenger.connected = True
        await delivering
        assert messenger.attempts == ["one"]


async def test_sends_in_doubt_are_counted_across_restarts(tmp_path: Path) -> None:
    async with stored(tmp_path, "one") as (store, (part,)):
        await store.outbox.mark_failed(part, give_up=False)
        await store.outbox.mark_failed(part, give_up=False)
        (again,) = await store.outbox.unfinished()
        messenger = ScriptedMessenger(SignalTimeout("x"))
        await Outbox(messenger, store).deliver((again,))
        assert messenger.attempts == ["one"]
        assert await store.outbox.unfinished() == ()


async def test_rate_limit_of_a_chat_delays_no_other_chat(tmp_path: Path) -> None:
    messenger = ScriptedMessenger(SignalRateLimited(retry_after_seconds=3_600.0))
    async with stored(tmp_path, "one", "two") as (store, (one, two)):
        outbox_module.LIMITED_PAUSES = (3_600.0, 3_600.0)  # type: ignore[misc]
        outbox = Outbox(messenger, store)
        first = asyncio.create_task(outbox.deliver((one,)))
        await messenger.attempted.wait()
        assert await outbox.deliver((two,))
        assert messenger.attempts == ["one", "two"]
        first.cancel()


async def test_untrusted_key_in_a_group_is_retried_and_delays_nobody(tmp_path: Path) -> None:
    async with stored(tmp_path, "one", "two") as (store, parts):
        messenger = ScriptedMessenger(SignalUntrusted("x"))
        outbox = Outbox(messenger, store)
        await outbox.deliver([replace(part, chat=ChatId.parse("group:dGVhbQ==")) for part in parts])
        assert messenger.attempts == ["one", "one", "two"]
        assert outbox.untrusted.empty()


async def test_messages_to_an_untrusted_key_wait_in_order(tmp_path: Path) -> None:
    async with stored(tmp_path, "one", "two") as (store, parts):
        messenger = ScriptedMessenger(SignalUntrusted("x"))
        outbox = Outbox(messenger, store)
        await outbox.deliver(parts)
        assert messenger.attempts == ["one"]
        assert outbox.untrusted.get_nowait() == parts[0].chat
        assert await store.outbox.unfinished() == parts
        await outbox.deliver(outbox.take_back(parts[0].chat))
        assert messenger.attempts == ["one", "one", "two"]
        assert await store.outbox.unfinished() == ()


async def test_delivering_no_parts_reports_nothing_sent(tmp_path: Path) -> None:
    async with stored(tmp_path) as (store, parts):
        assert parts == ()
        assert not await Outbox(ScriptedMessenger(), store).deliver(parts)
