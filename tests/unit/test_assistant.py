"""The offline assistant: what its rules say, and the protocol it says it in."""

import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from bot.demo.arithmetic import find_expressions
from bot.demo.assistant import MODEL, serve_assistant
from bot.demo.rules import MAX_CALLS, Call, Reading, reply
from conversation_store.models import Message, Role, ToolCall
from tools.clock import time_in

CALCULATE = frozenset({"calculate"})
STAMP = "[2026-11-21 22:19 UTC] "


def user(text: str) -> Message:
    return Message(Role.USER, text)


def bot(text: str) -> Message:
    return Message(Role.ASSISTANT, text)


def words(*said: Message, tools: frozenset[str] = CALCULATE) -> str:
    answer = reply(said, tools)
    assert isinstance(answer, Reading)
    return answer.text


def sums(*expressions: str) -> tuple[Call, ...]:
    return tuple(Call("calculate", {"expression": expression}) for expression in expressions)


def after_result(
    subject: str, result: str, *, tool: str = "calculate", argument: str = "expression"
) -> str:
    call = ToolCall("call_1", tool, json.dumps({argument: subject}))
    return words(
        user(f"What is {subject}?"),
        Message(Role.ASSISTANT, None, (call,)),
        Message(Role.TOOL, result, tool_call_id="call_1"),
    )


def test_facts_are_kept_and_found_in_the_bots_own_memory() -> None:
    tools = frozenset({"remember", "recall"})
    kept = Call("remember", {"text": "Ada has 2 cats"})
    assert reply([user("Remember that Ada has 2 cats")], tools) == (kept,)
    assert reply([user("What do you remember about me?")], tools) == (
        Call("recall", {"query": ""}),
    )
    assert words(user("Remember me?")) == "You have not told me your name in this conversation."
    call, result = ToolCall("call_1", "recall", "{}"), "1 (2026-11-21): Ada has 2 cats"
    asked = user("what do you know?"), Message(Role.ASSISTANT, None, (call,))
    assert words(*asked, Message(Role.TOOL, result, tool_call_id="call_1")) == result


@pytest.mark.parametrize(
    ("text", "expression"),
    [
        ("What is 127*43?", "127*43"),
        ("how much is 15% of 80", "15% of 80"),
        ("sqrt(16)+2^10", "sqrt(16)+2^10"),
        ("(3+4)*2", "(3+4)*2"),
        ("(3+4)*2 =", "(3+4)*2"),
        ("Hi! What's 1,234.5 / 3, please?", "1,234.5 / 3"),
        ("calculate sin(pi/2)", "sin(pi/2)"),
        ("Compute max(3, 4).", "max(3, 4)"),
        ("5!", "5!"),
        ("2π * 3", "2π * 3"),
        ("what is 5 times 3 plus 1?", "5 * 3 + 1"),
        ("what is 127x43", "127*43"),
        ("12 x 3", "12 * 3"),
        ("What is 2 to the power of 10?", "2 ^ 10"),
        ("what is √16", "√16"),
        ("1.5e3 * 2", "1.5e3 * 2"),
        ("what is -5 + 3.25.", "-5 + 3.25"),
        ("2+2\nthanks", "2+2"),
    ],
)
def test_a_sum_is_found_in_what_people_write(text: str, expression: str) -> None:
    assert find_expressions(text) == [expression]
    assert reply([user(STAMP + text)], CALCULATE) == sums(expression)


def test_every_sum_of_a_message_is_worked_out() -> None:
    assert reply([user("2^10 and 15% of 80")], CALCULATE) == sums("2^10", "15% of 80")
    assert reply([user("What is 2+2? And 3*3?")], CALCULATE) == sums("2+2", "3*3")
    assert reply([user("1+1? " * 9)], CALCULATE) == sums(*["1+1"] * MAX_CALLS)


@pytest.mark.parametrize(
    "text",
    ["", "hello", "42", "I need 24/7 service", "we are 3-4 people", "call 555-1234 now", "a - b",
     "the price of 3 apples", "e", "what is pi?", "is it (really) so?"],
)  # fmt: skip
def test_numbers_in_other_talk_are_no_sums(text: str) -> None:
    assert find_expressions(text) == []


def test_looking_for_a_sum_takes_no_time_even_in_a_huge_message() -> None:
    started = time.perf_counter()
    for unit in ("1", "1,", "(", "1+", "e-", "sqrt(", " ", "of % ", "1 a "):
        assert find_expressions("what is " + unit * 20_000 + " nothing") == []
    assert time.perf_counter() - started < 2


