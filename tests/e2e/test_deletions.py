"""The bot also forgets messages that a person deletes for everyone."""

import asyncio

from bot.signal.events import Person
from tests.e2e.running_bot import story
from tests.e2e.traces import gone
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import echo, script, text
from tests.fakes.signal_side import ADA, Sent

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
SECRET = "sesquipedalian"
ANSWER = "antidisestablishmentarianism"


async def test_only_the_author_and_group_admins_delete_a_message() -> None:
    async with story(script(echo, echo), access={"groups": "always"}) as here:
        question = await here.signal.say(SECRET, group=GROUP)
        await here.answer()
        await here.signal.delete(question, author=BEN, group=GROUP, target_author=ADA)
        await here.asked("one", author=BEN, group=GROUP)
        assert SECRET in str(here.model.requests[-1])
        here.signal.groups[GROUP].admins.add(BEN.aci)
        await here.signal.change_group(GROUP)
        await here.signal.delete(question, author=BEN, group=GROUP, target_author=ADA)
        await gone(here, SECRET)


async def test_an_answer_on_its_way_when_its_question_is_deleted_is_withdrawn() -> None:
    async with story(script(text(ANSWER))) as here:
        here.signal.takes_sends.clear()
        question = await here.signal.say(SECRET)
        await here.signal.until(lambda: here.signal.waiting_sends == 1)
        await here.signal.delete(question)
        await gone(here, SECRET)
        here.signal.takes_sends.set()
        answer = await here.answer()
        await here.signal.until(lambda: bool(here.signal.deleted))
        assert [at for _, at in here.signal.deleted] == [answer.timestamp]


async def test_an_answer_that_was_not_sent_when_its_question_was_deleted_never_is() -> None:
    refused = asyncio.Event()

    async def refuse(_: Sent) -> None:
        refused.set()
        raise Refusal(-32603, "try again")

    async with story(script(text(ANSWER), echo)) as here:
        here.signal.on_send = refuse
        question = await here.signal.say(SECRET)
        await refused.wait()
        await here.signal.delete(question)
        await gone(here, ANSWER)
        here.signal.on_send = None
        assert (await here.asked("hello")).endswith("hello")
    assert len(here.answers()) == 1
