"""Disappearing messages disappear here as well."""

import asyncio

from bot.chat.replies import DISAPPEARED
from bot.commands.questions import HOW_TO_PLAN
from tests.e2e.running_bot import WAIT_SECONDS, World, killed_bot, running_bot, story, world
from tests.e2e.traces import gone, gone_from_files, let_all_timers_run_out, rows_with, there
from tests.fakes.openai_server import held, script, text
from tests.fakes.signal_side import SharedFile
from tests.unit.test_media import picture

SECRET = "sesquipedalian"
ANSWER = "antidisestablishmentarianism"


async def test_a_timer_that_runs_out_while_the_model_thinks_leaves_nothing_behind() -> None:
    release = asyncio.Event()
    async with story(script(held(release, text(ANSWER)))) as here:
        await here.let_think(SECRET, expires_seconds=1)
        asyncio.get_running_loop().call_later(1.3, release.set)
        assert (await here.answer()).text == ANSWER
        async with asyncio.timeout(WAIT_SECONDS):
            await gone_from_files(here, SECRET)
            await gone_from_files(here, ANSWER)


async def test_answer_after_a_restart_says_that_the_message_disappeared() -> None:
    async with world() as here:
        never = asyncio.Event()
        here.model.handler = held(never)
        async with killed_bot(here.settings()):
            await here.let_think("first")
            await here.signal.say("!plan")  # later calls wait
            await here.signal.say(SECRET, expires_seconds=600)
            await there(here, SECRET)
        here.model.handler = text("fine")
        let_all_timers_run_out(here)
        async with running_bot(here.settings()):
            assert (await here.answer()).text == "fine"
            assert (await here.answer()).text == HOW_TO_PLAN
            assert (await here.answer()).text == DISAPPEARED
            await gone(here, SECRET)
    assert SECRET not in str(here.model.requests)


async def test_a_view_once_image_is_shown_to_the_model_and_never_stored() -> None:
    async with world() as here:
        here.signal.data_dir = here.folder / "signal-cli"
        side = {"data_dir": here.signal.data_dir}
        async with running_bot(here.settings(llm={"vision": "on"}, signal=side)):
            await _show_and_forget(here)


async def _show_and_forget(here: World) -> None:
    me = SharedFile("image/jpeg", picture())
    await here.asked("who is this?", files=[me], view_once=True)
    parts = here.model.requests[-1]["messages"][-1]["content"]
    assert [part["type"] for part in parts] == ["text", "image_url"]
    assert not rows_with(here, "image/jpeg")
    await here.asked("and now?")
    assert "image_url" not in str(here.model.requests[-1])
    assert not list((here.folder / "signal-cli" / "attachments").iterdir())
