"""Clean words and calls out of models' texts with reasoning and markup."""

import json
import time
from collections.abc import Collection
from typing import Final

import pytest

from bot.llm import cleanup
from bot.llm.answering import joined, to_last_word
from bot.llm.cleanup import Cleaned


def cleaned(text: str, offered: Collection[str] = (), *, prompted: bool = False) -> Cleaned:
    """Clean an answer as the bot does: only if it may hold markup at all."""
    if not cleanup.ODD.search(text):
        return Cleaned(text)
    return cleanup.cleaned(text, offered, prompted=prompted)


OFFERED: Final = frozenset({"calculate", "get_weather"})
ROME: Final = ("get_weather", {"place": "Rome"})
SUM: Final = ("calculate", {"expression": "1+1"})
SECONDS: Final = 1.5
"""Time limit for the longest accepted answer, on a slow machine."""

LONGEST: Final = 256 * 1024

REASONING: Final = {
    "<think>They greet me.</think>\n\nHi.": "Hi.",
    "They greet me.\n</think>\n\nHi.": "Hi.",
    "Hi. <think>Was that": "Hi.",
    "<think>": "",
    "<THINK>a</THINK>Hi.": "Hi.",
    "<think budget='3'>a</think>Hi.": "Hi.",
    "<think>a <think>b</think> c</think>Hi.": "Hi.",
    "<think>a</think>Hi.<think>b</think> How are you?": "Hi. How are you?",
    "<think>```\n<answer>\n```</think>Hi.": "Hi.",
    "Let me see:\n```\nx = 1\nthat is it </think>Use ```x``` there.": "Use ```x``` there.",
    "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>Hi.": "Hi.",
    "<|channel|>final <|message|>Hi.<|return|>": "Hi.",
    "<|channel|>analysis<|message|>a and a": "",
    '<|start|>assistant to=functions.a<|channel|>analysis<|message|>{"b": "c"}<|call|>Hi.': "Hi.",
}


@pytest.mark.parametrize("text", REASONING)
def test_reasoning_and_marks_reach_no_person(text: str) -> None:
    found = cleaned(text, OFFERED)
    assert (found.words, list(found.calls), found.is_broken) == (REASONING[text], [], False)


@pytest.mark.parametrize(
    "text",
    [
        "Hi.",
        "I think, therefore I am.",
        "The analysis is done. The assistant is final.",
        "Models write `<think>` and `</think>` around it.",
        "It looks like this:\n```\n<think>\nHm.\n</think>\nHi.\n```\nSo cut it off.",
        "Call it so:\n```json\n{\"tool\": \"calculate\", \"input\": {}}\n```\nThat is all.",
        "```xml\n<tool_call>{\"name\": \"calculate\"}</tool_call>\n```\nas an example.",
        "Use `<tool_call>` for that.",
        "1 < 2 and {x | x > 2} and [1, 2]",
        '{"name": "Ada", "age": 36}',
        '[{"name": "Ada"}, {"name": "Bob"}]',
        "The <function> element, and </function> after it.",
        "Action: none needed.",
        "<b>bold</b>",
        "def f(x):\n    return {'a': [x]}",
        "print('hello')",
        "<response><status>ok</status></response>",
        "In XML, <function>f</function> is a tag.",
        "<s>That is struck through.</s>",
        '<s class="old">9</s>',
        "<Error><Code>1</Code><Reason>Bad</Reason></Error>",
        "Thought: I am worthless.\nFeeling: sad\nAction: call a friend\nResult: better",
        "Use this:\n```python\nanswer = text.split('</think>')[-1]\n```\nDone.",
        '1. ```json\n   {"tool": "calculate", "input": {}}\n   ```\n2. Then go on.',
        '> ```\n> <tool_call>{"name": "calculate"}</tool_call>\n> ```\nquoted',
        'It is ```{"tool": "calculate", "input": {}}``` so.',
        "Write ```<think>``` to begin.",
        "[" * 600 + "]" * 600,
        '```json\n{"type": "function", "function": {"name": "a", "description": "d"}}\n```',
        "",
    ],
)  # fmt: skip
def test_other_words_are_left_alone(text: str) -> None:
    found = cleaned(text, OFFERED)
    assert (found.words, list(found.calls), found.is_broken) == (text, [], False)


