"""What is kept of a chat: searching it, and what left for an answer."""

from typing import Final

import pytest

from bot.commands.base import ONLY_ASKER
from bot.commands.past import (
    FOUND,
    HOW_TO_FIND,
    KEEPS_NOTHING,
    LEFT,
    NO_ANSWER,
    NOT_KEPT,
    NOTHING_FOUND,
)
from tests.e2e.running_bot import kill, running_bot, world
from tests.e2e.test_approvals import WRITE, question, with_notes
from tests.e2e.test_catch_up import BEN, CLEO, TEAM, command, team
from tests.e2e.test_over_rest import guest
from tests.e2e.test_tools import offered, with_search
from tests.e2e.traces import files_of, gone, gone_from_files, there
from tests.fakes.brave import KEY, brave_api
from tests.fakes.open_meteo import open_meteo
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import ADA

SECRET: Final = "sesquipedalian"


def lines(answer: str) -> list[str]:
    """Return what an answer lists, without the dates."""
    return [line.split(" ", 3)[-1] for line in answer.splitlines() if line.startswith("• ")]


# Search -------------------------------------------------------------------------------------------


async def test_a_person_finds_words_in_any_case_accent_and_script() -> None:
    async with world(script(*(text(words) for words in ("Schön!", "晴れです", "ไม่ตก")))) as here:
        async with running_bot(here.settings()):
            for said in ("I was in the Café in Zürich", "明日の天気予報は", "พรุ่งนี้ฝนจะตกไหม"):
                await here.asked(said)
            found = await here.asked("!find CAFE zurich")
            assert found.startswith(FOUND)
            assert lines(found) == [f"{ADA.name}: I was in the Café in Zürich"]
            assert lines(await here.asked("!find 天気")) == [f"{ADA.name}: 明日の天気予報は"]
            assert lines(await here.asked("!find ฝน")) == [f"{ADA.name}: พรุ่งนี้ฝนจะตกไหม"]
            assert lines(await here.asked("!find schon")) == ["🤖: Schön!"]
            assert await here.asked("!find railway") == NOTHING_FOUND.format(days=30)
            assert await here.asked("!find") == HOW_TO_FIND


async def test_a_message_of_several_lines_is_found_on_one_and_hides_nothing() -> None:
    async with world(script(text("Noted."))) as here, running_bot(here.settings()):
        await here.asked("a list:\n- tea\n- milk\u202e")
        found = lines(await here.asked("!find tea"))
    assert found == [f"{ADA.name}: a list: - tea - milk⟨U+202E⟩"]


async def test_table_that_is_found_is_shown_as_words() -> None:
    table = "Rivers:\n| River | km |\n|:--|--:|\n| Rhine | 1230 |"
    async with world(text(table)) as here, running_bot(here.settings()):
        await here.asked("rivers, please")
        assert lines(await here.asked("!find rhine")) == ["🤖: Rivers: River, km Rhine, 1230"]


async def test_messages_with_all_words_come_first_and_newer_ones_before_older_ones() -> None:
    async with world(script(*[text("Noted.")] * 3)) as here, running_bot(here.settings()):
        for said in ("red car", "blue car", "red bicycle"):
            await here.asked(said)
        found = lines(await here.asked("!find red car"))
    assert found == [f"{ADA.name}: {said}" for said in ("red car", "red bicycle", "blue car")]


async def test_the_model_searches_the_chat_and_knows_that_it_may_quote_strangers() -> None:
    search = tool_calls(("search_chat", {"query": "passport", "after": "2020-01-01"}))
    steps = script(text("Noted."), search, text("In the drawer."))
    async with world(steps) as here, running_bot(here.settings()):
        await here.asked("My passport is in the drawer")
        assert await here.asked("Where is it?") == "In the drawer."
        assert "search_chat" in offered(here.model.requests[1])
        result = here.told()
    assert result.startswith("[Untrusted content from search_chat, begins here: ")
    assert f"{ADA.name}: My passport is in the drawer" in result
    assert "Where is it" not in result


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        ({"before": "2020-01-01"}, "No message here has any of these words."),
        ({"after": "tomorrow"}, "This is no date."),
    ],
)
async def test_a_search_can_be_limited_to_days(arguments: dict[str, str], answer: str) -> None:
    search = tool_calls(("search_chat", {"query": "passport", **arguments}))
    async with world(script(text("Noted."), search, text("."))) as here:
        async with running_bot(here.settings()):
            await here.asked("My passport is in the drawer")
            await here.asked("Where is it?")
    assert here.told().startswith(answer)  # nobody else's words, so later calls need no question


async def test_a_group_finds_what_was_said_to_the_bot_or_kept_since_the_person_came() -> None:
    async with world(script(text("Noted."), text("Hello."), text("Hi."))) as here:
        async with running_bot(here.settings()):
            team(here, ADA, BEN, CLEO)
            await here.signal.say("the tent is heavy", author=BEN, group=TEAM)
            await here.asked("the tent is red", group=TEAM, mention=True)
            assert lines(await command(here, "!find tent")) == [f"{ADA.name}: the tent is red"]
            await command(here, "!catchup on")
            await here.asked("hello", author=BEN, group=TEAM, mention=True)
            await here.signal.say("the tent is wet", author=BEN, group=TEAM)
            await there(here, "the tent is wet")
            both = [f"{BEN.name}: the tent is wet", f"{ADA.name}: the tent is red"]
            assert lines(await command(here, "!find tent")) == both
            await here.asked("hi", author=CLEO, group=TEAM, mention=True)
            found = lines(await command(here, "!find tent", author=CLEO))
            assert found == both[1:]


