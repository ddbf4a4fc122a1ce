"""Values that the tests of each dialect provide."""

import json
import ssl
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, RetryPolicy, open_transport
from bot.llm.messages import Completion
from conversation_store.models import Message, Role
from tests.fakes.openai_server import MODEL
from tests.fakes.scripted_http import ScriptedServer, Step, status
from tools.base import ToolSpec

Arguments = Mapping[str, object]
QUICK: Final = RetryPolicy(bound_seconds=5.0, first_seconds=0.001, longest_seconds=0.01)
OVER_AT_ONCE: Final = RetryPolicy(bound_seconds=0.0)
HELLO: Final = [Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "hello")]
CLOCK: Final = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})


@dataclass
class StrictServer(ScriptedServer):
    """Fake server that refuses the same requests as the real one, in its words.

    Attributes:
        handler: answers questions; may be changed at any time.
    """

    handler: Step = field(default_factory=lambda: status(500))


class Refused(Exception):
    """The real server refuses a request, in these words."""


def demand(truth: object, words: str) -> None:
    """Refuse a request unless something holds."""
    if not truth:
        raise Refused(words)


Running = TypeVar("Running", bound=ScriptedServer)


@asynccontextmanager
async def running(server: Running) -> AsyncIterator[Running]:
    """Run a server inside the block."""
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def sent_words(server: ScriptedServer) -> str:
    """Return all words that the last request shows the model, without the system text."""
    body = server.requests[-1]
    return json.dumps(body.get("messages") or body["contents"], ensure_ascii=False)


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A dialect, and how its server says things.

    Attributes:
        name: as in `LLM__DIALECT`.
        server: runs the server; its model is `MODEL`.
        text: answers in words, streamed in several pieces if the request asks for a stream, with
            11 prompt tokens and 7 completion tokens.
        tool_calls: asks for calls at the same time, streamed in pieces, with words before.
        cut_off: answers in words that end at the limit of tokens.
        thinking: answers in words after reasoning in the dialect's own fields.
        broken_stream: begins an answer and closes the connection midway.
        half_stream: begins an answer and ends it properly, but before the end of the answer.
        refusals: answers with errors as the real server words them, by the kinds `overloaded`,
            `rate_limit`, `key`, `credit`, `model`, `too_long`, `no_tools`, `no_system_role`,
            `no_images`; except errors that the real server does not have.
        error_midway: begins a stream, then sends an error event.
        cut_call: calls `clock` and ends at the limit of tokens in the middle of the arguments; None
            if the API sends calls only as a whole.
        settings: settings for a model of this dialect, besides its address and name.
    """

    name: str
    server: Callable[[], AbstractAsyncContextManager[StrictServer]]
    text: Callable[[str], Step]
    tool_calls: Callable[[tuple[tuple[str, Arguments], ...], str], Step]
    cut_off: Callable[[str], Step]
    thinking: Callable[[str, str], Step]
    broken_stream: Step
    half_stream: Step
    refusals: Mapping[str, Step]
    error_midway: Step
    cut_call: Step | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


def client_of(
    harness: Harness,
    server: ScriptedServer,
    *,
    retry: RetryPolicy = QUICK,
    path: str = "",
    model: str = MODEL,
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AbstractAsyncContextManager[LlmClient]:
    """Provide a client of a server; further settings replace those of the harness."""
    key = {} if harness.settings.get("access_key_id") else {"api_key": "secret-key"}
    of_the_model = {"dialect": harness.name, "model": model, "timeout_seconds": 5.0}
    return client_at(
        server.base_url + path,
        retry=retry,
        settings={**of_the_model, **key, **harness.settings, **settings},
    )


@asynccontextmanager
async def client_at(
    base_url: str,
    *,
    retry: RetryPolicy = QUICK,
    tls: ssl.SSLContext | None = None,
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[LlmClient]:
    """Provide a client of an address; it speaks OpenAI's API unless the settings say otherwise."""
    llm = LlmSettings.model_validate({"base_url": base_url, "model": MODEL, **settings})
    async with open_transport(llm, tls=tls) as transport:
        yield LlmClient(transport, llm, retry=retry)


async def completed(
    harness: Harness,
    step: Step,
    messages: Sequence[Message] = HELLO,
    tools: Sequence[ToolSpec] = (),
    *,
    retry: RetryPolicy = OVER_AT_ONCE,
    may_call: bool = True,
) -> Completion:
    """Return what a client makes of an answer of the strict server."""
    async with harness.server() as server, client_of(harness, server, retry=retry) as client:
        server.handler = step
        return await client.complete(messages, tools, may_call=may_call)
