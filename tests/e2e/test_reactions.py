"""Reactions that say something: the model's own, and those of people to its answers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

import pytest

from bot.chat.plan import INSTEAD_OF_WORDS
from bot.config.settings import Settings
from bot.signal.events import Person
from conversation_store.reactions import MAX_KEPT, MAX_TOLD
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.e2e.test_conversation import BEN
from tests.e2e.test_reminders import GROUP, Wall, at, schedule
from tests.e2e.traces import rows_with, there, there_is
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_people import Reacted
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi, chat_at
from tests.fakes.signal_side import ADA, Sent, SignalSide
from tests.unit.stores import rows

DAEMON, REST = "signal-cli", "signal-cli-rest-api"
TRANSPORTS: Final = pytest.mark.parametrize("transport", [DAEMON, REST])
STORED: Final = "SELECT 1 FROM outbox WHERE is_reaction AND state = 'waiting'"
GONE: Final = "SELECT 1 WHERE NOT EXISTS (SELECT 1 FROM turns)"


@dataclass(frozen=True)
class Side:
    """Fake of one transport, with the bot's settings for it."""

    here: World
    people: SignalSide | SignalRestApi
    settings: Settings

    def texts(self) -> list[str]:
        """Return the texts of the bot, without progress messages."""
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
    async with world(react()) as here, running_bot(here.settings()):
        thanks = await here.signal.say("thanks", group=GROUP, mention=True)
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


# People react -------------------------------------------------------------------------------------

DOWN: Final = "[reacted 👎 to your message: “The moon is made of cheese.”]"
CHEESE: Final = "The moon is made of cheese."
KEPT: Final = "SELECT 1 FROM reactions"


def said(here: World, request: int = -1) -> list[str]:
    """Return the lines of the last message of people in a request, without its time."""
    words = [words for role, words in lines_of(here, request) if role == "user"][-1]
    return [line.rpartition(" UTC] ")[2] for line in words.splitlines()]


def lines_of(here: World, request: int) -> list[tuple[str, str]]:
    messages = here.model.requests[request]["messages"][1:]
    return [(one["role"], str(one["content"] or "")) for one in messages]


@TRANSPORTS
async def test_reaction_to_an_answer_reaches_the_model_with_the_next_message(
    transport: str,
) -> None:
    steps = script(text(CHEESE), text("It is rock."), text("Bye."))
    async with side(transport, steps) as it, running_bot(it.settings):
        await it.ready()
        await it.people.say("what is the moon made of?")
        answer = await it.has_written(CHEESE)
        await it.people.react("👎", answer)
        await there_is(it.here, KEPT)
        assert len(it.here.model.requests) == 1
        await it.people.say("really?")
        await it.has_written(CHEESE, "It is rock.")
        assert said(it.here) == [DOWN, "really?"]
        await it.people.say("bye")
        await it.has_written(CHEESE, "It is rock.", "Bye.")
        assert said(it.here) == ["bye"]
    assert len(it.here.model.requests) == 3


@TRANSPORTS
async def test_kill_loses_no_reaction_and_repeats_none(transport: str) -> None:
    never = asyncio.Event()
    steps = script(text(CHEESE), held(never), text("It is rock."), text("Bye."))
    async with side(transport, steps) as it:
        async with running_bot(it.settings) as bot:
            await it.ready()
            await it.people.say("what is the moon made of?")
            await it.people.react("👎", await it.has_written(CHEESE))
            await there_is(it.here, KEPT)
            await kill(bot)
        async with running_bot(it.settings) as bot:
            await it.ready()
            await it.people.say("really?")
            await it.here.model.wait_for_requests(2)
            await there_is(it.here, f"{KEPT} WHERE told_to IS NOT NULL")
            await kill(bot)
        async with running_bot(it.settings):
            await it.ready()
            await it.has_written(CHEESE, "It is rock.")
            assert said(it.here) == [DOWN, "really?"]
            await it.people.say("bye")
            await it.has_written(CHEESE, "It is rock.", "Bye.")
            assert said(it.here) == ["bye"]