async def test_deleted_words_are_not_found_and_nobody_keeps_a_copy() -> None:
    search = tool_calls(("search_chat", {"query": SECRET}))
    steps = script(text("Noted."), search, text(f"It is {SECRET}."), text("Again."))
    async with world(steps) as here, running_bot(here.settings()):
        said = await here.signal.say(f"The word is {SECRET}")
        await here.answer()
        await here.asked("What was the word?")
        await here.signal.delete(said)
        await gone(here, SECRET)
        await gone_from_files(here, SECRET)
        assert await here.asked(f"!find {SECRET}") == NOTHING_FOUND.format(days=30)


async def test_search_goes_on_after_a_kill_and_finds_nothing_if_nothing_is_kept() -> None:
    async with world() as here:
        async with running_bot(here.settings()) as bot:
            await here.asked("the tent is red")
            await kill(bot)
        async with running_bot(here.settings()):
            assert lines(await here.asked("!find tent"))[-1] == f"{ADA.name}: the tent is red"
    async with world() as here:
        async with running_bot(
            here.settings(store={"path": here.folder / "s", "retention_days": 0})
        ):
            await here.asked("the tent is red")
            assert await here.asked("!find tent") == KEEPS_NOTHING


# What left ----------------------------------------------------------------------------------------


async def test_a_person_sees_all_that_left_for_an_answer() -> None:
    steps = script(
        tool_calls(("web_search", {"query": "night trains"}), ("get_weather", {"place": "Berlin"})),
        text("By train."),
        text("Hello."),
    )
    async with world(steps) as here, brave_api() as brave, open_meteo() as weather:
        tools = {
            "web_search": {"api_key": KEY, "url": brave.url},
            "weather": {
                "geocoding_url": weather.settings.geocoding_url,
                "forecast_url": weather.settings.forecast_url,
            },
        }
        async with running_bot(here.settings(tools=tools)):
            await here.signal.say("How do I get to Berlin?")
            answer = await here.answer()
            await here.asked("hello")
            listed = (await here.asked("!sent", quote=answer.timestamp)).splitlines()
            last = (await here.asked("!sent")).splitlines()
    assert listed[0] == LEFT
    assert "• Web search at 127.0.0.1: “night trains”" in listed
    assert "• Name of a place to 127.0.0.1, for the weather: “Berlin”" in listed
    (model,) = (line for line in listed if "Model fake at 127.0.0.1" in line)
    assert model.endswith("(requests: 2)")
    assert "not proven" in model
    assert [line.split(":")[0] for line in last[1:]] == [model.split(":")[0]]


async def test_calls_of_mcp_servers_are_listed_with_their_arguments_also_after_a_kill() -> None:
    async with world(script(tool_calls(WRITE), text("Done."))) as here:
        async with running_bot(with_notes(here)) as bot:
            await here.signal.say("note: buy milk")
            await here.signal.react("👍", (await question(here)).timestamp)
            assert (await here.answer()).text == "Done."
            await kill(bot)
        async with running_bot(with_notes(here)):
            assert 'write {"text": "buy milk"}' in await here.asked("!sent")


async def test_in_a_group_only_the_asker_and_admins_see_the_list() -> None:
    async with world(script(text("Noted."))) as here, running_bot(here.settings()):
        team(here, ADA, BEN, CLEO)
        await here.asked("hello", author=BEN, group=TEAM, mention=True)
        assert await command(here, "!sent", author=CLEO) == ONLY_ASKER
        assert (await command(here, "!sent", author=BEN)).startswith(LEFT)
        assert (await command(here, "!sent", author=ADA)).startswith(LEFT)
        assert await here.asked("!sent") == NO_ANSWER


async def test_the_list_goes_with_its_answer() -> None:
    search = tool_calls(("web_search", {"query": SECRET}))
    async with world(script(search, text("Found."))) as here, brave_api() as brave:
        async with running_bot(with_search(here, brave)):
            said = await here.signal.say("look it up")
            answer = await here.answer()
            await there(here, SECRET)
            await here.signal.delete(said)
            await gone(here, SECRET)
            assert await here.asked("!sent", quote=answer.timestamp) == NOT_KEPT
    assert SECRET.encode() not in files_of(here)


async def test_over_rest_a_person_searches_and_sees_what_left() -> None:
    async with world() as here, guest(here) as visit:
        await visit.api.say("the tent is red")
        await visit.answer(1)
        await visit.api.say("!find tent")
        assert (await visit.answer(2)).text.startswith(FOUND)
        await visit.api.say("!sent")
        assert (await visit.answer(3)).text.startswith(LEFT)
