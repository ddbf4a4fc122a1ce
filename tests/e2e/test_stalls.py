"""Texts that are slow to process delay no other chat."""

import asyncio
from functools import partial
from typing import Final

import pytest

from benchmarks.loop_stall import MAX_MS, stalls
from benchmarks.rough_texts import flood, rough_text
from bot.signal.events import Person
from tests.e2e.running_bot import story
from tests.fakes.openai_server import Request, chunk, sse, words_of
from tests.fakes.signal_side import ADA, Sent

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
RED_TEAM: Final = "a|b\n> 1)\n" * 2_000
ASKED_MEANWHILE: Final = 3
PIECE_CHARACTERS: Final = 1_000


async def repeated(request: Request, writer: asyncio.StreamWriter) -> None:
    """Answer with the person's own words, as a model does that is asked to repeat them."""
    said = words_of(request.body["messages"][-1]["content"]).partition("UTC] ")[2]
    pieces = [said[at : at + PIECE_CHARACTERS] for at in range(0, len(said), PIECE_CHARACTERS)]
    deltas = [chunk({"content": piece}) for piece in pieces or ["nothing"]]
    await sse(*deltas, chunk({}, finish_reason="stop"))(request, writer)


def ends_with(words: str, sent: Sent) -> bool:
    return sent.text.endswith(words)


@pytest.mark.parametrize(
    "words",
    [
        RED_TEAM,
        *map(flood, " \t\n"),
        *(
            pytest.param(rough_text(number), marks=pytest.mark.full)
            for number in range(2_000, 2_020)
        ),
    ],
)
async def test_hard_text_delays_no_other_chat(words: str) -> None:
    async with story(repeated) as here:
        await here.asked("hello", author=BEN)
        async with stalls() as longest:
            await here.signal.say(words)
            for number in range(ASKED_MEANWHILE):
                await here.signal.say(f"{number}", author=BEN)
                await here.signal.wait_for(partial(ends_with, f"{number}"))
            await here.signal.wait_for(lambda sent: sent.chat.value == ADA.aci)
    assert longest.seconds * 1_000 < MAX_MS
