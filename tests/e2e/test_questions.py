"""Questions of the model to a person: their form, their answers, and other messages."""

import asyncio
import json
import sqlite3
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from typing import Any

import pytest

from bot.chat.ask import MAX_OPEN_IN_CHAT, PATIENCE_SECONDS, TOO_MANY
from bot.chat.handler import MAX_ATTEMPTS
from bot.chat.meaning import NOBODY, WROTE
from bot.chat.plan import CALLS_PER_ROUND, OVER_LIMIT
from bot.chat.question_messages import NOT_YOURS, STILL_OPEN, WHICH
from bot.signal.events import Person
from bot.signal.messenger import Poll
from tests.e2e.running_bot import World, kill, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import NOTE, WRITE, notes, with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.traces import gone, gone_from_files, rows_with, there
from tests.fakes.openai_server import Request, Step, held, script, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.fakes.signal_side import Sent

GROUP = "Z3JvdXA="
CARL = Person(aci="4b1c7d10-1111-4222-8333-0123456789ab", number="+15550100009")
COLOURS = ["Red", "Green", "Blue"]


def wrote(words: str) -> str:
    return WROTE.format(words=words, options="1. Red; 2. Green; 3. Blue")


def ask(
    question: str = "Which colour?", options: list[str] = COLOURS, *, multiple: bool = False
) -> Step:
    """The model's call of `ask_user`."""
    return tool_calls(("ask_user", asking(question, options, multiple=multiple)))


def asking(question: str, options: list[str], *, multiple: bool = False) -> Mapping[str, object]:
    return {"question": question, "options": options, "multiple": multiple}


async def question(here: World, words: str | None = None, **more: Any) -> Sent:
    """Say something, if given, and return the bot's question, whose turn waits by now."""
    if words is not None:
        await here.signal.say(words, **more)
    sent = await here.answer()
    while sent.text == STILL_OPEN:
        sent = await here.answer()
    assert sent.text.startswith("❓"), sent.text
    await there(here, str(sent.timestamp))
    return sent


@pytest.mark.parametrize(
    ("how", "said", "result"),
    [
        ("says", "2", "The person chose: Green"),
        ("replies", "blue!", "The person chose: Blue"),
        ("replies", "3️⃣", "The person chose: Blue"),
        ("replies", "a dark one", wrote("a dark one")),
        ("says, of several", "1 and 3", "The person chose: Red; Blue"),
        ("reacts", "1️⃣", "The person chose: Red"),
    ],
)
async def test_person_answers_in_numbers_or_words_and_the_model_goes_on(
    how: str, said: str, result: str
) -> None:
    steps = script(ask(multiple=how == "says, of several"), text("All right."))
    async with story(steps) as here:
        asked = await question(here, "paint it")
        if how == "reacts":
            await here.signal.react("👍", asked.timestamp)
            await here.signal.react(said, asked.timestamp)
        else:
            await here.signal.say(said, quote=asked.timestamp if how == "replies" else None)
        assert (await here.answer()).text == "All right."
    assert asked.text.startswith("❓ Which colour?\n1. Red\n2. Green\n3. Blue\n\n")
    assert here.told() == result
    assert here.answers() == [asked.text, "All right."]


