"""`todo` in the whole bot: the list of a longer turn, shown in its progress message."""

import asyncio
from typing import Any, Final

import pytest

from bot.chat.plan import MAX_FREE_CALLS, OVER_LIMIT
from bot.cli.check import tools as findings
from tests.e2e.running_bot import World, killed_bot, running_bot, story, world
from tests.e2e.test_conversation import CALCULATE
from tests.e2e.test_tools import offered
from tests.e2e.traces import gone, gone_from_files, there_is
from tests.fakes.openai_server import Step, held, script, text, tool_calls

Call = tuple[str, dict[str, Any]]

BEGUN: Final = "🔧 0/2\n◐ add\n☐ write it down"
OVER: Final = "🔧 Using calculate ✓\n☑ add\n☑ write it down"


def todo(**states: str) -> Call:
    """A call that sends a list of items, each with its state."""
    items = [{"text": name.replace("_", " "), "state": state} for name, state in states.items()]
    return ("todo", {"items": items})


def longer_work() -> Step:
    """Answer in four steps: list, work, list, words."""
    return script(
        tool_calls(todo(add="doing", write_it_down="open")),
        tool_calls(CALCULATE),
        tool_calls(todo(add="done", write_it_down="done")),
        text("It is 5461."),
    )


def progress(here: World) -> list[str]:
    return [sent.text for sent in here.signal.sent if sent.text.startswith("🔧")]


async def test_a_list_is_worked_off_in_one_message_that_is_edited() -> None:
    async with story(longer_work()) as here:
        assert await here.asked("Please add 127*43") == "It is 5461."
        signs = [sent for sent in here.signal.sent if sent.text.startswith("🔧")]
    assert "todo" in offered(here.model.requests[0])
    assert here.told(1) == "The person sees the list: 0 of 2 done."
    assert here.told(3) == "The person sees the list: 2 of 2 done."
    assert signs[0].text == BEGUN
    assert signs[0].replaces is None
    assert all(sign.replaces is not None for sign in signs[1:]), "only edits: nobody's phone rings"
    assert signs[-1].text == OVER
    assert not any("todo" in sign.text for sign in signs)


async def test_after_a_crash_the_list_stands_there_as_before() -> None:
    never = asyncio.Event()
    steps = script(tool_calls(todo(add="done", write="doing")), held(never), text("Here."))
    async with world(steps) as here:
        async with killed_bot(here.settings()):
            await here.let_think("Please add and write", requests=2)
            await here.signal.until(lambda: len(here.signal.sent) == 1)
            shown = here.signal.sent[0].timestamp
            await there_is(here, f"SELECT 1 FROM turns WHERE progress_timestamp = {shown}")
        async with running_bot(here.settings()):
            await here.signal.until(lambda: len(progress(here)) == 2)
            assert (await here.answer()).text == "Here."
    begun, again, _ = here.signal.sent
    assert begun.text == again.text == "🔧 1/2\n☑ add\n◐ write"
    assert again.replaces == begun.timestamp
    assert here.model.requests[2] == here.model.requests[1]


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_list_takes_no_calls_from_the_work(limit: int) -> None:
    steps: list[Step] = []
    for _ in range(limit):
        steps += [tool_calls(todo(add="doing")), tool_calls(CALCULATE, todo(add="done"))]
    async with story(script(*steps, text("Done.")), tools={"max_tool_calls": limit}) as here:
        assert await here.asked("work") == "Done."
    results = here.results()
    assert sum(result.startswith("5461") for result in results) == limit
    assert OVER_LIMIT not in results


async def test_a_model_that_only_writes_lists_ends_at_a_bound() -> None:
    async def handler(request: Any, writer: Any) -> None:
        may_call = request.body.get("tool_choice") != "none"
        await (tool_calls(todo(add="open")) if may_call else text("Enough."))(request, writer)

    async with story(handler, tools={"max_tool_calls": 2}) as here:
        assert await here.asked("work") == "Enough."
    assert len(here.model.requests) == MAX_FREE_CALLS + 1


async def test_a_list_that_is_too_long_is_refused() -> None:
    items = [{"text": f"step {number}"} for number in range(21)]
    async with story(script(tool_calls(("todo", {"items": items})), text("Done."))) as here:
        await here.asked("work")
    assert "The arguments of todo are wrong" in here.told()
    assert progress(here) == []


async def test_list_disappears_with_its_turn() -> None:
    steps = script(tool_calls(todo(antidisestablishmentarianism="doing")), text("Done."))
    async with story(steps) as here:
        await here.asked("work", expires_seconds=1)
        await gone(here, "antidisestablishmentarianism")
        await gone_from_files(here, "antidisestablishmentarianism")


@pytest.mark.parametrize("tools", [{"enabled": False}, {"max_tool_calls": 0}])
async def test_without_tools_there_is_no_list(tools: dict[str, object]) -> None:
    async with story(tools=tools) as here:
        await here.asked("hello")
        assert "todo" not in await here.asked("!tools")
    parts = {finding.part async for finding in findings(here.settings(tools=tools))}
    assert offered(here.model.requests[0]) == []
    assert "todo" not in parts


async def test_check_and_tools_command_list_todo() -> None:
    async with story() as here:
        assert "• Keep a list of my steps, or ask helpers (todo" in await here.asked("!tools")
    found = {finding.part: finding async for finding in findings(here.settings())}
    assert found["todo"].verdict == "ok"
