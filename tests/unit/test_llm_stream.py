"""How the pieces of an answer, as real servers cut and spell them, become one completion."""

import itertools
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.config.llm import LlmSettings
from bot.llm.api import MAX_ARGUMENT_CHARACTERS, MAX_TOOL_CALLS, Answer
from bot.llm.errors import LlmBroken
from bot.llm.messages import Completion
from bot.llm.openai import OpenAi
from conversation_store.models import Message, Role, TokenSum, ToolCall
from tests.fakes.openai_server import chunk

SOON_SECONDS = 0.4
"""A third of the time that reading takes."""


def event_stream() -> Answer:
    return OpenAi(LlmSettings(base_url="http://h", model="m")).reader("text/event-stream")


def whole_document() -> Answer:
    return OpenAi(LlmSettings(base_url="http://h", model="m")).reader("application/json")


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


def names_and_arguments(calls: Sequence[ToolCall]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments) for call in calls]


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
def test_whatever_is_in_an_answer_it_is_understood_or_broken(
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


def test_a_last_line_without_an_end_counts() -> None:
    stream = event_stream()
    stream.feed(b'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}')

    assert stream.completion().message.content == "Hi."


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


def test_reasoning_is_no_part_of_the_answer() -> None:
    completion = streamed(
        {"reasoning_content": "Hm."}, {"reasoning": "Ah."}, {"content": "Hi.", "tool_calls": []}
    )

    assert completion.message.content == "Hi."


@pytest.mark.parametrize(
    "reason", ["stop", "length", "tool_calls", "content_filter", "eos_token", "function_call"]
)
def test_every_finish_reason_is_kept_as_it_was_said(reason: str) -> None:
    stream = event_stream()
    stream.feed(f"data: {json.dumps(chunk({}, finish_reason=reason))}\n\n".encode())

    assert stream.completion().finish_reason == reason


@pytest.mark.parametrize("usage", [{}, {"prompt_tokens": -1, "completion_tokens": 1}, "many", 3])
def test_a_count_that_makes_no_sense_does_not_cost_the_answer(usage: object) -> None:
    body = whole_document()
    body.feed(json.dumps({"choices": [{"message": {"content": "x"}}], "usage": usage}).encode())

    assert body.completion().usage is None


def test_the_last_count_of_a_stream_is_the_one() -> None:
    stream = event_stream()
    for count in (1, 2):
        usage = {"prompt_tokens": 5, "completion_tokens": count}
        stream.feed(f"data: {json.dumps(chunk({'content': 'x'}, usage=usage))}\n\n".encode())
    stream.feed(b"data: [DONE]\n\n")

    assert stream.completion().usage == TokenSum(5, 2)


# Tool calls -------------------------------------------------------------------------------------


def test_interleaved_pieces_of_calls_go_where_their_index_says() -> None:
    completion = streamed(
        {"tool_calls": [call("a", "", index=0, id="1"), call("b", "", index=1, id="2")]},
        {"tool_calls": [call(arguments="{1", index=0), call(arguments="{2", index=1)]},
        {"tool_calls": [call(arguments="}", index=1), call(arguments="}", index=0)]},
    )

    assert completion.message.tool_calls == (ToolCall("1", "a", "{1}"), ToolCall("2", "b", "{2}"))


@pytest.mark.parametrize("place", [{}, {"index": 0}, {"index": None}])
def test_whole_calls_without_a_place_of_their_own_stay_apart(place: dict[str, int | None]) -> None:
    completion = streamed(
        {"tool_calls": [call("a", "{}", id="1", **place)]},
        {"tool_calls": [call("b", "{}", id="2", **place), call("c", "{}", id="3", **place)]},
    )

    assert names_and_arguments(completion.message.tool_calls) == [
        ("a", "{}"),
        ("b", "{}"),
        ("c", "{}"),
    ]


def test_whole_calls_without_index_and_id_stay_apart() -> None:
    completion = streamed({"tool_calls": [call("a", '{"x":1}')]}, {"tool_calls": [call("a", "{}")]})

    assert names_and_arguments(completion.message.tool_calls) == [("a", '{"x":1}'), ("a", "{}")]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (call("a", "{", id="1"), call(arguments="}")),
        (call("a", "{", index=0, id="1"), call("a", "}", index=0, id="1")),
        (call("a", "{", index=0, id="1"), call(None, "}", index=0, id="2")),
    ],
    ids=["no index", "repeated name and id", "another id"],
)
def test_pieces_of_one_call_make_one_call(first: dict[str, Any], second: dict[str, Any]) -> None:
    completion = streamed({"tool_calls": [first]}, {"tool_calls": [second]})

    assert completion.message.tool_calls == (ToolCall("1", "a", "{}"),)


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


def test_arguments_as_an_object_become_its_json() -> None:
    completion = whole({"tool_calls": [call("a", {"city": "Köln"}), call("b"), call("c", [1])]})

    assert names_and_arguments(completion.message.tool_calls) == [
        ("a", '{"city": "Köln"}'),
        ("b", ""),
        ("c", "[1]"),
    ]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (call("a", "{'x': 1"), [("a", "{'x': 1")]),  # no JSON
        (call("calculate<|channel|>commentary", "{}"), [("calculate", "{}")]),
        (call(None, "{}"), []),
        ({"function": {}}, []),
        ({}, []),
    ],
)
def test_odd_calls_are_read_leniently(
    said: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    assert names_and_arguments(whole({"tool_calls": [said]}).message.tool_calls) == expected


def test_more_calls_than_the_bound_are_refused() -> None:
    calls = [call("a", "{}")] * MAX_TOOL_CALLS
    assert len(whole({"tool_calls": calls}).message.tool_calls) == MAX_TOOL_CALLS

    with pytest.raises(LlmBroken):
        whole({"tool_calls": [*calls, call("a", "{}")]})


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
