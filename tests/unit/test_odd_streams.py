"""Answers in odd framings, as real servers and proxies send them, of each API."""

import json
from typing import Any, Final

import pytest

from bot.config.llm import LlmSettings
from bot.llm.client import api_of
from bot.llm.errors import LlmBroken, LlmError
from bot.llm.messages import Completion
from tests.fakes.openai_server import chunk

BOM: Final = b"\xef\xbb\xbf"


def read(data: bytes, *, dialect: str = "openai", at_once: int = 1) -> Completion:
    more = {"region": "eu-central-1", "api_key": "k"} if dialect == "bedrock" else {}
    settings = LlmSettings.model_validate(
        {"dialect": dialect, "base_url": "http://h", "model": "m", **more}
    )
    reader = api_of(settings).reader()
    for start in range(0, len(data), at_once):
        reader.feed(data[start : start + at_once])
    return reader.completion()


def sse(*events: object, end: str = "\n\n", done: bool = True) -> bytes:
    lines = [f"data: {json.dumps(event)}{end}" for event in events]
    return "".join([*lines, f"data: [DONE]{end}" if done else ""]).encode()


def said(words: str, **more: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"role": "assistant", "content": words}, **more}]}


def piece(words: str | None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": words}, **more}]}


def both(words: str, so_far: str) -> dict[str, Any]:
    return {"choices": [{"delta": {"content": words}, "message": {"content": so_far}}]}


HELLO: Final = (piece("Hello"), piece(" Ada"))
HELLO_STREAM: Final = sse(*HELLO)
WHOLE: Final = json.dumps(said("Hello Ada", finish_reason="stop"))


@pytest.mark.parametrize(
    "data",
    [
        HELLO_STREAM,
        sse(both("Hel", "Hel"), both("lo", "Hello"), both(" Ada", "Hello Ada")),
        sse(*HELLO, said("Hello Ada", finish_reason="stop")),
        sse(*HELLO, {"choices": [{"delta": {}, "message": {"content": "Hello Ada"}}]}),
        sse(*HELLO, said("", finish_reason="stop")),
        sse(*(said(words, finish_reason=None) for words in ("Hel", "Hello", "Hello Ada"))),
        sse(*({"choices": [{"delta": None, **said(w)["choices"][0]}]} for w in ("H", "Hello Ada"))),
        sse(said("Hello"), said(" Ada")),
        BOM + HELLO_STREAM,
        b"\n \n" + HELLO_STREAM,
        BOM + b": hello\n\n" + HELLO_STREAM,
        sse(*HELLO, end="\r\n\r\n"),
        sse(*HELLO, end="\r\r"),
        HELLO_STREAM.replace(b"data: ", b"data: data: "),
        HELLO_STREAM.replace(b"data: ", b"id: 1\nevent: message\ndata:"),
        WHOLE.encode(),
        BOM + WHOLE.encode(),
        b"\r\n\n  " + json.dumps(json.loads(WHOLE), indent=2).encode() + b"\n",
        WHOLE.encode() + b"\n",
        json.dumps([json.loads(WHOLE)], indent=1).encode(),
        json.dumps(said("Hello Ada")).encode(),
        json.dumps({"choices": [{"text": "Hello Ada", "finish_reason": "stop"}]}).encode(),
        json.dumps({"choices": [{"message": {"content": {"text": "Hello Ada"}}}]}).encode(),
        sse(said("Hello Ada", finish_reason="stop"), done=False),
        "\n".join(map(json.dumps, (*HELLO, piece(None, finish_reason="stop")))).encode(),
    ],
)
@pytest.mark.parametrize("at_once", [1, 1_000])
def test_the_same_words_come_out_of_every_framing(data: bytes, at_once: int) -> None:
    assert read(data, at_once=at_once).message.content == "Hello Ada"


TEXT_BLOCK: Final = {"type": "text", "text": "Hello Ada"}
OF_ANTHROPIC: Final = {"type": "message", "content": [TEXT_BLOCK], "stop_reason": "end_turn"}
OF_GEMINI: Final = {
    "candidates": [{"content": {"parts": [{"text": "Hello Ada"}]}, "finishReason": "STOP"}]
}
OF_BEDROCK: Final = {
    "output": {"message": {"content": [{"text": "Hello Ada"}]}},
    "stopReason": "end_turn",
}
OF_OLLAMA: Final = {"message": {"content": "Hello Ada"}, "done": True, "done_reason": "stop"}


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        ("openai", json.loads(WHOLE)),
        ("anthropic", OF_ANTHROPIC),
        ("gemini", OF_GEMINI),
        ("gemini", [OF_GEMINI]),
        ("bedrock", OF_BEDROCK),
        ("ollama", OF_OLLAMA),
    ],
)
def test_a_whole_document_in_place_of_a_stream_is_read(dialect: str, document: object) -> None:
    for indent in (None, 2):
        for before, after in ((b"", b""), (BOM, b"\n")):
            data = before + json.dumps(document, indent=indent).encode() + after
            assert read(data, dialect=dialect, at_once=7).message.content == "Hello Ada"


