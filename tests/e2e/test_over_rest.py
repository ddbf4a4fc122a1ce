"""The whole bot over signal-cli-rest-api: the same answers, as far as that server allows."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

import pytest

from bot.signal.events import Person
from tests.contract.test_signal_rest import MAX_AT_ONCE
from tests.e2e import scraped
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_conversation import CALCULATE
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, Fault, Sent, SignalRestApi
from tests.fakes.signal_side import ADA

SHORT_SECONDS: Final = 0.05
LATE_SECONDS: Final = 8.0
"""Time in which every answer that was not lost arrives, and a little more."""

IN_DOUBT_SECONDS: Final = 20.0
"""Time until messages that no phone confirmed are sent again."""


@dataclass(frozen=True, slots=True)
class Guest:
    """A bot over REST, its model, and the people on the other side."""

    here: World
    api: SignalRestApi

    async def answer(self, number: int) -> Sent:
        """Return the n-th message of the bot without progress messages, once it is there."""
        await self.api.until(lambda: len(self.answers()) >= number)
        return self.answers()[number - 1]

    def answers(self) -> list[Sent]:
        return [sent for sent in self.api.sent if not sent.text.startswith("🔧")]

    def asked(self) -> str:
        """The last question to the model, without the time."""
        content = self.here.model.requests[-1]["messages"][-1]["content"]
        words = content if isinstance(content, str) else content[0]["text"]
        return str(words).split(" UTC] ", 1)[-1]


@asynccontextmanager
async def guest(here: World, **overrides: Mapping[str, object]) -> AsyncIterator[Guest]:
    """Run a bot of this world over REST."""
    async with SignalRestApi.listen() as api:
        signal = {"url": api.url, "phone_number": NUMBER, **overrides.pop("signal", {})}
        async with running_bot(here.settings(**overrides, signal=signal)):
            await api.wait_for_receiver()
            yield Guest(here, api)


async def test_a_message_gets_its_progress_and_its_answer() -> None:
    steps = script(tool_calls(CALCULATE), text("It is 5461."))
    async with world(steps) as here, guest(here) as bot:
        await bot.api.say("127*43?")
        await bot.answer(1)
    begun, *_, done, answer = bot.api.sent
    assert (begun.text, done.text) == ("🔧 Using calculate…", "🔧 Using calculate ✓")
    assert (done.replaces is not None, answer.text) == (True, "It is 5461.")
    assert {sent.recipient for sent in bot.api.sent} == {ADA.aci}


@pytest.mark.parametrize("by", ["reaction", "reply"])
async def test_a_question_is_answered_by_a_reaction_or_a_reply(by: str) -> None:
    async with world(script(tool_calls(WRITE), text("Done."))) as here:
        async with SignalRestApi.listen() as api:
            signal = {"url": api.url, "phone_number": NUMBER}
            async with running_bot(with_notes(here, signal=signal)):
                await api.wait_for_receiver()
                await api.say("note: buy milk")
                await api.wait_until(lambda: len(api.sent) == 1)
                if by == "reaction":
                    await api.react("👍", api.sent[0].timestamp)
                else:
                    await api.say("yes", quote=api.sent[0].timestamp)
                await api.wait_until(lambda: api.sent[-1].text == "Done.")
        assert notes(here) == "buy milk\n"
    question, begun, *_, done, _ = (sent.text for sent in api.sent)
    assert question.startswith("❓ Run notes_write?")
    assert begun == "🔧 Using notes_write…"
    assert done == "🔧 Using notes_write ✓"


@pytest.mark.full
async def test_requests_without_an_answer_delay_no_other_chat() -> None:
    people = [Person(aci=f"{number:08x}-0000-4000-8000-000000000000") for number in range(12)]
    async with world() as here, SignalRestApi.listen() as api:
        settings = here.settings(
            signal={"url": api.url, "phone_number": NUMBER},
            health={"listen": scraped.ANY_PORT},
        )
        async with scraped.bot_with_health(settings) as port:
            await api.wait_for_receiver()
            api.answers.extend([Fault.HANG] * 3)
            for person in people:
                await api.say(f"from {person.aci}", author=person)
                await asyncio.sleep(SHORT_SECONDS)  # over REST a burst is lost
            async with asyncio.timeout(LATE_SECONDS):
                await api.wait_until(lambda: len(api.sent) == len(people) - 3)
            exposition = await scraped.scrape(port)
            assert exposition.value("signal_gateway_unanswered_total", kind="text") >= 1
            async with asyncio.timeout(IN_DOUBT_SECONDS):
                await api.wait_until(lambda: len(api.sent) == len(people))
    assert Counter(sent.recipient for sent in api.sent) == Counter(one.aci for one in people)
    assert api.most_in_flight <= MAX_AT_ONCE


@pytest.mark.full
async def test_a_stuck_gateway_is_named_until_it_answers_and_the_answer_comes_once() -> None:
    async with world() as here, SignalRestApi.listen() as api:
        settings = here.settings(
            signal={"url": api.url, "phone_number": NUMBER},
            health={"listen": scraped.ANY_PORT},
        )
        async with scraped.bot_with_health(settings) as port:
            await api.wait_for_receiver()
            api.signal_cli_alive.clear()
            await api.say("hello")
            async with asyncio.timeout(LATE_SECONDS):
                while (signal := (await scraped.readiness(port))["signal"])[0]:  # noqa: ASYNC110
                    await asyncio.sleep(SHORT_SECONDS)
            assert "does not answer" in signal[1]
            api.signal_cli_alive.set()
            async with asyncio.timeout(IN_DOUBT_SECONDS):
                await api.wait_until(lambda: len(api.sent) == 1)
            assert (await scraped.readiness(port))["signal"][0]
    assert [sent.text.split()[-1] for sent in api.sent] == ["hello"]