def test_the_result_of_a_tool_becomes_a_sentence() -> None:
    assert after_result("127*43", "5461") == "127*43 = 5461."
    assert after_result("1/3", "0.333333333333") == "1/3 = 0.333333333333."
    assert after_result("2-5", "-3") == "2-5 = -3."


def units(value: float, from_unit: str, to_unit: str) -> dict[str, object]:
    return {"value": value, "from_unit": from_unit, "to_unit": to_unit}


def test_units_dates_and_clocks_are_asked_of_the_tools() -> None:
    tools = frozenset({"convert_units", "shift_date", "date_difference", "current_time"})
    for text, call in (
        ("What is 5 km in miles?", Call("convert_units", units(5.0, "km", "miles"))),
        ("100 °F to °C", Call("convert_units", units(100.0, "°F", "°C"))),
        ("2026-11-22 + 6 weeks", Call("shift_date", {"start": "2026-11-22", "weeks": 6})),
        ("today - 1 day", Call("shift_date", {"start": "today", "days": -1})),
        (
            "days between 2026-01-01 and today",
            Call("date_difference", {"start": "2026-01-01", "end": "today"}),
        ),
    ):
        assert reply([user(STAMP + text)], tools) == (call,)
    clock = (Call("current_time", {"zone": "Tokyo"}),)
    assert reply([user("What time is it in Tokyo?")], tools) == clock
    assert "I cannot answer that" in words(user("5 km in miles"), tools=frozenset())
    assert "Nobody has told me" in words(user("What time is it in Tokyo?"))


def test_measures_and_clocks_become_sentences() -> None:
    assert after_result("5 km", "5 km = 3.1 mi", tool="convert_units") == "5 km = 3.1 mi."
    assert (
        after_result("", "2027-01-03 (Sunday)", tool="shift_date") == "It is 2027-01-03 (Sunday)."
    )
    between = "From 2026-01-01 (Thursday) to 2026-01-03 (Saturday): 2 days"
    assert after_result("", between, tool="date_difference") == f"{between}."
    now = datetime(2026, 11, 22, 2, 40, tzinfo=UTC)
    for zone, said in (
        ("Tokyo", "It is Sunday, 22 November 2026, 11:40:00 in Asia/Tokyo."),
        ("UTC+2", "It is Sunday, 22 November 2026, 04:40:00 in UTC+02:00."),
    ):
        result = time_in(zone, now)
        assert after_result(zone, result, tool="current_time", argument="zone") == said
    unknown = after_result("Narnia", "No.", tool="current_time", argument="zone")
    assert unknown == "I could not work out Narnia. The current_time tool says: No."


def test_a_tool_that_failed_is_quoted() -> None:
    assert after_result("1/0", "Division by zero has no result.") == (
        "I could not work out 1/0. The calculate tool says: Division by zero has no result."
    )


def test_results_of_another_model_s_calls_are_told_too() -> None:
    calls = (ToolCall("a", "calculate", "not json"), ToolCall("b", "get_weather", '["Oslo"]'))
    answer = words(
        user("?"),
        Message(Role.ASSISTANT, None, calls),
        Message(Role.TOOL, "7", tool_call_id="a"),
        Message(Role.TOOL, "Rain.", tool_call_id="b"),
    )
    assert answer == (
        'not json = 7.\nI could not work out ["Oslo"]. The get_weather tool says: Rain.'
    )


def test_without_the_tool_a_sum_is_declined() -> None:
    assert "not offered the calculate tool" in words(user("2+2"), tools=frozenset())
    assert "calculate" not in words(user("help"), tools=frozenset())


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("Hello!", "Hello! I am this bot's offline demo, no AI."),
        ("help", "I am an offline demo, no AI."),
        ("Who are you?", "no AI"),
        ("are you an AI", "no AI"),
        ("thank you so much", "You are welcome."),
        ("Who was Ada Lovelace?", "I cannot answer that: I am an offline demo, no AI."),
        ("", "no AI"),
    ],
)
def test_small_talk(text: str, answer: str) -> None:
    assert answer in words(user(STAMP + text))


def test_what_it_cannot_do_comes_with_the_way_to_a_real_model() -> None:
    answer = words(user("Write a poem"))
    assert "LLM__BASE_URL" in answer
    assert "LLM__API_KEY" in answer


def test_it_sets_a_reminder_for_so_long_after_the_message() -> None:
    tools = frozenset({"remind"})
    asked = user("[2026-11-25 23:50 UTC] Remind me in 15 minutes to stretch")
    call = Call("remind", {"text": "stretch", "at": "2026-11-26T00:05:00+00:00"})
    assert reply([asked], tools) == (call,)
    assert reply([asked], frozenset()) != (call,)
    assert reply([user("Remind me in 15 minutes to stretch")], tools) != (call,)


