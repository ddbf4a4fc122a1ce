"""When the model, the Signal side or the person does not behave."""

from bot.llm.client import MAX_BROKEN_ANSWERS
from tests.e2e.running_bot import story
from tests.e2e.test_conversation import CALCULATE
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import (
    Step,
    chunk,
    cut,
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


async def test_passing_troubles_of_the_model_are_not_noticed() -> None:
    slow_down = status(429, {"error": {"message": "slow down"}}, {"Retry-After": "0"})
    troubles = (slow_down, status(503), cut, CUT_STREAM, GARBAGE)
    steps = (step for trouble in troubles for step in (trouble, text("Fine.")))
    async with story(script(*steps)) as here:
        for _ in troubles:
            assert await here.asked("hello") == "Fine."


async def test_lasting_faults_give_a_plain_sentence_and_the_next_turn_works() -> None:
    too_long = status(400, {"error": {"message": "maximum context length is 10 tokens"}})
    troubles: dict[str, tuple[Step, ...]] = {
        "broke off": (CUT_STREAM,) * MAX_BROKEN_ANSWERS,
        "cannot reach my model": (GARBAGE,) * MAX_BROKEN_ANSWERS,
        "wrong key: operator": (status(401, {"error": {"message": "bad key"}}),),
        "no model: operator": (status(404, {"error": {"message": "no model"}}),),
        "!clear": (too_long,),
    }
    async with story() as here:
        for words, steps in troubles.items():
            here.model.handler = script(*steps, text("Fine."))
            first = await here.asked("hello")
            assert words.rpartition(": ")[2] in first
            assert await here.asked("again") == "Fine."
            assert here.model.requests[-1]["messages"][-2]["content"] == first


async def test_a_progress_message_that_cannot_be_sent_does_not_harm_the_answer() -> None:
    async def refuse_progress(sent: Sent) -> None:
        if sent.text.startswith("🔧"):
            raise Refusal(-1, "no")

    async with story(script(tool_calls(CALCULATE), text("5461"))) as here:
        here.signal.on_send = refuse_progress
        assert await here.asked("What is 127*43?") == "5461"
