"""Proofs on their way to people: several at once, in a group, over REST, through a `kill -9`."""

import asyncio
import time
from typing import NoReturn

from bot.attestation.bundle import Bundle
from bot.attestation.quote import Collateral
from bot.attestation.verification import Asked, verify_bundle
from bot.signal.events import Person
from conversation_store.models import Attachment, ChatId
from tests.e2e.proving_world import ProvingWorld, proving_world
from tests.e2e.running_bot import WAIT_SECONDS, kill, running_bot

PEOPLE = [Person(f"a11ce000-0000-4000-8000-00000000000{number}") for number in range(5)]


def failures(proving: ProvingWorld, file: Attachment, challenge: str) -> list[str]:
    """Check a file as on a laptop that trusts this world, and return the failed checks."""
    collateral = Collateral.parse(proving.cloud.platform.collateral)
    report = verify_bundle(
        Bundle.parse(file.data),
        Asked(challenge),
        collateral=lambda _: collateral,
        now=int(time.time()),
        trust=proving.trust,
    )
    return [check.name for check in report.failures]


async def test_simultaneous_askers_get_proofs_for_their_own_challenges() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            for person in PEOPLE:
                await proving.here.signal.say(f"!verify by {person.aci}", author=person)
            answers = [await proving.here.answer() for _ in PEOPLE]
    files = {answer.chat: answer.attachments for answer in answers}
    for person in PEOPLE:
        [file] = files[ChatId.direct(person.aci)]
        assert failures(proving, file, f"by {person.aci}") == []


async def test_in_a_group_the_proof_goes_to_the_group_and_the_safety_number_elsewhere() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await proving.here.signal.say("!verify tea", group="team", mention=True)
            proof = await proving.here.answer()
            await proving.here.signal.say("!verify last", group="team", mention=True)
            last = await proving.here.answer()
    assert proof.chat == last.chat == ChatId.group("team")
    [file] = proof.attachments
    assert failures(proving, file, "tea") == []
    assert "In our private chat, not in this group" in proof.text
    assert last.text.startswith("There are no signatures to show")


async def test_proof_interrupted_by_a_kill_is_made_after_the_restart() -> None:
    async with proving_world() as proving:
        signal, asked = proving.here.signal, asyncio.Event()

        async def silent() -> NoReturn:
            asked.set()
            await asyncio.Event().wait()
            raise AssertionError("nobody sets this event")

        async with running_bot(proving.settings("off"), trust=proving.trust) as bot:
            proving.agent.fault = silent
            await signal.say("!verify tea")
            async with asyncio.timeout(WAIT_SECONDS):
                await asked.wait()
            await kill(bot)
        proving.agent.fault = None
        await signal.go_away()
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await signal.come_back()
            [file] = (await proving.here.answer()).attachments
    assert failures(proving, file, "tea") == []
