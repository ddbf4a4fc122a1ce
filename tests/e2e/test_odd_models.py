"""Answers of servers and models that keep to no protocol, as people see them."""

import asyncio
import codecs
import json
from typing import Any, Final

import pytest

from bot.llm.client import RetryPolicy
from bot.llm.errors import LlmBroken
from tests.contract.test_llm_reach import HELLO as HELLO_MODEL
from tests.contract.test_llm_reach import client_at
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_any_model import asked
from tests.fakes.openai_server import (
    chunk,
    echo,
    held,
    held_midway,
    openai_server,
    script,
    sse,
    text,
)
from tests.fakes.scripted_http import EVENT_STREAM, JSON, Step, raw_body, whole

HELLO: Final = "Hello Ada, how are you?"
WORDS: Final = ("Hello", " Ada,", " how are", " you?")
SUM: Final = {"name": "calculate", "arguments": '{"expression": "6*7"}'}


def event(choice: dict[str, Any]) -> dict[str, Any]:
    return {"object": "chat.completion.chunk", "choices": [{"index": 0, **choice}]}


def growing(*, key: str = "message", delta: bool) -> Step:
    so_far = ["".join(WORDS[: count + 1]) for count in range(len(WORDS))]
    return sse(
        *(
            event(
                {key: {"role": "assistant", "content": whole_text}}
                | ({"delta": {"content": piece}} if delta else {})
            )
            for piece, whole_text in zip(WORDS, so_far, strict=True)
        ),
        event({"delta": {}, "message": {"content": HELLO}, "finish_reason": "stop"}),
    )


def bytes_of(*lines: str) -> bytes:
    return "".join(f"data: {line}\n\n" for line in lines).encode()


STREAM: Final = bytes_of(
    *(json.dumps(event({"delta": {"content": piece}})) for piece in WORDS),
    json.dumps(event({"delta": {}, "finish_reason": "stop"})),
    "[DONE]",
)
WHOLE: Final = {"choices": [{"message": {"content": HELLO}, "finish_reason": "stop"}]}
ODD_ANSWERS: Final = {
    "a growing message beside each piece": growing(delta=True),
    "a growing message alone": growing(delta=False),
    "the whole message after the pieces": sse(
        *(event({"delta": {"content": piece}}) for piece in WORDS),
        event({"message": {"content": HELLO}, "finish_reason": "stop"}),
    ),
    "a byte order mark": raw_body(codecs.BOM_UTF8 + STREAM, content_type=EVENT_STREAM),
    "a byte order mark in pieces": raw_body(
        b"\xef", b"\xbb", b"\xbf" + STREAM, content_type=EVENT_STREAM
    ),
    "blank lines first": raw_body(b"\r\n\r\n" + STREAM, content_type=EVENT_STREAM),
    "a stream called JSON": raw_body(STREAM, content_type=JSON),
    "a stream called a page": raw_body(STREAM, content_type="text/html"),
    "a stream without a type": raw_body(STREAM, content_type="application/octet-stream"),
    "JSON called a stream": raw_body(json.dumps(WHOLE).encode(), content_type=EVENT_STREAM),
    "indented JSON called a stream": raw_body(
        *(f"{line}\n".encode() for line in json.dumps(WHOLE, indent=2).split("\n")),
        content_type=EVENT_STREAM,
    ),
    "JSON with a byte order mark": raw_body(
        codecs.BOM_UTF8 + json.dumps(WHOLE).encode(), content_type=JSON
    ),
    "a list with the answer": raw_body(json.dumps([WHOLE]).encode(), content_type=JSON),
}


@pytest.mark.parametrize("kind", ODD_ANSWERS)
async def test_answer_is_shown_whole_and_once(kind: str) -> None:
    async with world(ODD_ANSWERS[kind]) as here, running_bot(here.settings()):
        assert await asked(here) == HELLO
        assert len(here.model.requests) == 1


CALLS: Final = {
    "the form before tools": whole(
        {"choices": [{"message": {"content": None, "function_call": SUM}}]}
    ),
    "the form before tools, in pieces": sse(
        event({"delta": {"function_call": {"name": "calculate", "arguments": ""}}}),
        event({"delta": {"function_call": {"name": "calculate", "arguments": '{"expression"'}}}),
        event({"delta": {"function_call": {"arguments": ': "6*7"}'}}}),
        event({"delta": {}, "finish_reason": "function_call"}),
    ),
    **{
        arguments: whole(
            {
                "choices": [
                    {
                        "message": {
                            "tool_calls": [{"id": "1", "function": {**SUM, "arguments": arguments}}]
                        }
                    }
                ]
            }
        )
        for arguments in (
            '{}{"expression": "6*7"}',
            '{"expression": "6*7"}{}',
            '{"expression": "6*7"} {"expression": "6*7"}',
            json.dumps('{"expression": "6*7"}'),
            json.dumps(json.dumps('{"expression": "6*7"}')),
            '[{"expression": "6*7"}]',
            '```json\n{"expression": "6*7"}\n```',
            "{'expression': '6*7',}",
        )
    },
}


