"""Reminders: said at their time, exactly once, also through `kill -9`."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from bot.chat.prompt import RUNG
from bot.commands.memory import NO_REMINDERS, NO_ZONE, UNKNOWN_REMINDER, UNKNOWN_ZONE
from bot.commands.questions import REMINDERS_STAY
from conversation_store.models import ChatId, Quote
from tests.e2e.running_bot import WAIT_SECONDS, World, killed_bot, running_bot, story, world
from tests.e2e.test_approvals import with_notes
from tests.e2e.test_conversation import BEN
from tests.e2e.traces import gone, there_is
from tests.fakes.openai_server import Step, held, script, text, tool_calls
from tests.fakes.signal_side import ADA, BOT, Group, Sent
from tests.unit.stores import rows

GROUP = "Z3JvdXA="
SOON_SECONDS = 0.2
SECRET = "sesquipedalian"
PILLS_AT = "2070-01-01T09:00"


@dataclass(slots=True)
class Wall:
    """The machine's clock, which the test sets ahead."""

    ahead: float = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead

    def pass_by(self, **time_: float) -> None:
        self.ahead += timedelta(**time_).total_seconds()


def at(seconds: float = SOON_SECONDS) -> str:
    """Return a moment, as a model says it."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat()


def schedule(question: str, when: str, **more: str) -> Step:
    return tool_calls(("schedule", {"question": question, "at": when, **more}))


def remind(words: str, when: str, **more: str) -> Step:
    return tool_calls(("remind", {"text": words, "at": when, **more}))


async def test_a_reminder_interrupted_by_a_crash_is_said_once_however_often_the_bot_starts() -> (
    None
):
    async with world(script(remind("Call mum", at()), text("I will."))) as here:
        began, never = asyncio.Event(), asyncio.Event()

        async def on_send(sent: Sent) -> None:
            if sent.text.startswith("⏰"):
                began.set()
                await never.wait()

        here.signal.on_send = on_send
        async with killed_bot(here.settings()):
            await here.signal.say("remind me to call mum")
            async with asyncio.timeout(WAIT_SECONDS):
                await began.wait()
        here.signal.on_send = None
        async with killed_bot(here.settings()):
            await here.signal.wait_for(lambda sent: sent.text == "⏰ Call mum")
            await there_is(here, "SELECT 1 FROM outbox WHERE inbox_id IS NULL AND state = 'sent'")
        for _ in range(2):
            async with running_bot(here.settings()):
                await here.signal.say("hello")
                await here.signal.wait_for(lambda sent: sent.text.startswith("answer to"))
    assert here.answers().count("⏰ Call mum") == 1


async def test_a_reminder_that_was_missed_comes_late_and_says_for_when_it_was() -> None:
    wall = Wall()
    when = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=1)
    async with world(script(remind("Call mum", when.isoformat()), text("I will."))) as here:
        async with running_bot(here.settings(), clock=wall):
            assert await here.asked("remind me to call mum in an hour") == "I will."
        wall.pass_by(hours=3)
        async with running_bot(here.settings(), clock=wall):
            said = (await here.answer()).text
    assert said == f"⏰ Call mum\n(Late: this was for {when:%Y-%m-%d %H:%M} UTC.)"


async def test_a_series_that_was_missed_is_caught_up_with_one_message() -> None:
    wall = Wall()
    steps = script(
        tool_calls(("set_timezone", {"zone": "UTC"})),
        remind("Stand-up", at(seconds=3_600), repeat="FREQ=HOURLY"),
        text("I will."),
    )
    async with world(steps) as here:
        async with running_bot(here.settings(), clock=wall):
            await here.signal.say("remind me of the stand-up every hour; I am in Reykjavik")
            assert (await here.answer()).text == "I will."
        wall.pass_by(hours=50.5)
        async with running_bot(here.settings(), clock=wall):
            late = (await here.answer()).text
            assert late.startswith("⏰ Stand-up\n(Late: this was for ")
            assert late.endswith(", and 49 more times since.)")
            wall.pass_by(hours=0.505)
            assert (await here.answer()).text == "⏰ Stand-up"


async def test_a_local_time_needs_a_zone_which_the_model_is_told_to_ask_for() -> None:
    tomorrow = (datetime.now(UTC) + timedelta(days=2)).date()
    steps = script(
        remind("Call mum", f"{tomorrow}T09:00"),
        text("Where are you?"),
        tool_calls(("set_timezone", {"zone": "Tokyo"})),
        remind("Call mum", f"{tomorrow}T09:00"),
        text("I will."),
    )
    async with story(steps) as here:
        await here.signal.say("remind me to call mum at 9, the day after tomorrow")
        assert (await here.answer()).text == "Where are you?"
        assert "city" in here.told()
        assert await here.asked("in Tokyo") == "I will."
        assert f"{tomorrow.year}, 09:00 (Asia/Tokyo)" in here.told()


async def test_revoked_person_gets_no_reminders() -> None:
    wall = Wall()
    allowed = {"policy": "allowlist", "allowed": f"{ADA.aci},{BEN.aci}"}
    gone = {"policy": "allowlist", "allowed": BEN.aci}
    steps = script(remind("Call mum", at(60)), text("I will."))
    async with world(steps) as here:
        async with running_bot(here.settings(access=allowed), clock=wall):
            assert await here.asked("remind me to call mum") == "I will."
        wall.pass_by(seconds=61)
        async with running_bot(here.settings(access=gone), clock=wall):
            await there_is(here, "SELECT 1 FROM reminders WHERE state = 'done' AND text IS NULL")
    assert "⏰ Call mum" not in here.answers()


async def test_a_reminder_does_not_wait_behind_a_slow_turn() -> None:
    slow, wall = asyncio.Event(), Wall()
    steps = script(remind("Call mum", at(60)), text("I will."), held(slow, text("Done.")))
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        assert await here.asked("remind me to call mum") == "I will."
        await here.signal.say("think about it")
        await here.model.wait_for_requests(3)
        wall.pass_by(seconds=61)
        assert (await here.answer()).text == "⏰ Call mum"
        slow.set()
        assert (await here.answer()).text == "Done."


async def test_group_reminder_names_its_person() -> None:
    wall = Wall()
    async with world(script(remind("take out the rubbish", at(60)), text("I will."))) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        async with running_bot(here.settings(), clock=wall):
            await here.signal.say("remind me of the rubbish", group=GROUP, mention=True)
            assert (await here.answer()).text == "I will."
            wall.pass_by(seconds=61)
            said = await here.answer()
    assert said.text == f"⏰ {ADA.name}: take out the rubbish"
    assert said.chat == ChatId.group(GROUP)


async def test_group_reminder_is_dropped_after_its_person_left() -> None:
    wall = Wall()
    async with world(script(remind("the rubbish", at(60)), text("I will."))) as here:
        here.signal.groups[GROUP] = Group(members={ADA.aci: ADA, BEN.aci: BEN})
        async with running_bot(here.settings(), clock=wall):
            await here.signal.say("remind me of the rubbish", group=GROUP, mention=True)
            assert (await here.answer()).text == "I will."
        here.signal.groups[GROUP] = Group(members={BEN.aci: BEN})
        wall.pass_by(seconds=61)
        async with running_bot(here.settings(), clock=wall):
            await there_is(here, "SELECT 1 FROM reminders WHERE state = 'done' AND text IS NULL")
    assert here.answers() == ["I will."]


async def test_a_reminder_outlives_the_disappearing_words_that_asked_for_it() -> None:
    wall = Wall()
    steps = script(remind(SECRET, at(120)), text("I will."))
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        assert await here.asked("please remind me", expires_seconds=1) == "I will."
        await gone(here, "please remind me")
        wall.pass_by(minutes=2)
        assert (await here.answer()).text == f"⏰ {SECRET}"
        await gone(here, SECRET)


async def test_an_edit_of_its_message_takes_the_place_of_the_reminder() -> None:
    wall = Wall()
    steps = script(
        remind("Call mum", at(60)), text("I will."), remind("Call dad", at(60)), text("Dad, then.")
    )
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        asked = await here.signal.say("remind me to call mum")
        assert (await here.answer()).text == "I will."
        await here.signal.edit("remind me to call dad", asked)
        assert (await here.answer()).text == "Dad, then."
        wall.pass_by(seconds=61)
        assert (await here.answer()).text == "⏰ Call dad"
    assert "⏰ Call mum" not in here.answers()


async def test_a_thumb_up_marks_a_reminder_as_done_and_it_is_forgotten() -> None:
    wall, due = Wall(), at(60)
    steps = script(remind(SECRET, due), text("I will."))
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        assert await here.asked("remind me") == "I will."
        wall.pass_by(seconds=61)
        said = await here.answer()
        await there_is(here, "SELECT 1 FROM outbox WHERE inbox_id IS NULL AND state = 'sent'")
        await here.signal.say("!reminders")
        assert f"⏰✓ {due[:10]}" in (await here.answer()).text
        await here.signal.react("❤️", said.timestamp)
        await here.signal.react("👍", said.timestamp, author=BEN)
        await here.signal.react("👍", said.timestamp, removed=True)
        assert SECRET in await here.asked("!reminders")
        await here.signal.react("👍", said.timestamp)
        assert await here.asked("!reminders") == NO_REMINDERS


async def test_a_reply_to_a_reminder_tells_the_model_which_one_and_moves_it() -> None:
    wall = Wall()
    steps = script(
        remind("Call mum", at(60)), text("I will."), remind("Call mum", at(3_700)), text("Later.")
    )
    async with world(steps) as here, running_bot(here.settings(), clock=wall):
        assert await here.asked("remind me to call mum") == "I will."
        wall.pass_by(seconds=61)
        said = await here.answer()
        await there_is(here, "SELECT 1 FROM outbox WHERE inbox_id IS NULL AND state = 'sent'")
        quote = Quote(said.timestamp, BOT.aci or "", "⏰ Call mu")
        assert await here.asked("in an hour", quote=quote) == "Later."
        asked = here.model.requests[-1]["messages"][-3]["content"]
        assert "[in reply to your message: “⏰ Call mum”] [that was reminder 1] in an hour" in asked
        wall.pass_by(seconds=3_650)
        assert (await here.answer()).text == "⏰ Call mum"


async def test_model_is_told_once_of_a_reminder_that_came_and_forgets_it_with_its_source() -> None:
    steps = script(remind("Call mum", at(1)), text("Yes."), text("Done."), text("Ok."))
    came = RUNG.format(text="Call mum")
    async with story(steps) as here:
        asked_for = await here.signal.say("remind me of mum")
        said = {(await here.answer()).text for _ in range(2)}
        assert said == {"Yes.", "⏰ Call mum"}
        assert await here.asked("again in 10 min pls") == "Done."
        assert here.told().startswith(came)
        assert await here.asked("thanks") == "Ok."
        assert came not in here.told()
        await here.signal.delete(asked_for)
        await gone(here, "Call mum")


async def test_reminders_are_listed_and_cancelled_by_their_numbers() -> None:
    steps = script(
        remind("Call mum", at(86_400)), text("Yes."), remind("Call dad", at(90_000)), text("Yes.")
    )
    async with story(steps) as here:
        for words in ("remind me of mum", "remind me of dad"):
            assert await here.asked(words) == "Yes."
        listed = (await here.asked("!reminders")).splitlines()
        assert [line.split()[0] for line in listed[:2]] == ["1.", "2."]
        assert listed[0].endswith("Call mum")
        assert await here.asked("!reminders", author=BEN) == NO_REMINDERS
        assert await here.asked("!reminders cancel 1", author=BEN) == UNKNOWN_REMINDER
        assert await here.asked("!reminders cancel 1") == "Cancelled: Call mum."
        for wrong in ("1", "²", "9" * 30, "9" * 5_000):
            assert await here.asked(f"!reminders cancel {wrong}") == UNKNOWN_REMINDER
        assert "Call dad" in (listed_now := await here.asked("!reminders"))
        assert "Call mum" not in listed_now


async def test_a_group_is_told_nothing_of_private_reminders() -> None:
    steps = script(
        remind(SECRET, at(86_400)), text("Yes."),
        tool_calls(("list_reminders", {}), ("cancel_reminder", {"number": 1})), text("None here."),
    )  # fmt: skip
    async with story(steps) as here:
        assert await here.asked("remind me") == "Yes."
        assert await here.asked("!reminders", group=GROUP, mention=True) == NO_REMINDERS
        await here.signal.say("!reminders cancel 1", group=GROUP, mention=True)
        assert (await here.answer()).text == UNKNOWN_REMINDER
        assert await here.asked("list my reminders", group=GROUP, mention=True) == "None here."
        assert SECRET not in str(here.model.requests[-1]["messages"])
        assert SECRET in await here.asked("!reminders")


async def test_new_time_zone_moves_only_local_reminders() -> None:
    day = datetime.now(UTC).date() + timedelta(days=3)
    steps = script(
        tool_calls(
            ("remind", {"text": "Breakfast", "at": f"{day}T08:00"}),
            ("remind", {"text": "Launch", "at": f"{day}T08:00+00:00"}),
        ),
        text("Yes."),
    )
    async with story(steps) as here:
        assert await here.asked("!timezone") == NO_ZONE
        assert await here.asked("!timezone Atlantis") == UNKNOWN_ZONE
        assert (await here.asked("!timezone utc")).startswith("Your time zone is UTC; it is ")
        assert await here.asked("remind me") == "Yes."
        await here.signal.say("!timezone Tokyo")
        assert (await here.answer()).text.startswith("Your time zone is Asia/Tokyo; it is ")
        listed = await here.asked("!reminders")
        assert f"{day} 08:00 Breakfast" in listed
        assert f"{day} 17:00 Launch" in listed
        due = "SELECT text, due_at / 1000 FROM reminders ORDER BY due_at"
        launch = datetime(day.year, day.month, day.day, 8, tzinfo=UTC).timestamp()
        assert rows(here.folder, due) == [("Breakfast", launch - 9 * 3_600), ("Launch", launch)]


async def test_after_strangers_words_a_person_is_asked_before_a_reminder_is_set() -> None:
    steps = script(
        tool_calls(("notes_read", {})), remind("Pay the stranger", at(60)), text("Not set.")
    )
    async with story(steps, with_notes) as here:
        asked = await here.answer_to("what do my notes say?")
        assert asked.text.startswith("❓ Set this reminder?")
        assert await here.reacted("👎", asked.timestamp) == "Not set."
        assert rows(here.folder, "SELECT 1 FROM reminders") == []


@pytest.mark.parametrize(
    ("call", "asks"),
    [
        (("cancel_reminder", {"number": 1}), "❓ Cancel this for good?"),
        (("set_timezone", {"zone": "Asia/Tokyo"}), "❓ Is this your time zone?"),
    ],
)
async def test_strangers_words_neither_cancel_nor_move_a_reminder(
    call: tuple[str, dict[str, object]], asks: str
) -> None:
    steps = script(
        tool_calls(("set_timezone", {"zone": "Europe/Rome"})), remind("Take your pills", PILLS_AT),
        text("Yes."), tool_calls(("notes_read", {})), tool_calls(call), text("Not done."),
    )  # fmt: skip
    held_to = "SELECT text, due_at, zone FROM reminders JOIN clocks USING (person)"
    async with story(steps, with_notes) as here:
        assert await here.asked("I am in Rome: remind me of my pills") == "Yes."
        before = rows(here.folder, held_to)
        asked = await here.answer_to("what do my notes say?")
        assert asked.text.startswith(asks)
        assert await here.reacted("👎", asked.timestamp) == "Not done."
        assert rows(here.folder, held_to) == before


@pytest.mark.parametrize(
    ("said", "call", "runs"),
    [
        ("Remind me to take my pills in 10 minutes", ("Take my pills", 600), True),
        ("Remind me to take my pills in 10 minutes", ("Pay the stranger", 600), False),
        ("Remind me to take my pills in 10 minutes", ("Take my pills", 6_000), False),
    ],
)
async def test_reminder_in_the_persons_own_words_needs_no_question(
    said: str, call: tuple[str, int], runs: bool
) -> None:
    words, seconds = call
    steps = script(
        tool_calls(("notes_read", {})), text("None."), remind(words, at(seconds)), text("Set.")
    )
    async with story(steps, with_notes) as here:
        assert await here.asked("what do my notes say?") == "None."
        answer = await here.asked(said)
        assert (answer == "Set.") is runs
        assert runs or answer.startswith("❓ Set this reminder?")
        assert bool(rows(here.folder, "SELECT 1 FROM reminders")) is runs


async def test_reminder_in_some_minutes_counts_from_the_message_to_the_second() -> None:
    steps = script(tool_calls(("remind", {"text": "Oven", "in_minutes": 10})), text("Set."))
    async with story(steps) as here:
        before = time.time()
        assert await here.asked("in 10 min the oven") == "Set."
        ((due,),) = rows(here.folder, "SELECT due_at / 1000.0 FROM reminders")
    assert before + 599 <= due <= time.time() + 601


@pytest.mark.parametrize(("said", "runs"), [("Ich wohne jetzt in Wien.", True), ("Hi", False)])
async def test_zone_whose_city_the_person_has_named_needs_no_question(
    said: str, runs: bool
) -> None:
    moved = tool_calls(("set_timezone", {"zone": "Europe/Vienna"}))
    steps = script(tool_calls(("notes_read", {})), text("None."), moved, text("Ok."))
    async with story(steps, with_notes) as here:
        assert await here.asked("what do my notes say?") == "None."
        assert (await here.asked(said) == "Ok.") is runs


async def test_a_person_may_have_so_many_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bot.chat.own_tools.MAX_REMINDERS", 1)
    steps = script(remind("Call mum", at(600)), remind("Call dad", at(600)), text("One alone."))
    async with story(steps) as here:
        assert await here.asked("remind me of mum and dad") == "One alone."
        assert "all that one may have" in here.told()


async def test_clear_forgets_no_reminder_and_says_so() -> None:
    async with story(script(remind("Call mum", at(600)), text("I will."))) as here:
        assert await here.asked("remind me to call mum") == "I will."
        assert (await here.asked("!clear")).endswith(f"\n{REMINDERS_STAY}")
        assert "Call mum" in await here.asked("!reminders")


async def test_next_start_sends_reminders_due_at_the_stop() -> None:
    calls = [("remind", {"text": f"{number}", "at": at(1.0)}) for number in range(30)]
    slow, tools = asyncio.Event(), {"max_tool_calls": 100}

    async def on_send(sent: Sent) -> None:
        if sent.text.startswith("⏰"):
            slow.set()
            await asyncio.sleep(0.2)

    async with world(script(tool_calls(*calls), text("I will."))) as here:
        here.signal.on_send = on_send
        async with running_bot(here.settings(tools=tools)):
            await here.signal.say("remind me of thirty things")
            async with asyncio.timeout(WAIT_SECONDS):
                await slow.wait()
        assert 0 < len(bells(here)) < 10, "The stop waited for all of them"
        here.signal.on_send = None
        async with running_bot(here.settings(tools=tools)):
            await here.signal.until(lambda: len(bells(here)) >= 30)
    assert sorted(bells(here)) == sorted(f"⏰ {number}" for number in range(30))


def bells(here: World) -> list[str]:
    """Return the reminders that people have got."""
    return [sent.text for sent in here.signal.sent if sent.text.startswith("⏰")]
