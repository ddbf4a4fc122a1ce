"""Groups: rights to write, invitations, and groups that the bot leaves."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from bot.backoff import Backoff
from bot.chat.access import Access
from bot.chat.groups import (
    GROUP_SECONDS,
    MAX_GROUPS,
    GroupPermissions,
    RetryUntil,
)
from bot.config.settings import AccessSettings
from bot.signal.account import Group
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout, SignalUnavailable
from bot.signal.events import GroupChanged, Person
from conversation_store.models import ChatId
from tests.fakes.clock import Clock
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import store_at

BOT = "+15550100000"
ADMIN = Person("boss", "+15550100009", "Boss")
EVE = Person("eve", name="Eve")
TEAM = ChatId.parse("group:dGVhbQ==")
ROOM = Group(
    members=frozenset({"eve", BOT}),
    admins=frozenset({"eve"}),
    is_member=True,
    is_invited=False,
    only_admins_write=False,
)
INVITED = replace(ROOM, is_member=False, is_invited=True)
SLOW = [SignalUnavailable("x"), SignalTimeout("x")]
ANNOUNCEMENTS = replace(ROOM, only_admins_write=True)
QUICK = RetryUntil(seconds=0.05, backoff=Backoff(first_seconds=0.001, longest_seconds=0.002))


@dataclass
class Directory(PartialMessenger):
    """Knows groups, unless it has troubles first."""

    group_now: Group | None = ROOM
    troubles: list[SignalError] = field(default_factory=list)
    asked: int = 0
    meanwhile: Callable[[], Awaitable[None]] | None = None
    joined: list[ChatId] = field(default_factory=list)
    left: list[ChatId] = field(default_factory=list)

    async def group(self, chat: ChatId) -> Group | None:
        self.asked += 1
        self.stumble()
        answer = self.group_now
        if self.meanwhile is not None:
            await self.meanwhile()
        return answer

    async def join_group(self, chat: ChatId) -> None:
        self.stumble()
        self.joined.append(chat)

    async def leave_group(self, chat: ChatId) -> None:
        self.stumble()
        self.left.append(chat)


@asynccontextmanager
async def group_permissions(
    folder: Path,
    directory: Directory,
    *,
    admins: frozenset[str] = frozenset({"boss"}),
    clock: Clock | None = None,
) -> AsyncIterator[GroupPermissions]:
    access = Access(AccessSettings.model_construct(policy="open", admins=admins))
    async with store_at(folder) as store:
        yield GroupPermissions(
            directory, store, access, number=BOT, retry=QUICK, clock=clock or Clock()
        )


def changed_by(author: Person) -> GroupChanged:
    return GroupChanged(BOT, TEAM, author)


@pytest.mark.parametrize(
    ("group", "may"),
    [
        (ROOM, True),
        (ANNOUNCEMENTS, False),
        (replace(ANNOUNCEMENTS, admins=frozenset({"eve", BOT})), True),
        (None, True),
    ],
)
async def test_only_admins_write_in_an_announcement_group(
    tmp_path: Path, group: Group | None, may: bool
) -> None:
    async with group_permissions(tmp_path, Directory(group)) as here:
        assert await here.may_write(TEAM) is may


@pytest.mark.parametrize("trouble", [SignalRejected("x"), SignalUnavailable("x")])
async def test_bot_tries_to_write_if_rights_are_unknown(
    tmp_path: Path, trouble: SignalError
) -> None:
    directory = Directory(ANNOUNCEMENTS, [trouble])
    async with group_permissions(tmp_path, directory) as here:
        assert await here.may_write(TEAM)
        assert not await here.may_write(TEAM)


async def test_group_admin_is_known_by_aci_or_number(tmp_path: Path) -> None:
    directory = Directory(replace(ROOM, admins=frozenset({"eve", "+15550100009"})))
    async with group_permissions(tmp_path, directory) as here:
        assert await here.is_group_admin(TEAM, EVE)
        assert await here.is_group_admin(TEAM, ADMIN)
        assert not await here.is_group_admin(TEAM, Person("ada"))


async def test_unknown_group_has_no_admins(tmp_path: Path) -> None:
    async with group_permissions(tmp_path, Directory(troubles=[SignalRejected("x")])) as here:
        assert not await here.is_group_admin(TEAM, EVE)


async def test_group_is_asked_again_after_a_change_or_some_time(tmp_path: Path) -> None:
    directory, clock = Directory(), Clock()
    async with group_permissions(tmp_path, directory, clock=clock) as here:
        assert await here.may_write(TEAM)
        assert await here.may_write(TEAM)
        assert directory.asked == 1
        directory.group_now = ANNOUNCEMENTS
        await here.changed(changed_by(EVE))
        assert not await here.may_write(TEAM)
        directory.group_now = ROOM
        clock.now += GROUP_SECONDS
        assert await here.may_write(TEAM)
        assert directory.asked == 3


async def test_answer_during_a_group_change_is_not_remembered(tmp_path: Path) -> None:
    directory = Directory()
    async with group_permissions(tmp_path, directory) as here:

        async def change() -> None:
            directory.group_now, directory.meanwhile = ANNOUNCEMENTS, None
            await here.changed(changed_by(EVE))

        directory.meanwhile = change
        assert await here.may_write(TEAM)
        assert not await here.may_write(TEAM)


async def test_remembered_groups_are_bounded(tmp_path: Path) -> None:
    directory = Directory()
    async with group_permissions(tmp_path, directory) as here:
        for number in range(MAX_GROUPS + 1):
            await here.is_group_admin(ChatId.parse(f"group:{number}"), EVE)
        await here.is_group_admin(ChatId.parse(f"group:{MAX_GROUPS}"), EVE)
        assert directory.asked == MAX_GROUPS + 1
        await here.is_group_admin(ChatId.parse("group:0"), EVE)
        assert directory.asked == MAX_GROUPS + 2


@pytest.mark.parametrize(
    ("directory", "admins", "author", "joins"),
    [
        (Directory(INVITED), {"+15550100009"}, ADMIN, True),
        (
            Directory(INVITED, SLOW),
            {"boss"},
            ADMIN,
            True,
        ),
        (Directory(), set(), EVE, False),
        (Directory(replace(ROOM, is_member=False)), {"boss"}, ADMIN, False),
    ],
    ids=["admin by number", "slow Signal side", "no admins", "not in it"],
)
async def test_bot_joins_stays_in_or_ignores_a_changed_group(
    tmp_path: Path, directory: Directory, admins: set[str], author: Person, joins: bool
) -> None:
    async with group_permissions(tmp_path, directory, admins=frozenset(admins)) as here:
        await here.changed(changed_by(author))
    assert (directory.joined, directory.left) == ([TEAM] * joins, [])


async def test_refusal_by_signal_does_no_harm(tmp_path: Path) -> None:
    directory = Directory(INVITED)
    async with group_permissions(tmp_path, directory) as here:
        directory.troubles = [SignalRejected("x")]
        await here.changed(changed_by(ADMIN))
        assert directory.asked == 1
        await here.changed(changed_by(ADMIN))
    assert directory.joined == [TEAM]


async def test_bot_stays_after_the_inviting_admin_left(tmp_path: Path) -> None:
    directory = Directory(INVITED)
    async with group_permissions(tmp_path, directory) as here:
        await here.changed(changed_by(ADMIN))
    directory.group_now = ROOM
    async with group_permissions(tmp_path, directory) as here:
        await here.changed(changed_by(EVE))
    assert directory.left == []
