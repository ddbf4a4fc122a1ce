"""Proofs of the whole bot for people, and evidence that the bot refuses."""

import asyncio
import re
import shlex
import time
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

import pytest

from bot.attestation.bundle import MAX_CHALLENGE_BYTES, Bundle
from bot.attestation.checks import Verdict
from bot.attestation.errors import AgentError
from bot.attestation.quote import Collateral
from bot.attestation.verification import Asked, BundleReport, verify_bundle
from bot.chat.prompt import privacy
from bot.chat.proofs import MAX_CHECKS, WARNING
from bot.commands.base import PROOFS_PER_MINUTE
from bot.errors import SettingsError
from bot.signal.events import Person
from conversation_store.models import Attachment, ChatId
from tests.e2e.proving_world import ProvingWorld, proving_world
from tests.e2e.running_bot import WAIT_SECONDS, kill, running_bot, world
from tests.fakes.dstack_agent import SoftAgent, says, serving
from tests.fakes.openai_server import Request, Step, held, script, status, text, tool_calls
from tests.fakes.signal_side import ADA, BOT, IDENTITY_KEY

OUTSIDE: Final = privacy(in_tee=False, proven=False)
INSIDE: Final = privacy(in_tee=True, proven=False)
BOB: Final = Person("b0b00000-0000-4000-8000-000000000000")
PEOPLE: Final = [Person(f"a11ce000-0000-4000-8000-00000000000{number}") for number in range(5)]
SECRET = "the-secret-of-ada"
HALF = "446657246696264293037458627907"
"""The bot account's half of every safety number, from libsignal's vectors."""


async def silence(_: Request, __: asyncio.StreamWriter) -> None:
    """Never answer; ends with the connection's task."""
    await asyncio.Event().wait()


async def ask(proving: ProvingWorld, words: str) -> str:
    await proving.here.signal.say(words)
    return (await proving.here.answer()).text


async def prove(proving: ProvingWorld, challenge: str) -> Attachment:
    await proving.here.signal.say(f"!verify {challenge}")
    [file] = (await proving.here.answer()).attachments
    return file


def verified(
    proving: ProvingWorld, file: Attachment, challenge: str, safety_number: str | None = None
) -> BundleReport:
    collateral = Collateral.parse(proving.cloud.platform.collateral)
    return verify_bundle(
        Bundle.parse(file.data),
        Asked(challenge, safety_number=safety_number),
        collateral=lambda _: collateral,
        now=int(time.time()),
        trust=proving.trust,
    )


async def until_status(proving: ProvingWorld, words: str) -> str:
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            said = await ask(proving, "!status")
            if words in said:
                return said


