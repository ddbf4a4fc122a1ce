"""Reactions that say something: the model's own, and those of people to its answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from bot.chat.plan import INSTEAD_OF_WORDS
from bot.config.settings import Settings
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_reminders import at, schedule
from tests.e2e.traces import rows_with, there, there_is
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_people import Reacted
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi, chat_at
from tests.fakes.signal_side import ADA, SignalSide

DAEMON, REST = "signal-cli", "signal-cli-rest-api"
TRANSPORTS: Final = pytest.mark.parametrize("transport", [DAEMON, REST])
STORED: Final = "SELECT 1 FROM outbox WHERE kind = 'reaction' AND state = 'waiting'"
GONE: Final = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM turns)"


@dataclass(frozen=True)
class Side:
    """One of the two fakes of Signal, with the bot's settings for it."""

    here: World
    people: SignalSide | SignalRestApi
    settings: Settings

    def texts(self) -> list[str]:
        """Return what the bot has written, without progress messages."""
        return [one.text for one in self.people.sent if not one.text.startswith("🔧")]

    async def has_written(self, *texts: str) -> int:
        """Wait until the bot has written these texts; return the timestamp of the last one."""
        await self.people.until(lambda: self.texts() == [*texts])
        return self.people.sent[-1].timestamp

    async def ready(self) -> None:
        """Wait until the bot listens."""
        if isinstance(self.people, SignalRestApi):
            await self.people.wait_for_receiver()

    async def leave(self) -> None:
        """Break the bot's connection."""
        if isinstance(self.people, SignalRestApi):
            await self.people.stop()
        else:
            await self.here.signal.go_away()

    async def come_back(self) -> None:
        """Accept connections again."""
        if isinstance(self.people, SignalRestApi):
            await self.people.start()
        else:
            await self.here.signal.come_back()


@asynccontextmanager
async def side(transport: str, model: Step, **settings: Any) -> AsyncIterator[Side]:
    """Provide a world whose bot uses one of the transports."""
    async with world(model) as here:
        if transport == DAEMON:
            yield Side(here, here.signal, here.settings(**settings))
            return
        async with SignalRestApi.listen() as api:
            signal = {"url": api.url, "phone_number": NUMBER}
            yield Side(here, api, here.settings(signal=signal, **settings))


def react(emoji: str = "👍", *, content: str | None = None) -> Step:
    """Answer by a reaction."""
    return tool_calls(("react", {"emoji": emoji}), content=content)


def on(timestamp: int, emoji: str = "👍", chat: str = ADA.aci) -> Reacted:
    """Return a reaction of the bot to a message of Ada."""
    return Reacted(chat_at(chat), emoji, ADA.aci, timestamp)


def told(here: World, request: int = -1) -> list[tuple[str, str]]:
    """Return the roles and contents of a request, without the system message."""
    messages = here.model.requests[request]["messages"][1:]
    return [(one["role"], str(one["content"] or "").rpartition(" UTC] ")[2]) for one in messages]


# The model reacts ---------------------------------------------------------------------------------


@TRANSPORTS
async def test_thanks_gets_a_reaction_and_no_words(transport: str) -> None:
    async with side(transport, script(react(), text("At six."))) as it, running_bot(it.settings):
        await it.ready()
        thanks = await it.people.say("thanks")
        await it.people.until(lambda: it.people.reactions == [on(thanks)])
        await it.people.say("when does it close?")
        await it.has_written("At six.")
    assert [words for _, words in told(it.here)] == [
        "thanks",
        "",
        "Reacted with 👍",
        INSTEAD_OF_WORDS.format(emoji="👍"),
        "when does it close?",
    ]
    assert len(it.here.model.requests) == 2
    assert it.people.reactions == [on(thanks)]


@TRANSPORTS
async def test_reaction_survives_a_kill_and_no_words_follow(transport: str) -> None:
    go_on = asyncio.Event()
    steps = script(held(go_on, react("❤️")), text("You are welcome."), text("Yes."))
    async with side(transport, steps) as it:
        async with running_bot(it.settings) as bot:
            await it.ready()
            thanks = await it.people.say("thanks")
            await it.here.model.wait_for_requests(1)
            await it.leave()
            go_on.set()
            await there_is(it.here, STORED)
            await kill(bot)
        await it.come_back()
        async with running_bot(it.settings) as bot:
            await it.people.until(lambda: on(thanks, "❤️") in it.people.reactions)
            await there_is(it.here, "SELECT 1 FROM outbox WHERE state = 'sent'")
            await kill(bot)
        async with running_bot(it.settings):
            await it.ready()
            await it.people.say("are you there?")
            await it.has_written("You are welcome.")
    assert len(it.here.model.requests) == 2
    assert set(it.people.reactions) == {on(thanks, "❤️")}


async def test_call_that_a_kill_cut_off_is_made_once_more() -> None:
    never = asyncio.Event()
    calling = "SELECT 1 FROM messages WHERE role = 'tool' AND content IS NOT NULL"
    steps = script(tool_calls(("calculate", {"expression": "1+1"})), held(never), react())
    async with world(steps) as here:
        async with running_bot(here.settings()) as bot:
            thanks = await here.signal.say("count that, thanks")
            await there_is(here, calling)
            await here.model.wait_for_requests(2)
            await kill(bot)
        async with running_bot(here.settings()):
            await here.signal.until(lambda: here.signal.reactions == [on(thanks)])
    assert here.answers() == []


