"""The bot over signal-cli-rest-api: people see the same as over signal-cli."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.e2e.running_bot import World, running_bot, world
from tests.fakes.signal_rest_api import NUMBER, Sent, SignalRestApi


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


async def test_an_edit_after_the_answer_edits_the_answer_and_a_second_one_the_edited() -> None:
    async with world() as here, guest(here) as bot:
        question = await bot.api.say("Is Sidney nice?")
        old = await bot.answer(1)
        edit = await bot.api.edit("Is Sydney nice?", question)
        new = await bot.answer(2)
        await bot.api.edit("Is Sydney big?", edit)
        newest = await bot.answer(3)
        assert bot.asked() == "Is Sydney big?"
    assert (old.replaces, new.replaces, newest.replaces) == (None, old.timestamp, new.timestamp)
