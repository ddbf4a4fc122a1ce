"""Promises of every transport beyond texts, see bot/signal/messenger.py."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import pytest

from bot.signal import account
from bot.signal.account import Profile, TrustLevel
from bot.signal.errors import (
    SignalLacks,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
    SignalUntrusted,
)
from bot.signal.events import Deletion, Edit, GroupChanged, IdentityChanged, Person, PollVote
from bot.signal.frames import Account
from bot.signal.messenger import FileTooBig, Messenger, Poll
from conversation_store.models import (
    ChatId,
    Quote,
    ReceivedFile,
    ReceivedQuote,
    StyledText,
    StyleRange,
    TextStyle,
)
from tests.contract.harnesses import Harness, Open
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_people import ADA, Group, Reacted, SharedFile

PRIVATE: Final = ChatId.direct(ADA.aci)
TEAM: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
ELSEWHERE: Final = ChatId.group("HwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
NOTE_TO_SELF: Final = ChatId.direct(str(FIXTURE_ACCOUNT.aci))
BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-000000000002", number="+4915200000002", name="Ben")
PICTURE: Final = SharedFile("image/png", bytes(range(256)) * 1_000, name="a.png")
NO_FILE: Final = ReceivedFile("Qm0aGone.jpg", "image/jpeg")
ENOUGH: Final = 2**20

# Styles, replies, deletions, reactions, signs of life


STYLED: Final = StyledText(
    "👍🏽 2*3 = six, ||not|| `seven`",
    (
        StyleRange(5, 9, TextStyle.SPOILER),
        StyleRange(5, 3, TextStyle.BOLD),
        StyleRange(11, 3, TextStyle.ITALIC),
        StyleRange(18, 3, TextStyle.STRIKETHROUGH),
        StyleRange(24, 7, TextStyle.MONOSPACE),
    ),
)


@pytest.mark.parametrize("replaces", [None, 17])
async def test_styles_count_utf16_units_and_nothing_in_the_text_is_markup(
    harness: Harness, replaces: int | None
) -> None:
    await harness.messenger.send(PRIVATE, STYLED.text, styles=STYLED.styles, replaces=replaces)
    await harness.messenger.send(PRIVATE, STYLED.text)
    styled, plain = await harness.next_sent(), await harness.next_sent()
    assert StyledText(styled.text, styled.styles) == STYLED
    assert StyledText(plain.text, plain.styles) == StyledText(STYLED.text)


@pytest.mark.parametrize("chat", [PRIVATE, TEAM])
async def test_a_reply_quotes_the_message_that_it_answers(harness: Harness, chat: ChatId) -> None:
    asked = await harness.people.say("Is it?", group=TEAM.value)
    quote = Quote(asked, ADA.aci, "Is it?")
    await harness.messenger.send(chat, "It is.", quote=quote)
    await harness.messenger.send(chat, "By the way…")
    replied, plain = await harness.next_sent(), await harness.next_sent()
    assert (replied.chat, replied.text, replied.quote) == (chat, "It is.", quote)
    assert plain.quote is None


@pytest.mark.parametrize("chat", [PRIVATE, TEAM])
async def test_an_own_message_is_deleted_for_everyone(harness: Harness, chat: ChatId) -> None:
    harness.people.groups[TEAM.value] = Group()
    sent = await harness.messenger.send(chat, "oops")
    await harness.messenger.delete(chat, sent)
    assert harness.people.deleted == [(chat, sent)]


@pytest.mark.parametrize("chat", [PRIVATE, TEAM])
async def test_typing_reactions_and_read_marks_are_seen(harness: Harness, chat: ChatId) -> None:
    harness.people.groups[TEAM.value] = Group()
    await harness.messenger.show_typing(chat)
    await harness.messenger.show_typing(chat, stop=True)
    await harness.messenger.react(chat, "👀", author=ADA.aci, timestamp=17)
    await harness.messenger.mark_read(ADA.aci, [17, 18])
    assert harness.people.typing == [(chat, True), (chat, False)]
    assert harness.people.reactions == [Reacted(chat, "👀", ADA.aci, 17)]
    told = [(who, one) for who, which in harness.people.receipts for one in which]
    assert told == [(ADA.aci, 17), (ADA.aci, 18)]


async def test_a_reply_to_another_person_names_the_quoted_author(harness: Harness) -> None:
    said = await harness.people.say("Is it?", author=BEN, group=TEAM.value)
    await harness.next_message()
    unknown = "0d1e2f30-0000-4000-8000-000000000003"
    for author, number in ((BEN.aci, BEN.number), (unknown, None)):
        await harness.people.say("No.", quote=Quote(said, author, "Is it?"), group=TEAM.value)
        message = await harness.next_message()
        assert message.quote == ReceivedQuote(
            said, author, by_bot=False, text="Is it?", author_number=number
        )
        assert not message.addresses_bot


async def test_timer_and_view_once_come_along(harness: Harness) -> None:
    await harness.people.say("quick", files=[PICTURE], expires_seconds=60, view_once=True)
    message = await harness.next_message()
    assert (message.expires_seconds, message.view_once) == (60, True)
    [file] = message.files
    assert (file.content_type, file.name) == ("image/png", "a.png")
    assert (file.size, file.voice_note) == (len(PICTURE.data), False)


# What people change


async def test_an_edit_arrives_with_the_replaced_timestamp(harness: Harness) -> None:
    said = await harness.people.say("two and tow?")
    await harness.next_message()
    edited = await harness.people.edit("two and two?", said)
    edit = await harness.next_incoming()
    assert isinstance(edit, Edit)
    assert (edit.message.chat, edit.message.text) == (PRIVATE, "two and two?")
    assert (edit.message.timestamp, edit.target_timestamp) == (edited, said)


@pytest.mark.parametrize("target_author", [None, BEN])
async def test_deletion_names_the_author_of_the_message(
    harness: Harness, target_author: Person | None
) -> None:
    deleted = await harness.people.delete(17, group=TEAM.value, target_author=target_author)
    deletion = await harness.next_incoming()
    assert isinstance(deletion, Deletion)
    assert (deletion.chat, deletion.author.aci) == (TEAM, ADA.aci)
    assert (deletion.timestamp, deletion.target_timestamp) == (deleted, 17)
    assert deletion.target_author == (target_author or ADA).aci


# Files


async def test_a_file_is_fetched_byte_for_byte_until_it_is_discarded(harness: Harness) -> None:
    for group, chat in ((None, PRIVATE), (TEAM.value, TEAM)):
        await harness.people.say("look", group=group, files=[PICTURE])
        [file] = (await harness.next_message()).files
        data = await harness.messenger.fetch_file(chat, file, max_bytes=len(PICTURE.data))
        assert data == PICTURE.data
        for _ in range(2):
            await harness.messenger.discard_file(file)
        with pytest.raises(SignalRejected):
            await harness.messenger.fetch_file(chat, file, max_bytes=ENOUGH)


@pytest.mark.parametrize("told_size", [len(PICTURE.data), 1, None])
async def test_a_file_that_is_too_big_is_refused_whatever_its_sender_says(
    harness: Harness, told_size: int | None
) -> None:
    await harness.people.say("look", files=[PICTURE])
    [shared] = (await harness.next_message()).files
    file = ReceivedFile(shared.id, shared.content_type, size=told_size)
    for max_bytes in (len(PICTURE.data) - 1, 1, 0):
        with pytest.raises(FileTooBig):
            await harness.messenger.fetch_file(PRIVATE, file, max_bytes=max_bytes)


async def test_a_file_that_never_came_is_refused(harness: Harness) -> None:
    with pytest.raises(SignalRejected) as failure:
        await harness.messenger.fetch_file(PRIVATE, NO_FILE, max_bytes=ENOUGH)
    assert not isinstance(failure.value, FileTooBig)
    assert NO_FILE.id not in repr(failure.value)
    await harness.messenger.discard_file(NO_FILE)


# Groups


async def test_a_group_is_known_by_its_members_admins_and_rights(harness: Harness) -> None:
    assert await harness.messenger.group(TEAM) is None
    await harness.people.change_group(
        TEAM.value, members=[BEN], admins=[BEN.aci], only_admins_write=True
    )
    await harness.people.change_group(ELSEWHERE.value)
    changed = await harness.next_incoming()
    assert isinstance(changed, GroupChanged)
    assert (changed.chat, changed.author.aci) == (TEAM, ADA.aci)
    assert await harness.messenger.group(TEAM) == account.Group(
        members=names(ADA, BEN, FIXTURE_ACCOUNT),
        admins=names(BEN),
        is_member=True,
        is_invited=False,
        only_admins_write=True,
        name="Team",
    )


def names(*people: Person | Account) -> frozenset[str]:
    return frozenset(name for one in people for name in (one.aci, one.number) if name)


async def test_an_invitation_is_accepted_or_refused_and_the_group_left(open_harness: Open) -> None:
    async def relation() -> tuple[bool, bool]:
        group = await harness.messenger.group(TEAM)
        assert group is not None
        return group.is_invited, group.is_member

    async with open_harness() as harness:
        await harness.people.change_group(TEAM.value, invited=True)
        assert await relation() == (True, False)
        await harness.messenger.join_group(TEAM)
        assert await relation() == (False, True)
        await harness.messenger.leave_group(TEAM)
        assert await relation() == (False, False)
        for refused in (harness.messenger.join_group, harness.messenger.leave_group):
            with pytest.raises(SignalRejected):
                await refused(TEAM)
        await harness.people.change_group(TEAM.value, invited=True)
        await harness.messenger.leave_group(TEAM)
        assert await relation() == (False, False)


# Keys


async def test_messages_of_person_with_new_key_arrive_after_trust(harness: Harness) -> None:
    assert await harness.messenger.peer_identity(ADA.aci) is None
    number = await harness.people.change_identity()
    changed = await harness.next_incoming()
    assert isinstance(changed, IdentityChanged)
    assert changed.person.aci == ADA.aci
    await harness.people.say("it is me")
    await harness.next_incoming()
    with pytest.raises(SignalUntrusted) as failure:
        await harness.messenger.send(PRIVATE, "hello")
    assert ADA.aci not in repr(failure.value)
    identity = await harness.messenger.peer_identity(ADA.aci)
    assert identity == account.PeerIdentity(ADA.aci, TrustLevel.UNTRUSTED, number)
    await harness.messenger.trust(ADA.aci, safety_number=None)
    assert (await harness.next_message()).text == "it is me"
    assert await harness.messenger.send(PRIVATE, "hello") > 0
    identity = await harness.messenger.peer_identity(ADA.aci)
    assert identity == account.PeerIdentity(ADA.aci, TrustLevel.UNVERIFIED, number)


async def test_only_the_safety_number_that_it_has_makes_a_key_a_verified_one(
    harness: Harness,
) -> None:
    number = await harness.people.change_identity()
    with pytest.raises(SignalRejected):
        await harness.messenger.trust(ADA.aci, safety_number="0" * 60)
    with pytest.raises(SignalUntrusted):
        await harness.messenger.send(PRIVATE, "hello")
    await harness.messenger.trust(ADA.aci, safety_number=number)
    identity = await harness.messenger.peer_identity(ADA.aci)
    assert identity == account.PeerIdentity(ADA.aci, TrustLevel.VERIFIED, number)
    assert harness.people.trusted == [(ADA.aci, number)]


# The account before people


async def test_a_profile_is_set_as_a_whole(open_harness: Open) -> None:
    profile = Profile("Tee", "I answer.", PICTURE.data)
    async with open_harness() as harness:
        await harness.messenger.set_profile(profile)
        assert harness.people.profile == profile
        await harness.messenger.set_profile(Profile())
        assert harness.people.profile == profile


async def test_the_registration_lock_is_set_and_removed(harness: Harness) -> None:
    await harness.messenger.lock_registration("12345678901234567890")
    await harness.messenger.lock_registration(None)
    assert harness.people.pins == ["12345678901234567890", None]


async def test_no_change_of_the_profile_ever_removes_the_picture(harness: Harness) -> None:
    harness.people.profile = Profile("Tee", "old", PICTURE.data)
    for change in (Profile(name="Tea"), Profile(about="new")):
        try:
            await harness.messenger.set_profile(change)
        except SignalRejected:
            assert harness.people.profile == Profile("Tee", "old", PICTURE.data)
    assert harness.people.profile.picture == PICTURE.data


async def test_accepting_a_message_request_is_never_an_error(harness: Harness) -> None:
    await harness.messenger.accept_request(ADA.aci)
    assert harness.people.accepted_requests in ([], [ADA.aci])


# Note to self


async def test_in_note_to_self_mode_only_the_owner_is_heard(open_harness: Open) -> None:
    async with open_harness(note_to_self=True) as harness:
        await harness.people.say("hello?")
        await harness.people.say("hello all?", group=TEAM.value, mention=True)
        noted = await harness.people.note_to_self("what is 2+2?", files=[PICTURE])
        note = await harness.next_message()
        assert (note.chat, note.text, note.timestamp) == (NOTE_TO_SELF, "what is 2+2?", noted)
        [file] = note.files
        data = await harness.messenger.fetch_file(NOTE_TO_SELF, file, max_bytes=ENOUGH)
        assert data == PICTURE.data
        await harness.people.note_to_self("what is 3+3?", replaces=noted)
        assert isinstance(await harness.next_incoming(), Edit)
        await harness.people.delete_note(noted)
        assert isinstance(await harness.next_incoming(), Deletion)
        assert len(harness.received) == 3


async def test_message_to_own_account_is_a_note_to_self(open_harness: Open) -> None:
    async with open_harness(note_to_self=True) as harness:
        for name in (NOTE_TO_SELF.value, FIXTURE_ACCOUNT.number):
            sent = await harness.messenger.send(ChatId.direct(name), "4")
            assert (await harness.next_sent()).chat == NOTE_TO_SELF
        await harness.messenger.react(NOTE_TO_SELF, "👀", author=NOTE_TO_SELF.value, timestamp=17)
        await harness.messenger.delete(NOTE_TO_SELF, sent)
        assert [one.chat for one in harness.people.reactions] == [NOTE_TO_SELF]
        assert harness.people.deleted == [(NOTE_TO_SELF, sent)]


async def test_note_to_self_gets_no_signs_of_life(open_harness: Open) -> None:
    async with open_harness(note_to_self=True) as harness:
        await harness.messenger.show_typing(NOTE_TO_SELF)
        await harness.messenger.mark_read(NOTE_TO_SELF.value, [17])
        await harness.messenger.accept_request(NOTE_TO_SELF.value)
        assert not harness.people.typing
        assert not harness.people.receipts
        assert not harness.people.accepted_requests


# Trouble

Request = Callable[[Messenger], Awaitable[object]]
REQUESTS: Final[dict[str, Request]] = {
    "delete": lambda messenger: messenger.delete(PRIVATE, 17),
    "react": lambda messenger: messenger.react(PRIVATE, "👀", author=ADA.aci, timestamp=17),
    "show_typing": lambda messenger: messenger.show_typing(PRIVATE),
    "mark_read": lambda messenger: messenger.mark_read(ADA.aci, [17]),
    "group": lambda messenger: messenger.group(TEAM),
    "join_group": lambda messenger: messenger.join_group(TEAM),
    "leave_group": lambda messenger: messenger.leave_group(TEAM),
    "peer_identity": lambda messenger: messenger.peer_identity(ADA.aci),
    "trust": lambda messenger: messenger.trust(ADA.aci, safety_number=None),
    "set_profile": lambda messenger: messenger.set_profile(Profile("Tee", picture=b"x")),
}
FETCH: Final[Request] = lambda messenger: messenger.fetch_file(  # noqa: E731  # one of REQUESTS
    PRIVATE, NO_FILE, max_bytes=1
)


@pytest.mark.parametrize("request_name", [*REQUESTS, "fetch_file"])
async def test_without_a_connection_nothing_is_done(open_harness: Open, request_name: str) -> None:
    async with open_harness(up=False) as harness:
        with pytest.raises(SignalUnavailable):
            await REQUESTS.get(request_name, FETCH)(harness.messenger)


async def test_no_request_waits_for_a_silent_server_longer_than_its_bound(
    open_harness: Open,
) -> None:
    async def gives_up(make: Request) -> None:
        with pytest.raises((SignalTimeout, SignalUnavailable)):
            await make(harness.messenger)

    async with open_harness(impatient=True) as harness:
        harness.fall_silent()
        async with asyncio.TaskGroup() as tasks:
            for make in REQUESTS.values():
                tasks.create_task(gives_up(make))


# Polls


@pytest.mark.parametrize("multiple", [False, True])
@pytest.mark.parametrize("chat", [PRIVATE, TEAM])
async def test_a_poll_is_shown_and_votes_for_it_are_told(
    open_harness: Open, chat: ChatId, multiple: bool
) -> None:
    poll = Poll("Lunch?", ("yes", "no"), multiple)
    async with open_harness() as harness:
        harness.people.has_polls = True
        harness.people.groups[TEAM.value] = Group()
        timestamp = await harness.messenger.send_poll(chat, poll)
        group = TEAM.value if chat.is_group else None
        voted = await harness.people.vote([1, 0], timestamp, group=group)
        vote = PollVote(FIXTURE_ACCOUNT.number, chat, ADA, voted, timestamp, (1, 0))
        assert await harness.next_incoming() == vote
        await harness.messenger.end_poll(chat, timestamp)
        assert harness.people.ended_polls == [(chat, timestamp)]


async def test_a_signal_side_without_polls_says_so(harness: Harness) -> None:
    harness.people.groups[TEAM.value] = Group()
    with pytest.raises(SignalLacks):
        await harness.messenger.send_poll(TEAM, Poll("Lunch?", ("yes", "no"), multiple=False))
    with pytest.raises(SignalLacks):
        await harness.messenger.end_poll(TEAM, 7)
