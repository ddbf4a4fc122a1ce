"""Codes for strangers, and access by code: on a real store, with a clock."""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from structlog.testing import capture_logs

from bot.chat.access import Access
from bot.chat.door import CODE_MS, MAX_CODES, WELCOME, Pairing
from bot.chat.outbox import Notices, Outbox
from bot.cli.pair import approve, listing, revoke
from bot.config.settings import AccessSettings
from bot.errors import BotError
from bot.language.languages import Languages
from bot.signal.events import IncomingMessage, Person
from conversation_store.connections import Session, StoreFailed, StoreUnreadable
from conversation_store.database import open_database
from conversation_store.models import ChatId
from conversation_store.pairings import open_pairing_book
from conversation_store.schema import APPLICATION_ID
from conversation_store.store import ConversationStore
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import is_left, store_at

ADA = Person(aci="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", number="+15550100001", name="Ada")
BEN = Person(aci="7f3d1e2f-0000-4000-8000-00000000000b", name="Ben")
OPERATOR = Person(aci="0d1e2f30-0000-4000-8000-0000000000aa")
Policy = Literal["pairing", "allowlist"]
PAIRING = AccessSettings(policy="pairing")


class World:
    """Pairing of a bot on a store; `now_ms` is its clock."""

    def __init__(self, path: Path, store: ConversationStore, policy: Policy) -> None:
        self.path = path
        self.store = store
        self.now_ms = time.time_ns() // 1_000_000
        self.access = Access(AccessSettings(policy=policy, admins=frozenset({OPERATOR.aci})))
        self.notices = Notices(Outbox(PartialMessenger(), store), Languages(store), self.access)
        self.pairing = Pairing(
            pairings=store.pairings,
            access=self.access,
            notices=self.notices,
            now_ms=lambda: self.now_ms,
        )

    def texts(self) -> list[str]:
        waiting = self.notices.waiting
        return [waiting.get_nowait().text for _ in range(waiting.qsize())]

    async def code_for(self, person: Person) -> str:
        await self.pairing.stranger(written_by(person))
        [text] = self.texts()
        return code_in(text)


@asynccontextmanager
async def world(folder: Path, *, policy: Policy = "pairing") -> AsyncIterator[World]:
    async with store_at(folder) as store:
        here = World(folder / "store.db", store, policy)
        await here.pairing.refresh()
        yield here


def written_by(person: Person) -> IncomingMessage:
    chat = ChatId.direct(person.aci)
    return IncomingMessage("+15550100000", chat, person, 1, "hello", addresses_bot=True)


def code_in(text: str) -> str:
    found = re.search(r"^[A-Z0-9]{6}$", text, re.MULTILINE)
    assert found is not None
    return found[0]


async def test_stranger_gets_one_code_an_hour_even_after_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        asked_at = here.now_ms
        first = await here.code_for(ADA)
        for _ in range(20):
            await here.pairing.stranger(written_by(ADA))
        assert here.texts() == []
    async with world(tmp_path) as here:
        here.now_ms = asked_at + CODE_MS - 1
        await here.pairing.stranger(written_by(ADA))
        assert here.texts() == []
        here.now_ms += 1
        assert await here.code_for(ADA) != first


