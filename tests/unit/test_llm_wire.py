"""Requests for conversations that are not in the best order."""

import json
from typing import Any, Final

import pytest

from bot.attestation.near_ai.encryption import RequestKeys
from bot.config.llm import LlmSettings
from bot.llm.api import Asked
from bot.llm.messages import ModelRequest
from bot.llm.openai import OpenAi
from bot.llm.rearranged import LEFT_OUT, MAX_IMAGE_BYTES, MAX_IMAGES, without_images
from conversation_store.models import Image, Message, Role, ToolCall
from tests.fakes.near_ai_encryption import EncryptedModel


def request_body(asked: Asked) -> bytes:
    return OpenAi(LlmSettings(base_url="http://h", model="m")).put(asked).content


def sent(message: Message) -> dict[str, Any]:
    body = json.loads(request_body(Asked(ModelRequest([message]))))
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


@pytest.mark.parametrize("role", [Role.USER, Role.SYSTEM, Role.TOOL])
def test_only_a_message_with_calls_may_have_no_content(role: Role) -> None:
    assert sent(Message(role, None))["content"] == ""


def test_model_never_says_nothing() -> None:
    assert sent(Message(Role.ASSISTANT, " "))["content"] == "(no words)"


# Images -----------------------------------------------------------------------------------------


PICTURE: Final = Image("image/png", b"\x89PNG...")
SEEN = Message(Role.ASSISTANT, "I see.")


def messages_of(*messages: Message) -> list[dict[str, Any]]:
    body = json.loads(request_body(Asked(ModelRequest(messages))))
    found: list[dict[str, Any]] = body["messages"]
    return found


def test_latest_of_many_images_are_sent_and_notes_replace_the_others() -> None:
    old, new = (
        Message(Role.USER, words, images=(PICTURE,) * count)
        for words, count in (("old", 3), ("new", MAX_IMAGES - 1))
    )

    first, _, last = messages_of(old, SEEN, new)

    assert first["content"][0] == {"type": "text", "text": f"old\n{LEFT_OUT}\n{LEFT_OUT}"}
    assert [part["type"] for part in first["content"]] == ["text", "image_url"]
    assert len(last["content"]) == MAX_IMAGES


def test_images_never_make_a_request_larger_than_its_bound() -> None:
    large = Image("image/jpeg", b"x" * (MAX_IMAGE_BYTES // 2))

    first, _, last = messages_of(
        Message(Role.USER, "old", images=(large,)),
        SEEN,
        Message(Role.USER, "new", images=(large,) * 2),
    )

    assert first["content"] == f"old\n{LEFT_OUT}"
    assert [part["type"] for part in last["content"]] == ["text", "image_url", "image_url"]


def test_for_a_model_that_cannot_see_each_image_is_a_note() -> None:
    shown = [Message(Role.USER, "Look:", images=(PICTURE,) * 2), Message(Role.USER, "hello")]

    assert without_images(shown) == [
        Message(Role.USER, f"Look:\n{LEFT_OUT}\n{LEFT_OUT}"),
        Message(Role.USER, "hello"),
    ]


def test_a_sealed_request_shows_no_image_to_anybody_else() -> None:
    model = EncryptedModel()
    keys = RequestKeys(model.public_key)
    shown = Message(Role.USER, "What is this?", images=(PICTURE,))

    body = request_body(Asked(ModelRequest([shown]), sealing=keys))

    assert b"image" not in body
    assert b"iVBOR" not in body
    opened = model.open_request(keys.headers, json.loads(body))
    assert opened["messages"] == messages_of(shown)