async def until_last(proving: ProvingWorld, words: str) -> str:
    """Ask for the last answer's signatures until the reply contains some words."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            said = await ask(proving, "!verify last")
            if words in said:
                return said


def forged(proving: ProvingWorld) -> Step:
    """Hand out signatures of other texts, made with the right key."""

    async def answer(request: Request, writer: asyncio.StreamWriter) -> None:
        signed = proving.cloud.exchanges[-1]
        swapped = replace(signed, request=signed.request + b" ")
        await status(200, proving.cloud.signature(swapped, "ed25519"))(request, writer)

    return answer


async def test_file_of_verify_proves_the_bot_only_for_its_challenge() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "proved")
            file = await prove(proving, "purple elephants")
    shown = HALF + "1" * 30
    report = verified(proving, file, "purple elephants", shown)
    assert report.passed, [(check.name, check.message) for check in report.failures]
    assert report["safety_number"].verdict is Verdict.PROVEN
    assert report["model.quote"].verdict is Verdict.PROVEN
    replayed = verified(proving, file, "another challenge", shown)
    assert [check.name for check in replayed.failures] == ["challenge"]
    relayed = verified(proving, file, "purple elephants", "2" * 60)
    assert [check.name for check in relayed.failures] == ["safety_number"]


async def test_required_evidence_of_the_model_is_sealed_in_from_the_first_proof_on() -> None:
    async with proving_world() as proving:
        released = asyncio.Event()
        proving.cloud.report_handler = held(released, proving.cloud.give_report)
        async with running_bot(proving.settings("require"), trust=proving.trust):
            asyncio.get_running_loop().call_later(0.1, released.set)
            file = await prove(proving, "purple elephants")
    report = verified(proving, file, "purple elephants", HALF + "1" * 30)
    assert report.passed, [(check.name, check.message) for check in report.failures]
    assert report["model_evidence"].verdict is Verdict.PROVEN
    for name in ("gateway.os", "gateway.application", "os", "application", "key_provider"):
        assert report[f"model.{name}"].verdict is Verdict.PROVEN
    bundle = Bundle.parse(file.data)
    assert bundle.model_pins == proving.cloud.pins.text()
    stripped = replace(file, data=replace(bundle, model=None).to_json())
    [failure] = verified(proving, stripped, "purple elephants", HALF + "1" * 30).failures
    assert failure.name == "model_evidence"


async def test_proof_without_required_evidence_of_the_model_fails() -> None:
    async with proving_world() as proving:
        proving.cloud.report_handler = status(503)
        async with running_bot(proving.settings("require"), trust=proving.trust):
            file = await prove(proving, "purple elephants")
    report = verified(proving, file, "purple elephants", HALF + "1" * 30)
    assert [check.name for check in report.failures] == ["model_evidence"]


@pytest.mark.parametrize(
    "challenge",
    ["x" * MAX_CHALLENGE_BYTES, 'it\'s "quoted" $HOME `id`', "-rf --json", "Zürich 🦒", "!verify"],
)
async def test_answer_explains_the_proof_and_shows_the_command_that_checks_it(
    challenge: str,
) -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await proving.here.signal.say(f"!verify {challenge}")
            answer = await proving.here.answer()
    [file] = answer.attachments
    assert "44665 72466 96264\n29303 74586 27907" in answer.text
    assert proving.agent.compose_hash.hex() in answer.text
    [line] = [one for one in answer.text.splitlines() if one.startswith("signal-tee-bot ")]
    _, verb, name, option, safety_number = shlex.split(line)
    assert (verb, name) == ("verify", file.name)
    assert safety_number == "--safety-number=all 60 digits"
    shown = option.removeprefix("--challenge=")
    assert verified(proving, file, shown, HALF + "1" * 30).passed


async def test_a_challenge_of_the_bots_own_is_new_each_time_and_worth_less() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            said = [await ask(proving, "!verify") for _ in range(2)]
    challenges = [re.findall(r"^CHALLENGE\n“([0-9a-f]{16})”$", one, re.MULTILINE) for one in said]
    assert [len(found) for found in challenges] == [1, 1]
    assert challenges[0] != challenges[1]
    assert all("the file may be an old one" in one for one in said)


async def test_challenges_that_cannot_be_copied_and_too_many_proofs_are_refused() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            for challenge, words in (
                ("x" * (MAX_CHALLENGE_BYTES + 1), "too long"),
                ("ü" * (MAX_CHALLENGE_BYTES // 2 + 1), "too long"),
                ("two\nlines", "one line"),
                ("\N{RIGHT-TO-LEFT OVERRIDE}kcab", "one line"),
            ):
                assert words in await ask(proving, f"!verify {challenge}")
            for _ in range(PROOFS_PER_MINUTE):
                await prove(proving, "tea")
            assert f"up to {PROOFS_PER_MINUTE} proofs a minute" in await ask(proving, "!verify tea")
            await proving.here.signal.say("!verify tea", author=BOB)
            assert (await proving.here.answer()).attachments


@pytest.mark.parametrize(
    ("tcb_status", "words"), [("OutOfDate", "OutOfDate (INTEL-SA-99999)"), ("Revoked", "revoked")]
)
async def test_a_proof_that_fails_the_bots_own_check_says_so_first(
    tcb_status: str, words: str
) -> None:
    async with proving_world(tcb_status=tcb_status) as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            said = await ask(proving, "!verify tea")
    first, second, *_ = said.split("\n\n")
    assert first.startswith("This does not prove that nobody else reads along")
    assert second.startswith("WHAT IS WRONG\n")
    assert words in second
    assert "THE FILE PROVES" not in said


async def test_incomplete_own_check_is_explained_and_the_file_is_sent() -> None:
    async with proving_world() as proving:
        proving.intel.behaviours.clear()
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await proving.here.signal.say("!verify tea")
            answer = await proving.here.answer()
    [file] = answer.attachments
    assert verified(proving, file, "tea", HALF + "1" * 30).passed
    assert "NOT CHECKED HERE\n• Intel's collateral could not be fetched." in answer.text
    assert "IF IT IS GENUINE, THE FILE PROVES\n" in answer.text
    assert "\nTHE FILE PROVES" not in answer.text
    assert "ONLY THE PROGRAM SAYS" not in answer.text


async def test_without_the_account_status_nothing_is_proven() -> None:
    async with proving_world() as proving:
        proving.here.signal.identity_key = b""
        async with running_bot(proving.settings("off"), trust=proving.trust):
            said = await ask(proving, "!verify")
    assert said.startswith("I cannot prove anything right now.")
    assert "The Signal side does not tell me which account and key are mine." in said


async def test_outside_an_enclave_nothing_is_claimed_to_people_or_to_the_model() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.say("!verify")
        said = (await here.answer()).text
        await here.signal.say("hello")
        await here.answer()
    assert said.splitlines()[0].startswith("This bot does not run in a trusted execution")
    assert OUTSIDE in here.model.requests[0]["messages"][0]["content"]


async def test_inside_an_enclave_the_prompt_says_so() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await ask(proving, "hello")
    assert INSIDE in proving.here.model.requests[0]["messages"][0]["content"]


async def test_quotes_that_do_not_lead_to_intel_are_no_reason_to_claim_privacy() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off")):  # which trusts Intel alone
            said = await ask(proving, "!verify")
            await ask(proving, "hello")
    assert said.startswith("This does not prove that nobody else reads along")
    assert OUTSIDE in proving.here.model.requests[0]["messages"][0]["content"]


@pytest.mark.parametrize("fault", [says(b"rubbish"), says(b"{}", status=500)])
async def test_a_guest_agent_that_makes_no_quote_proves_nothing(fault: object) -> None:
    async with proving_world() as proving:
        proving.agent.fault = fault  # type: ignore[assignment]
        async with running_bot(proving.settings("off"), trust=proving.trust):
            said = await ask(proving, "!verify")
            await ask(proving, "hello")
    assert said.startswith("I cannot prove anything right now.")
    assert OUTSIDE in proving.here.model.requests[0]["messages"][0]["content"]


# On their way: several at once, in a group, through a kill


async def test_simultaneous_askers_get_proofs_for_their_own_challenges() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            for person in PEOPLE:
                await proving.here.signal.say(f"!verify by {person.aci}", author=person)
            answers = [await proving.here.answer() for _ in PEOPLE]
    files = {answer.chat: answer.attachments for answer in answers}
    for person in PEOPLE:
        [file] = files[ChatId.direct(person.aci)]
        assert verified(proving, file, f"by {person.aci}").passed


async def test_in_a_group_the_proof_goes_to_the_group_and_the_safety_number_elsewhere() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("off"), trust=proving.trust):
            await proving.here.signal.say("!verify tea", group="team", mention=True)
            proof = await proving.here.answer()
            await proving.here.signal.say("!verify last", group="team", mention=True)
            last = await proving.here.answer()
    assert proof.chat == last.chat == ChatId.group("team")
    [file] = proof.attachments
    assert verified(proving, file, "tea").passed
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
    assert verified(proving, file, "tea").passed


# The model's policy


@pytest.mark.parametrize("trouble", [silence, status(503), status(404), text("rubbish")])
async def test_evidence_that_cannot_be_had_stops_no_conversation(trouble: Step) -> None:
    async with proving_world() as proving:
        proving.cloud.report_handler = trouble
        proving.cloud.signature_handler = trouble
        proving.cloud.nras.tokens_handler = trouble
        proving.intel.behaviours.clear()
        async with running_bot(proving.settings("warn"), trust=proving.trust):
            assert "hello" in await ask(proving, "hello")
            assert "hello" in await ask(proving, "hello again")


@pytest.mark.parametrize(
    ("policy", "scheme", "words"),
    [("off", "https", "turned off"), ("warn", "http", "not reached over TLS")],
)
async def test_an_endpoint_that_has_nothing_to_prove_is_asked_nothing(
    policy: str, scheme: str, words: str
) -> None:
    async with proving_world() as proving:
        address = proving.cloud.base_url.replace("https", scheme)
        settings = proving.settings(policy, llm={"base_url": address})
        async with running_bot(settings, trust=proving.trust):
            assert words in await ask(proving, "!status")
            assert words in await ask(proving, "!verify")
        assert proving.cloud.connections == 0


async def test_required_evidence_that_is_wrong_lets_nothing_reach_the_model() -> None:
    async with proving_world() as proving:
        proving.cloud.lies.nonce = bytes(32)
        async with running_bot(proving.settings("require"), trust=proving.trust):
            said = await ask(proving, SECRET)
            await until_status(proving, "does not hold")
    assert said.startswith("I have not sent your message to the model, because")
    assert SECRET not in proving.words_at_the_cloud()
    assert proving.cloud.requests == []


async def test_a_message_never_reaches_a_tls_key_that_is_not_attested() -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings("require"), trust=proving.trust):
            await until_status(proving, "The model proved at")
            proving.cloud.lies.key_sha256 = proving.cloud.identity.key_sha256
            proving.cloud.change_tls_key()
            said = await ask(proving, SECRET)
    assert SECRET not in proving.words_at_the_cloud()
    assert "model" in said


# Signatures of answers


async def test_verify_last_shows_the_signatures_of_every_request_behind_an_answer() -> None:
    calls = tool_calls(("calculate", {"expression": "127*43"}))
    async with proving_world(script(calls, text("5461."))) as proving:
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "The model proved at")
            assert await ask(proving, "127*43?") == "5461."
            said = await until_last(proving, "has signed exactly")
    assert len(proving.cloud.exchanges) == 2
    assert all(
        request["stream_options"]["continuous_usage_stats"] for request in proving.cloud.requests
    )
    assert "wrong" not in said.lower()


async def test_an_endpoint_without_attestation_is_asked_for_no_signatures() -> None:
    async with proving_world() as proving:
        proving.cloud.report_handler = status(404)
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "offers no attestation")
            await ask(proving, "hello")
            await until_last(proving, "The model was not verified")
    assert not [request for request in proving.cloud.received if "signature" in request.path]


async def test_each_answer_is_asked_about_once_however_many_there_are() -> None:
    async with proving_world() as proving:
        released = asyncio.Event()
        proving.cloud.signature_handler = held(released, proving.cloud.give_signature)
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "The model proved at")
            for _ in range(MAX_CHECKS + 1):
                await ask(proving, "hello")
            released.set()
            await until_last(proving, "has signed exactly")
    asked = [one.path for one in proving.cloud.received if "/signature/" in one.path]
    assert len(asked) == len(set(asked)) == MAX_CHECKS + 1


@pytest.mark.parametrize("retention_days", [0, 30])
async def test_a_wrong_signature_is_warned_about_once_where_proof_is_required(
    retention_days: int,
) -> None:
    calls = tool_calls(("calculate", {"expression": "127*43"}))
    async with proving_world(script(calls, text("5461."))) as proving:
        proving.cloud.signature_handler = forged(proving)
        settings = proving.settings("require", store={"retention_days": retention_days})
        async with running_bot(settings, trust=proving.trust):
            assert await ask(proving, "127*43?") == "5461."
            assert (await proving.here.answer()).text == WARNING
    assert proving.here.answers().count(WARNING) == 1


async def test_a_gateways_signature_is_not_taken_for_the_models() -> None:
    async with proving_world() as proving:
        proving.cloud.signature_kind = "gateway"
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "The model proved at")
            await ask(proving, "hello")
            said = await until_last(proving, "gateway")
    assert "does not prove which model" in said


async def test_a_wrong_signature_is_only_shown_where_proof_is_not_required() -> None:
    async with proving_world() as proving:
        proving.cloud.signature_handler = forged(proving)
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "The model proved at")
            await ask(proving, "hello")
            await until_last(proving, "signature is wrong")
    assert WARNING not in proving.here.answers()


async def test_a_signature_that_was_not_checked_when_the_bot_died_is_checked_after() -> None:
    async with proving_world() as proving:
        proving.cloud.signature_handler = silence
        async with running_bot(proving.settings(), trust=proving.trust) as bot:
            await until_status(proving, "The model proved at")
            await ask(proving, "hello")
            await kill(bot)
        proving.cloud.signature_handler = proving.cloud.give_signature
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_last(proving, "has signed exactly")


# Encryption


async def test_an_encrypted_conversation_is_read_by_the_model_alone() -> None:
    calls = tool_calls(("calculate", {"expression": "127*43"}))
    async with proving_world(script(calls, text(f"{SECRET}: 5461."))) as proving:
        settings = proving.settings("require", attestation={"e2ee": True})
        async with running_bot(settings, trust=proving.trust):
            assert await ask(proving, f"{SECRET}: 127*43?") == f"{SECRET}: 5461."
            await until_last(proving, "has signed exactly")
    assert WARNING not in proving.here.answers()
    read = proving.cloud.encryption.read
    assert SECRET in read[0]["messages"][-1]["content"]
    on_the_wire = proving.words_at_the_cloud()
    for private in (SECRET, "127*43", '"5461"', "calculate"):  # none of which hex can look like
        assert private not in on_the_wire


async def test_an_answer_that_comes_back_in_the_clear_is_not_used() -> None:
    async with proving_world() as proving:
        proving.cloud.encryption.reads = lambda step: step  # type: ignore[method-assign]
        proving.cloud.handler = text("believe me")
        settings = proving.settings("require", attestation={"e2ee": True})
        async with running_bot(settings, trust=proving.trust):
            said = await ask(proving, SECRET)
    assert "believe me" not in said
    assert "encrypted" in said


async def test_without_a_verified_key_nothing_is_sent_that_should_be_encrypted() -> None:
    async with proving_world() as proving:
        proving.cloud.lies.debug = True
        settings = proving.settings("warn", attestation={"e2ee": True})
        async with running_bot(settings, trust=proving.trust):
            await until_status(proving, "does not hold")
            said = await ask(proving, SECRET)
    assert proving.cloud.requests == []
    assert "encrypt" in said


# The store's key


async def test_conversations_survive_an_upgrade_under_the_enclaves_key() -> None:
    async with proving_world() as proving:
        settings = proving.settings("off", store={"key_source": "dstack"})
        async with running_bot(settings, trust=proving.trust):
            await ask(proving, SECRET)
        newer = SoftAgent(
            proving.cloud.platform, proving.agent.app_compose + " ", app_id=proving.agent.app_id
        )
        proving.socket.unlink()
        async with serving(newer, proving.socket):
            async with running_bot(settings, trust=proving.trust):
                await ask(proving, "and now?")
        assert SECRET in str(proving.here.model.requests[-1]["messages"])
        assert SECRET.encode() not in _files(proving.here.folder)


async def test_a_key_that_would_be_lost_is_refused_unless_told() -> None:
    async with proving_world() as proving:
        proving.agent.key_provider_info = '{"name": "none", "id": ""}'
        refused = proving.settings("off", store={"key_source": "dstack"})
        with pytest.raises(ExceptionGroup) as caught:
            async with running_bot(refused, trust=proving.trust):
                pass
        assert caught.group_contains(SettingsError, match="STORE__KEY_MAY_BE_LOST")
        told = proving.settings("off", store={"key_source": "dstack", "key_may_be_lost": True})
        async with running_bot(told, trust=proving.trust):
            assert "hello" in await ask(proving, "hello")


async def test_without_an_agent_there_is_no_store_to_fall_back_to() -> None:
    async with world() as here:
        settings = here.settings(store={"key_source": "dstack"})
        with pytest.raises(ExceptionGroup) as caught:
            async with running_bot(settings):
                pass
        assert caught.group_contains(AgentError)
        assert not settings.store.path.exists()


def _files(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir() if file.is_file())


# Written statements


async def test_the_log_of_a_proof_tells_nothing_about_people_or_keys(
    capfd: pytest.CaptureFixture[str],
) -> None:
    challenge = "purple elephants"
    async with proving_world(text(f"{SECRET}, yes")) as proving:
        proving.cloud.signature_handler = forged(proving)
        settings = proving.settings(
            "require",
            attestation={"e2ee": True},
            store={"key_source": "dstack"},
            llm={"api_key": "sk-of-the-operator"},
        )
        async with running_bot(settings, trust=proving.trust):
            await ask(proving, SECRET)
            assert (await proving.here.answer()).text == WARNING
            await prove(proving, challenge)
            proving.agent.fault = says(b"rubbish " + SECRET.encode())
            await ask(proving, f"!verify {challenge}")
    written = "".join(capfd.readouterr())
    assert "attestation.model" in written
    assert "signature.wrong" in written
    for private in (
        SECRET, challenge, "sk-of-the-operator", ADA.aci, str(ADA.number), str(BOT.aci), BOT.number,
        IDENTITY_KEY.hex(), HALF, proving.cloud.model_signing.public_key("ed25519").hex(),
    ):  # fmt: skip
        assert private not in written
