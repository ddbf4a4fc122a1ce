"""Edits: the person corrects a question, the bot corrects its answer."""

import asyncio

import pytest

from bot.chat.replies import UNSEEN
from bot.signal.events import Person
from tests.e2e.running_bot import killed_bot, running_bot, story, world
from tests.e2e.traces import files_of, gone
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import Step, echo, held, script, status, text, tool_calls
from tests.fakes.signal_side import ADA

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
NEVER_CAME = 1_795_000_000_000
GROUP = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


async def test_edit_of_a_waiting_message_keeps_its_place() -> None:
    release = asyncio.Event()
    async with story(script(held(release)), bot={"read_receipts": True}) as here:
        await here.let_think("first")
        await here.signal.say("!plan")  # later calls wait
        waiting = await here.signal.say("secnod")
        await here.signal.edit("second", waiting)
        third = (ADA.aci, (await here.signal.say("third"),))
        await here.signal.until(lambda: third in here.signal.receipts)
        release.set()
        first, _, answer = [(await here.answer()).text for _ in range(3)]
    assert first.endswith("first")
    assert [line.rpartition(" ")[2] for line in answer.splitlines()] == ["second", "third"]


async def test_only_the_author_edits_a_message() -> None:
    async with story(access={"groups": "always"}) as here:
        question = await here.signal.say("mine", group=GROUP)
        answer = await here.answer()
        await here.signal.edit("forged", question, author=BEN, group=GROUP)
        other = await here.answer()
    assert answer.text.endswith("Ada: mine")
    assert other.replaces is None
    assert other.text.endswith("Ben: forged")


async def test_an_edit_by_a_stranger_is_nothing() -> None:
    access = {"policy": "allowlist", "allowed": ADA.aci}
    async with story(access=access) as here:
        await here.signal.edit("hello", NEVER_CAME, author=BEN)
        await here.asked("hello")
    assert len(here.signal.sent) == 1


async def test_each_edit_of_an_unknown_message_is_answered_once() -> None:
    never = asyncio.Event()
    async with world(script(held(never), held(never), echo)) as here:
        async with killed_bot(here.settings()):
            edit = await here.signal.edit("one", NEVER_CAME)
            await here.model.wait_for_requests(1)
            await here.signal.edit("two", NEVER_CAME)
            await here.model.wait_for_requests(2)
        async with running_bot(here.settings()):
            old = await here.answer()
            last = await here.signal.edit("three", edit)
            new = await here.answer()
            await here.signal.edit("four", last)
            newest = await here.answer()
    asked_for = [answer.text.partition("] ")[2] for answer in (old, new, newest)]
    assert asked_for == ["two", "three", "four"]
    assert [new.replaces, newest.replaces] == [old.timestamp, new.timestamp]
    assert len(here.signal.sent) == 3


async def test_a_question_that_is_edited_into_a_stop_is_not_answered() -> None:
    never = asyncio.Event()
    async with story(script(held(never), echo)) as here:
        question = await here.let_think("How high is Everest?")
        await here.signal.edit("!stop", question)
        answer = await here.answer()
        assert answer.text == "There is nothing to stop."
        assert (await here.asked("hello")).endswith("hello")


async def test_waiting_message_edited_into_stop_stops_the_turn_before_it() -> None:
    never = asyncio.Event()
    async with story(script(held(never), echo)) as here:
        await here.let_think("How high is Everest?")
        waiting = await here.signal.say("!stpo it")
        await here.signal.edit("!stop", waiting)
        assert (await here.answer()).text == "Stopped."
        assert (await here.asked("hello")).endswith("hello")


async def test_overheard_message_becomes_a_question_when_an_edit_mentions_the_bot() -> None:
    async with story() as here:
        words = await here.signal.say("what is thsi?", group=GROUP)
        first = await here.signal.edit("what is this?", words, group=GROUP)
        await here.signal.edit("what is this?", first, group=GROUP, mention=True)
        answer = await here.answer()
        unheard = await here.signal.edit("and thta?", NEVER_CAME, group=GROUP)
        await here.signal.edit("and that?", unheard, group=GROUP, mention=True)
        other = await here.answer()
    assert answer.text.endswith("Ada: what is this?")
    assert other.text.endswith("Ada: and that?")


async def test_an_edit_in_a_group_that_is_not_listened_to_is_never_stored() -> None:
    access = {"groups": "off"}
    async with story(access=access) as here:
        await here.signal.edit("sesquipedalian", NEVER_CAME, group=GROUP)
        await here.asked("hello")
        assert b"sesquipedalian" not in files_of(here)


async def test_an_answer_that_was_edited_too_often_is_sent_anew() -> None:
    async with story() as here:
        last = await here.signal.say("0")
        await here.answer()
        for number in range(1, 12):
            last = await here.signal.edit(str(number), last)
            answer = await here.answer()
            assert (answer.replaces is None) == (number == 11)
    assert answer.text.endswith("11")


async def test_running_turn_tells_the_model_nothing_that_was_deleted_meanwhile() -> None:
    go_on = asyncio.Event()
    steps = held(go_on, tool_calls(("calculate", {"expression": "127*43"})))
    async with story(script(echo, steps, text("5461"))) as here:
        secret = await here.signal.say("quagga")
        await here.answer()
        await here.let_think("What is 127*43?", requests=2)
        await here.signal.delete(secret)
        await gone(here, "quagga")
        go_on.set()
        await here.signal.wait_for(lambda sent: sent.text == "5461")
    assert "quagga" in str(here.model.requests[1])
    assert "quagga" not in str(here.model.requests[2])


async def test_edit_is_answered_anew_if_the_answer_was_deleted_with_another_message() -> None:
    never = asyncio.Event()
    async with story(script(held(never), text("Both."), text("Only one."))) as here:
        first = await here.let_think("one")
        second = await here.signal.say("two")
        assert (await here.answer()).text == "Both."
        await here.signal.delete(second)
        await here.signal.until(lambda: bool(here.signal.deleted))
        await here.signal.edit("the first", first)
        answer = await here.answer()
        assert (answer.text, answer.replaces) == ("Only one.", None)


@pytest.mark.parametrize("answer", [text("Both."), status(401)])
async def test_people_are_told_if_an_unseen_answer_goes_with_one_of_its_messages(
    monkeypatch: pytest.MonkeyPatch, answer: Step
) -> None:
    monkeypatch.setattr("bot.chat.outbox.PAUSES", (0.2, 0.2))
    never, failed = asyncio.Event(), asyncio.Event()

    async def fail(_: object) -> None:
        if not failed.is_set():
            failed.set()
            raise Refusal(-1, "Failed to send message")

    async with story(script(held(never), answer)) as here:
        here.signal.on_send = fail
        await here.let_think("one")
        second = await here.signal.say("two")
        await failed.wait()
        await here.signal.delete(second)
        assert (await here.answer()).text == UNSEEN
    assert [sent.text for sent in here.signal.sent] == [UNSEEN]
