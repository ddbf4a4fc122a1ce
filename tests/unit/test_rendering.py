"""Answers as messages: short ones at once, long ones in a process, none without its words."""

import asyncio
from collections.abc import Sequence
from typing import Final

import pytest

from benchmarks.loop_stall import MAX_MS, READERS, longest_stalls, stalls, texts
from benchmarks.rough_texts import rough_text
from bot.chat.rendering import (
    SHORT_CHARACTERS,
    Ask,
    Renderer,
    open_renderer,
)
from bot.signal.formatting import CUT_NOTICE, MAX_ANSWER_BYTES, plain, rendered
from conversation_store.models import StyledText
from tools.sandbox.errors import SandboxBug, WorkError, WorkTimeout

QUICK: Final = range(1)
WHITE_SPACE: Final = " \t\n"
MANY: Final = range(1_000, 1_040)
LONG: Final = "A **bold** word, `code` and 👍🏽\n\n" * 200
DENSE: Final = "*a* " * 200
SOON_SECONDS: Final = 0.05
SHORT_MS: Final = 15.0
"""Bound of a stall: rendering on the loop takes up to 10 ms, and threads may add a little."""

RED_TEAM: Final = "a|b\n> 1)\n" * 2_000
RELATIVES: Final = (
    RED_TEAM,
    "a|b\n> 1)\n" * 7_000,
    "> 1)\na|b\n" * 2_000,
    "> - \nx\n" * 2_000,
    "> > 1.\n> a|b\n|-|\n" * 2_000,
    "- > *\n  a|b\n" * 2_000,
    "\U0001d538C:\\x\\" * 9_000,
    "x://a.b" * 9_000,
    "[" * 60_000,
    "\U0001f1e9" * 16_000,
    " " * 60_001 + "a",
    "\\*" * 30_000,
    "\ud83d" * 20_000,
)
"""Texts that once took long, or broke the splitting, and others like them."""

ROUGH: Final = [
    RED_TEAM,
    *(
        pytest.param(text, marks=pytest.mark.full)
        for text in (*RELATIVES[1:], *map(rough_text, range(5)))
    ),
]


def words(messages: Sequence[StyledText]) -> list[str]:
    return "\n".join(message.text for message in messages).split()


async def nobody(_: str) -> str:
    raise AssertionError("a short answer needs no process")


async def test_a_short_answer_is_rendered_at_once() -> None:
    answer = "**Yes.** " * 20
    assert await Renderer(nobody).messages(answer, ["a note"]) == rendered(answer, ["a note"])


@pytest.mark.parametrize("answer", [LONG, DENSE, *ROUGH])
async def test_a_long_answer_is_rendered_like_a_short_one_with_notices_above_it(
    answer: str,
) -> None:
    notices = ["🎤 “What is it?”", "one more"]
    async with open_renderer() as renderer:
        messages = await renderer.messages(answer, notices)
    assert messages == rendered(answer, notices)
    assert messages[0].text.startswith("🎤 “What is it?”")


@pytest.mark.parametrize("unit", ["![", "!", "=", "x:", "{a}", "@", "%", "^"])
async def test_only_little_deep_markdown_is_rendered_at_once(
    unit: str,
) -> None:
    few, many = unit * 100, (unit * SHORT_CHARACTERS)[:SHORT_CHARACTERS]
    assert await Renderer(nobody).messages(few, ()) == rendered(few, ())
    async with open_renderer() as renderer, stalls() as longest:
        await renderer.messages(many, ())
    assert longest.seconds * 1_000 < SHORT_MS


NOTICES: Final = [f"About “{number} {'a ' * 120}”: I cannot read it." for number in range(160)]
"""Notices about eight files in each of twenty messages."""


async def test_a_short_answer_below_many_notices_keeps_the_loop_for_no_time() -> None:
    async with open_renderer() as renderer, stalls() as longest:
        messages = await renderer.messages("Yes.", NOTICES)
    assert messages == rendered("Yes.", NOTICES)
    assert longest.seconds * 1_000 < SHORT_MS


async def test_an_unrendered_answer_below_many_notices_does_not_block_the_loop() -> None:
    async with stalls() as longest:
        messages = await Renderer(nobody).as_typed("It failed: **a**", NOTICES)
    assert messages == plain("It failed: **a**", NOTICES)
    assert longest.seconds * 1_000 < SHORT_MS


async def hanging(_: str) -> str:
    await asyncio.get_running_loop().create_future()
    raise AssertionError("nobody answers this")


async def too_slow(_: str) -> str:
    raise WorkTimeout("This took over 2 seconds and was stopped.")


async def refusing(_: str) -> str:
    raise WorkError("No process for this could be started in time; try again.")


async def buggy(_: str) -> str:
    raise SandboxBug


async def without_processes(_: str) -> str:
    raise BlockingIOError


async def babbling(_: str) -> str:
    return '[{"text": 1}]'


@pytest.mark.parametrize("ask", [hanging, too_slow, refusing, buggy, without_processes, babbling])
async def test_an_answer_that_cannot_be_rendered_in_time_is_shown_as_it_was_typed(
    ask: Ask,
) -> None:
    messages = await Renderer(ask, seconds=SOON_SECONDS).messages(LONG, ["a note"])
    assert messages == plain(LONG, ["a note"])
    assert words(messages) == ["a", "note", *LONG.split()]


@pytest.mark.parametrize("answer", RELATIVES)
def test_roughest_answer_loses_words_only_at_its_end(answer: str) -> None:
    messages = plain(answer, ())
    assert sum(len(message.text.encode()) for message in messages) <= MAX_ANSWER_BYTES
    shown = "".join(words(messages))
    meant = "".join(answer.encode(errors="replace").decode().split())
    assert shown == meant or meant.startswith(shown.removesuffix("".join(CUT_NOTICE.split())))


@pytest.mark.parametrize("answer", ROUGH)
async def test_text_that_once_took_eleven_seconds_does_not_block_the_loop(answer: str) -> None:
    async with open_renderer() as renderer, stalls() as longest:
        await renderer.messages(answer, ())
    assert longest.seconds * 1_000 < MAX_MS


async def test_no_reader_of_texts_keeps_the_loop_whatever_the_text() -> None:
    found = await longest_stalls(texts(QUICK, WHITE_SPACE))
    assert set(found) > set(READERS)
    assert {name: taken for name, taken in found.items() if taken >= MAX_MS} == {}


@pytest.mark.full
async def test_no_reader_of_texts_keeps_the_loop_under_any_of_many_texts() -> None:
    found = await longest_stalls(texts(MANY))
    assert {name: taken for name, taken in found.items() if taken >= MAX_MS} == {}


async def test_measure_notices_a_blocked_loop() -> None:
    async with stalls() as longest:
        sum(range(3_000_000))
    assert longest.seconds > 0.01
