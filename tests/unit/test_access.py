"""Access: policies, message requests, the limit on bots that answer each other."""

import asyncio
from pathlib import Path
from typing import Literal

import pytest

from bot.chat.access import (
    MAX_PEOPLE,
    MAX_TURNS,
    PAUSE_SECONDS,
    SILENCE_SECONDS,
    Access,
    LoopGuard,
)
from bot.chat.door import MAX_IN_FLIGHT, MessageRequests
from bot.chat.outbox import Notices, Outbox
from bot.config.settings import AccessSettings
from bot.language.languages import Languages
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout, SignalUnavailable
from bot.signal.events import Person
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore
from tests.fakes.clock import Clock
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import store_at

ADA = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")
BEN = "0d1e2f30-0000-4000-8000-00000000000b"
CHAT = ChatId.direct(ADA.aci)
GROUP = ChatId.group("g")

Policy = Literal["open", "allowlist", "pairing"]


def access(
    policy: Policy,
    *,
    allowed: frozenset[str] = frozenset(),
    admins: frozenset[str] = frozenset(),
) -> Access:
    return Access(AccessSettings(policy=policy, allowed=allowed, admins=admins))


def test_number_makes_an_admin_only_if_signal_tells_it() -> None:
    by_number = access("pairing", admins=frozenset({"+15550100001"}))
    assert by_number.is_admin(ADA)
    hidden = Person(aci=ADA.aci)
    assert not by_number.is_admin(hidden)
    assert access("pairing", admins=frozenset({ADA.aci})).is_admin(hidden)


class Channel(PartialMessenger):
    """Signal side on which each request waits in `asked` until it is answered."""

    def __init__(self) -> None:
        self.asked: asyncio.Queue[tuple[str, asyncio.Future[None]]] = asyncio.Queue()

    async def accept_request(self, person: str) -> None:
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        await self.asked.put((person, answer))
        await answer

    async def answer(self, error: SignalError | None = None) -> str:
        """Answer the next request and return its person."""
        person, answer = await self.asked.get()
        if error is None:
            answer.set_result(None)
        else:
            answer.set_exception(error)
        return person


async def settled() -> None:
    """Return when the group's tasks have done what they can do now."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_request_is_accepted_once_for_each_person() -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        for person in (ADA.aci, ADA.aci, BEN, ADA.aci):
            requests.accept(person)
        assert [await channel.answer(), await channel.answer()] == [ADA.aci, BEN]
        requests.accept(ADA.aci)
    assert channel.asked.empty()


async def test_request_is_accepted_with_the_next_message_after_a_lost_connection() -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        requests.accept(ADA.aci)
        await channel.answer(SignalUnavailable("gone"))
        await settled()
        requests.accept(ADA.aci)
        assert await channel.answer() == ADA.aci


@pytest.mark.parametrize("error", [SignalRejected("cannot"), SignalTimeout("late")])
async def test_refused_request_is_not_repeated(error: SignalError) -> None:
    channel = Channel()
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        requests.accept(ADA.aci)
        await channel.answer(error)
        await settled()
        requests.accept(ADA.aci)
    assert channel.asked.empty()


async def test_requests_above_the_limit_wait_for_the_next_message() -> None:
    channel = Channel()
    people = [str(number) for number in range(MAX_IN_FLIGHT + 1)]
    async with asyncio.TaskGroup() as tasks:
        requests = MessageRequests(channel, tasks)
        for person in people:
            requests.accept(person)
        assert [await channel.answer() for _ in range(MAX_IN_FLIGHT)] == people[:-1]
        await settled()
        assert channel.asked.empty()
        requests.accept(people[-1])
        assert await channel.answer() == people[-1]


class Conversation:
    """Conversation in which the bot answers every message that it may."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.guard = LoopGuard(clock=self.clock)

    def write(
        self, *, after: float = 0.5, author: str = ADA.aci, chat: ChatId = CHAT
    ) -> str | None:
        self.clock.now += after
        refusal = self.guard.refusal(chat, author)
        if refusal is None:
            self.guard.answered(chat, author)
        return refusal

    def until_silence(self, *, after: float = 0.5) -> tuple[int, str]:
        """Write until the bot falls silent; return the number of answers, and its notice."""
        for answered in range(10 * MAX_TURNS):
            if notice := self.write(after=after):
                return answered, notice
        raise AssertionError("never silenced")


def test_bot_falls_silent_after_too_many_turns_without_a_pause() -> None:
    for seconds in (0.1, 5.0, PAUSE_SECONDS - 1):
        talk = Conversation()
        answered, notice = talk.until_silence(after=seconds)
        assert answered == MAX_TURNS
        assert notice == (
            "This looks like two bots talking to each other. I will not answer you here for 10"
            " minutes. If you are a person, send !help, and I go on at once."
        )
        assert {talk.write() for _ in range(50)} == {""}


def test_pause_starts_the_count_again() -> None:
    talk = Conversation()
    for number in range(5 * MAX_TURNS):
        after = PAUSE_SECONDS if number % (MAX_TURNS - 1) == 0 else 1.0
        assert talk.write(after=after) is None


def test_silence_ends_after_ten_minutes() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=SILENCE_SECONDS - 1) == ""
    assert talk.write(after=2.0) is None


def test_command_ends_the_silence() -> None:
    talk = Conversation()
    for _ in range(2):
        talk.until_silence()
        assert talk.write(after=5.0) == ""
        talk.guard.release(CHAT, ADA.aci)
        assert talk.write(after=5.0) is None


def test_messages_before_an_answer_do_not_count() -> None:
    talk = Conversation()
    talk.write()
    for _ in range(10 * MAX_TURNS):
        assert talk.guard.refusal(CHAT, ADA.aci) is None


def test_guard_counts_each_member_of_a_group_separately() -> None:
    talk = Conversation()
    for number in range(5 * MAX_TURNS):
        assert talk.write(author=f"person-{number % 10}", chat=GROUP) is None


def test_silence_holds_for_one_person_in_one_chat() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write() == ""
    assert talk.write(author="ben") is None
    assert talk.write(chat=GROUP) is None


def test_guard_forgets_the_longest_silent_person_when_full() -> None:
    talk = Conversation()
    talk.until_silence()
    for number in range(MAX_PEOPLE - 1):
        talk.write(after=0.0, author=str(number))
    assert talk.write() == ""
    for number in range(MAX_PEOPLE):
        talk.write(after=0.0, author=f"another {number}")
    assert talk.write() is None


def notices(store: ConversationStore, admins: frozenset[str] = frozenset()) -> Notices:
    outbox = Outbox(PartialMessenger(), store)
    return Notices(outbox, Languages(store), access("open", admins=admins))


async def test_every_admin_is_told_in_private_by_number_or_aci(tmp_path: Path) -> None:
    async with store_at(tmp_path) as store:
        here = notices(store, frozenset({"+4915112345678", BEN}))
        await here.to_admins("news")
        sent = [here.waiting.get_nowait() for _ in range(here.waiting.qsize())]
    assert [(note.chat, note.text) for note in sent] == [
        ("direct:+4915112345678", "news"),
        (f"direct:{BEN}", "news"),
    ]
