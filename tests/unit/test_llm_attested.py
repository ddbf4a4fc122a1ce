"""The client at an endpoint that has to prove who reads along."""

import asyncio
import contextlib
import hashlib
import itertools
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.loop_stall import MAX_MS, stalls
from bot.attestation.near_ai.encryption import RequestKeys, request_keys
from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, RetryPolicy, open_transport
from bot.llm.errors import LlmBroken, LlmError, LlmNotAttested, LlmRejected, LlmUnavailable
from bot.llm.messages import Completion
from bot.llm.openai import OpenAi
from conversation_store.models import Message, NewExchange, Role, ToolCall
from tests.fakes import openai_server as fake
from tests.fakes.http import served
from tests.fakes.near_ai_encryption import EncryptedModel, seal_field
from tests.fakes.openai_server import (
    EVENT_STREAM,
    JSON,
    OpenAiServer,
    Step,
    chunk,
    openai_server,
    raw_body,
    script,
    sse,
    status,
    whole,
)
from tools.base import ToolSpec

QUICK: Final = RetryPolicy(bound_seconds=5.0, first_seconds=0.001, longest_seconds=0.01)
HELLO: Final = [Message(Role.USER, "hello")]
OPENAI: Final = OpenAi(LlmSettings(base_url="http://h", model="m"))


class Gate:
    """Admits so often, then refuses; counts how often it was asked."""

    def __init__(self, admits: int = 1000, *, proven: bool = True) -> None:
        self.admits = admits
        self.proven = proven
        self.asked = 0

    async def admit(self) -> bool:
        self.asked += 1
        if self.asked > self.admits:
            raise LlmNotAttested("I have not sent your message to the model, because of a test.")
        return self.proven


Seal = Callable[[], Awaitable[RequestKeys]]


@contextlib.asynccontextmanager
async def client_of(
    server: OpenAiServer,
    *,
    admission: Gate | None = None,
    encryption: Seal | None = None,
    max_concurrency: int = 32,
) -> AsyncIterator[LlmClient]:
    endpoint = LlmSettings(
        base_url=server.base_url, model=fake.MODEL, max_concurrency=max_concurrency
    )
    async with open_transport(endpoint) as transport:
        yield LlmClient(
            transport,
            endpoint,
            retry=QUICK,
            admit=admission.admit if admission else None,
            seal=encryption,
        )


async def answer_to(
    step: Step,
    messages: Sequence[Message] = HELLO,
    tools: Sequence[ToolSpec] = (),
    **attested: Any,
) -> Completion:
    async with openai_server(step) as server, client_of(server, **attested) as client:
        return await client.complete(messages, tools)


# Admission


@pytest.mark.parametrize("admits", [0, 1])
async def test_without_admission_nothing_is_sent_and_nothing_tried_again(admits: int) -> None:
    gate = Gate(admits)
    async with openai_server(status(503)) as server, client_of(server, admission=gate) as client:
        with pytest.raises(LlmNotAttested) as caught:
            await client.complete(HELLO)

    assert caught.value.sentence.startswith("I have not sent your message")
    assert (gate.asked, len(server.received)) == (admits + 1, admits)


async def test_admission_is_asked_for_before_every_attempt() -> None:
    gate = Gate()

    await answer_to(script(status(503), status(400, "no stream_options")), admission=gate)

    assert gate.asked == 3


async def test_admission_holds_when_the_request_goes_out_not_when_it_began_to_wait() -> None:
    gate, go = Gate(admits=1), asyncio.Event()
    async with (
        openai_server(fake.held(go)) as server,
        client_of(server, admission=gate, max_concurrency=1) as client,
        asyncio.TaskGroup() as group,
    ):
        first = group.create_task(client.complete(HELLO))
        await server.wait_for_requests(1)
        second = group.create_task(_refusal(client))
        await asyncio.sleep(0)
        assert gate.asked == 1
        go.set()

    assert first.result().message.content == "answer to: hello"
    assert type(second.result()) is LlmNotAttested
    assert len(server.requests) == 1


async def _refusal(client: LlmClient) -> LlmError:
    with pytest.raises(LlmError) as caught:
        await client.complete(HELLO)
    return caught.value


@pytest.mark.parametrize("gate", [Gate(), Gate(proven=False), None])
async def test_only_an_attested_endpoint_is_asked_for_the_models_own_bytes(
    gate: Gate | None,
) -> None:
    async with openai_server() as server, client_of(server, admission=gate) as client:
        await client.complete(HELLO)
        await client.models()

    attested = gate is not None and gate.proven
    options = {"include_usage": True} | ({"continuous_usage_stats": True} if attested else {})
    assert server.requests[0]["stream_options"] == options
    asked, listed = server.received
    assert asked.headers.get("x-no-aliasing") == ("true" if attested else None)
    assert "x-no-aliasing" not in listed.headers


# The exchange

STREAM: Final = (
    b": keep-alive\r\n\r\n"
    b'data: {"id": "chatcmpl-7", "choices": [{"delta": {"content": "Gr\xc3\xbc"}}]}\r\n\r\n'
    b'data:{"id": "chatcmpl-8", "choices": [{"delta": {"content": "\xc3\x9fe"}}]}\n\n'
    b"data: [DONE]\n\n"
    b": and more\n\ndata: \xff after the end"
)