async def test_simultaneous_strangers_get_one_code_each(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        async with asyncio.TaskGroup() as tasks:
            for person in (ADA, ADA, BEN, ADA, BEN):
                tasks.create_task(here.pairing.stranger(written_by(person)))
        codes = {code_in(text) for text in here.texts()}
        assert len(codes) == 2


async def test_no_more_than_a_hundred_codes_are_valid_and_the_log_says_so_once(
    tmp_path: Path,
) -> None:
    async with world(tmp_path) as here:
        people = [Person(aci=f"00000000-0000-4000-8000-{n:012}") for n in range(MAX_CODES + 5)]
        with capture_logs() as logs:
            for person in people:
                await here.pairing.stranger(written_by(person))
        assert len(here.texts()) == MAX_CODES
        assert [entry["event"] for entry in logs].count("pairing.too_many_strangers") == 1
        here.now_ms += CODE_MS
        await here.pairing.look()
        assert await here.code_for(people[-1])


async def test_everything_about_a_stranger_is_deleted_with_the_code(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.code_for(ADA)
        assert is_left(tmp_path, ADA.aci)
    async with world(tmp_path) as here:
        here.now_ms += CODE_MS
        await here.pairing.look()
        assert not any(is_left(tmp_path, one) for one in (ADA.aci, "+15550100001", "Ada"))


async def test_other_policies_send_no_greeting(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        code = await here.code_for(ADA)
    with open_pairing_book(here.path, None) as book:
        book.approve(code)
    async with world(tmp_path, policy="allowlist") as here:
        assert here.texts() == []
        assert not here.access.may_talk(ADA)
    async with world(tmp_path) as here:
        assert here.texts() == [WELCOME]


@pytest.mark.parametrize("spell", [str.lower, lambda code: f" {code[:3]}-{code[3:]} ", str])
async def test_code_may_differ_in_case_and_hyphens(
    tmp_path: Path, spell: Callable[[str], str]
) -> None:
    async with world(tmp_path) as here:
        person = await here.pairing.approve(spell(await here.code_for(ADA)))
        assert person is not None
        assert person.person == ADA.aci


async def test_code_lets_in_one_person_once(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        code = await here.code_for(ADA)
        assert await here.pairing.approve(code) is not None
        assert await here.pairing.approve(code) is None
        assert here.texts() == [WELCOME]


async def test_expired_code_does_not_count(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        code = await here.code_for(ADA)
        here.now_ms += CODE_MS
        assert await here.pairing.approve(code) is None
        assert not here.access.may_talk(ADA)


async def test_expired_unsent_code_is_not_sent_after_a_restart(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        await here.code_for(ADA)
        assert len(await here.store.outbox.unfinished()) == 1
        here.now_ms += CODE_MS
        await here.pairing.look()
        assert await here.store.outbox.unfinished() == ()


@pytest.mark.parametrize("who", [ADA.aci, ADA.aci.upper(), "7f3c", "+15550100001"])
async def test_revoked_person_is_a_stranger_again(tmp_path: Path, who: str) -> None:
    async with world(tmp_path) as here:
        for person in (ADA, BEN):
            await here.pairing.approve(await here.code_for(person))
            assert here.texts() == [WELCOME]
        with open_pairing_book(here.path, None) as book:
            assert ADA.aci in revoke(book, who, PAIRING)
        await here.pairing.look()
        assert not here.access.may_talk(ADA)
        assert here.access.may_talk(BEN)
        assert await here.code_for(ADA)


async def test_ambiguous_or_unknown_names_and_codes_change_nothing(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        for person in (ADA, BEN):
            await here.pairing.approve(await here.code_for(person))
            here.texts()
        with open_pairing_book(here.path, None) as book:
            with pytest.raises(BotError, match="Several people"):
                revoke(book, "7f3", PAIRING)
            for nobody in ("+15550109999", "ffff", "", "%", "7f3c_"):
                with pytest.raises(BotError, match="Nobody"):
                    revoke(book, nobody, PAIRING)
            with pytest.raises(BotError, match="no such code"):
                approve(book, "AAAAAA", PAIRING)
            assert len(book.people()) == 2


async def test_list_shows_waiting_and_admitted_people(tmp_path: Path) -> None:
    rude = Person(aci=BEN.aci, name="\x1b[31mBen\u202e\n" + "n" * 500)
    async with world(tmp_path) as here:
        with open_pairing_book(here.path, None) as book:
            assert listing(book, PAIRING).splitlines() == [
                "Nobody waits to be let in.",
                "Nobody was let in by a code.",
            ]
            await here.pairing.approve(await here.code_for(ADA))
            here.texts()
            code = await here.code_for(rude)
            waits, line, is_in, person = listing(book, PAIRING).splitlines()
    assert (waits, is_in) == ("Waiting to be let in:", "Let in:")
    assert line == f"  {code}  [31mBen{'n' * 33} {BEN.aci}, 0 minutes ago"
    assert person.startswith(f"  Ada +15550100001 {ADA.aci}, since 2")


async def test_pair_command_says_if_settings_make_codes_useless(tmp_path: Path) -> None:
    listed = AccessSettings(policy="allowlist", admins=frozenset({ADA.aci}))
    async with world(tmp_path) as here:
        code = await here.code_for(ADA)
        with open_pairing_book(here.path, None) as book:
            unused = "Codes count only with ACCESS__POLICY=pairing; it is allowlist."
            assert unused in listing(book, listed)
            assert unused in approve(book, code, listed)
            assert "let this person talk all the same" in revoke(book, ADA.aci, listed)


def test_missing_store_asks_to_start_the_bot(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="start the bot once"):
        with open_pairing_book(tmp_path / "s.db", None):
            pass
    assert list(tmp_path.iterdir()) == []


async def test_store_of_another_version_is_left_alone(tmp_path: Path) -> None:
    def newer_schema(db: Session) -> None:
        db.run(f"PRAGMA application_id = {APPLICATION_ID}")
        db.run("PRAGMA user_version = 99")

    async with open_database(tmp_path / "s.db", None, prepare=newer_schema):
        with pytest.raises(StoreUnreadable, match="update the bot"):
            with open_pairing_book(tmp_path / "s.db", None):
                pass
