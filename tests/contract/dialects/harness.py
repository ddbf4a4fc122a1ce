"""Values that the tests of each dialect provide."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, TypeVar

from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, RetryPolicy, open_transport
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

    @property
    def base_url(self) -> str:
        """Value of `LLM__BASE_URL`."""
        return self.url


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


@dataclass(frozen=True, kw_only=True)
class Harness:
    """A dialect, and how its server says things.

    Attributes:
        name: as in `LLM__DIALECT`.
        server: runs the server; its model is `MODEL`.
        text: answers in words, streamed in several pieces where the request asks for a stream, with
            11 prompt tokens and 7 completion tokens.
        tool_calls: asks for calls at the same time, streamed in pieces, with words before.
        cut_off: answers in words that end at the limit of tokens.
        thinking: answers in words after reasoning in the dialect's own fields.
        broken_stream: begins an answer and closes the connection midway.
        half_stream: begins an answer and ends it properly, but before the end of the answer.
        refusal: answers with an error of this HTTP status as the real one words it; the kinds are
            `overloaded`, `rate_limit`, `key`, `credit`, `model`, `too_long`, `no_tools`,
            `no_system_role`, `no_images`; None where the real server has none of it.
        error_midway: begins a stream, then sends an error event.
        sent_words: returns all words that the last request shows the model.
        tools_offered: how many tools the last request offers.
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
    refusal: Callable[[str], Step | None]
    error_midway: Step
    sent_words: Callable[[ScriptedServer], str]
    tools_offered: Callable[[ScriptedServer], int]
    cut_call: Step | None = None
    settings: Mapping[str, object] = field(default_factory=dict)


@asynccontextmanager
async def client_of(
    harness: Harness,
    server: StrictServer,
    *,
    retry: RetryPolicy = QUICK,
    path: str = "",
    model: str = MODEL,
    settings: Mapping[str, object] = MappingProxyType({}),
) -> AsyncIterator[LlmClient]:
    """Give a client of a strict server; further settings replace those of the harness."""
    key = {} if harness.settings.get("access_key_id") else {"api_key": "secret-key"}
    llm = LlmSettings.model_validate(
        {
            "dialect": harness.name,
            "base_url": server.base_url + path,
            "model": model,
            "timeout_seconds": 5.0,
            **key,
            **harness.settings,
            **settings,
        }
    )
    async with open_transport(llm) as transport:
        yield LlmClient(transport, llm, retry=retry)
