"""When the model, the Signal side or the person does not behave."""

import asyncio

import pytest

from bot.commands.questions import HOW_TO_PLAN
from bot.llm.client import MAX_BROKEN_ANSWERS
from bot.signal.events import Person
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_conversation import BEN, CALCULATE
from tests.fakes.json_rpc_server import HangUp, LostReply, Refusal
from tests.fakes.openai_server import (
    Step,
    chunk,
    cut,
    echo,
    held,
    raw_body,
    script,
    sse,
    status,
    text,
    tool_calls,
)
from tests.fakes.signal_side import Sent

GARBAGE = raw_body(b"<html>no</html>", content_type="text/html")
CUT_STREAM = sse(chunk({"content": "The answer is"}), done=False, cut=True)
BROKE_OFF = "broke off"


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(
            status(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"}), id="429"
        ),
        pytest.param(status(503), id="503"),
        pytest.param(cut, id="cut before the first byte"),
        pytest.param(CUT_STREAM, id="cut stream"),
        pytest.param(GARBAGE, id="garbage"),
    ],
)
async def test_a_passing_trouble_of_the_model_is_not_noticed(trouble: Step) -> None:
    async with world(script(trouble, text("Fine."))) as here, running_bot(here.settings()):
        await here.signal.say("hello")
        assert (await here.answer()).text == "Fine."


@pytest.mark.parametrize(
    ("trouble", "words"),
    [
        pytest.param(CUT_STREAM, BROKE_OFF, id="cut stream"),
        pytest.param(GARBAGE, "cannot reach my model", id="garbage"),
        pytest.param(status(401, {"error": {"message": "bad key"}}), "operator", id="wrong key"),
        pytest.param(status(404, {"error": {"message": "no model"}}), "operator", id="no model"),
        pytest.param(
            status(400, {"error": {"message": "maximum context length is 10 tokens"}}),
            "!clear",
            id="context too long",
        ),
    ],
)
async def test_a_lasting_trouble_is_said_in_a_plain_sentence_and_the_next_turn_works(
    trouble: Step, words: str
) -> None:
    lasting = [trouble] * (MAX_BROKEN_ANSWERS if trouble in (CUT_STREAM, GARBAGE) else 1)
    async with world(script(*lasting, text("Fine."))) as here, running_bot(here.settings()):
        await here.signal.say("hello")
        first = (await here.answer()).text
        assert words in first
        assert "Traceback" not in first
        await here.signal.say("again")
        assert (await here.answer()).text == "Fine."
    assert here.model.requests[-1]["messages"][-2]["content"] == first


async def test_an_answer_waits_for_a_signal_side_that_is_away() -> None:
    thinking, release = asyncio.Event(), asyncio.Event()

    async def think(request: object, writer: asyncio.StreamWriter) -> None:
        thinking.set()
        await held(release, echo)(request, writer)  # type: ignore[arg-type]

    async with world(think) as here, running_bot(here.settings()):
        await here.signal.say("hello")
        await thinking.wait()
        await here.signal.go_away()
        release.set()
        await here.signal.come_back()
        assert (await here.answer()).text.endswith("hello")
    assert len(here.answers()) == 1


async def test_messages_that_wait_at_signal_arrive_when_the_bot_is_back_in_touch() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.say("one")
        await here.answer()
        await here.signal.drop_connections()
        await here.signal.say("two")
        assert (await here.answer()).text.endswith("two")


async def test_garbage_from_signal_does_not_stop_the_bot() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.say("one")
        await here.answer()
        for line in (
            b"",
            b"{",
            b"\xff\xfe",
            b"[]",
            b"null",
            b'{"method":"receive"}',
            b"1" * 100_000,
        ):
            await here.signal.push_line(line)
        await here.signal.say("two")
        assert (await here.answer()).text.endswith("two")


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(Refusal(-32603, "prekeys"), id="internal error"),
        pytest.param(
            Refusal(
                -5,
                "limit",
                {"response": {"results": [{"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": 1}]}},
            ),
            id="rate limit",
        ),
    ],
)
async def test_a_refused_send_is_tried_again(trouble: Exception) -> None:
    refused = 0

    async def refuse_once(sent: Sent) -> None:
        nonlocal refused
        refused += 1
        if refused == 1:
            raise trouble

    async with world() as here, running_bot(here.settings()):
        here.signal.on_send = refuse_once
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")
    assert refused == 2


