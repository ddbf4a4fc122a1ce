"""How the pieces of an answer, as real servers cut and spell them, become one completion."""

import itertools
import json
import time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.llm import LlmSettings
from bot.llm.api import MAX_ARGUMENT_CHARACTERS, Answer
from bot.llm.errors import LlmBroken
from bot.llm.messages import Completion
from bot.llm.openai import OpenAi
from conversation_store.models import Message, Role, TokenSum, ToolCall
from tests.fakes.openai_server import chunk

SOON_SECONDS = 0.4
"""A third of the time that reading takes."""


def event_stream() -> Answer:
    return OpenAi(LlmSettings(base_url="http://h", model="m")).reader()


def whole_document() -> Answer:
    return OpenAi(LlmSettings(base_url="http://h", model="m")).reader()


def read(reader: Answer, data: bytes) -> Completion:
    reader.feed(data)
    return reader.completion()


def streamed(*deltas: dict[str, Any]) -> Completion:
    stream = event_stream()
    for delta in deltas:
        stream.feed(f"data: {json.dumps(chunk(delta))}\n\n".encode())
    stream.feed(b"data: [DONE]\n\n")
    return stream.completion()


def whole(message: dict[str, Any]) -> Completion:
    return read(whole_document(), json.dumps({"choices": [{"message": message}]}).encode())


def call(name: str | None = None, arguments: object = None, **more: Any) -> dict[str, Any]:
    return {"function": {"name": name, "arguments": arguments}, **more}


ANSWER = (
    b": keep-alive\r\n\r\n"
    b'event: message\r\nid: 7\r\ndata: {"choices": [{"delta": {"content": "Gr\xc3\xbc"}}]}\r\n\r\n'
    b'data:{"choices": [{"delta": {"content": "\xc3\x9fe"}, "finish_reason": "stop"}]}\n\n'
    b'data: {"choices": [],\ndata: "usage": {"prompt_tokens": 3, "completion_tokens": 2}}\n\n'
    b"data: [DONE]\n\n"
    b'data: {"choices": [{"delta": {"content": "too late"}}]}\n\n'
)


@given(st.lists(st.integers(0, len(ANSWER)), max_size=20))
def test_a_stream_means_the_same_wherever_it_is_cut(cuts: list[int]) -> None:
    stream = event_stream()
    edges = [0, *sorted(cuts), len(ANSWER)]
    for begin, end in itertools.pairwise(edges):
        stream.feed(ANSWER[begin:end])
    completion = stream.completion()

    assert completion.message.content == "Grüße"
    assert (completion.finish_reason, completion.usage) == ("stop", TokenSum(3, 2))


@given(st.binary(max_size=400).filter(lambda data: data.strip() != b"[DONE]"))
def test_bytes_that_are_no_answer_are_a_broken_answer(data: bytes) -> None:
    with pytest.raises(LlmBroken):
        read(whole_document(), data)
    with pytest.raises(LlmBroken):
        read(event_stream(), b"data: " + data + b"\n\n")


KEYS = ("content", "tool_calls", "index", "id", "function", "name", "arguments", "type", "text")
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(KEYS), json_values), st.integers(), json_values)
def test_every_answer_is_parsed_or_refused(
    message: dict[str, Any], count: int, reason: object
) -> None:
    body = whole_document()
    usage = {"prompt_tokens": count, "completion_tokens": count}
    choice = {"message": message, "finish_reason": reason}
    body.feed(json.dumps({"choices": [choice], "usage": usage}).encode())
    try:
        completion = body.completion()
    except LlmBroken:
        return
    assert all(call.id and call.name for call in completion.message.tool_calls)
    assert completion.usage is None or completion.usage.prompt_tokens >= 0


def test_content_may_be_null_absent_or_a_list_of_parts() -> None:
    parts = [{"type": "text", "text": "Hi "}, {"type": "image_url"}, "?", {"text": "there."}]

    assert whole({"content": None}).message.content is None
    assert whole({}).message.content is None
    assert whole({"content": ""}).message.content is None
    assert whole({"content": parts}).message.content == "Hi there."


def test_letter_that_is_split_between_two_pieces_is_whole() -> None:
    assert streamed({"content": "a\ud83d"}, {"content": "\udd27b"}).message.content == "a🔧b"


def test_half_a_letter_is_replaced() -> None:
    completion = streamed(
        {"content": "a\ud83db", "tool_calls": [call("a\ud83d", {"x": "\ud83d"}, id="\ud83d")]}
    )

    assert completion.message == Message(
        Role.ASSISTANT, "a\ufffdb", (ToolCall("?", "a?", '{"x": "?"}'),)
    )


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": -1, "completion_tokens": 1}, "many", 3])
def test_a_count_that_makes_no_sense_does_not_cost_the_answer(usage: object) -> None:
    body = whole_document()
    body.feed(json.dumps({"choices": [{"message": {"content": "x"}}], "usage": usage}).encode())

    assert body.completion().usage is None


