"""New keys of people: notes to admins, trust and waiting messages under each policy."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import pytest
from structlog.testing import capture_logs

from bot.backoff import Backoff
from bot.chat.access import Access
from bot.chat.door import (
    CANNOT_TELL,
    MAX_SENT_ANYWAY,
    MAX_WAITING_KEYS,
    ONLY_VERIFIED,
    OPERATOR_KNOWS,
    TOLD_AGAIN_SECONDS,
    VERIFIED_SECONDS,
    WAITING_SECONDS,
    Identities,
)
from bot.chat.groups import RetryUntil
from bot.chat.outbox import Notices, Outbox
from bot.config.settings import AccessSettings
from bot.language.languages import Languages
from bot.signal.account import PeerIdentity, TrustLevel
from bot.signal.errors import SignalError, SignalRejected, SignalUnavailable
from bot.signal.events import Person
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.store import ConversationStore
from tests.fakes.clock import Clock
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import store_at

ADA = Person("7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", "+15550100001", "Ada")
ADMIN, ADMINS_CHAT, ADAS_CHAT = "boss", "direct:boss", f"direct:{ADA.aci}"
FIRST, SECOND = "12345" * 12, "67890" * 12
QUICK = RetryUntil(seconds=0.05, backoff=Backoff(first_seconds=0.001, longest_seconds=0.002))

Policy = Literal["tofu", "always", "verified"]


@dataclass
class KeyRing(PartialMessenger):
    """Knows the keys of people, unless it has troubles first."""

    identities: dict[str, PeerIdentity] = field(default_factory=dict)
    trusted: list[tuple[str, str | None]] = field(default_factory=list)
    troubles: list[SignalError] = field(default_factory=list)
    refuses_trust: bool = False
    meanwhile: Callable[[], Awaitable[None]] | None = None
    asked: int = 0

    def set(self, person: Person, trust: TrustLevel, number: str = FIRST) -> None:
        self.identities[person.aci] = PeerIdentity(person.aci, trust, number)

    async def peer_identity(self, person: str) -> PeerIdentity | None:
        self.asked += 1
        self.stumble()
        identity = self.identities.get(person)
        if self.meanwhile is not None:
            await self.meanwhile()
        return identity

    async def trust(self, person: str, *, safety_number: str | None) -> None:
        self.stumble()
        known = self.identities[person]
        if self.refuses_trust or safety_number not in {None, known.safety_number}:
            raise SignalRejected("another safety number")
        level = TrustLevel.UNVERIFIED if safety_number is None else TrustLevel.VERIFIED
        self.identities[person] = replace(known, trust=level)
        self.trusted.append((person, safety_number))


class Aside(Outbox):
    """An outbox with nothing put aside; `released` holds the people whom it may send to again."""

    def __init__(self, store: ConversationStore) -> None:
        super().__init__(PartialMessenger(), store)
        self.released: list[str] = []

    def take_back(self, chat: ChatId) -> tuple[OutgoingMessage, ...]:
        self.released.append(chat.value)
        return ()


@dataclass
class House:
    identities: Identities
    keys: KeyRing
    notices: Notices
    clock: Clock
    released: list[str]
    notes: list[OutgoingMessage] = field(default_factory=list)

    async def new_key(self, number: str = FIRST) -> None:
        self.keys.set(ADA, TrustLevel.UNTRUSTED, number)
        await self.identities.changed(ADA)

    async def told(self, chat: str = ADMINS_CHAT) -> list[str]:
        while not self.notices.waiting.empty():
            self.notes.append(self.notices.waiting.get_nowait())
        return [note.text for note in self.notes if note.chat == chat]

    async def code(self) -> str:
        found = re.search(r"!trust ([A-Z0-9]{6})\n", (await self.told())[-1])
        assert found is not None
        return found[1]


@asynccontextmanager
async def house(
    folder: Path,
    policy: Policy,
    *,
    keys: KeyRing | None = None,
    admins: frozenset[str] = frozenset({ADMIN}),
) -> AsyncIterator[House]:
    keys, clock = keys or KeyRing(), Clock()
    async with store_at(folder) as store:
        outbox = Aside(store)
        access = Access(AccessSettings.model_construct(policy="open", admins=admins))
        notices = Notices(outbox, Languages(store), access)
        identities = Identities(keys, store, notices, policy=policy, retry=QUICK, clock=clock)
        await identities.resume()
        yield House(identities, keys, notices, clock, outbox.released)


@pytest.mark.parametrize(
    ("person", "called"),
    [
        (ADA, "Ada (+15550100001) has"),
        (replace(ADA, name=None), "+15550100001 has"),
        (Person(ADA.aci), "7f3c1a52 has"),
        (replace(ADA, name="A" * 500), "A" * 60 + " (+15550100001) has"),
    ],
)
async def test_a_note_names_the_person_as_well_as_it_can(
    tmp_path: Path, person: Person, called: str
) -> None:
    async with house(tmp_path, "tofu") as here:
        here.keys.set(person, TrustLevel.UNTRUSTED)
        await here.identities.changed(person)
        assert (await here.told())[0].startswith(called)


async def test_a_code_is_valid_only_for_its_own_key(tmp_path: Path) -> None:
    async with house(tmp_path, "tofu") as here:
        await here.new_key()
        old_code = await here.code()
        here.keys.set(ADA, TrustLevel.UNTRUSTED, SECOND)
        with pytest.raises(SignalRejected):
            await here.identities.trust(old_code)
        assert here.keys.trusted == []
        assert "67890 67890" in (await here.told())[1]
        assert await here.identities.trust(old_code) is None
        assert await here.identities.trust(await here.code()) == "Ada (+15550100001)"


async def test_after_a_week_the_code_is_void_and_the_next_sign_makes_a_new_note(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, "tofu") as here:
        await here.new_key()
        code = await here.code()
        here.clock.now += WAITING_SECONDS
        assert await here.identities.trust(code) is None
        await here.identities.changed(ADA)
        assert await here.code() != code


async def test_a_signal_side_that_does_not_trust_changes_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, "tofu") as here:
        await here.new_key()
        here.keys.troubles = [SignalUnavailable("x")]
        with pytest.raises(SignalUnavailable):
            await here.identities.trust(await here.code())
        assert here.released == []
        assert await here.identities.trust(await here.code()) == "Ada (+15550100001)"


async def test_next_message_sends_the_note_after_failed_trust(tmp_path: Path) -> None:
    async with house(tmp_path, "always") as here:
        here.keys.set(ADA, TrustLevel.UNTRUSTED)
        here.keys.refuses_trust = True
        await here.identities.changed(ADA)
        assert (await here.told(), here.released) == ([], [])
        here.identities.seen(ADA.aci)
        assert here.released == [ADA.aci]


async def test_failing_sends_to_a_trusted_key_end(tmp_path: Path) -> None:
    async with house(tmp_path, "tofu") as here:
        here.keys.set(ADA, TrustLevel.UNVERIFIED)
        for _ in range(MAX_SENT_ANYWAY + 2):
            await here.identities.changed(ADA)
        assert here.released == [ADA.aci] * MAX_SENT_ANYWAY
        here.identities.seen(ADA.aci)
        await here.identities.changed(ADA)
        assert len(here.released) == MAX_SENT_ANYWAY + 2


async def test_without_admins_the_log_names_the_next_step_and_no_person(tmp_path: Path) -> None:
    with capture_logs() as logs:
        async with house(tmp_path, "tofu", admins=frozenset()) as here:
            await here.new_key()
    assert [log["event"] for log in logs] == ["identity.untrusted"]
    assert "signal-cli trust" in logs[0]["reason"]
    assert not re.search(r"Ada|5550|7f3c|12345", str(logs))


async def test_waiting_keys_are_bounded(tmp_path: Path) -> None:
    async with house(tmp_path, "tofu") as here:
        codes = []
        for number in range(MAX_WAITING_KEYS + 1):
            person = Person(f"person-{number}")
            here.keys.set(person, TrustLevel.UNTRUSTED, f"{number:060}")
            await here.identities.changed(person)
            codes.append(await here.code())
        assert await here.identities.trust(codes[0]) is None
        assert await here.identities.trust(codes[1]) == "person-1"


async def test_a_verified_person_may_talk_and_is_asked_about_once_an_hour(tmp_path: Path) -> None:
    async with house(tmp_path, "verified") as here:
        here.keys.set(ADA, TrustLevel.VERIFIED)
        assert not here.identities.is_verified(ADA.aci)
        assert await here.identities.may_talk(ADA)
        assert await here.identities.may_talk(ADA)
        assert here.identities.is_verified(ADA.aci)
        assert here.keys.asked == 1
        here.clock.now += VERIFIED_SECONDS
        assert await here.identities.may_talk(ADA)
        assert here.keys.asked == 2


async def test_an_unverified_person_is_told_once_a_day_and_the_admins_once(tmp_path: Path) -> None:
    async with house(tmp_path, "verified") as here:
        here.keys.set(ADA, TrustLevel.UNVERIFIED)
        assert not await here.identities.may_talk(ADA)
        assert not await here.identities.may_talk(ADA)
        (note,) = await here.told()
        assert await here.told(ADAS_CHAT) == [ONLY_VERIFIED + OPERATOR_KNOWS]
        here.clock.now += TOLD_AGAIN_SECONDS
        assert not await here.identities.may_talk(ADA)
        assert len(await here.told(ADAS_CHAT)) == 2
        assert len(await here.told()) == 1
    assert note.startswith("Ada (+15550100001) writes to me")
    assert "12345 12345" in note


async def test_verified_policy_accepts_digits_and_no_codes(tmp_path: Path) -> None:
    async with house(tmp_path, "tofu") as here:
        await here.new_key()
        code = await here.code()
    async with house(tmp_path, "verified", keys=here.keys) as here:
        assert await here.identities.trust(code) is None
        assert await here.identities.trust(FIRST) == "Ada (+15550100001)"


async def test_new_key_is_not_verified(tmp_path: Path) -> None:
    async with house(tmp_path, "verified") as here:
        here.keys.set(ADA, TrustLevel.VERIFIED)
        assert await here.identities.may_talk(ADA)
        await here.new_key(SECOND)
        assert not here.identities.is_verified(ADA.aci)
        (note,) = await here.told()
        assert "67890 67890" in note
        assert not re.search(r"!trust [A-Z0-9]{6}\n", note)
        assert await here.identities.trust(SECOND) == "Ada (+15550100001)"
        assert await here.identities.may_talk(ADA)
        assert await here.told(ADAS_CHAT) == []
    assert here.released == [ADA.aci]


async def test_key_that_changes_during_the_request_is_not_remembered(tmp_path: Path) -> None:
    async with house(tmp_path, "verified") as here:
        here.keys.set(ADA, TrustLevel.VERIFIED)

        async def change() -> None:
            here.keys.meanwhile = None
            await here.new_key(SECOND)

        here.keys.meanwhile = change
        await here.identities.may_talk(ADA)
        assert not here.identities.is_verified(ADA.aci)


@pytest.mark.parametrize("trouble", [SignalRejected("x"), SignalUnavailable("x"), None])
async def test_unknown_key_is_refused_in_words(tmp_path: Path, trouble: SignalError | None) -> None:
    async with house(tmp_path, "verified") as here:
        if trouble is not None:
            here.keys.set(ADA, TrustLevel.VERIFIED)
            here.keys.troubles = [trouble] * 1_000
        assert not await here.identities.may_talk(ADA)
        assert await here.told(ADAS_CHAT) == [CANNOT_TELL]
        here.keys.troubles = []
        here.keys.set(ADA, TrustLevel.VERIFIED)
        assert await here.identities.may_talk(ADA)
