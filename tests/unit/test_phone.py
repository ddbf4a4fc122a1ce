"""The terminal phone as a transcript; tests/e2e has it at a terminal."""

import asyncio
import io
import os
import re
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from bot.demo.messenger import DemoMessenger, FromBot
from bot.demo.phone import run_phone
from bot.demo.screen import MAX_MESSAGE_CHARACTERS
from conversation_store.models import Attachment, Quote

NOON = 1795262400000
TIME = re.compile(r"\d\d:\d\d")


class ScriptedBot(DemoMessenger):
    """A bot that sends the next lot of its script whenever it is written to."""

    def __init__(self, *script: Sequence[FromBot]) -> None:
        super().__init__()
        self.said: list[str] = []
        self._script = deque(script)
        self._sent: asyncio.Queue[FromBot] = asyncio.Queue()

    async def say(self, text: str, file: Path | None = None) -> int:
        self.said.append(text)
        for sent in self._script.popleft() if self._script else ():
            self._sent.put_nowait(sent)
        return NOON + len(self.said)

    async def next_sent(self, *, seconds: float) -> FromBot:
        async with asyncio.timeout(seconds):
            return await self._sent.get()


SUM = (
    FromBot(NOON + 100, "🔧 Using calculate…"),
    FromBot(NOON + 101, "🔧 Using calculate, get_weather…", replaces=NOON + 100),
    FromBot(NOON + 102, "127*43 = 5461."),
    FromBot(NOON + 103, "And a second part."),
)


def transcript(output: io.StringIO) -> str:
    rows = output.getvalue().splitlines()
    return "\n".join(TIME.sub("12:00", row) for row in rows if row)


async def say(side: ScriptedBot, *texts: str, answer_seconds: float = 5.0) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    code = await run_phone(
        side, say=texts, keyboard=-1, output=output, errors=errors, answer_seconds=answer_seconds
    )
    return code, transcript(output), errors.getvalue()


async def test_said_words_are_printed_with_everything_until_their_answer() -> None:
    side = ScriptedBot(SUM, (FromBot(NOON + 200, "You are welcome."),))
    code, printed, errors = await say(side, "What is 127*43?", "Thanks")
    assert side.said == ["What is 127*43?", "Thanks"]
    assert (code, errors) == (0, "")
    assert (
        printed
        == """\
What is 127*43?
You · 12:00
🔧 Using calculate…
Bot · 12:00
🔧 Using calculate, get_weather…
Bot · 12:00 (edited)
127*43 = 5461.
Bot · 12:00
And a second part.
Bot · 12:00
Thanks
You · 12:00
You are welcome.
Bot · 12:00"""
    )


async def test_no_answer_is_an_exit_code_and_a_plain_sentence() -> None:
    side = ScriptedBot(SUM[:2])
    code, printed, errors = await say(side, "What is 127*43?", "never sent", answer_seconds=0.05)
    assert (code, errors) == (1, "No answer came within 0.05 seconds.\n")
    assert "🔧 Using calculate, get_weather…" in printed
    assert side.said == ["What is 127*43?"]


async def test_a_reader_that_goes_away_ends_the_phone_quietly() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    errors = io.StringIO()
    with os.fdopen(writing, "w") as output:
        code = await run_phone(
            ScriptedBot(), say=["hello"], keyboard=-1, output=output, errors=errors
        )
    assert (code, errors.getvalue()) == (1, "")


@pytest.mark.parametrize("ending", ["", "\n", "\n/quit\nnot said\n"])
async def test_piped_lines_are_said_one_after_another(ending: str) -> None:
    answer = (FromBot(NOON, "ok"),)
    side, output = ScriptedBot(answer, answer), io.StringIO()
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        pipe.write("hello\n\n  \nhow are you?" + ending)
        pipe.close()
        code = await run_phone(side, say=(), keyboard=reading, output=output, errors=output)
    assert code == 0
    assert side.said == ["hello", "how are you?"]
    assert transcript(output).count("ok") == 2


FILE: Final = Attachment("proof.json", "application/json", bytes(25_000))


@pytest.mark.parametrize(
    ("answer", "printed"),
    [
        (FromBot(NOON, "Yes.", attachments=(FILE,)), "Yes.\nBot · 12:00\n📎 proof.json (25 kB)"),
        (
            FromBot(NOON, "Yes.", quote=Quote(1, "ada", "Is it\ntrue?")),
            "┃ Is it\nYes.\nBot · 12:00",
        ),
        (FromBot(NOON, "a\x1b[31mb\u202ec\r\nd\te"), "a\ufffd[31mbc\nd   e\nBot · 12:00"),
    ],
    ids=["file", "quote", "text that would steer the terminal"],
)
async def test_answer_is_printed(answer: FromBot, printed: str) -> None:
    _, transcript, _ = await say(ScriptedBot((answer,)), "hello")
    assert transcript.endswith(printed)


async def test_a_typed_message_has_a_longest_length(tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("x" * 2 * MAX_MESSAGE_CHARACTERS)
    side, output = ScriptedBot((FromBot(NOON, "ok"),)), io.StringIO()
    with (tmp_path / "lines").open() as file:
        await run_phone(side, say=(), keyboard=file.fileno(), output=output, errors=output)
    assert side.said == ["x" * MAX_MESSAGE_CHARACTERS]
