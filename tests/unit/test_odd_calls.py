"""Calls in the markup of models whose own form the bot does not read, and odd arguments."""

import json

import pytest

from bot.llm.arguments import read_arguments
from bot.llm.cleanup import cleaned
from tests.unit.test_llm_stream import call, streamed, whole

OFFERED = frozenset({"calculate"})
OBJECT = '{"name": "calculate", "arguments": {"expression": "6*7"}}'
BAR = "\uff5c"
DSML = (
    f"<{BAR}DSML{BAR}function_calls>\n"
    f'<{BAR}DSML{BAR}invoke name="calculate">\n'
    f'<{BAR}DSML{BAR}parameter name="expression" string="true">6*7</{BAR}DSML{BAR}parameter>\n'
    f"</{BAR}DSML{BAR}invoke>\n</{BAR}DSML{BAR}function_calls>"
)
INVOKED = '<invoke name="calculate"><parameter name="expression">6*7</parameter></invoke>'


@pytest.mark.parametrize(
    "markup",
    [
        DSML,
        DSML[: len(DSML) // 2],
        DSML.replace("<", "\u2039").replace(">", "\u203a"),
        (
            f"<{BAR}tool\u2581calls\u2581begin{BAR}><{BAR}tool\u2581call\u2581begin{BAR}>function"
            f"<{BAR}tool\u2581sep{BAR}>calculate\n```json\n{{}}\n```<{BAR}tool\u2581call\u2581end{BAR}>"
            f"<{BAR}tool\u2581calls\u2581end{BAR}>"
        ),
        f"<function_calls>\n{INVOKED}\n</function_calls>",
        f"<minimax:tool_call>\n{INVOKED}\n</minimax:tool_call>",
        (
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.calculate:0"
            '<|tool_call_argument_begin|>{"expression": "6*7"}<|tool_call_end|>'
            "<|tool_calls_section_end|>"
        ),
        "<tool_call>calculate\n<arg_key>expression</arg_key>\n<arg_value>6*7</arg_value>\n</tool_call>",
        '<|START_ACTION|>[{"tool_name": "calculate", "parameters": {}}]<|END_ACTION|>',
        '<|python_tag|>calculate.call(expression="6*7")',
        "<|action_start|><|plugin|>calculate 6*7<|action_end|>",
    ],
)
def test_markup_that_is_no_known_call_is_asked_for_again_and_never_shown(markup: str) -> None:
    found = cleaned(f"Let me see. {markup}", OFFERED)
    assert (found.words, len(found.calls), found.is_broken) == ("Let me see.", 0, True)


@pytest.mark.parametrize(
    "markup",
    [
        DSML,
        f"<function_calls>\n{INVOKED}\n</function_calls>",
        "<|tool_call_begin|>calculate:0<|tool_call_end|>",
        '<|START_ACTION|>[{"tool_name": "calculate"}]<|END_ACTION|>',
        f"<|tool_call|>[{OBJECT}]<|/tool_call|>",
        f"[TOOL_REQUEST]{OBJECT}[END_TOOL_REQUEST]",
    ],
)
def test_words_after_the_markup_stay(markup: str) -> None:
    assert cleaned(f"One moment. {markup}Done soon.", OFFERED).words == "One moment. Done soon."


@pytest.mark.parametrize(
    "markup",
    [
        f"<|python_tag|>{OBJECT}<|eom_id|>",
        f"<|tool_call|>[{OBJECT}]<|/tool_call|>",
        f"<TOOLCALL>[{OBJECT}]</TOOLCALL>",
        f"<tool_calls>{OBJECT}</tool_calls>",
        f"<function_call>\n{OBJECT}\n</function_call>",
        f"[TOOL_REQUEST]{OBJECT}[END_TOOL_REQUEST]",
        f"<{BAR}DSML{BAR}function_calls>{OBJECT}</{BAR}DSML{BAR}function_calls>",
        (
            "<seed:tool_call><function=calculate><parameter=expression>6*7</parameter></function>"
            "</seed:tool_call>"
        ),
    ],
)
def test_a_known_call_between_marks_of_other_models_is_run(markup: str) -> None:
    found = cleaned(markup, OFFERED)
    assert found.words == ""
    assert [(one.name, json.loads(one.arguments)) for one in found.calls] == [
        ("calculate", {"expression": "6*7"})
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Write `<invoke name='x'>` here.", "Write `<invoke name='x'>` here."),
        ("The tags <function_calls> and <invoke> differ.",) * 2,
        ('Add <parameter name="wait">5</parameter> to it.',) * 2,
        ("It is 42.</function_calls>", "It is 42."),
        ("It is 42.<|im_end|>", "It is 42."),
        (f"It is 42.<{BAR}end\u2581of\u2581sentence{BAR}>", "It is 42."),
    ],
)
def test_prose_stays_and_stray_marks_go(text: str, shown: str) -> None:
    found = cleaned(text, OFFERED)
    assert (found.words, found.is_broken) == (shown, False)


SUM = {"expression": "1+1"}


@pytest.mark.parametrize(
    "written",
    [
        '{"expression":"1+1"}',
        '{}{"expression":"1+1"}',
        '{"expression":"1+1"}{}',
        '{"expression":"1+1"}{"expression":"1+1"}',
        json.dumps(json.dumps(SUM)),
        json.dumps(json.dumps(json.dumps(SUM))),
        '[{"expression":"1+1"}]',
        '{"expression":"1+1",}',
        "{'expression': '1+1'}",
        "{expression: '1+1'}",
        '```json\n{"expression":"1+1"}\n```',
        '{"expression":"1+1"}}',
        '{"expression":"1+1"}<|im_end|>',
        '\n {"expression":"1+1"}\n',
        json.dumps("{'expression': '1+1',}"),
    ],
)
def test_arguments_are_read_however_they_are_quoted(written: str) -> None:
    assert json.loads(read_arguments(written)) == SUM


@pytest.mark.parametrize("written", ["null", " ", "{}{}", '"{}"', "[{}]"])
def test_nothing_is_an_empty_object(written: str) -> None:
    assert read_arguments(written) == "{}"


@pytest.mark.parametrize(
    "written",
    [
        '{"expression":"1+',
        '{"a":1}{"a":2}',
        '{}{"expression":"1',
        "1+1",
        '"1+1"',
        "[1, 2]",
        '"' * 40,
        "[" * 5_000,
        "{" * 50_000,
    ],
)
def test_half_and_ambiguous_arguments_are_not_guessed(written: str) -> None:
    assert read_arguments(written) == written


def test_arguments_of_native_calls_are_read() -> None:
    twice = json.dumps(json.dumps(SUM))
    pieces = [call("calculate", "{}", index=0), call(None, json.dumps(SUM), index=0)]
    answers = [
        whole({"tool_calls": [call("calculate", twice)]}),
        streamed(*({"tool_calls": [piece]} for piece in pieces)),
    ]
    for answer in answers:
        [found] = answer.message.tool_calls
        assert json.loads(found.arguments) == SUM