async def cheese(here: World) -> Sent:
    """Ask as Ada, and return the wrong answer."""
    await here.signal.say("what is the moon made of?")
    return await here.answer()


async def test_newest_reaction_counts_and_a_removed_one_is_not_told() -> None:
    steps = script(text(CHEESE), text("Why?"), text("Yes."))
    async with world(steps) as here, running_bot(here.settings()):
        wrong = await cheese(here)
        await here.signal.react("👎", wrong.timestamp)
        await here.signal.react("🧀", wrong.timestamp)
        await there_is(here, f"{KEPT} WHERE emoji = '🧀'")
        await here.signal.say("hm")
        await here.answer()
        assert said(here) == [DOWN.replace("👎", "🧀"), "hm"]
        await here.signal.react("😂", wrong.timestamp)
        await there_is(here, f"{KEPT} WHERE emoji = '😂'")
        await here.signal.react("😂", wrong.timestamp, removed=True)
        await there_is(here, f"SELECT 1 WHERE NOT EXISTS ({KEPT})")
        await here.signal.say("are you there?")
        await here.answer()
        assert said(here) == ["are you there?"]


async def test_reaction_joins_a_running_turn_only_with_a_message() -> None:
    never = asyncio.Event()
    steps = script(text(CHEESE), held(never), text("It is rock."))
    async with world(steps) as here, running_bot(here.settings()):
        wrong = await cheese(here)
        await here.signal.say("and Mars?")
        await here.model.wait_for_requests(2)
        await here.signal.react("👎", wrong.timestamp)
        await there_is(here, KEPT)
        await here.signal.say("and the moon?")
        await here.answer()
        assert said(here)[-2:] == [DOWN, "and the moon?"]
    assert len(here.model.requests) == 3


async def test_reactions_in_a_group_have_names_and_strangers_have_none() -> None:
    steps = script(text(CHEESE), text("It is rock."))
    access = {"policy": "allowlist", "allowed": {ADA.aci, BEN.aci}}
    async with world(steps) as here, running_bot(here.settings(access=access)):
        await here.signal.say("what is the moon?", group=GROUP, mention=True)
        wrong = (await here.answer()).timestamp
        stranger = Person(aci="0d1e2f30-0000-4000-8000-0000000000ff", name="Eve")
        await here.signal.react("👍", wrong, group=GROUP, author=stranger)
        await here.signal.react("👎", wrong, group=GROUP, author=BEN)
        await there_is(here, KEPT)
        await here.signal.say("really?", group=GROUP, mention=True)
        await here.answer()
        assert [line for line in said(here) if "reacted" in line] == [f"[Ben {DOWN[1:]}"]


async def test_reaction_to_a_long_or_edited_answer_is_one_to_the_answer() -> None:
    long = "\n\n".join(f"{number}. {'word ' * 250}" for number in range(2))
    steps = script(text(long), text("Short now."), text("Why?"), text("Fine."))
    async with world(steps) as here, running_bot(here.settings()):
        asked = await here.signal.say("tell me a lot")
        parts = [await here.answer(), await here.answer()]
        await here.signal.react("😴", parts[1].timestamp)
        await there_is(here, f"{KEPT} WHERE emoji = '😴'")
        await here.signal.edit("tell me little", asked)
        assert (await here.answer()).text == "Short now."
        # The first version of the message is gone, and phones still name it.
        await here.signal.react("👍", parts[0].timestamp)
        await there_is(here, f"{KEPT} WHERE emoji = '👍'")
        await here.signal.say("go on")
        await here.answer()
    assert said(here) == ["[reacted 👍 to your message: “Short now.”]", "go on"]


