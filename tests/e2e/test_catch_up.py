"""“What did I miss?” in groups that have opted in: members, their messages and retention."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from bot.chat.groups import CANNOT_TELL, NEVER_WROTE, NOT_HERE, NOWHERE
from bot.commands.base import ONLY_ADMINS
from bot.commands.behaviour import (
    CATCH_UP_ENDED,
    HOW_TO_BEGIN,
    IN_GROUP,
    KEEPS_NOTHING,
    NOT_KEPT,
    USAGE,
)
from bot.signal.events import Person
from tests.e2e.running_bot import World, story
from tests.e2e.traces import files_of, gone, gone_from_files, rows_with, there
from tests.fakes.openai_server import Step, script, text, tool_calls
from tests.fakes.signal_side import ADA, Group
from tests.unit.stores import rows

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
CLEO: Final = Person(
    aci="0d1e2f30-0000-4000-8000-00000000000c", number="+4915200000003", name="Cleo"
)
TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
FAMILY: Final = "ICEiIyQlJicoKSorLC0uLzAxMjM0NTY3ODk6Ozw9Pj8="
SECRET: Final = "sesquipedalian"
ANSWER: Final = "antidisestablishmentarianism"


def catching_up(**arguments: Any) -> Step:
    return script(tool_calls(("catch_up", arguments)), text(ANSWER))


def team(here: World, *members: Person, name: str = "Team") -> Group:
    group = Group(name, members={one.aci: one for one in members}, admins={ADA.aci})
    here.signal.groups[TEAM] = group
    return group


async def command(here: World, words: str, *, author: Person = ADA, group: str = TEAM) -> str:
    return await here.asked(words, author=author, group=group, mention=True)


@asynccontextmanager
async def opted_in(step: Step, *members: Person, **settings: Any) -> AsyncIterator[World]:
    """Provide a bot in a group that has opted in, where each has said something."""
    async with story(step, **settings) as here:
        team(here, *(members or (ADA, BEN)))
        assert "!catchup off" in await command(here, "!catchup on")
        for number, member in enumerate(reversed(members or (ADA, BEN))):
            await here.signal.say(f"beginning {number}", author=member, group=TEAM)
            await there(here, f"beginning {number}")
        yield here


async def test_member_hears_messages_since_their_last_message() -> None:
    async with opted_in(catching_up()) as here:
        await here.signal.say("I am off", author=ADA, group=TEAM)
        await here.signal.say(f"the safe is {SECRET}", author=BEN, group=TEAM)
        await there(here, SECRET)
        assert await here.asked("what did I miss?", group=TEAM, mention=True) == ANSWER
        result = here.told()
        assert result.startswith("[Untrusted content from catch_up, begins here: ")
        assert "In the group Team, since " in result
        assert f"Ben: the safe is {SECRET}" in result
        assert not any(words in result for words in ("beginning", "I am off", "what did I miss"))


async def test_in_private_the_only_group_needs_no_name_and_others_are_told_apart() -> None:
    async with opted_in(catching_up()) as here:
        here.signal.groups[FAMILY] = Group("Family", members={ADA.aci: ADA}, admins={ADA.aci})
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        assert await here.asked("what did I miss?") == ANSWER
        assert f"Ben: {SECRET}" in here.told()
        await command(here, "!catchup on", group=FAMILY)
        here.model.handler = catching_up()
        assert await here.asked("what did I miss?") == ANSWER
        assert "The person can ask about: Family, Team." in here.told()
        here.model.handler = catching_up(group=" team ")
        assert await here.asked("what did I miss in the team?") == ANSWER
        assert f"Ben: {SECRET}" in here.told()


@pytest.mark.parametrize("why", ["no member", "left", "Signal is silent", "the bot left"])
async def test_other_people_do_not_learn_of_the_group(why: str) -> None:
    async with opted_in(catching_up(group="Team"), ADA, BEN, CLEO) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        group = here.signal.groups[TEAM]
        asker = CLEO
        if why == "no member":
            asker = Person("0d1e2f30-0000-4000-8000-00000000000d", "+4915200000004", "Dan")
        elif why == "left":
            del group.members[CLEO.aci]
        elif why == "the bot left":
            group.is_member = False
        else:
            del here.signal.groups[TEAM]
        assert await here.asked("what did I miss in the team?", author=asker) == ANSWER
        assert NOWHERE in here.told()
        assert SECRET not in str(here.model.requests)
        assert "Team" not in here.told()


async def test_unknown_members_get_nothing() -> None:
    async with opted_in(catching_up()) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        here.signal.groups[TEAM].members.pop(ADA.aci)
        frozen = dict(here.signal.groups[TEAM].members)
        await here.signal.say("what did I miss?", group=TEAM, mention=True)
        here.signal.groups[TEAM].members = frozen
        assert (await here.answer()).text == ANSWER
        assert CANNOT_TELL in here.told()
        assert SECRET not in here.told()


async def test_a_member_without_messages_gets_no_earlier_ones() -> None:
    async with opted_in(catching_up(hours=24), ADA, BEN) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        here.signal.groups[TEAM].members[CLEO.aci] = CLEO
        assert await here.asked("what did I miss?", author=CLEO) == ANSWER
        assert NEVER_WROTE in here.told()
        await here.signal.say("hi, I am new", author=CLEO, group=TEAM)
        await there(here, "I am new")
        await here.signal.say("welcome", author=BEN, group=TEAM)
        await there(here, "welcome")
        here.model.handler = catching_up(hours=24)
        assert await here.asked("what was said today?", author=CLEO) == ANSWER
        assert "Ben: welcome" in here.told()
        assert SECRET not in here.told()


async def test_hours_reach_back_before_the_last_message_of_a_member() -> None:
    async with opted_in(catching_up(hours=24)) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await here.signal.say("noted", author=ADA, group=TEAM)
        await there(here, "noted")
        assert await here.asked("what was said today?") == ANSWER
        assert SECRET in here.told()


async def test_without_the_groups_choice_nothing_is_kept_for_it() -> None:
    async with story(catching_up()) as here:
        team(here, ADA, BEN)
        assert await command(here, "!catchup") == f"{NOT_KEPT}\n{HOW_TO_BEGIN}"
        assert await here.asked("!catchup on") == IN_GROUP
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        assert await here.asked("what did I miss?", group=TEAM, mention=True) == ANSWER
        assert NOT_HERE in here.told()
        assert not rows(here.folder, "SELECT 1 FROM kept_words")


async def test_admins_alone_decide_and_everybody_sees_it() -> None:
    async with story() as here:
        team(here, ADA, BEN)
        assert await command(here, "!catchup on", author=BEN) == ONLY_ADMINS
        assert await command(here, "!catchup perhaps") == USAGE
        said = await command(here, "!catchup on")
        assert "for at most 7 days" in said
        assert await command(here, "!catchup", author=BEN) == said
        assert await command(here, "!catchup off", author=BEN) == ONLY_ADMINS
        assert await command(here, "!catchup off") == CATCH_UP_ENDED


async def test_opting_out_deletes_kept_messages_and_summaries_at_once() -> None:
    async with opted_in(catching_up()) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await there(here, SECRET)
        await here.asked("what did I miss?")
        assert rows_with(here, ANSWER)
        assert await command(here, "!catchup off") == CATCH_UP_ENDED
        for words in (SECRET, ANSWER, "beginning"):
            assert not rows_with(here, words)
            assert words.encode() not in files_of(here)


async def test_deleted_or_edited_message_is_removed_with_its_summary() -> None:
    async with opted_in(catching_up()) as here:
        words = await here.signal.say(SECRET, author=BEN, group=TEAM)
        edited = await here.signal.say("at five", author=BEN, group=TEAM)
        await here.signal.edit("at six", edited, author=BEN, group=TEAM)
        await there(here, "at six")
        await here.asked("what did I miss?")
        assert f"Ben: {SECRET}" in here.told()
        assert "Ben: at six" in here.told()
        await here.signal.delete(words, author=BEN, group=TEAM)
        await gone(here, ANSWER)
        await gone_from_files(here, SECRET)
        here.model.handler = catching_up()
        await here.asked("what did I miss?")
        assert "Ben: at six" in here.told()
        assert SECRET not in here.told()


async def test_timer_of_the_group_deletes_messages_and_private_summary() -> None:
    async with opted_in(catching_up()) as here:
        await here.signal.say(SECRET, author=BEN, group=TEAM, expires_seconds=2)
        await there(here, SECRET)
        await here.asked("what did I miss?")
        assert f"Ben: {SECRET}" in here.told()
        await gone(here, SECRET)
        await gone(here, ANSWER)
        here.model.handler = catching_up()
        await here.asked("what did I miss?")
        assert "Nothing was written there since" in here.told()


async def test_nothing_that_a_stranger_says_is_kept() -> None:
    access = {"policy": "allowlist", "allowed": ADA.aci}
    async with story(catching_up(), access=access) as here:
        team(here, ADA, BEN)
        await command(here, "!catchup on")
        await here.signal.say("hello", group=TEAM)
        await here.signal.say(SECRET, author=BEN, group=TEAM)
        await here.signal.say("anybody?", group=TEAM)
        await there(here, "anybody?")
        assert SECRET.encode() not in files_of(here)
        await here.asked("what did I miss?")
        assert "Nothing was written there since" in here.told()


async def test_group_cannot_opt_in_without_retention() -> None:
    async with story(store={"retention_days": 0}) as here:
        team(here, ADA, BEN)
        assert await command(here, "!catchup on") == KEEPS_NOTHING
        await here.asked("hello")
    names = [tool["function"]["name"] for tool in here.model.requests[-1]["tools"]]
    assert "catch_up" not in names


@pytest.mark.parametrize("is_deleted", [False, True])
async def test_a_waiting_turn_of_another_chat_restarts_without_deleted_words(
    is_deleted: bool,
) -> None:
    choice = {"question": "Which safe?", "options": ["Left", "Right"]}
    steps = script(tool_calls(("catch_up", {})), tool_calls(("ask_user", choice)), text("Hm."))
    async with opted_in(steps) as here:
        said = await here.signal.say(f"the safe is {SECRET}", author=BEN, group=TEAM)
        await there(here, SECRET)
        question = await here.answer_to("what did I miss?")
        await there(here, str(question.timestamp))
        expected = {"Hm."} if is_deleted else {CATCH_UP_ENDED, "Hm."}
        if is_deleted:
            await here.signal.delete(said, author=BEN, group=TEAM)
        else:
            await here.signal.say("!catchup off", group=TEAM, mention=True)
        assert {(await here.answer()).text for _ in expected} == expected
        await gone(here, SECRET)
    assert SECRET not in str(here.model.requests[-1]["messages"])