async def test_words_next_to_the_call_are_not_sent() -> None:
    steps = script(react(content="You are welcome!"), text("Bye."))
    async with world(steps) as here, running_bot(here.settings()):
        await here.signal.say("thanks")
        await here.signal.until(lambda: len(here.signal.reactions) == 1)
        await here.signal.say("bye")
        assert (await here.answer()).text == "Bye."
    assert here.answers() == ["Bye."]


async def test_reaction_is_for_the_last_message_that_joined() -> None:
    never = asyncio.Event()
    async with world(script(held(never), react())) as here, running_bot(here.settings()):
        await here.signal.say("that was it")
        await here.model.wait_for_requests(1)
        last = await here.signal.say("thanks")
        await here.signal.until(lambda: here.signal.reactions == [on(last)])


async def test_reaction_in_a_group_is_for_the_message_there() -> None:
    group = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
    async with world(react()) as here, running_bot(here.settings()):
        thanks = await here.signal.say("thanks", group=group, mention=True)
        await here.signal.until(lambda: len(here.signal.reactions) == 1)
        (reacted,) = here.signal.reactions
    assert (reacted.chat.is_group, reacted.timestamp, reacted.author) == (True, thanks, ADA.aci)
    assert here.answers() == []


async def test_typing_ends_with_the_reaction() -> None:
    go_on = asyncio.Event()
    async with world(held(go_on, react())) as here, running_bot(here.settings()):
        await here.signal.say("thanks")
        await here.signal.until(lambda: bool(here.signal.typing))
        go_on.set()
        await here.signal.until(lambda: not here.signal.typing[-1][1])
    assert len(here.signal.reactions) == 1


@pytest.mark.parametrize(
    "call",
    [
        tool_calls(("react", {"emoji": "👍👍"})),
        tool_calls(("react", {"emoji": "ok"})),
        tool_calls(("react", {"emoji": "👍"}), ("calculate", {"expression": "1+1"})),
        tool_calls(("react", {"emoji": "👍"}), ("react", {"emoji": "❤️"})),
    ],
    ids=["two emoji", "a word", "another call", "twice"],
)
async def test_impossible_reaction_is_not_sent_and_words_follow(call: Step) -> None:
    async with world(script(call, text("Gladly."))) as here, running_bot(here.settings()):
        await here.signal.say("thanks")
        assert (await here.answer()).text == "Gladly."
        results = [words for role, words in told(here) if role == "tool"]
        assert any(words.startswith(("Not sent", "The arguments")) for words in results), results
    assert here.signal.reactions == []


async def test_scheduled_question_and_edit_and_retry_get_words() -> None:
    steps = script(
        schedule("Is it late?", at()), text("I will."), react(), text("It is."),
        text("Hello."), react(), text("Hello again."), react(), text("And again."),
    )  # fmt: skip
    async with world(steps) as here, running_bot(here.settings()):
        await here.signal.say("ask yourself if it is late")
        assert (await here.answer()).text == "I will."
        assert (await here.answer()).text == "⏰ Is it late?\n\nIt is."
        hello = await here.signal.say("hello")
        assert (await here.answer()).text == "Hello."
        await here.signal.edit("hello!", hello)
        assert (await here.answer()).text == "Hello again."
        await here.signal.say("!retry")
        assert (await here.answer()).text == "And again."
    assert here.signal.reactions == []


async def test_plan_mode_and_helpers_have_no_reaction() -> None:
    steps = script(text("Nothing to plan."), tool_calls(("delegate", {"task": "look"})))
    async with world(steps) as here, running_bot(here.settings()):
        await here.signal.say("!plan a feast")
        await here.answer()
        await here.signal.say("and now ask a helper")
        await here.answer()
    offered = [
        {tool["function"]["name"] for tool in request["tools"]} for request in here.model.requests
    ]
    assert ["react" in names for names in offered[:3]] == [False, True, False]


async def test_deleted_message_takes_its_reaction_along() -> None:
    async with world(script(react("🦊"), text("Yes."))) as here, running_bot(here.settings()):
        thanks = await here.signal.say("thanks sesquipedalian")
        await here.signal.until(lambda: len(here.signal.reactions) == 1)
        await there(here, "🦊")
        await here.signal.delete(thanks)
        await there_is(here, GONE)
        await here.signal.say("are you there?")
        assert (await here.answer()).text == "Yes."
        assert rows_with(here, "🦊") == rows_with(here, "sesquipedalian") == 0
    assert told(here) == [("user", "are you there?")]


async def test_deleted_message_gets_no_reaction_any_more() -> None:
    go_on = asyncio.Event()
    async with world(script(held(go_on, react()), text("Yes."))) as here:
        async with running_bot(here.settings()) as bot:
            thanks = await here.signal.say("thanks")
            await here.model.wait_for_requests(1)
            await here.signal.go_away()
            go_on.set()
            await there_is(here, STORED)
            await kill(bot)
        await here.signal.come_back()
        await here.signal.delete(thanks)
        async with running_bot(here.settings()):
            await there_is(here, GONE)
            await here.signal.say("are you there?")
            assert (await here.answer()).text == "Yes."
    assert here.answers() == ["Yes."]
