"""Proofs on their way to people: several at once, in a group, over REST, through a `kill -9`."""

import asyncio
import time
from typing import NoReturn

import pytest

from bot.attestation.bundle import Bundle
from bot.attestation.quote import Collateral
from bot.attestation.verification import Asked, verify_bundle
from bot.signal.events import Person
from conversation_store.models import Attachment, ChatId
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.proving_world import ProvingWorld, proving_world
from tests.e2e.running_bot import WAIT_SECONDS, kill, running_bot
from tests.fakes.signal_rest_api import NUMBER, SignalRestApi
from tests.fakes.signal_side import Sent

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


async def test_over_rest_the_proof_comes_with_its_file() -> None:
    async with proving_world() as proving, SignalRestApi.listen() as api:
        settings = proving.settings("off", signal={"url": api.url, "phone_number": NUMBER})
        async with running_bot(settings, trust=proving.trust):
            await api.wait_for_receiver()
            await api.say("!verify tea")
            await api.wait_until(lambda: len(api.sent) == 1)
    [file] = api.sent[0].attachments
    assert failures(proving, file, "tea") == []


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


@pytest.mark.full
async def test_a_bot_that_is_killed_while_it_sends_a_proof_sends_it_once_after() -> None:
    async with proving_world() as proving:
        signal, on_its_way = proving.here.signal, asyncio.Event()

        async def stall(_: Sent) -> None:
            on_its_way.set()
            await asyncio.Event().wait()

        settings = environment(
            proving.here,
            ATTESTATION__DSTACK_SOCKET=str(proving.socket),
            ATTESTATION__PCCS_URL=proving.intel.url(""),
            ATTESTATION__KEY_ORIGIN="generated-in-tee",
        )
        signal.on_send = stall
        async with daemon(settings, folder=proving.here.folder) as first:
            await signal.say("!verify tea")
            async with asyncio.timeout(WAIT_SECONDS):
                await on_its_way.wait()
            await first.killed()
        signal.on_send = None
        async with daemon(settings, folder=proving.here.folder):
            [file] = (await proving.here.answer()).attachments
            await signal.say("!status")
            assert (await proving.here.answer()).text.startswith("signal-tee-bot")
    assert failures(proving, file, "tea") == []
    assert len(signal.sent) == 2
