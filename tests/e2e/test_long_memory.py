"""A fact of turn 3 is known in turn 300: a real small model writes the summaries."""

import asyncio
from itertools import chain
from typing import Final

import httpx2
import pytest

from bot.chat.history import OPENING
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_summaries import is_for_summary, last_prompt
from tests.e2e.traces import there_is
from tests.fakes.openai_server import text, words_of
from tests.fakes.scripted_http import Request
from tests.integration.test_llama_cpp import ALIAS, llama_cpp
from tests.integration.test_llama_cpp import pytestmark as needs_llama_cpp

FACT: Final = "My dog is called Rexington."
WALK: Final = "Rexington and I went for a walk. " * 9
BEGINNING: Final = {
    "I have a dog.": "What is your dog called?",
    "Guess.": "I do not know.",
    FACT: "Rexington is a fine name.",
    "Rexington is four years old.": "Rexington is young.",
    "Rexington likes the sea.": "The sea is good for Rexington.",
    "Rexington was late today.": "Where was Rexington?",
    "Rexington had soup.": "I hope Rexington liked it.",
} | {f"Walk {number}. {WALK}".strip(): "Fine." for number in range(4)}
"""The turns of the first summary; the fact is in the third. All of them are about the dog, because
a model this small leaves out what is said once, depending on the time of day in its material."""
FIRST_SUMMARY: Final = 18
"""After so many turns the history is long enough for a summary."""
NOON: Final = 1_795_860_000.0
SETTLED: Final = "SELECT 1 FROM summaries WHERE first_turn <= 3"
"""A summary of the first turns is there."""
TURNS: Final = 300
SUMMARY_SECONDS: Final = 120.0
CONTEXT: Final = {"context_tokens": 4_000, "timeout_seconds": 120}

pytestmark = needs_llama_cpp


@pytest.mark.long
async def test_a_fact_of_turn_3_is_known_in_turn_300() -> None:
    async with llama_cpp(max_tokens=120, context=8_192) as base_url, httpx2.AsyncClient() as client:

        async def step(request: Request, writer: asyncio.StreamWriter) -> None:
            if not is_for_summary(request.body):
                asked = words_of(request.body["messages"][-1]["content"])
                said = (words for words in BEGINNING if asked.endswith(words))
                return await text(BEGINNING.get(next(said, ""), "Fine."))(request, writer)
            body = {**request.body, "model": ALIAS, "stream": False}
            body.pop("stream_options", None)
            answer = await client.post(
                f"{base_url}/chat/completions", json=body, timeout=SUMMARY_SECONDS
            )
            words = answer.json()["choices"][0]["message"]["content"]
            return await text(words)(request, writer)

        async with world(step) as here, running_bot(here.settings(llm=CONTEXT), clock=lambda: NOON):
            further = (f"Day {number}. {'It was long. ' * 25}" for number in range(TURNS))
            for number, said in zip(range(1, TURNS), chain(BEGINNING, further), strict=False):
                await here.asked(said)
                if number == FIRST_SUMMARY:
                    await there_is(here, SETTLED)
                if number % 100 == 0:
                    await here.asked("!usage")  # otherwise the bot takes Ada for a bot
            await here.asked("What is the name of my dog?")
            past = last_prompt(here)[1]
    assert past.startswith(OPENING)
    assert "Rexington" in past
