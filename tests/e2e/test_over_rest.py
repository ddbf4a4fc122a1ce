"""The whole bot over signal-cli-rest-api: the same answers, as far as that way allows."""

import pytest

from bot.demo.signal_frames import text_frame
from bot.demo.signal_side import ADA, BOT
from bot.messaging.events import Account
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_approvals import WRITE, notes, with_notes
from tests.e2e.test_conversation import CALCULATE
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi


async def test_a_message_gets_its_progress_and_its_answer() -> None:
    steps = script(tool_calls(CALCULATE), text("It is 5461."))
    async with world(steps) as here, SignalRestApi.listen() as api:
        settings = here.settings(signal={"url": api.url, "phone_number": NUMBER})
        async with running_bot(settings):
            await api.wait_for_receiver()
            frame = text_frame(Account(NUMBER, BOT.aci), ADA, 1_795_000_000_000, "127*43?")
            await api.push(frame)
            await api.wait_until(lambda: any("It is" in sent.text for sent in api.sent))
    begun, *_, done, answer = api.sent
    assert (begun.text, done.text) == ("🔧 Using calculate…", "🔧 Using calculate ✓")
    assert (done.replaces is not None, answer.text) == (True, "It is 5461.")
    assert {sent.recipient for sent in api.sent} == {ADA.aci}


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
