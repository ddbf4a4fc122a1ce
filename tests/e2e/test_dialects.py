"""The daemon with each API that models speak, and conversations that go from one to another."""

import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Mapping
from itertools import permutations
from typing import Final

import pytest

from bot.config.settings import Settings
from tests.contract.dialects.all_of_them import HARNESSES
from tests.contract.dialects.harness import Harness, StrictServer, sent_words
from tests.e2e.running_bot import World, killed_bot, running_bot, world
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import script, status

DIALECTS: Final = {harness.name: harness for harness in HARNESSES}
SUM: Final = (("calculate", {"expression": "6*7"}),)


def settings_of(harness: Harness, server: StrictServer) -> dict[str, object]:
    return {
        "dialect": harness.name,
        "base_url": server.base_url,
        "model": MODEL,
        **harness.settings,
    }


def calculates(harness: Harness, server: StrictServer, words: str) -> None:
    """Script the server's model to call a tool, then say something."""
    server.handler = script(harness.tool_calls(SUM, "Let me see."), then=harness.text(words))


@contextlib.asynccontextmanager
async def all_servers() -> AsyncIterator[Mapping[str, StrictServer]]:
    async with contextlib.AsyncExitStack() as stack:
        yield {
            name: await stack.enter_async_context(harness.server())
            for name, harness in DIALECTS.items()
        }


def side_by_side(here: World, servers: Mapping[str, StrictServer], **llm: object) -> Settings:
    models = {name: settings_of(DIALECTS[name], server) for name, server in servers.items()}
    return here.settings(llm={**models.pop("openai"), "models": models, **llm})


async def test_a_conversation_moves_from_every_dialect_to_every_other() -> None:
    async with all_servers() as servers, world() as here:
        async with running_bot(side_by_side(here, servers)):
            for pair in permutations(servers, 2):
                for name in pair:
                    calculates(DIALECTS[name], servers[name], f"{name} says 42.")
                    await here.asked(f"!model {'default' if name == 'openai' else name}")
                    assert await here.asked("what is 6*7?") == f"{name} says 42."


@pytest.mark.parametrize("name", DIALECTS)
async def test_killed_turn_goes_on_with_its_calls(name: str) -> None:
    harness = DIALECTS[name]
    async with harness.server() as server, world() as here:
        server.handler = script(harness.tool_calls(SUM, ""), then=status(503))
        settings = here.settings(llm=settings_of(harness, server))
        async with killed_bot(settings):
            await here.signal.say("what is 6*7?")
            await server.wait_for_requests(2)
        server.handler = harness.text("It is 42.")
        async with running_bot(settings):
            assert (await here.answer()).text == "It is 42."
            assert "42" in sent_words(server)
            status_said = await here.asked("!status")
        assert len(here.answers()) == 2
    assert ("nothing of the kind exists for its API" in status_said) == (name != "openai")


def test_unused_dialects_are_not_loaded() -> None:
    listing = "import sys, bot.app; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-c", listing], capture_output=True, text=True, check=True, timeout=30
    ).stdout.split()
    assert "bot.llm.openai" in loaded
    others = DIALECTS.keys() - {"openai"}
    assert not {f"bot.llm.{name}" for name in others} & set(loaded)