@pytest.mark.parametrize("kind", CALLS)
async def test_call_in_another_form_runs(kind: str) -> None:
    async with world(script(CALLS[kind], text("It is 42."))) as here:
        async with running_bot(here.settings()):
            assert await asked(here) == "It is 42."
    assert len(here.model.requests) == 2
    assert here.model.requests[-1]["messages"][-1]["content"] == "42"


DSML: Final = """\
{<}DSML|function_calls{>}{<}DSML|invoke name="calculate"{>}{<}DSML|parameter name="expression"{>}\
6*7{</}DSML|parameter{>}{</}DSML|invoke{>}{</}DSML|function_calls{>}"""


def dsml(opening: str, closing: str) -> str:
    """Return a call in DeepSeek's markup, with fullwidth bars and these brackets."""
    bar = "\N{FULLWIDTH VERTICAL LINE}"
    marks = {"{<}": f"{opening}|", "{</}": f"{opening}/|", "{>}": closing, "|": bar}
    markup = DSML
    for written, mark in marks.items():
        markup = markup.replace(written, mark)
    return markup


FOREIGN: Final = [
    dsml("<", ">"),
    dsml(
        "\N{SINGLE LEFT-POINTING ANGLE QUOTATION MARK}",
        "\N{SINGLE RIGHT-POINTING ANGLE QUOTATION MARK}",
    ),
    dsml("<", ">")[:60],
    (
        "<\uff5ctool\u2581calls\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>calculate\n"
        "<\uff5ctool\u2581calls\u2581end\uff5c>"
    ),
    (
        '<function_calls><invoke name="calculate"><parameter name="expression">6*7'
        "</parameter></invoke></function_calls>"
    ),
    "<|tool_calls_section_begin|>functions.calculate:0<|tool_calls_section_end|>",
]


@pytest.mark.parametrize("markup", FOREIGN)
async def test_markup_of_another_models_calls_is_asked_for_again_and_never_shown(
    markup: str,
) -> None:
    call = '{"tool": "calculate", "input": {"expression": "6*7"}}'
    async with world(script(text(markup), text(call), text("It is 42."))) as here:
        async with running_bot(here.settings()):
            assert await asked(here) == "It is 42."
            here.model.handler = text(f"Let me see. {markup}")
            assert await asked(here) == "Let me see."


@pytest.mark.parametrize(
    "mark", ["<|im_end|>", "<|endoftext|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"]
)
async def test_marks_of_a_models_template_are_not_shown(mark: str) -> None:
    async with world(text(f"Hello.{mark}")) as here, running_bot(here.settings()):
        assert await asked(here) == "Hello."


@pytest.mark.parametrize("reason", ["error", "abort", "network_error"])
async def test_answer_that_the_endpoint_ends_with_an_error_is_asked_for_again(reason: str) -> None:
    broken = sse(chunk({"content": "The answer is"}), event({"delta": {}, "finish_reason": reason}))
    async with world(script(broken, text("The answer is 42."))) as here:
        async with running_bot(here.settings()):
            assert await asked(here) == "The answer is 42."
            here.model.handler = broken
            assert await asked(here) == LlmBroken.sentence


async def test_person_is_told_once_that_a_model_takes_the_question_and_stays_silent() -> None:
    told, answers = asyncio.Event(), asyncio.Event()
    soon = RetryPolicy(silent_seconds=0.05)
    async with openai_server(held(answers, echo)) as server:
        async with client_at(server.base_url, retry=soon) as client:
            asking = asyncio.create_task(client.complete(HELLO_MODEL, still_trying=told.set))
            await told.wait()
            answers.set()
            assert (await asking).message.content == "answer to: frobnicate"
        assert len(server.requests) == 1


async def test_nobody_is_told_of_a_model_that_answers_slowly() -> None:
    told, rest = asyncio.Event(), asyncio.Event()
    soon = RetryPolicy(silent_seconds=0.05)
    async with openai_server(held_midway(rest, chunk({"content": "Well"}))) as server:
        async with client_at(server.base_url, retry=soon) as client:
            asking = asyncio.create_task(client.complete(HELLO_MODEL, still_trying=told.set))
            await asyncio.wait([asking], timeout=0.3)
            asking.cancel()
    assert not told.is_set()
