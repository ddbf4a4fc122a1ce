"""Several models: chosen per chat, and used as replacements."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Final

import pytest

from bot.commands.base import ONLY_ADMINS
from bot.config.settings import Settings
from bot.llm.models import NOT_PROVEN_EITHER
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import World, killed_bot, running_bot, world
from tests.fakes.openai_server import (
    OpenAiServer,
    chunk,
    cut,
    held,
    openai_server,
    script,
    sse,
    status,
    text,
    tool_calls,
)
from tests.fakes.signal_side import ADA, Group

TEAM: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@contextlib.asynccontextmanager
async def two_models() -> AsyncIterator[tuple[World, OpenAiServer]]:
    async with world() as here, openai_server() as other:
        here.model.handler = text("I am the first.")
        other.handler = text("I am the second.")
        yield here, other


def settings_of(here: World, other: OpenAiServer, **llm: object) -> Settings:
    second = {"base_url": other.base_url, "model": "second-model", "api_key": "second-key"}
    return here.settings(llm={"models": {"second": second}, **llm})


async def test_a_chat_chooses_its_model_and_keeps_it_over_a_restart() -> None:
    async with two_models() as (here, other):
        settings = settings_of(here, other)
        async with running_bot(settings):
            listed = await here.asked("!model")
            unknown = await here.asked("!model gpt-9")
            assert await here.asked("hello") == "I am the first."
            assert "the model second answers here" in await here.asked("!model SECOND ")
            assert await here.asked("hello") == "I am the second."
        async with running_bot(settings):
            assert await here.asked("and now?") == "I am the second."
            assert "←" in (await here.asked("!model")).splitlines()[1]
            assert "the model default answers here" in await here.asked("!model default")
            assert await here.asked("hello") == "I am the first."
    assert unknown.startswith("There is no model of that name.")
    first, second, how = listed.splitlines()
    assert first.startswith("• default (fake): tools, images, reads 32,000 tokens, not proven ←")
    assert second.startswith("• second (second-model): tools, images, reads")
    assert how == "Send !model and a name to choose."
    keys = {request.headers.get("authorization") for request in other.received}
    assert keys == {"Bearer second-key"}
    # Nothing of the conversation is lost with the change.
    assert "I am the first." in str(other.requests[0]["messages"])


async def test_a_model_removed_from_the_settings_is_announced_once() -> None:
    async with two_models() as (here, other):
        async with running_bot(settings_of(here, other)):
            await here.asked("!model second")
        async with running_bot(here.settings()):
            first, second = await here.asked("hello"), await here.asked("hello")
    gone = "The model second, which was chosen here, is gone; the default one answers now."
    assert (first, second) == (f"{gone}\n\nI am the first.", "I am the first.")


async def test_in_a_group_only_its_admins_choose() -> None:
    async with two_models() as (here, other):
        here.signal.groups[TEAM] = Group(members={ADA.aci: ADA})
        async with running_bot(settings_of(here, other)):
            assert await here.asked("!model second", group=TEAM, mention=True) == ONLY_ADMINS


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(status(503), id="busy", marks=pytest.mark.full),
        pytest.param(status(400, {"error": {"message": "no such thing"}}), id="refuses"),
        pytest.param(cut, id="closes", marks=pytest.mark.full),
    ],
)
async def test_a_replacement_continues_for_a_failed_model_and_says_so(trouble: object) -> None:
    async with two_models() as (here, other):
        here.model.handler = trouble  # type: ignore[assignment]
        async with running_bot(settings_of(here, other, fallback="second")):
            assert await here.asked("hello") == "I am the second.\n\n(answered by second)"
            here.model.handler = text("I am back.")
        # The bot avoids it for a while, so that no turn waits for its time-outs.
        async with running_bot(settings_of(here, other, fallback="second")):
            assert await here.asked("hello") == "I am back."
    assert "answered by" not in str(here.model.requests[-1]["messages"])


async def test_failure_of_all_models_is_one_plain_sentence() -> None:
    async with two_models() as (here, other):
        here.model.handler = other.handler = status(401)
        async with running_bot(settings_of(here, other, fallback="second")):
            assert "refuses my access" in await here.asked("hello")
    assert len(here.answers()) == 1


async def test_a_kill_in_the_midst_of_a_change_of_models_leaves_one_answer() -> None:
    never = asyncio.Event()
    async with two_models() as (here, other):
        here.model.handler = script(
            tool_calls(("calculate", {"expression": "6*7"})), status(401), status(401)
        )
        other.handler = held(never)
        settings = settings_of(here, other, fallback="second")
        async with killed_bot(settings):
            await here.signal.say("What is 6*7?")
            await asyncio.wait_for(other.wait_for_requests(1), 10)
        other.handler = text("I am the second.")
        async with running_bot(settings):
            answer = (await here.answer()).text
    assert answer.endswith("(answered by second)")
    assert len(here.answers()) == 1
    roles = [message["role"] for message in other.requests[-1]["messages"]]
    assert roles == ["system", "user", "assistant", "tool"]
    assert "42" in other.requests[-1]["messages"][-1]["content"]


async def test_a_proven_chat_goes_to_no_model_that_is_not_proven() -> None:
    async with proving_world() as proving, openai_server(text("I read along.")) as other:
        second = {"base_url": other.base_url, "model": "other"}
        llm = {"models": {"second": second}, "fallback": "second"}
        settings = proving.settings("warn", llm=llm)
        async with running_bot(settings, trust=proving.trust):
            await proving.here.asked("hello")
            proving.cloud.handler = sse(chunk({"content": "Well"}), done=False, cut=True)
            answer = await proving.here.asked("a secret")
    assert answer == NOT_PROVEN_EITHER
    assert other.requests == []


async def test_a_model_without_proof_is_not_chosen_where_proof_is_required() -> None:
    async with proving_world() as proving, openai_server() as other:
        second = {"base_url": other.base_url, "model": "other"}
        settings = proving.settings("require", llm={"models": {"second": second}})
        async with running_bot(settings, trust=proving.trust):
            answer = await proving.here.asked("!model second")
    assert answer.startswith("I send nothing to the model second, because it has not proven")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"LLM__DIALECT": "klingon"}, "LLM__DIALECT: must be 'openai', 'anthropic'"),
        ({"LLM__FALLBACK": "second"}, "LLM__FALLBACK names an unknown model"),
        ({"LLM__DIALECT": "bedrock", "LLM__MODEL": "x"}, "LLM__DIALECT=bedrock needs LLM__REGION"),
        ({"LLM__MODELS__SECOND__API_KEY": "x"}, "LLM__MODELS__SECOND__MODEL: is required"),
        ({"LLM__TOOL_CALLING": "maybe"}, "LLM__TOOL_CALLING: must be"),
    ],
)
async def test_wrong_settings_end_the_start_with_one_line_each(
    wrong: dict[str, str], said: str
) -> None:
    async with world() as here:
        settings = environment(here, **wrong)
        if "LLM__DIALECT" in wrong:
            settings.pop("LLM__BASE_URL", None)
        async with daemon(settings, folder=here.folder) as bot:
            assert await bot.exit_code() == 2
            (line,) = bot.stderr
    assert line.startswith(said)
    assert ADA.aci not in line
