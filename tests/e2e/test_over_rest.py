"""The whole bot over signal-cli-rest-api: the same answers, as far as that way allows."""

from bot.demo.signal_frames import text_frame
from bot.demo.signal_side import ADA, BOT
from bot.messaging.events import Account
from tests.e2e.running_bot import running_bot, world
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
            await api.wait_until(lambda: len(api.sent) == 2)
    assert [sent.text for sent in api.sent] == ["🔧 Using calculate…", "It is 5461."]
    assert [sent.recipient for sent in api.sent] == [ADA.aci, ADA.aci]
