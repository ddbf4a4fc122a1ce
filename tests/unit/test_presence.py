"""Signs of life: typing, reactions and read receipts on a phone, and their times."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

from bot.chat.presence import (
    MAX_CHATS,
    MAX_IN_FLIGHT,
    SIGN_SECONDS,
    TYPING_AFTER_SECONDS,
    Presence,
    TypingTurn,
)
from bot.chat.presence import (
    TYPING_AGAIN_SECONDS as AGAIN,
)
from bot.chat.presence import (
    TYPING_REFRESH_SECONDS as REFRESH,
)
from bot.signal.errors import SignalUnavailable
from conversation_store.models import ChatId
from tests.fakes.partial_messenger import PartialMessenger
from tests.skipped_waits import without_waiting

ADA: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
CHAT: Final = ChatId.direct(ADA)
GROUP: Final = ChatId.group("Z3JvdXA=")
TIMESTAMP: Final = 1795291728387

Sign = tuple[object, ...]


class Phones(PartialMessenger):
    """Messenger that records the signs on phones, with the second of each."""

    def __init__(self) -> None:
        self.given: list[tuple[float, Sign]] = []
        self.begun = 0
        self.takes_seconds = 0.0
        self.away = False

    @property
    def signs(self) -> list[Sign]:
        return [sign for _, sign in self.given]

    async def show_typing(self, chat: ChatId, *, stop: bool = False) -> None:
        await self._show("still" if stop else "typing", chat)

    async def react(self, chat: ChatId, emoji: str, *, author: str, timestamp: int) -> None:
        await self._show(emoji, chat, author, timestamp)

    async def mark_read(self, person: str, timestamps: Sequence[int]) -> None:
        await self._show("read", person, *timestamps)

    async def _show(self, *sign: object) -> None:
        self.begun += 1
        await asyncio.sleep(self.takes_seconds)
        if self.away:
            raise SignalUnavailable("away")
        self.given.append((asyncio.get_running_loop().time(), sign))


async def everywhere(_: ChatId) -> bool:
    return True


async def nowhere(_: ChatId) -> bool:
    return False


@asynccontextmanager
async def presence_on(
    phones: Phones,
    *,
    ack_reaction: str | None = None,
    read_receipts: bool = False,
    may_write: Callable[[ChatId], Awaitable[bool]] = everywhere,
) -> AsyncIterator[Presence]:
    async with asyncio.TaskGroup() as tasks:
        yield Presence(
            phones,
            may_write=may_write,
            ack_reaction=ack_reaction,
            read_receipts=read_receipts,
            tasks=tasks,
        )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Show typing as soon as a turn begins."""
    monkeypatch.setattr("bot.chat.presence.TYPING_AFTER_SECONDS", 0.0)