async def test_a_send_that_can_never_work_is_given_up_and_the_chat_goes_on() -> None:
    refusals = 0

    async def refuse(sent: Sent) -> None:
        nonlocal refusals
        if sent.text.endswith("one"):
            refusals += 1
            raise Refusal(-1, "Unregistered user")

    async with world() as here, running_bot(here.settings()):
        here.signal.on_send = refuse
        await here.signal.say("one")
        await here.signal.say("!plan")
        assert (await here.answer()).text == HOW_TO_PLAN
    assert refusals == 1


async def test_a_progress_message_that_cannot_be_sent_does_not_harm_the_answer() -> None:
    async def refuse_progress(sent: Sent) -> None:
        if sent.text.startswith("🔧"):
            raise Refusal(-1, "no")

    async with world(script(tool_calls(CALCULATE), text("5461"))) as here:
        async with running_bot(here.settings()):
            here.signal.on_send = refuse_progress
            await here.signal.say("What is 127*43?")
            assert (await here.answer()).text == "5461"


async def test_stop_ends_the_running_turn_and_drops_waiting_messages() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Fine."))) as here, running_bot(here.settings()):
        await here.signal.say("think hard")
        await here.model.wait_for_requests(1)
        await here.signal.say("and more")
        await here.signal.say("!stop")
        assert (
            await here.answer()
        ).text == "Stopped. 1 more of your messages will not be answered."
        await here.signal.say("something else")
        assert (await here.answer()).text == "Fine."
        await here.signal.say(" !STOP ")
        assert (await here.answer()).text == "There is nothing to stop."
    assert len(here.model.requests) == 2
    roles = [message["role"] for message in here.model.requests[1]["messages"]]
    assert roles == ["system", "user"]


async def test_stop_in_one_chat_leaves_another_alone() -> None:
    release = asyncio.Event()
    async with world(held(release)) as here, running_bot(here.settings()):
        await here.signal.say("mine", author=BEN)
        await here.model.wait_for_requests(1)
        await here.signal.say("!stop")
        assert "nothing to stop" in (await here.answer()).text
        release.set()
        assert (await here.answer()).text.endswith("mine")


@pytest.mark.full
async def test_a_thousand_chats_are_answered_at_the_same_time() -> None:
    release = asyncio.Event()
    async with world(held(release)) as here, running_bot(here.settings()):
        for number in range(1_000):
            person = Person(aci=f"{number:08x}-0000-4000-8000-000000000000")
            await here.signal.say(f"q{number}", author=person)
        await here.model.wait_for_requests(1_000)
        release.set()
        await here.signal.until(lambda: len(here.signal.sent) >= 1_000, seconds=10)
    assert {sent.chat.value[:8]: sent.text.split()[-1] for sent in here.signal.sent} == {
        f"{number:08x}": f"q{number}" for number in range(1_000)
    }


async def test_a_lost_reply_to_a_send_does_not_lose_the_answer() -> None:
    lost = 0

    async def lose_once(sent: Sent) -> None:
        nonlocal lost
        lost += 1
        if lost == 1:
            raise HangUp

    async with world() as here, running_bot(here.settings()):
        here.signal.on_send = lose_once
        await here.signal.say("hello")
        await here.signal.wait_for(lambda sent: sent.text.endswith("hello"))
    assert lost == 2


async def test_an_answer_that_the_phone_confirms_after_a_lost_reply_comes_once() -> None:
    async def lose_the_first(sent: Sent) -> None:
        if sent.text.endswith("one"):
            raise LostReply

    async with world() as here, running_bot(here.settings()):
        here.signal.on_send = lose_the_first
        await here.signal.say("one")
        answer = await here.answer()
        await here.signal.drop_connections()
        await here.signal.deliver_receipt(answer.timestamp)
        await here.signal.say("two")
        assert (await here.answer()).text.endswith("two")
    assert [text.split()[-1] for text in here.answers()] == ["one", "two"]
