"""A person's new key under each policy: messages wait until the key is trusted; none is lost."""

import asyncio
import re

from bot.commands.base import IN_PRIVATE, UNKNOWN_COMMAND
from bot.signal.account import TrustLevel, spaced
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_approvals import WRITE, notes, question, with_notes
from tests.e2e.test_conversation import BEN
from tests.fakes.openai_server import held, script, text, tool_calls
from tests.fakes.signal_side import ADA, Sent

BEN_IS_ADMIN = {"policy": "open", "admins": BEN.aci}
GROUP = "dGVhbQ=="


async def note_to_ben(here: World, words: str = "safety number") -> Sent:
    return await here.signal.wait_for(
        lambda sent: sent.chat.value == BEN.aci and words in sent.text
    )


def told(here: World, person: str) -> list[str]:
    return [sent.text for sent in here.signal.sent if sent.chat.value == person]


async def answer_to_ada(here: World, words: str) -> None:
    await here.signal.wait_for(
        lambda sent: sent.chat.value == ADA.aci and sent.text.endswith(words)
    )


async def test_message_under_a_new_key_is_answered_after_an_admin_trusts_it() -> None:
    async with world() as here, running_bot(here.settings(access=BEN_IS_ADMIN)):
        await here.signal.say("before")
        await here.answer()
        number = await here.signal.change_identity()
        await here.signal.say("are you there?")
        await here.signal.say("hello?")
        note = (await note_to_ben(here)).text
        assert note.startswith("Ada (+15550100001) has a new safety number")
        assert spaced(number) in note
        code = re.search(r"!trust \w{6}\n", note)
        assert code is not None
        assert len(here.model.requests) == 1
        await here.signal.say(code[0], author=BEN)
        await note_to_ben(here, "Trusted. Ada (+15550100001) can talk to me now")
        await answer_to_ada(here, "hello?")
    assert here.signal.trusted == [(ADA.aci, None)]
    assert len([one for one in told(here, BEN.aci) if "new safety number" in one]) == 1


async def test_an_answer_to_a_person_with_a_new_key_waits_also_over_a_restart() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("the answer")))) as here:
        settings = here.settings(access=BEN_IS_ADMIN)
        async with running_bot(settings):
            await here.signal.say("a question")
            await here.model.wait_for_requests(1)
            number = await here.signal.change_identity()
            release.set()
            await note_to_ben(here)
        async with running_bot(settings):
            await here.signal.say(f"!trust {spaced(number)}", author=BEN)
            await answer_to_ada(here, "the answer")
    assert here.signal.trusted == [(ADA.aci, number)]
    assert told(here, ADA.aci) == ["the answer"]
    assert len(here.model.requests) == 1
    assert len([one for one in told(here, BEN.aci) if "new safety number" in one]) == 1


async def test_a_new_key_revealed_by_a_failed_send_is_noted_too() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("the answer")))) as here:
        async with running_bot(here.settings(access=BEN_IS_ADMIN)):
            await here.signal.say("a question")
            await here.model.wait_for_requests(1)
            here.signal.meet(ADA).trust = TrustLevel.UNTRUSTED
            release.set()
            code = re.search(r"!trust \w{6}\n", (await note_to_ben(here)).text)
            assert code is not None
            await here.signal.say(code[0], author=BEN)
            await answer_to_ada(here, "the answer")
    assert told(here, ADA.aci) == ["the answer"]


async def test_a_key_that_is_trusted_outside_of_the_bot_lets_everything_through() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("one")), text("two"))) as here:
        async with running_bot(here.settings(access=BEN_IS_ADMIN)):
            await here.signal.say("a question")
            await here.model.wait_for_requests(1)
            await here.signal.change_identity()
            release.set()
            await here.signal.say("another")
            await note_to_ben(here)
            await here.signal.trust_key(ADA.aci, None)
            await answer_to_ada(here, "two")
            await answer_to_ada(here, "one")
    assert sorted(told(here, ADA.aci)) == ["one", "two"]


async def test_always_trusts_a_new_key_at_once_and_tells_the_admin() -> None:
    async with world() as here:
        async with running_bot(here.settings(access=BEN_IS_ADMIN, signal={"trust": "always"})):
            await here.signal.say("before")
            await here.answer()
            number = await here.signal.change_identity()
            await here.signal.say("after")
            assert spaced(number) in (await note_to_ben(here)).text
            await answer_to_ada(here, "after")
    assert here.signal.trusted == [(ADA.aci, None)]


async def test_verified_answers_only_people_with_compared_numbers() -> None:
    async with world() as here:
        here.signal.meet(BEN).trust = TrustLevel.VERIFIED
        async with running_bot(here.settings(access=BEN_IS_ADMIN, signal={"trust": "verified"})):
            await here.signal.say("let me in")
            await here.signal.say("please")
            note = (await note_to_ben(here)).text
            number = here.signal.peers[ADA.aci].safety_number
            assert spaced(number) in note
            await here.signal.wait_for(lambda sent: "has verified" in sent.text)
            await here.signal.say(f"!trust {number}", author=BEN)
            await answer_to_ada(here, "Please send again what you wrote.")
            assert here.model.requests == []
            await here.signal.say("now?")
            await answer_to_ada(here, "now?")
    assert here.signal.trusted == [(ADA.aci, number)]
    assert len(told(here, ADA.aci)) == 3


async def test_unverified_admin_cannot_trust_keys() -> None:
    async with world() as here:
        async with running_bot(here.settings(access=BEN_IS_ADMIN, signal={"trust": "verified"})):
            await here.signal.say("let me in")
            number = here.signal.peers[ADA.aci].safety_number
            await note_to_ben(here, spaced(number))
            await here.signal.say(f"!trust {number}", author=BEN)
            await note_to_ben(here, "I talk only to people")
    assert here.signal.trusted == []


async def test_unverified_people_are_not_overheard_and_do_not_decide() -> None:
    async with world(script(tool_calls(WRITE), text("Done."))) as here:
        here.signal.meet(BEN).trust = TrustLevel.VERIFIED
        access, verified = {"policy": "open", "admins": ADA.aci}, {"trust": "verified"}
        async with running_bot(with_notes(here, access=access, signal=verified)):
            await here.signal.say("let me be", group=GROUP)
            await here.signal.say("note: buy milk", author=BEN, group=GROUP, mention=True)
            asked = await question(here)
            assert "let me be" not in str(here.model.requests)
            await here.signal.react("👍", asked.timestamp, group=GROUP)
            await here.signal.say("yes", group=GROUP, quote=asked.timestamp)
            await here.signal.say("no", author=BEN, group=GROUP, quote=asked.timestamp)
            await here.signal.wait_for(lambda sent: sent.text == "Done.")
        assert notes(here) == ""


async def test_only_an_admin_in_private_trusts_a_key() -> None:
    async with world() as here, running_bot(here.settings(access=BEN_IS_ADMIN)):
        await here.signal.say("!trust ABCDEF")
        assert (await here.answer()).text == UNKNOWN_COMMAND
        await here.signal.say("!trust ABCDEF", author=BEN, group=GROUP, mention=True)
        assert (await here.answer()).text == IN_PRIVATE
        await here.signal.say("!trust", author=BEN)
        assert "Send !trust and the code" in (await here.answer()).text
        await here.signal.say("!trust ABCDEF", author=BEN)
        assert "I know no new safety number" in (await here.answer()).text
