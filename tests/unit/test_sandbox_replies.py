"""The bot believes no answer of a worker that a hostile file has taken over."""

import base64
from typing import Final

import pytest

from benchmarks.loop_stall import stalls
from bot.chat.image_worker import MAX_BYTES
from bot.chat.media import MAX_SHOWN_BYTES, open_images
from bot.chat.rendering import LIMITS as ANSWERS
from bot.chat.rendering import Renderer
from tools.documents.client import open_reader
from tools.documents.document import MAX_CHARACTERS, MAX_LINE_CHARACTERS, Document
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import Sandbox

MAX_STALL_SECONDS: Final = 0.1
PAGE: Final = (b"<p>Hello.</p>", "text/html", "https://example.org/")


def replying(monkeypatch: pytest.MonkeyPatch, reply: str) -> None:
    """Replace the answers of all sandboxes with one text."""

    async def call(_: Sandbox, __: str) -> str:
        return reply

    monkeypatch.setattr(Sandbox, "call", call)


def encoded(size: int) -> str:
    return base64.b64encode(bytes(size)).decode()


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "image/png",
        "image/png ",
        "image/png !!!!",
        f"image/svg+xml {encoded(3)}",
        f"text/html {encoded(3)}",
        f"image/png {encoded(MAX_SHOWN_BYTES + 1)}",
    ],
)
async def test_an_image_that_no_worker_makes_is_refused(
    monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    replying(monkeypatch, reply)
    async with open_images() as read:
        with pytest.raises(WorkError, match="This image cannot be read"):
            await read(b"an image")


def test_the_bot_takes_images_as_large_as_its_worker_makes_them_and_no_larger() -> None:
    assert MAX_SHOWN_BYTES == MAX_BYTES


@pytest.mark.parametrize(
    "reply", ["", "null", "title", "title\nnote", '{"title": "a", "text": "b"}']
)
async def test_a_document_that_no_worker_makes_is_refused(
    monkeypatch: pytest.MonkeyPatch, reply: str
) -> None:
    replying(monkeypatch, reply)
    async with open_reader() as read:
        with pytest.raises(WorkError, match="This document cannot be read"):
            await read(*PAGE)


@pytest.mark.parametrize("of", ["[]", "0", "[0]", '["",[0]]', '{"a":0}'])
async def test_a_reply_that_is_hard_to_parse_does_not_stop_the_event_loop(of: str) -> None:
    size = ANSWERS.reply_bytes

    async def brackets(_: str) -> str:
        return f"[{f'{of},' * (size // len(of))}0]"[:size]

    renderer = Renderer(brackets)
    async with stalls() as longest:
        messages = await renderer.messages("long " * 1_000, ())
    assert "".join(message.text for message in messages).count("long") == 1_000
    assert longest.seconds < MAX_STALL_SECONDS


async def test_a_document_longer_than_a_worker_makes_one_is_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = "x" * (MAX_CHARACTERS + 1)
    replying(monkeypatch, f"{long}\n{long}\n{long}")
    async with open_reader() as read:
        document = await read(*PAGE)
    line = "x" * MAX_LINE_CHARACTERS
    assert document == Document(line, long[:MAX_CHARACTERS], line)
