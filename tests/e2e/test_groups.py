"""The bot in groups: it respects their rights, and its admins decide where it joins."""

import pytest

from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_conversation import BEN
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.fakes.signal_side import ADA, BOT

TEAM = "dGVhbQ=="
TEAM_CHAT = ChatId.parse(f"group:{TEAM}")
EVE = Person(aci="0d1e2f30-0000-4000-8000-00000000000e", name="Eve")
BEN_IS_ADMIN = {"policy": "open", "admins": BEN.aci}


def done_in(here: World, chat: ChatId) -> list[object]:
    """Return all messages and signs of the bot in a chat."""
    signal = here.signal
    return [
        *(sent for sent in signal.sent if sent.chat == chat),
        *(typing for typing in signal.typing if typing[0] == chat),
        *(reaction for reaction in signal.reactions if reaction.chat == chat),
    ]


async def test_in_an_announcement_group_the_bot_is_silent_until_it_may_write() -> None:
    async with world() as here:
        settings = here.settings(bot={"ack_reaction": "yes"})
        async with running_bot(settings):
            await here.signal.change_group(TEAM, admins=[ADA.aci], only_admins_write=True)
            await here.signal.say("first", group=TEAM, mention=True)
            await here.signal.say("private")
            assert (await here.answer()).text.endswith("private")
            assert done_in(here, TEAM_CHAT) == []
            await here.signal.change_group(TEAM, admins=[ADA.aci, BOT.aci or ""])
            await here.signal.say("second", group=TEAM, mention=True)
            answer = await here.answer()
    assert answer.chat == TEAM_CHAT
    assert answer.text.endswith("second")
    assert len(here.answers()) == 2
    assert len(here.model.requests) == 2


async def test_the_bot_joins_a_group_when_one_of_its_admins_invites_it() -> None:
    async with world() as here, running_bot(here.settings(access=BEN_IS_ADMIN)):
        await here.signal.change_group(TEAM, author=BEN, invited=True)
        await here.signal.until(lambda: here.signal.groups[TEAM].is_member)
        await here.signal.say("welcome", author=ADA, group=TEAM, mention=True)
        assert (await here.answer()).text.endswith("welcome")


@pytest.mark.parametrize("admins", ["", BEN.aci])
async def test_the_bot_stays_out_of_a_group_that_others_invite_it_to(admins: str) -> None:
    access = {"policy": "open", "admins": admins}
    async with world() as here, running_bot(here.settings(access=access)):
        await here.signal.change_group(TEAM, author=EVE, invited=True)
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")
    assert here.signal.groups[TEAM].is_invited
    assert done_in(here, TEAM_CHAT) == []


async def test_the_bot_leaves_a_group_that_strangers_have_added_it_to() -> None:
    async with world() as here, running_bot(here.settings(access=BEN_IS_ADMIN)):
        await here.signal.change_group(TEAM, author=EVE, invited=False)
        await here.signal.until(lambda: not here.signal.groups[TEAM].is_member)
    assert done_in(here, TEAM_CHAT) == []


async def test_bot_stays_in_a_group_with_one_of_its_admins() -> None:
    async with world() as here, running_bot(here.settings(access=BEN_IS_ADMIN)):
        await here.signal.change_group(TEAM, author=EVE, members=[BEN], invited=False)
        await here.signal.say("hello", author=ADA, group=TEAM, mention=True)
        assert (await here.answer()).text.endswith("hello")
    assert here.signal.groups[TEAM].is_member


async def test_the_bot_stays_after_a_restart_where_it_was_spoken_to_before() -> None:
    async with world() as here:
        settings = here.settings(access=BEN_IS_ADMIN)
        async with running_bot(settings):
            await here.signal.say("hello", group=TEAM, mention=True)
            await here.answer()
        async with running_bot(settings):
            await here.signal.change_group(TEAM, author=EVE, members=[ADA])
            await here.signal.say("still there?", group=TEAM, mention=True)
            assert (await here.answer()).text.endswith("still there?")
    assert here.signal.groups[TEAM].is_member


async def test_over_rest_the_bot_joins_by_invitation_and_keeps_to_the_rights() -> None:
    async with world() as here, SignalRestApi.listen() as api:
        signal = {"url": api.url, "phone_number": NUMBER}
        async with running_bot(here.settings(access=BEN_IS_ADMIN, signal=signal)):
            await api.wait_for_receiver()
            await api.change_group(TEAM, author=BEN, admins=[BEN.aci], invited=True)
            await api.until(lambda: api.groups[TEAM].is_member)
            await api.change_group(TEAM, author=BEN, only_admins_write=True)
            await api.say("silence", author=ADA, group=TEAM, mention=True)
            await api.say("private")
            await api.wait_until(lambda: len(api.sent) == 1)
            await api.change_group(TEAM, author=BEN, only_admins_write=False)
            await api.say("welcome", author=ADA, group=TEAM, mention=True)
            await api.wait_until(lambda: len(api.sent) == 2)
    private, welcome = api.sent
    assert private.text.endswith("private")
    assert welcome.text.endswith("welcome")


async def test_an_admin_of_the_group_may_clear_it_and_a_member_may_not() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.change_group(TEAM, author=BEN, admins=[BEN.aci])
        await here.signal.say("hello", author=ADA, group=TEAM, mention=True)
        await here.answer()
        await here.signal.say("!clear", author=ADA, group=TEAM, mention=True)
        assert "only an admin" in (await here.answer()).text
        await here.signal.say("!clear", author=BEN, group=TEAM, mention=True)
        assert "Forgotten" in (await here.answer()).text