@pytest.mark.parametrize(("dialect", "document"), [("gemini", OF_GEMINI), ("ollama", OF_OLLAMA)])
def test_events_in_place_of_lines_are_read(dialect: str, document: object) -> None:
    assert read(BOM + sse(document), dialect=dialect).message.content == "Hello Ada"


@pytest.mark.parametrize(
    "reason",
    [
        *("error", "ERROR", "abort", "failed", "network_error", "insufficient_system_resource"),
        *("timeout", {"type": "abort", "message": "Out of memory"}),
    ],
)
def test_an_answer_that_ends_in_a_failure_is_broken(reason: object) -> None:
    for data in (
        sse(piece("Half an"), piece(None, finish_reason=reason)),
        json.dumps(said("Half an", finish_reason=reason)).encode(),
    ):
        with pytest.raises(LlmBroken):
            read(data)


@pytest.mark.parametrize(
    ("dialect", "document"),
    [
        ("anthropic", OF_ANTHROPIC | {"stop_reason": "error"}),
        ("gemini", {"candidates": [{"finishReason": "ERROR"}]}),
        ("bedrock", OF_BEDROCK | {"stopReason": "error"}),
        ("ollama", OF_OLLAMA | {"done_reason": "error"}),
    ],
)
def test_failures_count_in_every_api(dialect: str, document: object) -> None:
    with pytest.raises(LlmBroken):
        read(json.dumps(document).encode(), dialect=dialect)


LONG: Final = ("Hello Ada, ", "how are ", "you today?")


@pytest.mark.parametrize(
    "pieces",
    [
        LONG,
        (LONG[0], LONG[0] + LONG[1], "".join(LONG)),
        (*LONG, "".join(LONG)),
        (*LONG, "", "".join(LONG)),
    ],
)
def test_pieces_that_repeat_all_so_far_are_told_once(pieces: tuple[str, ...]) -> None:
    assert read(sse(*map(piece, pieces))).message.content == "".join(LONG)


@pytest.mark.parametrize("pieces", [("ha", "haha"), ("no ",) * 8, ("-", "--", "---"), LONG[:1] * 2])
def test_words_that_are_meant_twice_stay(pieces: tuple[str, ...]) -> None:
    assert read(sse(*map(piece, pieces))).message.content == "".join(pieces)


@pytest.mark.parametrize(
    "error", [{"detail": "Internal error"}, {"message": "boom", "code": 500}, {"error": "boom"}]
)
def test_an_error_among_the_pieces_breaks_the_answer(error: object) -> None:
    with pytest.raises(LlmError):
        read(sse(piece("Half an"), error))


CALL: Final = {"name": "calculate", "arguments": '{"expression": "6*7"}'}


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"choices": [{"message": {"content": None, "function_call": CALL}}]}).encode(),
        sse(
            chunk({"function_call": {"name": "calculate", "arguments": ""}}),
            chunk({"function_call": {"name": "calculate", "arguments": '{"expression":'}}),
            chunk({"function_call": {"arguments": ' "6*7"}'}}),
            chunk({}, finish_reason="function_call"),
        ),
        sse(chunk({"function_call": CALL, "tool_calls": [{"index": 0, "function": CALL}]})),
        json.dumps({"choices": [{"message": {"tool_calls": [CALL]}}]}).encode(),
        json.dumps({"choices": [{"message": {"tool_calls": {"function": CALL}}}]}).encode(),
        json.dumps(
            said([{"type": "tool_use", "name": "calculate", "input": {"expression": "6*7"}}])  # type: ignore[arg-type]
        ).encode(),
        sse(piece(None), {"choices": [{"message": {"tool_calls": [{"function": CALL}]}}]}),
        sse(*({"choices": [{"message": {"tool_calls": [{"function": CALL}]}}]},) * 3),
    ],
)
def test_a_call_is_found_in_every_form(data: bytes) -> None:
    [call] = read(data).message.tool_calls
    assert (call.name, json.loads(call.arguments)) == ("calculate", {"expression": "6*7"})