WRITTEN: Final = [
    '<tool_call>\n{"name": "get_weather", "arguments": {"place": "Rome"}}\n</tool_call>',
    '<tool_call>{"name": "get_weather", "arguments": {"place": "Rome"}}',
    ("<tool_call>\n<function=get_weather>\n<parameter=place>\nRome\n</parameter>\n</function>\n"
    "</tool_call>"),
    "<function=get_weather>\n<parameter=place>\nRome\n</parameter>\n</function>",
    '[TOOL_CALLS][{"name": "get_weather", "arguments": {"place": "Rome"}}]',
    '[TOOL_CALLS]get_weather[CALL_ID]abc123def[ARGS]{"place": "Rome"}',
    '{"tool": "get_weather", "input": {"place": "Rome"}}',
    '```json\n{"tool": "get_weather", "input": {"place": "Rome"}}\n```',
    '<think>I look it up.</think>\n{"tool": "get_weather", "input": {"place": "Rome"}}',
    "{'tool': 'get_weather', 'input': {'place': 'Rome'},}",
    "{'tool': 'get_weather', 'input': {'place': 'Rome', 'days': None}}",
    '{tool: "get_weather", input: {place: "Rome"}}',
    '{"tool": "get_weather", "input": "{\\"place\\": \\"Rome\\"}"}',
    '{"name": "get_weather", "arguments": {"place": "Rome"}}',
    '{"type": "function", "function": {"name": "get_weather", "arguments": {"place": "Rome"}}}',
    '{"tool_calls": [{"function": {"name": "get_weather", "arguments": {"place": "Rome"}}}]}',
    '{"tool": "get_weather", "place": "Rome"}',
]  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "{'tool': 'get_weather', 'input': __import__('os')}",
        "{'tool': 'get_weather', 'input': {'place': f'Rome'}}",
        "{'tool': 'get_weather', 'input': {**{'place': 'Rome'}}}",
        "{'tool': 'get_weather', 'input': {'place': Rome}}",
        "{'tool': 'get_weather', 'input': {'place': " + "-" * 7_000 + "1}}",
        "{'tool': 'get_weather', 'input': " + "[" * 150 + "]" * 150 + "}",
        "{'tool': 'get_weather', 'input': {'place': '" + "a" * 9_000 + "'}}",
    ],
)
def test_python_that_is_no_plain_value_is_a_broken_call(text: str) -> None:
    assert cleaned(text, OFFERED) == Cleaned("", (), is_broken=True)


def calls_in(text: str, *, prompted: bool = False) -> list[tuple[str, object]]:
    found = cleaned(text, OFFERED, prompted=prompted)
    return [(call.name, json.loads(call.arguments)) for call in found.calls]


@pytest.mark.parametrize("text", WRITTEN)
def test_a_call_that_is_written_is_a_call(text: str) -> None:
    [(name, arguments)] = calls_in(text)
    assert (name, str(arguments).replace(", 'days': None", "")) == (ROME[0], str(ROME[1]))
    assert cleaned(text, OFFERED).words == ""


@pytest.mark.parametrize(
    "text",
    [
        (
            '<tool_call>{"name": "get_weather", "arguments": {"place": "Rome"}}</tool_call>\n'
            '<tool_call>{"name": "calculate", "arguments": {"expression": "1+1"}}</tool_call>'
        ),
        (
            '<tool_call>{"name": "get_weather", "arguments": {"place": "Rome"}}\n'
            '{"name": "calculate", "arguments": {"expression": "1+1"}}</tool_call>'
        ),
        '[TOOL_CALLS]get_weather{"place": "Rome"}[TOOL_CALLS]calculate{"expression": "1+1"}',
        (
            '{"tool": "get_weather", "input": {"place": "Rome"}}\n'
            '{"tool": "calculate", "input": {"expression": "1+1"}}'
        ),
        (
            '[{"tool": "get_weather", "input": {"place": "Rome"}},'
            ' {"tool": "calculate", "input": {"expression": "1+1"}}]'
        ),
    ],
)
def test_two_calls_in_one_text_are_two(text: str) -> None:
    assert calls_in(text) == [ROME, SUM]


def test_words_around_a_call_are_kept_apart() -> None:
    written = '{"tool": "get_weather", "input": {"place": "Rome"}}'
    for text in (f"I look it up.\n{written}", f"I look it up.\n{written}\nPlease wait."):
        assert calls_in(text) == [ROME]
        assert cleaned(text, OFFERED).words.startswith("I look it up.")
        assert "get_weather" not in cleaned(text, OFFERED).words


def test_block_at_the_end_of_an_answer_is_a_call_only_if_the_prompt_asked_for_it() -> None:
    text = 'I look:\n```json\n{"tool": "get_weather", "input": {"place": "Rome"}}\n```'
    assert calls_in(text) == []
    assert calls_in(text, prompted=True) == [ROME]
    assert calls_in(f"{text}\nSo it would be written.", prompted=True) == []


