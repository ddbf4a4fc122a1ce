"""The offline assistant: its rules, and OpenAI's API around them."""

import json
import time
from typing import Any

import pytest

from bot.demo.assistant import EXAMPLES, Call, reply

TOOLS = {*EXAMPLES, "recall"}
STAMP = "[Sat 2026-11-21 22:19 UTC] "


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": STAMP + text}


def after_result(tool: str, arguments: dict[str, object], result: str) -> str | Call:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"id": "call_1", "type": "function", "function": function}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    told = {"role": "tool", "tool_call_id": "call_1", "content": result}
    return reply([user("?"), asked, told], TOOLS)


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("What is 127*43?", "127*43"),
        ("how much is 15% of 80", "15% of 80"),
        ("sqrt(16)+2^10", "sqrt(16)+2^10"),
        ("(3+4)*2 =", "(3+4)*2"),
        ("What's 1,234.5 / 3?", "1,234.5 / 3"),
        ("calculate sin(pi/2)", "sin(pi/2)"),
        ("5!", "5!"),
        ("what is √16", "√16"),
        ("what is -5 + 3.25.", "-5 + 3.25"),
    ],
)
def test_sums_go_to_the_calculator(text: str, expression: str) -> None:
    assert reply([user(text)], TOOLS) == Call("calculate", {"expression": expression})


@pytest.mark.parametrize(
    "text", ["", "hello", "42", "I need 24/7 service", "call 555-1234 now", "a - b", "(really)"]
)
def test_numbers_in_other_talk_are_no_sums(text: str) -> None:
    assert isinstance(reply([user(text)], TOOLS), str)


@pytest.mark.parametrize("unit", ["1", "(", "1+", "!", "sqrt(", " ", "of ", "1 a ", "remind me "])
def test_huge_messages_take_no_time(unit: str) -> None:
    started = time.perf_counter()
    assert isinstance(reply([user("what is " + unit * 20_000 + " nothing")], TOOLS), str)
    assert time.perf_counter() - started < 2


@pytest.mark.parametrize(
    ("text", "tool", "arguments"),
    [
        ("Remember that Ada has 2 cats", "remember", {"text": "Ada has 2 cats"}),
        ("What do you remember about me?", "recall", {"query": ""}),
        ("What time is it in Tokyo?", "date_time", {"zone": "Tokyo"}),
        ("What is 5 km in miles?", "calculate", {"expression": "5 km in miles"}),
        ("100 °F to °C", "calculate", {"expression": "100 °F to °C"}),
    ],
)
def test_other_rules_use_their_tools(text: str, tool: str, arguments: dict[str, object]) -> None:
    assert reply([user(text)], TOOLS) == Call(tool, arguments)
    assert isinstance(reply([user(text)], set()), str)


def test_results_become_sentences() -> None:
    asked: dict[str, object] = {"expression": "1/3"}
    assert after_result("calculate", asked, "0.333") == "1/3 = 0.333."
    failure = "Division by zero has no result."
    assert after_result("calculate", asked, failure) == failure
    assert (
        after_result("calculate", {"expression": "5 km in mi"}, "5 km = 3.1 mi") == "5 km = 3.1 mi."
    )


def test_other_messages_get_the_abilities_and_the_way_to_a_real_model() -> None:
    answer = reply([user("Write a poem")], {"calculate"})
    assert isinstance(answer, str)
    for words in (
        "no AI",
        "I can calculate and convert (What is 127*43? What is 5 km in miles?).",
        "LLM__BASE_URL",
        "LLM__API_KEY",
    ):
        assert words in answer
    assert "I can" not in str(reply([user("help")], set()))
    assert reply([user("Thank you so much")], TOOLS) == "You are welcome."