@pytest.mark.parametrize("cuts", [(), (1,), (70, 71), (150,), (len(STREAM) - 20,)])
async def test_the_hashes_are_those_of_every_byte_that_went_and_came(cuts: tuple[int, ...]) -> None:
    edges = [0, *cuts, len(STREAM)]
    pieces = [STREAM[a:b] for a, b in itertools.pairwise(edges)]
    async with (
        openai_server(raw_body(*pieces, content_type=EVENT_STREAM)) as server,
        client_of(server) as client,
    ):
        completion = await client.complete([Message(Role.USER, "Grüße 🔧")])

    assert completion.message.content == "Grüße"
    assert completion.exchange == NewExchange(
        "chatcmpl-7",
        hashlib.sha256(server.received[0].raw).hexdigest(),
        hashlib.sha256(STREAM).hexdigest(),
    )
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_a_whole_document_has_its_hashes_too() -> None:
    document = b'{ "id":"chatcmpl-9",  "choices": [{"message": {"content": "Hi."}}]}\n'

    completion = await answer_to(raw_body(document, content_type=JSON))

    assert completion.exchange is not None
    assert completion.exchange.completion_id == "chatcmpl-9"
    assert completion.exchange.response_sha256 == hashlib.sha256(document).hexdigest()


async def test_after_retries_the_hashes_are_those_of_the_attempt_that_was_answered() -> None:
    async with (
        openai_server(script(status(503), status(400, "stream_options"))) as server,
        client_of(server) as client,
    ):
        completion = await client.complete(HELLO)

    assert completion.exchange is not None
    hashes = [hashlib.sha256(request.raw).hexdigest() for request in server.received]
    assert hashes[0] == hashes[1] != hashes[2]
    assert completion.exchange.request_sha256 == hashes[2]


UNUSABLE_NAMES: Final[tuple[object, ...]] = (None, "", 7, [], "x" * 129, "é", "a\nb")


@pytest.mark.parametrize(
    "step",
    [
        fake.held_midway(asyncio.Event(), chunk({"content": "Hi."}), "[DONE]"),
        sse(chunk({"content": "Hi."}, finish_reason="stop"), done=False, cut=True),
        *(sse({**chunk({"content": "Hi."}), "id": name}) for name in UNUSABLE_NAMES),
    ],
)
async def test_an_answer_without_an_end_or_a_usable_name_has_no_exchange(step: Step) -> None:
    completion = await answer_to(step)

    assert (completion.message.content, completion.exchange) == ("Hi.", None)


# Encryption

MODEL: Final = EncryptedModel()
SEAL: Final = partial(request_keys, MODEL.encryption_key)
CALL: Final = ToolCall("call_1", "secret_tool", '{"place": "secret-argument"}')
CONVERSATION: Final = (
    Message(Role.SYSTEM, "secret-system"),
    Message(Role.USER, "secret-question"),
    Message(Role.ASSISTANT, None, (CALL,)),
    Message(Role.TOOL, "secret-result", tool_call_id="call_1"),
    Message(Role.ASSISTANT, "secret-words", (CALL,)),
    Message(Role.TOOL, "", tool_call_id="call_1"),
)
TOOL: Final = ToolSpec(
    "secret_tool",
    "secret-description",
    {"type": "object", "properties": {"secret-parameter": {"type": "string"}}},
)


async def test_only_the_model_can_read_the_conversation() -> None:
    async with openai_server() as plain, client_of(plain) as client:
        await client.complete(CONVERSATION, [TOOL])
    async with (
        openai_server(MODEL.reads(fake.text("Hi."))) as server,
        client_of(server, encryption=SEAL) as client,
    ):
        completion = await client.complete(CONVERSATION, [TOOL])

    assert completion.message == Message(Role.ASSISTANT, "Hi.")
    assert MODEL.read[-1:] == plain.requests
    assert plain.received[0].raw.count(b"secret") == 11
    assert server.received[0].raw.count(b"secret") == 0


async def test_an_encrypted_answer_may_come_whole_or_with_empty_pieces() -> None:
    message = {
        "content": "Hi.",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "1", "function": {"name": "clock", "arguments": "{}"}}],
    }
    pieces = [{"role": "assistant", "content": ""}, message, {"content": None}, {}]

    for step in (whole({"choices": [{"message": message}]}), sse(*map(chunk, pieces))):
        completion = await answer_to(MODEL.reads(step), encryption=SEAL)
        assert completion.message.content == "Hi."
        assert [call.name for call in completion.message.tool_calls] == ["clock"]


LIKE_PARTS: Final = ('["a", "b"]', " [] ", "[1]", '[{"type": "text"}]')
"""Words that the model's side would take for a list of parts."""


@pytest.mark.parametrize(
    "said", [*LIKE_PARTS, "[12:00] hello", '{"a": []}', "[" * 100_000, "[]]", "7"]
)
async def test_words_stay_words_when_they_are_encrypted(said: str) -> None:
    hi = MODEL.reads(fake.text("Hi."))
    await answer_to(hi, [Message(Role.USER, said)], encryption=SEAL)

    expected = [{"type": "text", "text": said}] if said in LIKE_PARTS else said
    assert MODEL.read[-1]["messages"][0]["content"] == expected