@pytest.mark.parametrize(
    "text",
    [
        '{"tool": "get_weather", "input": {"place": "Ro',
        'I look it up.\n{"tool": "get_weather", "input": {"pla\n\nSorry, it is hot there.',
        '<tool_call>{"name": "get_weather", "arguments": {"pla\n\nSorry.',
        '<tool_call>{"name": "get_weather", "arguments": {"place" "Rome"}}</tool_call>',
        "<tool_call>\n<function=get_weather>\n<parameter=place>\nRo",
        "<tool_call></tool_call>",
        "[TOOL_CALLS]get_weather[ARGS]{",
        '<|channel|>commentary to=functions.a <|constrain|>json<|message|>{"b": "c"}<|call|>',
    ],
)
def test_unreadable_call_is_broken_and_not_shown(text: str) -> None:
    found = cleaned(text, OFFERED)
    assert (list(found.calls), found.is_broken) == ([], True)
    assert "{" not in found.words
    assert "<" not in found.words


def test_a_call_of_a_tool_that_is_not_there_is_a_call_all_the_same() -> None:
    """The model learns that the tool does not exist; a person could not read the call."""
    assert calls_in('{"tool": "frobnicate", "input": {}}') == [("frobnicate", {})]
    marked = '<tool_call>{"name": "frobnicate", "arguments": {}}</tool_call>'
    assert calls_in(marked) == [("frobnicate", {})]


def test_without_tools_json_is_an_answer() -> None:
    text = '{"tool": "hammer", "input": {"nail": 1}}'
    assert cleaned(text).words == text


@pytest.mark.parametrize(
    "piece",
    [
        "<think>", "</think>", "`<think>`", "```\n</think>\n", "<|channel|>analysis", "<", "{",
        "[[\n", "<tool_call>", "<tool_call>{}</tool_call>", "<function>",
        "<function=a><parameter=b>", "<a ", "[TOOL_CALLS]", '{"tool":"calculate",\n', "to=a",
        "Action: a\nAction Input:", "Thought:\n", "```json\n{", "<｜tool▁calls▁begin｜>",
        "get_weather ", "calculate(", "<answer>", "\\", "'{",
        "<arg_key>a</arg_key><arg_value>", "~~~\n", "analysis", "`a", "<|start|>assistant",
        " ", "\n", "~", "-", "/* */", "// \n", "to=calculate ",
        '<function=get_weather>{"a": 1}', "{'tool': 'calculate', ", "<parameter=a>1</parameter>",
    ],
)  # fmt: skip
@pytest.mark.parametrize(
    "before",
    [
        "",
        "```\n",
        *(
            pytest.param(begun, marks=pytest.mark.full)
            for begun in (
                "{",
                "<tool_call>",
                "<tool_call>get_weather",
                "analysis ",
            )
        ),
    ],
)
def test_repeated_pieces_are_cleaned_in_time(before: str, piece: str) -> None:
    text = before + piece * (LONGEST // len(piece))
    began = time.process_time()
    cleaned(text, OFFERED, prompted=True)
    assert time.process_time() - began < SECONDS


@pytest.mark.parametrize(
    ("begun", "rest", "whole"),
    [
        ("The quick bro", "brown fox.", "The quick brown fox."),
        ("The quick bro", " brown fox.", "The quick brown fox."),
        ("The quick bro", "The quick brown fox.", "The quick brown fox."),
        ("One line.\nAnother li", "line, and more.", "One line.\nAnother line, and more."),
        ("She said that it was the", "that it was the end.", "She said that it was the end."),
        ("```python\nx = 1\ny", "```python\ny = 2\n```", "```python\nx = 1\ny = 2\n```"),
        ("北京是中国", "的首都。", "北京是中国的首都。"),
        ("Done. ", "More.", "Done. More."),
        ("A" * 50 + " story of old that", "A" * 50 + " story of old that ends.",
         "A" * 50 + " story of old that ends."),
        ("a\n\n- first\n- sec", "- second\n- third", "a\n\n- first\n- second\n- third"),
        ("```python\nx = 1\n", "```\n\nThat prints 1.", "```python\nx = 1\n```\n\nThat prints 1."),
        ("```python\ndef f():\n", "    return 1\n```", "```python\ndef f():\n    return 1\n```"),
        ("```js\nif (x) {\n    a();\n    }\n", "}\n```\nDone.",
         "```js\nif (x) {\n    a();\n    }\n}\n```\nDone."),
    ],
)  # fmt: skip
def test_a_cut_answer_and_its_rest_are_joined_without_a_seam(
    begun: str, rest: str, whole: str
) -> None:
    assert joined(to_last_word(begun), rest) == whole


def test_half_a_surrogate_pair_in_a_call_becomes_a_question_mark() -> None:
    text = '{"tool": "get_weather", "input": {"place": "\\ud83d"}}'
    assert calls_in(text) == [("get_weather", {"place": "?"})]
