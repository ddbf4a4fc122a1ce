"""What is sent of a conversation that is not in the best order."""

import json
from typing import Any

import pytest

from bot.llm.messages import Message, Role, ToolCall
from bot.llm.wire import Streaming, request_body


def sent(message: Message) -> dict[str, Any]:
    body = json.loads(request_body("m", [message], (), Streaming.WITH_USAGE))
    found: dict[str, Any] = body["messages"][0]
    return found


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ('{"x": 1}', '{"x": 1}'),
        ("", "{}"),
        ("{'x': 1", '{"not_json": "{\'x\': 1"}'),
        ("[1]", '{"not_json": "[1]"}'),
        ("[" * 100_000, json.dumps({"not_json": "[" * 100_000})),
    ],
)
def test_arguments_of_earlier_calls_are_always_sent_as_an_object(said: str, expected: str) -> None:
    message = Message(Role.ASSISTANT, None, (ToolCall("1", "a", said),))

    assert sent(message)["tool_calls"][0]["function"]["arguments"] == expected


@pytest.mark.parametrize("role", [Role.USER, Role.SYSTEM, Role.TOOL, Role.ASSISTANT])
def test_only_a_message_with_calls_may_have_no_content(role: Role) -> None:
    assert sent(Message(role, None))["content"] == ""


def test_text_goes_out_as_it_is_except_half_a_surrogate_pair() -> None:
    assert sent(Message(Role.USER, "Grüße 🔧\n\0"))["content"] == "Grüße 🔧\n\0"
    assert sent(Message(Role.USER, "a\ud83db"))["content"] == "a?b"