async def test_answers_to_questions_and_done_reminders_are_not_told() -> None:
    steps = script(
        tool_calls(("ask_user", {"question": "Which?", "options": ["Red", "Blue"]})), text("Red."),
        tool_calls(("remind", {"text": "tea", "at": at(60)})), text("I will."), text("Fine."),
    )  # fmt: skip
    wall = Wall()
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        await here.signal.say("paint it")
        await here.signal.react("1️⃣", (await here.answer()).timestamp)
        assert (await here.answer()).text == "Red."
        await here.signal.say("remind me")
        assert (await here.answer()).text == "I will."
        wall.pass_by(seconds=61)
        bell = await here.answer()
        await here.signal.react("👍", bell.timestamp)
        await there_is(here, "SELECT 1 FROM reminders WHERE state = 'done'")
        await here.signal.say("go on")
        await here.answer()
        assert said(here) == ["go on"]


async def test_scheduled_question_leaves_the_reaction_to_the_next_message() -> None:
    steps = script(
        text(CHEESE), schedule("Is it late?", at(2)), text("I will."), text("It is."), text("Yes.")
    )
    async with world(steps) as here, running_bot(here.settings()):
        wrong = await cheese(here)
        await here.signal.say("ask yourself if it is late")
        await here.answer()
        await here.signal.react("👎", wrong.timestamp)
        await there_is(here, KEPT)
        assert (await here.answer()).text == "⏰ Is it late?\n\nIt is."
        assert not any("reacted" in line for line in said(here))
        await here.signal.say("really?")
        await here.answer()
        assert said(here) == [DOWN, "really?"]


async def test_deleting_the_question_removes_the_reaction_and_turns_that_were_told() -> None:
    steps = script(text("zebra moon"), text("Noted."), text("Here."))
    async with world(steps) as here, running_bot(here.settings()):
        asked = await here.signal.say("what is the moon?")
        await here.signal.react("🦊", (await here.answer()).timestamp)
        await there_is(here, KEPT)
        await here.signal.say("really?")
        await here.answer()
        assert rows_with(here, "zebra") >= 2
        await here.signal.delete(asked)
        await there_is(here, GONE)
        assert rows_with(here, "zebra") == rows_with(here, "🦊") == 0
        await here.signal.say("are you there?")
        assert (await here.answer()).text == "Here."
    assert told(here) == [("user", "are you there?")]


async def test_deleting_the_message_that_brought_a_reaction_leaves_it_for_the_next_one() -> None:
    steps = script(text(CHEESE), text("Why?"), text("It is rock."))
    async with world(steps) as here, running_bot(here.settings()):
        await here.signal.react("👎", (await cheese(here)).timestamp)
        await there_is(here, KEPT)
        doomed = await here.signal.say("hm")
        await here.answer()
        await here.signal.delete(doomed)
        await there_is(here, f"{KEPT} WHERE told_to IS NULL")
        await here.signal.say("really?")
        await here.answer()
        assert said(here) == [DOWN, "really?"]


async def test_many_reactions_are_bounded() -> None:
    people = [Person(aci=f"{number:08x}-0000-4000-8000-000000000000") for number in range(60)]
    steps = script(text(CHEESE), text("It is rock."))
    async with world(steps) as here, running_bot(here.settings()):
        await here.signal.say("what is the moon?", group=GROUP, mention=True)
        wrong = (await here.answer()).timestamp
        for person in people:
            await here.signal.react("👎", wrong, group=GROUP, author=person)
        await here.signal.react("no emoji", wrong, group=GROUP, author=people[0])
        await there_is(here, f"{KEPT} WHERE person = '{people[-1].aci}'")
        assert len(rows(here.folder, KEPT)) == MAX_KEPT
        await here.signal.say("really?", group=GROUP, mention=True)
        await here.answer()
        assert sum("reacted" in line for line in said(here)) == MAX_TOLD


async def test_nothing_is_kept_without_retention() -> None:
    steps = script(text(CHEESE), text("It is rock."))
    settings = {"store": {"retention_days": 0}}
    async with world(steps) as here, running_bot(here.settings(**settings)):
        await here.signal.react("👎", (await cheese(here)).timestamp)
        await here.signal.say("really?")
        await here.answer()
        assert said(here) == ["really?"]
        assert rows(here.folder, KEPT) == []