def test_it_remembers_a_name_within_the_conversation() -> None:
    told = user(f"{STAMP}My name is Ada.")
    assert words(told) == "Nice to meet you, Ada. Ask me later what your name is."
    assert words(told, bot("Hello"), user("what is my name?")).startswith("Your name is Ada.")
    assert words(told, user("call me Countess"), user("Who am I?")).startswith(
        "Your name is Countess."
    )
    assert words(user("What is my name?")).startswith("You have not told me")


def test_the_time_comes_from_the_message_and_the_date_from_the_system_prompt() -> None:
    system = Message(Role.SYSTEM, "You are helpful.\nToday is Saturday, November 21, 2026 (UTC).")
    asked = "What time is it?"
    assert words(user(STAMP + asked)) == "Your message was written at 2026-11-21 22:19 UTC."
    assert words(system, user(asked)) == "The date is November 21, 2026."
    assert words(user(asked)) == "Nobody has told me the date."


def test_in_a_group_the_author_s_name_is_no_part_of_the_question() -> None:
    answer = reply([user(f"{STAMP}Ada: What is 2+3?")], CALCULATE)
    assert answer == sums("2+3")
    assert words(user(f"{STAMP}Zoë 7: hello")).startswith("Hello!")


# The endpoint


def question(*said: Message, **more: object) -> dict[str, object]:
    messages = [{"role": one.role, "content": one.content} for one in said]
    function = {"name": "calculate", "description": "", "parameters": {"type": "object"}}
    return {
        "model": MODEL,
        "messages": messages,
        "tools": [{"type": "function", "function": function}],
        **more,
    }


async def ask(asked: object) -> httpx.Response:
    async with serve_assistant() as base_url, httpx.AsyncClient(base_url=base_url) as client:
        return await client.post("/chat/completions", json=asked)


def events(answer: httpx.Response) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for line in answer.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def deltas(chunks: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks for choice in chunk["choices"]]


async def test_it_lists_its_one_model() -> None:
    async with serve_assistant() as base_url, httpx.AsyncClient(base_url=base_url) as client:
        models = (await client.get("/models")).json()
    assert [model["id"] for model in models["data"]] == [MODEL]


async def test_a_streamed_answer_comes_in_pieces_and_counts_tokens_when_asked() -> None:
    answer = await ask(
        question(user("Write a poem"), stream=True, stream_options={"include_usage": True})
    )
    chunks = events(answer)
    assert answer.headers["content-type"] == "text/event-stream"
    text = "".join(delta.get("content") or "" for delta in deltas(chunks))
    assert Reading(text) == reply([user("Write a poem")], CALCULATE)
    assert len(chunks) > 10
    assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"]["completion_tokens"] > 10
    assert len({chunk["id"] for chunk in chunks}) == 1


async def test_a_streamed_tool_call_comes_in_pieces() -> None:
    chunks = events(await ask(question(user("What is 127*43?"), stream=True)))
    pieces = [delta["tool_calls"][0] for delta in deltas(chunks) if "tool_calls" in delta]
    assert pieces[0]["function"] == {"name": "calculate", "arguments": ""}
    assert pieces[0]["id"].startswith("call_")
    assert len(pieces) == 3
    arguments = "".join(piece["function"]["arguments"] for piece in pieces)
    assert json.loads(arguments) == {"expression": "127*43"}
    assert chunks[-1]["choices"][0]["finish_reason"] == "tool_calls"


async def test_an_answer_in_one_piece_is_a_whole_completion() -> None:
    first = (await ask(question(user("What is 127*43?")))).json()
    message = first["choices"][0]["message"]
    assert first["choices"][0]["finish_reason"] == "tool_calls"
    asked = question(user("What is 127*43?"))
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "5461"}
    asked["messages"] = [{"role": "user", "content": "What is 127*43?"}, message, result]
    second = (await ask(asked)).json()
    assert second["choices"][0]["message"] == {"role": "assistant", "content": "127*43 = 5461."}
    assert second["usage"]["total_tokens"] > 0


async def test_content_in_parts_is_understood() -> None:
    parts = [{"type": "text", "text": "What is "}, {"type": "text", "text": "2+2?"}]
    answer = await ask({"messages": [{"role": "user", "content": parts}]})
    assert "calculate tool" in answer.json()["choices"][0]["message"]["content"]


@pytest.mark.parametrize("asked", [None, [], {}, {"messages": [{"role": "wizard"}]}])
async def test_what_is_no_request_is_refused_as_endpoints_do(asked: object) -> None:
    answer = await ask(asked)
    assert answer.status_code == 400
    assert answer.json()["error"]["type"] == "invalid_request_error"
