"""`LlmClient` at the wire of a real server on loopback."""

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

import pytest
from structlog.testing import capture_logs

from bot.llm.client import MAX_BROKEN_ANSWERS, LlmClient, RetryPolicy
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
from conversation_store.models import Message, Role, ToolCall
from tests.contract.dialects.harness import CLOCK, HELLO, OVER_AT_ONCE, QUICK, client_at
from tests.fakes import openai_server as fake
from tests.fakes.openai_server import OpenAiServer, chunk, openai_server, script, sse, status

IMPATIENT = RetryPolicy(bound_seconds=0.05, first_seconds=0.001, longest_seconds=0.01)


@dataclass(frozen=True)
class WatchedPolicy(RetryPolicy):
    """Tells when the first attempt has failed."""

    paused: asyncio.Event = field(default_factory=asyncio.Event)

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        self.paused.set()
        return super().pause(failures, retry_after_seconds)


def client_of(
    server: OpenAiServer, *, retry: RetryPolicy = QUICK, **settings: object
) -> AbstractAsyncContextManager[LlmClient]:
    return client_at(server.base_url, retry=retry, settings={"timeout_seconds": 10.0, **settings})


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


# What comes back --------------------------------------------------------------------------------


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
@pytest.mark.parametrize(
    ("part", "asked"),
    [
        ("stream_options", [(True, True), (True, False), (True, False)]),
        ("stream", [(True, True), (False, False), (False, False)]),
    ],
)
async def test_an_endpoint_is_asked_without_a_refused_part_from_then_on(
    part: str, asked: list[tuple[bool, bool]], code: int
) -> None:
    async with openai_server(refuses(part, code)) as server, client_of(server) as client:
        for _ in range(2):
            assert (await client.complete(HELLO)).message.content == "answer to: hello"
    said = [(body["stream"], "stream_options" in body) for body in server.requests]
    assert said == asked


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
async def test_passing_trouble_before_the_answer_is_waited_out_up_to_the_bound(
    trouble: fake.Step,
) -> None:
    retries = LLM_RETRIES._value.get()
    completion = await answer_to(script(trouble, trouble, fake.text("Hi.")))
    assert completion.message.content == "Hi."
    assert LLM_RETRIES._value.get() - retries == 2
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
    "404": (status(404, {"error": "model 'x' not found"}), LlmRejected),
    "404_stream": (status(404, {"error": "no stream of that name"}), LlmRejected),
    "redirect": (status(307, headers={"location": "http://127.0.0.1:1/"}), LlmRejected),
    "key": (status(401), LlmUnauthorized),
    "context_stream": (
        status(400, {"error": {"message": "maximum context length is 10 tokens, stream"}}),
        LlmContextTooLong,
    ),
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
        server.handler = script(step, fake.text("Hi."))
        assert (await client.complete(HELLO)).message.content == "Hi."


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