@pytest.fixture
def after_a_moment(at_once: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Show typing once a turn takes longer than a moment."""
    monkeypatch.setattr("bot.chat.presence.TYPING_AFTER_SECONDS", TYPING_AFTER_SECONDS)


@pytest.mark.usefixtures("after_a_moment")
@pytest.mark.parametrize(
    ("seconds", "given"),
    [
        (TYPING_AFTER_SECONDS / 2, []),
        (2 + TYPING_AFTER_SECONDS, [(TYPING_AFTER_SECONDS, ("typing", CHAT))]),
    ],
)
@without_waiting
async def test_typing_is_shown_only_when_an_answer_takes_a_moment(
    seconds: float, given: list[tuple[float, Sign]]
) -> None:
    phones = Phones()
    async with presence_on(phones) as presence, presence.typing(CHAT) as turn:
        await asyncio.sleep(seconds)
        turn.answered = True
    assert phones.given == given


@without_waiting
async def test_only_the_author_sees_a_sign_in_a_group_where_the_bot_may_not_write() -> None:
    phones = Phones()
    async with presence_on(
        phones, ack_reaction="👀", read_receipts=True, may_write=nowhere
    ) as presence:
        presence.noticed(GROUP, ADA, TIMESTAMP, received_at=TIMESTAMP)
        async with presence.typing(GROUP):
            await asyncio.sleep(1)
    assert phones.signs == [("read", ADA, TIMESTAMP)]


CHATS: Final = {"chat": CHAT, "group": GROUP}


async def play(script: str, phones: Phones) -> None:
    """Play a script: "begin 1 chat, 5, answer 1" is a turn that is answered after 5 seconds."""
    turns: dict[str, tuple[AsyncExitStack, TypingTurn]] = {}
    async with presence_on(phones) as presence:
        for step in script.split(", "):
            match step.split():
                case ["noticed", chat]:
                    presence.noticed(CHATS[chat], ADA, TIMESTAMP, received_at=TIMESTAMP)
                case ["begin", name, chat]:
                    stack = AsyncExitStack()
                    turns[name] = (
                        stack,
                        await stack.enter_async_context(presence.typing(CHATS[chat])),
                    )
                case ["answer" | "leave" as end, name]:
                    stack, turn = turns[name]
                    turn.answered = end == "answer"
                    await stack.aclose()
                case ["message", chat]:
                    presence.message_sent(CHATS[chat])
                case ["slow", seconds]:
                    phones.takes_seconds = float(seconds)
                case ["away" | "back" as where]:
                    phones.away = where == "away"
                case [seconds]:
                    await asyncio.sleep(float(seconds))


@pytest.mark.parametrize(
    ("script", "given"),
    [
        ("begin 1 chat, 25, answer 1", [(0, "typing"), (10, "typing"), (20, "typing")]),
        ("begin 1 chat, 3, leave 1", [(0, "typing"), (3, "still")]),
        ("message chat, noticed chat, noticed chat, 60", [(0, "typing")]),
        (
            "begin 1 chat, begin 2 group, begin 3 chat, 5, leave 3, 1, answer 2, leave 1",
            [(0, "typing"), (0, "typing in group"), (6, "still")],
        ),
        (
            "begin 1 chat, begin 2 chat, 2, answer 2, 3, answer 1, begin 3 chat, 2, answer 3",
            [(0, "typing"), (2 + AGAIN, "typing"), (5 + AGAIN, "typing")],
        ),
        (
            "begin 1 chat, 4, message chat, message chat, 8, message chat, 0.1, answer 1",
            [(0, "typing"), (4 + AGAIN, "typing")],
        ),
        ("slow 2, begin 1 chat, 1, answer 1", [(2, "typing"), (4, "still")]),
        (
            "slow 2, begin 1 chat, 3, leave 1, 1, begin 2 chat, 5, answer 2",
            [(2, "typing"), (5, "still"), (7, "typing")],
        ),
        ("away, begin 1 chat, 5, back, 10, answer 1", [(REFRESH, "typing")]),
    ],
)
@without_waiting
async def test_typing_follows_the_turns_of_a_chat(
    script: str, given: list[tuple[float, str]]
) -> None:
    phones = Phones()
    await play(script, phones)
    shown = [(at, f"{sign}{' in group' * (chat == GROUP)}") for at, (sign, chat) in phones.given]
    assert shown == given


@without_waiting
async def test_a_message_is_noticed_before_its_turn_begins() -> None:
    phones = Phones()
    async with presence_on(phones, ack_reaction="👀", read_receipts=True) as presence:
        presence.noticed(GROUP, ADA, TIMESTAMP, received_at=TIMESTAMP)
        await asyncio.sleep(1.5)
        async with presence.typing(GROUP) as turn:
            await asyncio.sleep(10)
            turn.answered = True
    assert phones.given == [
        (0, ("👀", GROUP, ADA, TIMESTAMP)),
        (0, ("read", ADA, TIMESTAMP)),
        (0, ("typing", GROUP)),
        (REFRESH, ("typing", GROUP)),
    ]


@without_waiting
async def test_hanging_signal_side_does_not_delay_a_turn() -> None:
    for phones in (hanging(), away()):
        clock = asyncio.get_running_loop().time
        async with presence_on(phones, ack_reaction="👀", read_receipts=True) as presence:
            began = clock()
            presence.noticed(CHAT, ADA, TIMESTAMP, received_at=TIMESTAMP)
            async with presence.typing(CHAT) as turn:
                turn.answered = True
            assert clock() == began
        assert phones.given == []
        assert clock() - began <= 2 * SIGN_SECONDS


@without_waiting
async def test_signs_above_the_limit_are_dropped() -> None:
    phones = hanging()
    async with presence_on(phones, ack_reaction="👀") as presence:
        for number in range(3 * MAX_CHATS):
            chat = ChatId.direct(f"person-{number}")
            presence.noticed(chat, chat.value, TIMESTAMP, received_at=TIMESTAMP)
        await asyncio.sleep(SIGN_SECONDS / 2)
        assert phones.begun == MAX_IN_FLIGHT
        phones.takes_seconds = 0
        await asyncio.sleep(SIGN_SECONDS)
        presence.noticed(CHAT, ADA, TIMESTAMP, received_at=TIMESTAMP)
    assert phones.signs == [("👀", CHAT, ADA, TIMESTAMP)]


@without_waiting
async def test_cancelled_presence_shows_nothing_and_delays_nothing() -> None:
    phones = hanging()
    clock = asyncio.get_running_loop().time
    async with presence_on(phones, ack_reaction="👀") as presence:
        async with presence.typing(CHAT):
            presence.noticed(CHAT, ADA, TIMESTAMP, received_at=TIMESTAMP)
            await asyncio.sleep(1)
            presence.cancel()
        presence.noticed(GROUP, ADA, TIMESTAMP, received_at=TIMESTAMP)
        async with presence.typing(GROUP):
            pass
    assert clock() == 1
    assert phones.given == []


def hanging() -> Phones:
    phones = Phones()
    phones.takes_seconds = 1_000
    return phones


def away() -> Phones:
    phones = Phones()
    phones.away = True
    return phones
