"""The bot in groups: it respects their rights, and its admins decide where it joins."""

import pytest

from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_conversation import BEN
from tests.fakes.signal_side import ADA, BOT

TEAM = "dGVhbQ=="
OTHERS = "b3RoZXJz"
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
            assert (await here.asked("private")).endswith("private")
            assert done_in(here, TEAM_CHAT) == []
            await here.signal.change_group(TEAM, admins=[ADA.aci, BOT.aci or ""])
            answer = await here.answer_to("second", group=TEAM, mention=True)
    assert answer.chat == TEAM_CHAT
    assert answer.text.endswith("second")
    assert len(here.answers()) == 2
    assert len(here.model.requests) == 2


async def test_the_bot_joins_a_group_when_one_of_its_admins_invites_it() -> None:
    async with story(access=BEN_IS_ADMIN) as here:
        await here.signal.change_group(TEAM, author=BEN, invited=True)
        await here.signal.until(lambda: here.signal.groups[TEAM].is_member)
        await here.signal.say("welcome", author=ADA, group=TEAM, mention=True)
        assert (await here.answer()).text.endswith("welcome")


@pytest.mark.parametrize("admins", ["", BEN.aci])
async def test_the_bot_stays_out_of_a_group_that_others_invite_it_to(admins: str) -> None:
    access = {"policy": "open", "admins": admins}
    async with story(access=access) as here:
        await here.signal.change_group(TEAM, author=EVE, invited=True)
        assert (await here.asked("hello")).endswith("hello")
    assert here.signal.groups[TEAM].is_invited
    assert done_in(here, TEAM_CHAT) == []


async def test_the_bot_leaves_a_group_that_strangers_have_added_it_to() -> None:
    async with story(access=BEN_IS_ADMIN) as here:
        await here.signal.change_group(TEAM, author=EVE, invited=False)
        await here.signal.until(lambda: not here.signal.groups[TEAM].is_member)
    assert done_in(here, TEAM_CHAT) == []


async def test_bot_stays_in_a_group_with_one_of_its_admins() -> None:
    async with story(access=BEN_IS_ADMIN) as here:
        await here.signal.change_group(TEAM, author=EVE, members=[BEN], invited=False)
        assert (await here.asked("hello", author=ADA, group=TEAM, mention=True)).endswith("hello")
    assert here.signal.groups[TEAM].is_member


async def test_the_bot_stays_after_a_restart_where_it_was_spoken_to_before() -> None:
    async with world() as here:
        settings = here.settings(access=BEN_IS_ADMIN)
        async with running_bot(settings):
            await here.asked("hello", group=TEAM, mention=True)
        async with running_bot(settings):
            await here.signal.change_group(TEAM, author=EVE, members=[ADA])
            await here.signal.say("still there?", group=TEAM, mention=True)
            assert (await here.answer()).text.endswith("still there?")
    assert here.signal.groups[TEAM].is_member


async def test_admins_of_the_group_and_of_the_bot_may_clear_it_and_a_member_may_not() -> None:
    async with story(access={"admins": EVE.aci}) as here:
        await here.signal.change_group(TEAM, author=BEN, members=[EVE], admins=[BEN.aci])
        for admin in (BEN, EVE):
            await here.asked("hello", author=ADA, group=TEAM, mention=True)
            refused = await here.asked("!clear", author=ADA, group=TEAM, mention=True)
            assert "only an admin" in refused
            assert "Forgotten" in await here.asked("!clear", author=admin, group=TEAM, mention=True)


async def test_nothing_that_is_said_in_one_chat_is_told_in_another() -> None:
    places = {"adax": (ADA, None), "benx": (BEN, None), "onex": (ADA, TEAM), "twox": (BEN, OTHERS)}
    async with story() as here:
        for number in range(4):
            for word, (who, group) in places.items():
                if group is not None:
                    await here.signal.say(f"{word} chatter", author=who, group=group)
                said = f"{word} {number}"
                await here.signal.say(said, author=who, group=group, mention=group is not None)
        for word in places:
            await here.signal.wait_for(lambda sent, last=f"{word} 3": sent.text.endswith(last))  # type: ignore[misc]
    for request in here.model.requests:
        told = str(request["messages"][1:])
        assert len([word for word in places if word in told]) == 1
    chats = {(word, sent.chat) for sent in here.signal.sent for word in places if word in sent.text}
    assert len(chats) == len(places)