# Tool calls -------------------------------------------------------------------------------------


STREAMS: Final[dict[str, tuple[list[list[dict[str, Any]]], list[tuple[str, str]]]]] = {
    "interleaved pieces": (
        [
            [call("a", "", index=0, id="1"), call("b", "", index=1, id="2")],
            [call(arguments="{1", index=0), call(arguments="{2", index=1)],
            [call(arguments="}", index=1), call(arguments="}", index=0)],
        ],
        [("a", "{1}"), ("b", "{2}")],
    ),
    **{
        f"whole calls at {place}": (
            [
                [call("a", "{}", id="1", **place)],
                [call("b", "{}", id="2", **place), call("c", "{}", id="3", **place)],
            ],
            [("a", "{}"), ("b", "{}"), ("c", "{}")],
        )
        for place in ({}, {"index": 0}, {"index": None})
    },
    "whole calls without index and id": (
        [[call("a", '{"x":1}')], [call("a", "{}")]],
        [("a", '{"x":1}'), ("a", "{}")],
    ),
    "pieces without index": ([[call("a", "{", id="1")], [call(arguments="}")]], [("a", "{}")]),
    "repeated name and id": (
        [[call("a", "{", index=0, id="1")], [call("a", "}", index=0, id="1")]],
        [("a", "{}")],
    ),
    "another id at the same place": (
        [[call("a", "{", index=0, id="1")], [call(None, "}", index=0, id="2")]],
        [("a", "{}")],
    ),
    "odd calls": (
        [
            [call("a", "{'x': 1", index=0), call("b<|channel|>commentary", "{}", index=1)],
            [call("c", {"city": "Köln"}, index=2), call("d", index=3), call("e", [1], index=4)],
            [call(None, "{}", index=5), {"function": {}, "index": 6}, {}],
        ],
        [("a", "{'x': 1"), ("b", "{}"), ("c", '{"city": "Köln"}'), ("d", ""), ("e", "[1]")],
    ),
}


@pytest.mark.parametrize(("events", "expected"), STREAMS.values(), ids=STREAMS)
def test_pieces_of_calls_go_where_they_belong(
    events: list[list[dict[str, Any]]], expected: list[tuple[str, str]]
) -> None:
    calls = streamed(*({"tool_calls": pieces} for pieces in events)).message.tool_calls
    assert [(call.name, call.arguments) for call in calls] == expected


@pytest.mark.parametrize("ids", [("x", "x"), (None, None), ("", ""), (7, 8)])
def test_missing_and_repeated_ids_become_ids_of_their_own(ids: tuple[Any, Any]) -> None:
    calls = [call("a", "{}", id=ids[0]), call("a", "{}", id=ids[1])]
    for completion in (
        whole({"tool_calls": calls}),
        streamed({"tool_calls": [{**calls[0], "index": 0}, {**calls[1], "index": 1}]}),
    ):
        first, second = completion.message.tool_calls
        assert first.id
        assert second.id
        assert first.id != second.id


@pytest.mark.parametrize("opening", ['{"choices": [', '{"choices": [{"delta": {"tool_calls": ['])
def test_an_event_with_a_megabyte_of_entries_is_refused_soon(opening: str) -> None:
    closing = "]" + "}}]" * opening.count("delta") + "}"
    event = opening + ",".join(["{}"] * 340_000) + closing
    assert json.loads(event)["choices"]
    began = time.thread_time()
    with pytest.raises(LlmBroken):
        read(event_stream(), f"data: {event}\n\n".encode())
    assert time.thread_time() - began < SOON_SECONDS


def test_arguments_beyond_the_bound_are_refused() -> None:
    half = "x" * (MAX_ARGUMENT_CHARACTERS // 2)
    pieces = [{"tool_calls": [call("a", half, index=0, id="1")]}] * 2
    assert len(streamed(*pieces).message.tool_calls[0].arguments) == MAX_ARGUMENT_CHARACTERS

    with pytest.raises(LlmBroken):
        streamed(*pieces, {"tool_calls": [call(None, "x", index=0)]})


def test_an_event_is_as_long_as_a_line_at_most() -> None:
    stream = event_stream()
    line = b"data: [" + b"0," * 250_000 + b"\n"
    stream.feed(line)
    stream.feed(line)
    with pytest.raises(LlmBroken):
        stream.feed(line)
