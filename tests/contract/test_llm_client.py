"""`LlmClient` at the wire of a real server on loopback."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from bot.config.llm import LlmSettings
from bot.llm.client import MAX_BROKEN_ANSWERS, LlmClient, RetryPolicy, open_transport
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmTimeout,
    LlmUnauthorized,
    LlmUnavailable,
    LlmUnreachable,
)
from bot.llm.messages import Completion
from bot.observability.metrics import LLM_REQUESTS, LLM_RETRIES, LLM_TOKENS
from conversation_store.models import Message, Role, TokenSum, ToolCall
from tests.fakes import openai_server as fake
from tests.fakes.openai_server import OpenAiServer, chunk, openai_server, script, sse, status
from tools.base import ToolSpec

QUICK = RetryPolicy(bound_seconds=5.0, first_seconds=0.001, longest_seconds=0.01)
OVER_AT_ONCE = RetryPolicy(bound_seconds=0.0)
IMPATIENT = RetryPolicy(bound_seconds=0.05, first_seconds=0.001, longest_seconds=0.01)
HELLO = [Message(Role.SYSTEM, "Be brief."), Message(Role.USER, "hello")]
CLOCK = ToolSpec("clock", "Tells the time.", {"type": "object", "properties": {}})


@dataclass(frozen=True)
class WatchedPolicy(RetryPolicy):
    """Tells when the first attempt has failed."""

    paused: asyncio.Event = field(default_factory=asyncio.Event)

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        self.paused.set()
        return super().pause(failures, retry_after_seconds)


@contextlib.asynccontextmanager
async def client_of(
    server: OpenAiServer,
    *,
    api_key: str | None = None,
    timeout_seconds: float = 10.0,
    max_concurrency: int = 32,
    retry: RetryPolicy = QUICK,
) -> AsyncIterator[LlmClient]:
    endpoint = LlmSettings(
        base_url=server.base_url,
        model=fake.MODEL,
        api_key=api_key,
        timeout_seconds=timeout_seconds,
        max_concurrency=max_concurrency,
    )
    async with open_transport(endpoint) as transport:
        yield LlmClient(transport, endpoint, retry=retry)


async def answer_to(handler: fake.Step, *, retry: RetryPolicy = QUICK) -> Completion:
    async with openai_server(handler) as server, client_of(server, retry=retry) as client:
        return await client.complete(HELLO, [CLOCK])


# What is asked ----------------------------------------------------------------------------------


async def test_the_conversation_goes_out_as_the_endpoint_expects_it() -> None:
    call = ToolCall("call_1", "clock", '{"zone": "UTC"}')
    conversation = [
        *HELLO,
        Message(Role.ASSISTANT, None, (call,)),
        Message(Role.TOOL, "12:00", tool_call_id="call_1"),
        Message(Role.ASSISTANT, "Noon."),
    ]
    async with openai_server() as server, client_of(server) as client:
        await client.complete(conversation, [CLOCK])

    assert server.requests[0] == {
        "model": "test-model",
        "stream": True,
        "stream_options": {"include_usage": True},
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hello"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "clock", "arguments": '{"zone": "UTC"}'},
                    }
                ],
            },
            {"role": "tool", "content": "12:00", "tool_call_id": "call_1"},
            {"role": "assistant", "content": "Noon."},
        ],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "clock",
                    "description": "Tells the time.",
                    "parameters": {"type": "object", "properties": {}},
                },
            }
        ],
    }


async def test_without_tools_the_request_does_not_mention_them() -> None:
    async with openai_server() as server, client_of(server) as client:
        await client.complete(HELLO)

    assert "tools" not in server.requests[0]


@pytest.mark.parametrize(("key", "sent"), [("sk-1", "Bearer sk-1"), (None, None)])
async def test_the_key_is_sent_as_a_bearer_token_when_there_is_one(
    key: str | None, sent: str | None
) -> None:
    async with openai_server() as server, client_of(server, api_key=key) as client:
        await client.complete(HELLO)
        await client.models()

    assert [request.headers.get("authorization") for request in server.received] == [sent, sent]


# What comes back --------------------------------------------------------------------------------


async def test_an_endpoint_that_answers_with_a_whole_document_is_understood() -> None:
    message = {"role": "assistant", "content": "Hi.", "reasoning_content": "Hm.", "annotations": []}
    choice = {"index": 0, "message": message, "finish_reason": "length", "logprobs": None}

    completion = await answer_to(fake.whole({"choices": [choice], "usage": None}))

    assert completion == Completion(Message(Role.ASSISTANT, "Hi."), "length", None, "")


async def test_a_stream_without_a_finish_reason_is_whole_when_it_says_done() -> None:
    completion = await answer_to(sse(chunk({"content": "Hi."})))

    assert (completion.message.content, completion.finish_reason) == ("Hi.", "")


async def test_a_stream_that_names_its_finish_needs_no_done() -> None:
    events = [chunk({"content": "Hi."}), chunk({}, finish_reason="stop")]

    completion = await answer_to(sse(*events, done=False, cut=True))

    assert completion.message.content == "Hi."


async def test_an_endpoint_that_never_closes_its_answer_does_not_delay_it() -> None:
    never = asyncio.Event()
    async with (
        openai_server(fake.held_midway(never, chunk({"content": "Hi."}), "[DONE]")) as server,
        client_of(server) as client,
    ):
        begun = time.monotonic()
        completion = await client.complete(HELLO)

    assert completion.message.content == "Hi."
    assert time.monotonic() - begun < 5


async def test_connections_are_used_again() -> None:
    async with openai_server() as server, client_of(server) as client:
        for _ in range(5):
            await client.complete(HELLO)

    assert server.connections == 1


async def test_usage_is_counted() -> None:
    def counts() -> tuple[float, ...]:
        counters = (
            LLM_REQUESTS.labels("answer", "ok"),
            LLM_TOKENS.labels("prompt"),
            LLM_TOKENS.labels("completion"),
        )
        return tuple(counter._value.get() for counter in counters)

    before = counts()
    await answer_to(fake.text("Hi."))

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1, 11, 7]


# Endpoints that cannot stream -------------------------------------------------------------------


def refuses(word: str, code: int) -> fake.Step:
    """An endpoint that does not know one member of the request."""

    async def step(request: fake.Request, writer: asyncio.StreamWriter) -> None:
        refused = request.body.get(word)
        body = {"error": {"message": f"Unknown parameter: '{word}'.", "code": None}}
        await (status(code, body) if refused else fake.echo)(request, writer)

    return step


@pytest.mark.parametrize("code", [400, 422])
async def test_an_endpoint_that_refuses_stream_options_is_asked_without_from_then_on(
    code: int,
) -> None:
    async with (
        openai_server(refuses("stream_options", code)) as server,
        client_of(server) as client,
    ):
        answers = [await client.complete(HELLO) for _ in range(2)]

    assert [answer.message.content for answer in answers] == ["answer to: hello"] * 2
    asked = [(body["stream"], "stream_options" in body) for body in server.requests]
    assert asked == [(True, True), (True, False), (True, False)]


@pytest.mark.parametrize("code", [400, 422])
async def test_endpoint_without_streaming_is_asked_for_whole_answers_from_then_on(
    code: int,
) -> None:
    async with openai_server(refuses("stream", code)) as server, client_of(server) as client:
        answers = [await client.complete(HELLO) for _ in range(2)]

    assert [answer.usage for answer in answers] == [TokenSum(11, 7)] * 2
    assert [body["stream"] for body in server.requests] == [True, False, False]


async def test_an_endpoint_that_refuses_every_way_of_asking_is_asked_each_way_once() -> None:
    async with (
        openai_server(status(400, {"error": "no stream"})) as server,
        client_of(server) as client,
    ):
        with pytest.raises(LlmRejected):
            await client.complete(HELLO)

    assert [body["stream"] for body in server.requests] == [True, False]


async def test_refusal_for_another_reason_does_not_affect_the_next_request() -> None:
    refusal = status(400, {"error": {"message": "I dislike 'stream of thoughts'."}})
    async with (
        openai_server(script(refusal, refusal)) as server,
        client_of(server) as client,
    ):
        with pytest.raises(LlmRejected):
            await client.complete(HELLO)
        await client.complete(HELLO)

    assert [body["stream"] for body in server.requests] == [True, False, True]


# Trying again -----------------------------------------------------------------------------------

PASSING_TROUBLE = {
    "408": status(408),
    "429": status(429, {"error": {"message": "slow down", "code": "rate_limit_exceeded"}}),
    "500": status(500, "<html>oops</html>"),
    "503": status(503),
    "closed": fake.cut,
    "garbage": fake.raw(b"\x16\x03\x01 this is no HTTP\r\n\r\n"),
    "no_body": fake.raw(
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    ),
}


@pytest.mark.parametrize("trouble", PASSING_TROUBLE.values(), ids=PASSING_TROUBLE.keys())
async def test_passing_trouble_before_the_answer_is_waited_out(trouble: fake.Step) -> None:
    retries = LLM_RETRIES._value.get()

    completion = await answer_to(script(trouble, trouble, fake.text("Hi.")))

    assert completion.message.content == "Hi."
    assert LLM_RETRIES._value.get() - retries == 2


@pytest.mark.parametrize("trouble", PASSING_TROUBLE.values(), ids=PASSING_TROUBLE.keys())
async def test_trouble_that_does_not_pass_ends_after_the_bound(trouble: fake.Step) -> None:
    with pytest.raises(LlmUnavailable):
        await answer_to(trouble, retry=IMPATIENT)


async def test_a_refused_connection_is_retried_until_the_server_is_back() -> None:
    watched = WatchedPolicy(first_seconds=0.001, longest_seconds=0.01)
    async with (
        openai_server() as server,
        client_of(server, retry=watched) as client,
        asyncio.TaskGroup() as group,
    ):
        await server.stop()
        waiting = group.create_task(client.complete(HELLO))
        await watched.paused.wait()
        await server.start()

        assert (await waiting).message.content == "answer to: hello"


async def test_the_wait_that_the_endpoint_asks_for_is_kept() -> None:
    begun = time.monotonic()

    await answer_to(script(status(429, headers={"Retry-After": "1"})))

    assert time.monotonic() - begun >= 1.0


async def test_a_wait_beyond_the_bound_is_cut_to_one_last_attempt_at_its_end() -> None:
    one_last = script(status(503, headers={"Retry-After": "3600"}), fake.text("Hi."))

    completion = await answer_to(one_last, retry=IMPATIENT)

    assert completion.message.content == "Hi."


async def test_request_between_two_attempts_holds_no_place() -> None:
    busy = script(status(503, headers={"Retry-After": "3600"}))
    async with (
        openai_server(busy) as server,
        client_of(server, max_concurrency=1) as client,
        asyncio.TaskGroup() as group,
    ):
        unlucky = group.create_task(client.complete(HELLO))
        await server.wait_for_requests(1)

        assert (await client.complete(HELLO)).message.content == "answer to: hello"
        assert not unlucky.done()
        unlucky.cancel()


# Final failures ---------------------------------------------------------------------------------

CONTENT = chunk({"content": "Hi"})
FAILURES: dict[str, tuple[fake.Step, type[LlmError]]] = {
    "400": (status(400, {"error": {"message": "bad", "code": "invalid"}}), LlmRejected),
    "404": (status(404, {"error": "model 'x' not found"}), LlmRejected),
    "404_stream": (status(404, {"error": "no stream of that name"}), LlmRejected),
    "context_stream": (
        status(400, {"error": {"message": "maximum context length is 10 tokens, stream"}}),
        LlmContextTooLong,
    ),
    "redirect": (status(307, headers={"location": "http://127.0.0.1:1/"}), LlmRejected),
    "401": (status(401), LlmUnauthorized),
    "402": (status(402, {"error": {"message": "no credit"}}), LlmUnauthorized),
    "403": (status(403, "<html>no</html>"), LlmUnauthorized),
    "no_credit": (status(429, {"error": {"code": "insufficient_quota"}}), LlmUnauthorized),
    "context": (
        status(400, {"error": {"code": "context_length_exceeded", "message": "x"}}),
        LlmContextTooLong,
    ),
    "413_context": (
        status(413, {"error": {"message": "This model's maximum context length is 10 tokens"}}),
        LlmContextTooLong,
    ),
    "413": (status(413, "<html>too large</html>"), LlmRejected),
    "error_vllm": (sse({"object": "error", "message": "oops", "code": 400}), LlmRejected),
    "error_context": (
        sse({"error": {"code": 400, "type": "exceed_context_size_error", "message": "x"}}),
        LlmContextTooLong,
    ),
}
BROKEN_ANSWERS: dict[str, tuple[fake.Step, type[LlmError]]] = {
    "cut": (sse(CONTENT, done=False, cut=True), LlmBroken),
    "ended": (sse(CONTENT, done=False), LlmBroken),
    "nothing": (sse(), LlmBroken),
    "empty": (fake.raw_body(content_type=fake.EVENT_STREAM), LlmBroken),
    "no_json": (sse("{no json"), LlmBroken),
    "no_object": (sse([1, 2]), LlmBroken),
    "deep": (sse("[" * 100_000), LlmBroken),
    "not_text": (sse(b"\xff\xfe".decode("latin-1")), LlmBroken),
    "html": (fake.raw_body(b"<html></html>", content_type="text/html"), LlmUnreachable),
    "half_document": (fake.raw_body(b'{"choices": [', content_type=fake.JSON), LlmBroken),
    "no_choice": (fake.whole({"choices": []}), LlmBroken),
    "error": (sse(CONTENT, {"error": {"message": "oops"}}), LlmBroken),
    "error_429": (sse(CONTENT, {"error": {"message": "x", "code": 429}}), LlmUnavailable),
    "error_500": (fake.whole({"error": {"message": "x", "code": 502}}), LlmUnavailable),
    "long_line": (
        fake.raw_body(*[b"data: " + b"x" * 300_000] * 4, content_type=fake.EVENT_STREAM),
        LlmBroken,
    ),
    "long_text": (sse(*[chunk({"content": "x" * 100_000})] * 3), LlmBroken),
    "long_document": (
        fake.raw_body(*[b" " * 500_000] * 9, content_type=fake.JSON),
        LlmBroken,
    ),
}


@pytest.mark.parametrize(("step", "kind"), FAILURES.values(), ids=FAILURES.keys())
async def test_a_final_failure_has_its_kind_and_is_not_tried_again(
    step: fake.Step, kind: type[LlmError]
) -> None:
    async with openai_server(step) as server, client_of(server) as client:
        with pytest.raises(LlmError) as caught:
            await client.complete(HELLO)

    assert type(caught.value) is kind
    assert len(server.requests) == 1


@pytest.mark.parametrize(("step", "kind"), BROKEN_ANSWERS.values(), ids=BROKEN_ANSWERS.keys())
async def test_a_broken_answer_is_asked_for_again_a_few_times(
    step: fake.Step, kind: type[LlmError]
) -> None:
    async with openai_server(step) as server, client_of(server) as client:
        with pytest.raises(LlmError) as caught:
            await client.complete(HELLO)

    assert type(caught.value) is kind
    assert len(server.requests) == MAX_BROKEN_ANSWERS


@pytest.mark.parametrize(
    "step", [step for step, _ in BROKEN_ANSWERS.values()], ids=BROKEN_ANSWERS.keys()
)
async def test_a_whole_answer_after_a_broken_one_is_the_answer(step: fake.Step) -> None:
    completion = await answer_to(script(step, fake.text("Hi.")))

    assert completion.message.content == "Hi."


async def test_a_broken_answer_is_not_asked_for_again_after_the_bound() -> None:
    step, kind = BROKEN_ANSWERS["cut"]
    async with openai_server(step) as server, client_of(server, retry=OVER_AT_ONCE) as client:
        with pytest.raises(kind):
            await client.complete(HELLO)

    assert len(server.requests) == 1


async def test_the_next_request_is_unharmed_by_a_failed_one() -> None:
    steps = [step for step, _ in FAILURES.values()]
    steps += [step for step, _ in BROKEN_ANSWERS.values() for _ in range(MAX_BROKEN_ANSWERS)]
    async with openai_server(script(*steps)) as server, client_of(server) as client:
        for _ in (*FAILURES, *BROKEN_ANSWERS):
            with contextlib.suppress(LlmError):
                await client.complete(HELLO)

        assert (await client.complete(HELLO)).message.content == "answer to: hello"


@pytest.mark.parametrize("is_midway", [False, True])
async def test_a_silent_endpoint_is_given_up_after_the_timeout(*, is_midway: bool) -> None:
    never = asyncio.Event()
    step = fake.held_midway(never, CONTENT) if is_midway else fake.held(never)
    async with openai_server(step) as server, client_of(server, timeout_seconds=0.05) as client:
        with pytest.raises(LlmTimeout):
            await client.complete(HELLO)


async def test_an_endless_answer_is_given_up_after_its_bound() -> None:
    async def trickle(_: fake.Request, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        while True:
            writer.write(b": still thinking\n\n")
            await writer.drain()
            await asyncio.sleep(0)

    retry = replace(OVER_AT_ONCE, answer_seconds=0.1)
    async with openai_server(trickle) as server, client_of(server, retry=retry) as client:
        with pytest.raises(LlmTimeout):
            await client.complete(HELLO)


async def test_errors_and_logs_never_quote_the_conversation() -> None:
    secret = "the-secret-of-alice"
    quoting = {"error": {"message": f"cannot read '{secret}'", "type": secret + " !", "code": None}}
    steps = [status(400, quoting), sse({"error": quoting}), sse(secret), status(422, secret)]
    for step in steps:
        async with openai_server(step) as server, client_of(server) as client:
            with capture_logs() as logs, pytest.raises(LlmError) as caught:
                await client.complete([Message(Role.USER, secret)])
            assert secret not in f"{caught.value!r} {caught.value.__cause__!r} {logs}"


# Many at once -----------------------------------------------------------------------------------


async def test_no_more_requests_are_in_flight_than_allowed() -> None:
    go = asyncio.Event()
    async with (
        openai_server(fake.held(go)) as server,
        client_of(server, max_concurrency=3) as client,
        asyncio.TaskGroup() as group,
    ):
        answers = [group.create_task(client.complete(HELLO)) for _ in range(10)]
        await server.wait_for_requests(3)
        await client.models()
        assert len(server.requests) == 3
        go.set()

    assert {answer.result().message.content for answer in answers} == {"answer to: hello"}
    assert server.connections <= 5


@pytest.mark.full
async def test_a_thousand_streams_at_once_all_end_with_their_own_answer() -> None:
    go = asyncio.Event()
    async with (
        openai_server(fake.held(go)) as server,
        client_of(server, max_concurrency=1000) as client,
        asyncio.TaskGroup() as group,
    ):
        answers = [
            group.create_task(client.complete([Message(Role.USER, f"chat {number}")]))
            for number in range(1000)
        ]
        await server.wait_for_requests(1000)
        go.set()

    assert [answer.result().message.content for answer in answers] == [
        f"answer to: chat {number}" for number in range(1000)
    ]


async def test_a_cancelled_request_gives_its_place_to_the_next() -> None:
    step = script(fake.held(asyncio.Event()))
    async with (
        openai_server(step) as server,
        client_of(server, max_concurrency=1) as client,
        asyncio.TaskGroup() as group,
    ):
        stuck = group.create_task(client.complete(HELLO))
        await server.wait_for_requests(1)
        stuck.cancel()

        assert (await client.complete(HELLO)).message.content == "answer to: hello"


# The list of models -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "kind"),
    [
        (status(401), LlmUnauthorized),
        (status(404), LlmRejected),
        (status(503), LlmUnavailable),
        (fake.cut, LlmUnreachable),
        (fake.raw_body(b"<html></html>", content_type="text/html"), LlmUnreachable),
        (fake.whole(["x"]), LlmBroken),
        (fake.held(asyncio.Event()), LlmTimeout),
    ],
)
async def test_a_list_of_models_that_cannot_be_had_says_why(
    step: fake.Step, kind: type[LlmError]
) -> None:
    async with openai_server() as server, client_of(server, timeout_seconds=0.1) as client:
        server.models_handler = step
        with pytest.raises(LlmError) as caught:
            await client.models()

    assert type(caught.value) is kind