class Clock:
    """The machine's clock, which the test sets ahead."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


async def test_after_a_day_of_silence_the_model_goes_on_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.chat.ask.CATCH_UP_SECONDS", 0.0)
    clock = Clock()
    async with world(script(ask(), text("I took red."))) as here:
        async with running_bot(here.settings(), clock=clock):
            await question(here, "paint it")
        clock.ahead = PATIENCE_SECONDS - 3_600
        async with running_bot(here.settings(), clock=clock):
            assert "Answers in progress: 0" in await here.asked("!status")
        clock.ahead = PATIENCE_SECONDS + 60
        async with running_bot(here.settings(), clock=clock):
            assert (await here.answer()).text == "I took red."
    assert here.told() == NOBODY


async def test_an_answer_to_one_of_two_questions_is_asked_back_once() -> None:
    size = ask("Which size?", ["Small", "Large"])
    steps = script(ask(), size, text("One what?"), text("Large."), text("Red."))
    async with story(steps) as here:
        colour = await question(here, "paint it")
        await question(here, "and print it", files=[NOTE])
        assert await here.asked("1") == WHICH
        await here.signal.say("1")
        assert {(await here.answer()).text for _ in range(2)} == {STILL_OPEN, "One what?"}
        assert await here.asked("large") == "Large."
        assert await here.asked("1", quote=colour.timestamp) == "Red."
    assert here.told() == "The person chose: Red"


async def test_in_a_group_strangers_do_not_answer_and_admins_may() -> None:
    access = {"policy": "open", "admins": BEN.aci}
    async with story(script(ask(), text("Green it is.")), access=access) as here:
        asked = await question(here, "paint it", group=GROUP, mention=True)
        await here.signal.react("1️⃣", asked.timestamp, author=CARL, group=GROUP)
        await here.signal.say("1", author=CARL, group=GROUP, quote=asked.timestamp)
        assert (await here.answer()).text == NOT_YOURS
        await here.signal.say("2", author=BEN, group=GROUP, quote=asked.timestamp)
        assert (await here.answer()).text == "Green it is."
    assert here.told() == "The person chose: Green"


async def test_stop_ends_a_turn_that_waits_and_a_later_answer_is_a_message() -> None:
    async with story(script(ask(), text("Two what?"))) as here:
        asked = await question(here, "paint it")
        assert await here.asked("!stop") == "Stopped."
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert [at for _, at in here.signal.deleted] == [asked.timestamp]
        assert await here.asked("2", quote=asked.timestamp) == "Two what?"
        assert await here.asked("!stop") == "There is nothing to stop."


async def test_clear_ends_waiting_turns() -> None:
    async with story(script(ask("Which secret colour?"))) as here:
        asked = await question(here, "paint it")
        assert await here.asked("!clear") == "Forgotten. We start afresh."
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert [at for _, at in here.signal.deleted] == [asked.timestamp]
        assert rows_with(here, "secret") == 0
        assert (await here.asked("2", quote=asked.timestamp)).startswith("answer to: ")


async def test_an_edit_restarts_the_turn_and_a_deletion_forgets_it() -> None:
    async with story(script(ask(), ask("Which wall?", ["North", "South"]))) as here:
        asked_for = await here.signal.say("paint it")
        first = await question(here)
        await here.signal.edit("paint the wall", asked_for)
        await question(here)
        assert "paint the wall" in json.dumps(here.model.requests[-1]["messages"])
        assert "Which colour?" not in json.dumps(here.model.requests[-1]["messages"])
        await here.signal.delete(asked_for)
        await gone(here, "Which wall?")
        assert await here.asked("!stop") == "There is nothing to stop."
    assert first.text.startswith("❓ Which colour?")


async def test_a_question_disappears_with_its_message() -> None:
    async with story(script(ask("Which secret colour?"))) as here:
        await question(here, "paint it", expires_seconds=1)
        await gone_from_files(here, "secret")
        assert await here.asked("!stop") == "There is nothing to stop."


@pytest.mark.parametrize("order", ["answer first", "stop first"])
async def test_first_of_a_simultaneous_answer_and_stop_wins(order: str) -> None:
    async with story(script(ask(), text("Green it is."))) as here:
        asked = await question(here, "paint it")
        slow = asyncio.Event()
        here.model.handler = held(slow, text("Green it is."))
        if order == "answer first":
            await here.signal.react("2️⃣", asked.timestamp)
            await here.signal.say("!stop")
        else:
            await here.signal.say("!stop")
            await here.signal.react("2️⃣", asked.timestamp)
        assert (await here.answer()).text == "Stopped."
        slow.set()
        assert await here.asked("!stop") == "There is nothing to stop."
    assert here.answers() == [asked.text, "Stopped.", "There is nothing to stop."]


async def test_waiting_turns_delay_no_one_and_each_gets_its_own_answer() -> None:
    people = [Person(aci=f"{number:08x}-0000-4000-8000-000000000000") for number in range(50)]
    async with world(_asking_for_a_number) as here:
        async with running_bot(here.settings()):
            for person in people:
                await here.signal.say("ask me", author=person)
            asked = [await here.answer() for _ in people]
            status = ""
            while "Answers in progress: 0" not in status:
                status = await here.asked("!status")
        async with running_bot(here.settings()):
            for sent in reversed(asked):
                (person,) = (one for one in people if one.aci == sent.chat.value)
                number = people.index(person) % 10 + 1
                await here.signal.say(str(number), quote=sent.timestamp, author=person)
            answers = [await here.answer() for _ in people]
    for sent in answers:
        number = [one.aci for one in people].index(sent.chat.value) % 10 + 1
        assert sent.text == f"The person chose: No {number}"


async def _asking_for_a_number(request: Request, writer: asyncio.StreamWriter) -> None:
    """Ask once, then repeat the result of the question."""
    last = request.body["messages"][-1]
    numbers = [f"No {number}" for number in range(1, 11)]
    step = text(last["content"]) if last["role"] == "tool" else ask("Which?", numbers)
    await step(request, writer)


async def test_control_characters_are_spelt_out_and_letters_of_all_scripts_stay() -> None:
    options = ["\u202etxt.exe", "أحمر", "Red\n4. Everything"]
    async with story(script(ask("Which\u2028one?", options))) as here:
        asked = await question(here, "paint it")
    lines = asked.text.splitlines()
    assert lines[:4] == ["❓ Which", "one?", "1. ⟨U+202E⟩txt.exe", "2. أحمر"]
    assert lines[4] == "3. Red 4. Everything"


@pytest.mark.parametrize("options", [["Red"], ["Red", "red"], [str(n) for n in range(11)]])
async def test_options_that_leave_no_choice_are_the_models_to_mend(options: list[str]) -> None:
    async with story(script(ask(options=options), text("I took red."))) as here:
        assert await here.asked("paint it") == "I took red."


# Polls


@asynccontextmanager
async def with_polls(steps: Step) -> AsyncIterator[World]:
    """Run a bot in a world whose Signal has polls."""
    async with story(steps) as here:
        here.signal.has_polls = True
        yield here


async def asked_in_a_group(here: World, *, multiple: bool = False) -> Sent:
    """Return the poll that the bot asks in a group, once its turn waits."""
    sent = await here.answer_to("paint it", group=GROUP, mention=True)
    assert sent.poll == Poll("Which colour?", tuple(COLOURS), multiple)
    await there(here, str(sent.timestamp))
    return sent


async def test_in_a_group_a_question_is_a_poll_that_a_vote_of_the_asker_answers() -> None:
    async with with_polls(script(ask(), text("Green it is."))) as here:
        poll = await asked_in_a_group(here)
        await here.signal.vote([0], poll.timestamp, author=CARL, group=GROUP)
        await here.signal.vote([], poll.timestamp, group=GROUP)
        await here.signal.vote([17], poll.timestamp, group=GROUP)
        await here.signal.vote([1], poll.timestamp + 1, group=GROUP)
        await here.signal.vote([1], poll.timestamp, group=GROUP)
        assert (await here.answer()).text == "Green it is."
        await here.signal.vote([2], poll.timestamp, group=GROUP)
    assert here.told() == "The person chose: Green"


async def test_a_poll_is_answered_by_words_as_well() -> None:
    async with with_polls(script(ask(), text("Pink it is."))) as here:
        poll = await asked_in_a_group(here)
        assert await here.asked("pink", group=GROUP, quote=poll.timestamp) == "Pink it is."
    assert here.told() == wrote("pink")


async def ended(here: World, poll: Sent) -> None:
    """Wait until a poll is ended and forgotten."""
    await here.signal.until(lambda: bool(here.signal.ended_polls))
    assert here.signal.ended_polls == [(poll.chat, poll.timestamp)]
    await gone(here, f"', {poll.timestamp})")


@pytest.mark.parametrize("how", ["vote", "words", "stop too late", "undo too late"])
async def test_a_poll_ends_with_its_question(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    monkeypatch.setattr("bot.chat.polls.SETTLE_SECONDS", 0.05)
    if how.endswith("too late"):
        monkeypatch.setattr("conversation_store.changes.CHANGEABLE_MS", 0)
    async with world(script(ask(), text("All right."))) as here:
        here.signal.has_polls = True
        async with running_bot(here.settings(access={"groups": "always"})):
            await here.signal.say("paint it", group=GROUP)
            poll = await here.answer()
            await there(here, str(poll.timestamp))
            assert not here.signal.ended_polls
            match how:
                case "vote":
                    await here.signal.vote([1], poll.timestamp, group=GROUP)
                case "words":
                    await here.signal.say("pink", group=GROUP, quote=poll.timestamp)
                case command:
                    await here.signal.say(f"!{command.split()[0]}", group=GROUP)
            await ended(here, poll)


@pytest.mark.parametrize("how", ["stop", "undo", "deletion"])
async def test_a_poll_that_is_deleted_with_its_question_is_not_ended_as_well(how: str) -> None:
    async with with_polls(script(ask())) as here:
        asked = await here.signal.say("paint it", group=GROUP, mention=True)
        poll = await here.answer()
        await there(here, str(poll.timestamp))
        if how == "deletion":
            await here.signal.delete(asked, group=GROUP)
        else:
            await here.signal.say(f"!{how}", group=GROUP, mention=True)
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert here.signal.deleted == [(poll.chat, poll.timestamp)]
        await gone(here, f"', {poll.timestamp})")
    assert not here.signal.ended_polls


async def test_poll_of_an_answered_question_ends_after_a_crash() -> None:
    async with world(script(ask(), text("Green it is."))) as here:
        here.signal.has_polls = True
        async with killed_bot(here.settings()):
            poll = await asked_in_a_group(here)
            here.signal.takes_poll_ends.clear()
            await here.signal.vote([1], poll.timestamp, group=GROUP)
            assert (await here.answer()).text == "Green it is."
        here.signal.takes_poll_ends.set()
        async with running_bot(here.settings()):
            await ended(here, poll)


async def test_restart_keeps_polls_of_waiting_questions() -> None:
    async with world(script(ask(), text("Green it is."))) as here:
        here.signal.has_polls = True
        async with running_bot(here.settings()):
            poll = await asked_in_a_group(here)
        async with running_bot(here.settings()):
            await here.asked("!status", group=GROUP, mention=True)
            assert not here.signal.ended_polls
            await here.signal.vote([1], poll.timestamp, group=GROUP)
            assert (await here.answer()).text == "Green it is."
            await ended(here, poll)


@pytest.mark.parametrize("dies", [False, True])
async def test_vote_for_several_options_counts_once_no_other_vote_follows(
    monkeypatch: pytest.MonkeyPatch, dies: bool
) -> None:
    monkeypatch.setattr("bot.chat.ask.CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr("bot.chat.ask.VOTING_SECONDS", 0.3)
    async with world(script(ask(multiple=True), text("All right."))) as here:
        here.signal.has_polls = True
        async with running_bot(here.settings()) as bot:
            poll = await asked_in_a_group(here, multiple=True)
            for options in ([0], [], [0], [0, 2]):
                await here.signal.vote(options, poll.timestamp, group=GROUP)
            await there(here, "Red; Blue")
            if dies:
                await kill(bot)
            else:
                assert (await here.answer()).text == "All right."
        if dies:
            async with running_bot(here.settings()):
                assert (await here.answer()).text == "All right."
    assert here.told() == "The person chose: Red; Blue"


async def test_signal_cli_without_polls_shows_numbered_lines() -> None:
    async with story(script(ask(), ask(), text("All right."))) as here:
        asked = await question(here, "paint it", group=GROUP, mention=True)
        again = await question(here, "2", group=GROUP, quote=asked.timestamp)
        assert await here.asked("3", group=GROUP, quote=again.timestamp) == "All right."
    assert here.answers() == [asked.text, again.text, "All right."]


async def test_private_questions_and_unsuitable_polls_are_numbered_lines() -> None:
    async with with_polls(script(ask("What?\nNow?"), ask(), text("All right."))) as here:
        asked = await question(here, "paint it", group=GROUP, mention=True)
        await question(here, "paint it")
        assert await here.asked("1", group=GROUP, quote=asked.timestamp) == "All right."


async def test_over_the_rest_api_a_group_votes_as_well() -> None:
    async with world(script(ask(), text("Green it is."))) as here, SignalRestApi.listen() as api:
        api.has_polls = True
        async with running_bot(here.settings(signal={"url": api.url, "phone_number": NUMBER})):
            await api.wait_for_receiver()
            await api.say("paint it", group=GROUP, mention=True)
            await api.wait_until(lambda: len(api.sent) == 1)
            assert api.sent[0].poll == Poll("Which colour?", tuple(COLOURS), multiple=False)
            await there(here, str(api.sent[0].timestamp))
            await api.vote([1], api.sent[0].timestamp, group=GROUP)
            await api.wait_until(lambda: len(api.sent) == 2 and bool(api.ended_polls))
    assert api.sent[1].text == "Green it is."
    assert [timestamp for _, timestamp in api.ended_polls] == [api.sent[0].timestamp]


# What comes together


async def test_two_questions_at_once_each_have_their_answer_before_the_model_goes_on() -> None:
    size = ("ask_user", asking("Which size?", ["Small", "Large"]))
    both = tool_calls(("ask_user", asking("Which colour?", COLOURS)), size)
    async with world(script(both, text("All right."))) as here:
        async with running_bot(here.settings()):
            await here.signal.say("paint it")
            asked = [await question(here), await question(here)]
            colour, size_asked = sorted(asked, key=lambda sent: "size" in sent.text)
            await here.signal.react("1️⃣", size_asked.timestamp)
            assert "Answers in progress: 0" in await here.asked("!status")
        async with running_bot(here.settings()):
            assert await here.asked("blue", quote=colour.timestamp) == "All right."
    results = here.results()
    assert results == ["The person chose: Blue", "The person chose: Small"]


async def test_an_answer_while_another_call_of_the_turn_still_runs_is_not_lost() -> None:
    calls = tool_calls(("ask_user", asking("Which colour?", COLOURS)), WRITE)
    async with story(script(calls, text("All right.")), with_notes) as here:
        await here.signal.say("paint it")
        asked = [await here.answer(), await here.answer()]
        permission, colour = sorted(asked, key=lambda sent: "Which" in sent.text)
        await here.signal.react("2️⃣", colour.timestamp)
        await there(here, "The person chose: Green")
        assert await here.reacted("👍", permission.timestamp) == "All right."
        assert notes(here) == "buy milk\n"
    results = here.results()
    assert results[0] == "The person chose: Green"


async def test_question_counts_as_one_call_also_before_refused_calls() -> None:
    others = [("calculate", {"expression": f"{one}+1"}) for one in range(CALLS_PER_ROUND)]
    calls = tool_calls(("ask_user", asking("Which colour?", COLOURS)), *others)
    async with story(script(calls, text("All right.")), tools={"max_tool_calls": 1}) as here:
        await question(here, "paint it")
        assert await here.asked("1") == "All right."
    results = here.results()
    assert results[0] == "The person chose: Red"
    assert results[-1] == OVER_LIMIT
    assert OVER_LIMIT not in results[:-1]


async def test_a_turn_that_asks_often_is_not_given_up() -> None:
    steps = [ask(f"Number {number}?") for number in range(MAX_ATTEMPTS + 2)]
    async with story(script(*steps, text("All right.")), tools={"max_tool_calls": 20}) as here:
        await here.signal.say("paint it")
        for _ in steps:
            await question(here)
            await here.signal.say("1")
        assert (await here.answer()).text == "All right."


async def test_a_chat_has_a_bound_of_open_questions() -> None:
    people = [ask(f"Number {number}?") for number in range(MAX_OPEN_IN_CHAT)]
    async with story(script(*people, ask("One more?"), text("Later."))) as here:
        for _ in people:
            await question(here, "paint it", group=GROUP, mention=True)
        assert await here.asked("paint it", group=GROUP, mention=True) == "Later."
    assert here.told() == TOO_MANY


async def test_after_one_of_several_messages_is_deleted_the_rest_is_asked_again() -> None:
    async with story(script(ask(), ask("Which wall?", ["North", "South"]), text("Done."))) as here:
        first = await here.signal.say("paint it")
        await question(here, "the small room")
        await here.signal.delete(first)
        wall = await question(here)
        assert await here.asked("1", quote=wall.timestamp) == "Done."
    said = json.dumps(here.model.requests[-1]["messages"])
    assert "the small room" in said
    assert "paint it" not in said


@pytest.mark.parametrize("how", ["edit", "deletion"])
async def test_both_messages_of_a_turn_that_waits_anew_can_be_changed(how: str) -> None:
    release = asyncio.Event()
    steps = script(ask(), held(release, text("It is far.")), text("Done."))
    async with story(steps) as here:
        first, second = [await here.signal.say(one) for one in ("paint it", "the small room")]
        await question(here)
        await here.let_think("and the moon?", files=[NOTE], requests=2)
        assert (await here.answer()).text == STILL_OPEN
        await here.signal.edit("paint the wall", first)
        if how == "edit":
            await here.signal.edit("the large room", second)
        else:
            await here.signal.delete(second)
        await gone(here, "the small room")
        release.set()
        assert [(await here.answer()).text for _ in range(2)] == ["It is far.", "Done."]
    said = json.dumps(here.model.requests[-1]["messages"])
    assert "paint the wall" in said
    assert "the small room" not in said
    assert ("large" in said) == (how == "edit")


async def test_waiting_turn_starts_again_without_deleted_overheard_words() -> None:
    async with story(script(ask(), ask(), text("Done."))) as here:
        secret = await here.signal.say("my secret is pink", author=BEN, group=GROUP)
        await question(here, "paint it", group=GROUP, mention=True)
        await here.signal.delete(secret, author=BEN, group=GROUP)
        again = await question(here)
        assert rows_with(here, "pink") == 0
        assert await here.asked("1", group=GROUP, quote=again.timestamp) == "Done."
    assert "pink" in json.dumps(here.model.requests[0]["messages"])
    assert "pink" not in json.dumps(here.model.requests[-1]["messages"])


@pytest.mark.parametrize("is_edited", [False, True])
async def test_answer_that_is_taken_back_while_the_turn_runs_is_asked_for_again(
    is_edited: bool,
) -> None:
    think = asyncio.Event()
    steps = script(ask(), held(think, text("Pink it is.")), ask(), text("Green it is."))
    async with story(steps) as here:
        asked = await question(here, "paint it")
        reply = await here.let_think("pink, like my secret", quote=asked.timestamp, requests=2)
        if is_edited:
            await here.signal.edit("well", reply)
        else:
            await here.signal.delete(reply)
        again = await question(here)
        think.set()
        assert await here.asked("2", quote=again.timestamp) == "Green it is."
        await gone(here, "my secret")
    assert "my secret" not in json.dumps(here.model.requests[-1]["messages"])


@pytest.mark.parametrize("is_edited", [False, True])
async def test_withdrawn_answer_next_to_another_open_question_is_asked_again(
    is_edited: bool,
) -> None:
    walls = ask("Which wall?", ["North", "South"])
    async with story(script(ask(), walls, ask(), text("Done."))) as here:
        asked = await question(here, "paint it")
        reply = await here.signal.say("pink, like my secret", quote=asked.timestamp)
        await question(here)
        if is_edited:
            await here.signal.edit("well", reply)
        else:
            await here.signal.delete(reply)
        again = await question(here)
        assert await here.asked("2", quote=again.timestamp) == "Done."
        await gone(here, "my secret")


async def test_deleted_answer_is_gone_after_its_turn_has_ended() -> None:
    async with story(script(ask(), text("Pink it is."))) as here:
        asked = await question(here, "paint it")
        reply = await here.signal.say("pink, like my secret", quote=asked.timestamp)
        assert (await here.answer()).text == "Pink it is."
        await here.signal.delete(reply)
        await gone(here, "my secret")


async def test_undo_deletes_the_questions_of_the_turn() -> None:
    async with story(script(ask(), text("Green it is."))) as here:
        asked = await question(here, "paint it")
        assert await here.asked("2") == "Green it is."
        await here.signal.say("!undo")
        await here.signal.until(lambda: (asked.chat, asked.timestamp) in here.signal.deleted)


async def test_an_answer_that_was_stored_before_its_question_is_not_asked_for_again() -> None:
    async with world(script(ask(), text("All right."))) as here:
        async with killed_bot(here.settings()):
            asked = await question(here, "paint it")
        with closing(sqlite3.connect(here.folder / "store.db")) as store, store:
            store.execute(
                "UPDATE questions SET state = 'answered', answer = 'Red', signal_timestamp = NULL"
            )
        async with running_bot(here.settings()):
            assert (await here.answer()).text == "All right."
    assert here.answers() == [asked.text, "All right."]
    assert here.told() == "Red"


async def test_the_bot_stops_typing_once_it_has_asked() -> None:
    thought = asyncio.Event()
    async with story(script(held(thought, ask()))) as here:
        await here.signal.say("paint it")
        await here.signal.until(lambda: any(begun for _, begun in here.signal.typing))
        thought.set()
        asked = await question(here)
        await here.signal.until(lambda: here.signal.typing[-1] == (asked.chat, False))


async def test_a_clock_that_skips_a_day_ends_the_silence_while_the_bot_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("bot.chat.ask.CATCH_UP_SECONDS", 0.0)
    monkeypatch.setattr("bot.chat.ask.MAX_LOOK_SECONDS", 0.05)
    clock = Clock()
    async with world(script(ask(), text("I took red."))) as here:
        async with running_bot(here.settings(), clock=clock):
            await question(here, "paint it")
            clock.ahead = PATIENCE_SECONDS + 60
            assert (await here.answer()).text == "I took red."
    assert here.told() == NOBODY
