"""People write in pieces: what follows closely is one question."""

import asyncio

from bot.messaging.events import Person
from conversation_store.models import Quote
from tests.e2e.running_bot import World, kill, running_bot, world
from tests.fakes.openai_server import echo, held, script, text
from tests.fakes.signal_side import ADA

BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
PIECES = {"settle_seconds": 0.3}
LONG = {"settle_seconds": 20.0}


def asked(here: World) -> list[str]:
    """What the model was asked last, line by line, without the times."""
    last = here.model.requests[-1]["messages"][-1]["content"]
    return [line.partition("] ")[2] for line in last.splitlines()]


async def test_messages_that_follow_closely_are_answered_once() -> None:
    async with world() as here, running_bot(here.settings(bot=PIECES)):
        for words in ("Hi", "one question", "how far is the moon?"):
            await here.signal.say(words)
        answer = await here.answer()
        assert asked(here) == ["Hi", "one question", "how far is the moon?"]
        assert answer.quote is None
        await here.signal.say("thanks")
        await here.answer()
    assert len(here.signal.sent) == len(here.model.requests) == 2
    assert asked(here) == ["thanks"]


async def test_what_comes_while_the_model_is_asked_waits_and_is_answered_next() -> None:
    release = asyncio.Event()
    async with world(script(held(release), echo)) as here:
        async with running_bot(here.settings(bot={"settle_seconds": 0.05})):
            await here.signal.say("first")
            await here.model.wait_for_requests(1)
            await here.signal.say("second")
            await here.signal.say("third")
            release.set()
            await here.answer()
            await here.answer()
    assert asked(here) == ["second", "third"]
    assert len(here.signal.sent) == 2


async def test_a_command_ends_the_pieces_before_it_and_waits_for_their_answer() -> None:
    async with world() as here, running_bot(here.settings(bot=LONG)):
        await here.signal.say("Hi")
        await here.signal.say("you")
        await here.signal.say("!help")
        first, second = await here.answer(), await here.answer()
    assert first.text.endswith("you")
    assert second.text.startswith("Write to me")
    assert asked(here) == ["Hi", "you"]


async def test_pieces_of_two_people_in_a_group_are_two_questions() -> None:
    async with world() as here:
        settings = here.settings(bot=PIECES, access={"groups": "always"})
        async with running_bot(settings):
            await here.signal.say("mine", group=GROUP)
            await here.signal.say("his", author=BEN, group=GROUP)
            first, second = await here.answer(), await here.answer()
    assert first.text.endswith("Ada: mine")
    assert second.text.endswith("Ben: his")


async def test_in_a_group_the_answer_quotes_the_last_piece() -> None:
    async with world() as here:
        async with running_bot(here.settings(bot=PIECES, access={"groups": "always"})):
            await here.signal.say("Hi", group=GROUP)
            question = await here.signal.say("how far is the moon?", group=GROUP)
            answer = await here.answer()
    assert answer.quote == Quote(question, ADA.aci, "how far is the moon?")


async def test_an_edit_of_what_was_answered_is_no_piece_of_what_follows() -> None:
    async with world() as here, running_bot(here.settings(bot=PIECES)):
        question = await here.signal.say("Is Sidney nice?")
        old = await here.answer()
        await here.signal.say("and in winter?")
        await here.signal.edit("Is Sydney nice?", question)
        second, corrected = await here.answer(), await here.answer()
    assert second.text.endswith("winter?")
    assert (corrected.replaces, asked(here)) == (old.timestamp, ["Is Sydney nice?"])


async def test_a_stop_drops_pieces_that_nobody_has_answered_for_good() -> None:
    async with world() as here:
        async with running_bot(here.settings(bot={**LONG, "read_receipts": True})):
            await here.signal.say("Hi")
            last = await here.signal.say("never mind")
            await here.signal.until(lambda: (ADA.aci, (last,)) in here.signal.receipts)
            await here.signal.say("!stop")
            stopped = await here.answer()
        async with running_bot(here.settings(bot=PIECES)):
            await here.signal.say("!status")
            await here.answer()
    assert stopped.text == "Stopped. 1 more of your messages will not be answered."
    assert not here.model.requests


async def test_what_is_written_right_after_a_stop_is_answered() -> None:
    async with world() as here, running_bot(here.settings(bot=PIECES)):
        for words in ("Hi", "never mind", "!stop", "how far is the moon?"):
            await here.signal.say(words)
        stopped, answer = sorted([(await here.answer()).text, (await here.answer()).text])
        assert stopped.startswith("Stopped.")
        assert answer.endswith("moon?")
    assert asked(here) == ["how far is the moon?"]


async def test_pieces_are_answered_once_after_a_kill_while_the_model_was_asked() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Here I am."))) as here:
        settings = here.settings(bot=PIECES)
        async with running_bot(settings) as bot:
            await here.signal.say("one")
            await here.signal.say("two")
            await here.model.wait_for_requests(1)
            await kill(bot)
        async with running_bot(settings):
            assert (await here.answer()).text == "Here I am."
            await here.signal.say("!status")
            await here.answer()
    assert asked(here) == ["one", "two"]
    assert len(here.signal.sent) == 2


async def test_pieces_are_answered_once_after_a_kill_while_they_were_gathered() -> None:
    async with world() as here:
        async with running_bot(here.settings(bot=LONG)) as bot:
            await here.signal.say("one")
            await here.signal.say("two")
            await here.signal.until(lambda: len(here.signal.typing) > 0)
            await kill(bot)
        async with running_bot(here.settings(bot=PIECES)):
            await here.answer()
            await here.signal.say("!status")
            await here.answer()
    assert asked(here) == ["one", "two"]
    assert len(here.signal.sent) == 2