async def test_every_attempt_is_encrypted_with_keys_of_its_own() -> None:
    async with (
        openai_server(script(status(503), MODEL.reads(fake.text("Hi.")))) as server,
        client_of(server, encryption=SEAL) as client,
    ):
        await client.complete(HELLO)

    keys = {request.headers["x-client-pub-key"] for request in server.received}
    bodies = {request.raw for request in server.received}
    assert len(keys) == len(bodies) == 2


def call(name: object = None, arguments: object = None) -> dict[str, Any]:
    return {"tool_calls": [{"index": 0, "function": {"name": name, "arguments": arguments}}]}


FOREIGN: Final = seal_field(MODEL.public_key, "to somebody else")
IN_THE_CLEAR: Final = {
    "content": {"content": "Hi."},
    "foreign": {"content": FOREIGN},
    "parts": {"content": [{"type": "text", "text": "Hi."}]},
    "number": {"content": 7},
    "reasoning_content": {"reasoning_content": "Hm."},
    "reasoning": {"reasoning": "Hm."},
    "refusal": {"refusal": "No."},
    "name": call(name="clock"),
    "arguments": call(arguments="{}"),
    "object": call(arguments={}),
    "list": call(arguments=[{"text": "x"}]),
}


@pytest.mark.parametrize("words", IN_THE_CLEAR.values(), ids=IN_THE_CLEAR.keys())
@pytest.mark.parametrize("streamed", [True, False])
async def test_an_answer_that_is_not_encrypted_is_not_used(
    words: dict[str, Any], streamed: bool
) -> None:
    step = sse(chunk(words)) if streamed else whole({"choices": [{"message": words}]})
    async with openai_server(step) as server, client_of(server, encryption=SEAL) as client:
        with pytest.raises(LlmNotAttested) as caught:
            await client.complete(HELLO)

    assert "not encrypted" in caught.value.sentence
    assert caught.value.__suppress_context__
    assert len(server.requests) == 1


async def test_answer_with_an_unencrypted_piece_is_refused() -> None:
    async def half_sealed(request: fake.Request, writer: asyncio.StreamWriter) -> None:
        first = MODEL.seal_answer(request.headers, chunk({"content": "This is "}))
        await sse(first, chunk({"content": "not so."}))(request, writer)

    with pytest.raises(LlmNotAttested):
        await answer_to(half_sealed, encryption=SEAL)


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (status(400, {"error": {"message": "Decryption failed"}}), LlmRejected),
        (sse({"error": {"message": "x", "code": 503}}), LlmUnavailable),
        (sse("{no json"), LlmBroken),
        (sse('{"choices": [{"delta": [[]]}]}'), LlmBroken),
        (whole([]), LlmBroken),
    ],
)
async def test_errors_of_the_endpoint_differ_from_missing_encryption(
    step: Step, kind: type[LlmError]
) -> None:
    with pytest.raises(LlmError) as caught:
        await answer_to(step, encryption=SEAL)

    assert type(caught.value) is kind


KEYS: Final = ("content", "reasoning", "tool_calls", "index", "id", "function", "name", "arguments")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), json_values))
def test_nothing_in_the_clear_ever_comes_through(message: dict[str, Any]) -> None:
    body = OPENAI.reader(RequestKeys(MODEL.public_key))
    body.feed(json.dumps({"choices": [{"message": message}]}).encode())
    try:
        completion = body.completion()
    except (LlmBroken, LlmNotAttested):
        return
    assert completion.message == Message(Role.ASSISTANT, None)


PIECES: Final = 2_000


@contextlib.asynccontextmanager
async def answering_at_once() -> AsyncIterator[str]:
    """Serve an encrypted model whose many small pieces of an answer come in one go."""

    def body(headers: Mapping[str, str]) -> bytes:
        piece = MODEL.seal_answer(headers, chunk({"content": "word "}))
        end = chunk({}, finish_reason="stop")
        events = [f"data: {json.dumps(event)}\n\n" for event in (*[piece] * PIECES, end)]
        return "".join(events).encode()

    async def answer(request: web.BaseRequest) -> web.Response:
        sealed = await asyncio.to_thread(body, request.headers)
        return web.Response(body=sealed, content_type="text/event-stream")

    async with served(answer) as port:
        yield f"http://127.0.0.1:{port}/v1"


async def test_thousands_of_encrypted_messages_do_not_block_the_loop() -> None:
    conversation = [Message(Role.USER, "a"), Message(Role.ASSISTANT, "b")] * 2_500
    async with answering_at_once() as url:
        endpoint = LlmSettings(base_url=url, model="m", api_key=None)
        async with open_transport(endpoint) as transport:
            client = LlmClient(transport, endpoint, seal=SEAL)
            async with stalls() as longest:
                completion = await client.complete(conversation)
    assert completion.message.content == "word " * PIECES
    assert longest.seconds * 1_000 < MAX_MS
