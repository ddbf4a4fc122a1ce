"""`signal-tee-bot verify` as its users run it, and the same in process where the clock is set."""

import hashlib
import json
import re
import shlex
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from bot.attestation.bundle import MAX_BUNDLE_BYTES, Bundle
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.quote import low_s
from bot.attestation.trust import REAL, Trust
from bot.cli.verify import verify
from bot.errors import SettingsError
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import running_bot
from tests.e2e.test_proof import until_status
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.openai_server import status
from tests.fakes.pccs import TCB, pccs
from tests.fakes.soft_bundle import (
    CHALLENGE,
    OTHER_SAFETY_NUMBER,
    POLICY,
    SAFETY_NUMBER,
    STATEMENT,
    soft_bundle,
    soft_release,
)
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.web_server import answer
from tests.fixtures_attestation import CLOCK, recorded, recorded_getquote
from tests.near_ai_captures import CLOUD
from tests.processes import run_process

DAY: Final = 24 * 60 * 60
NOBODY: Final = "http://127.0.0.1:1"
PLATFORM: Final = SoftTdx(now=CLOCK)
AGENT: Final = SoftAgent(PLATFORM)
BUNDLE: Final = soft_bundle(PLATFORM, AGENT)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A laptop's folder with everything that a good verification needs."""
    (tmp_path / "bundle.json").write_bytes(BUNDLE.to_json())
    (tmp_path / "release.json").write_text(json.dumps(soft_release(AGENT)))
    (tmp_path / "collateral.json").write_text(PLATFORM.collateral)
    return tmp_path


def request(folder: Path, **changes: Any) -> Namespace:
    asked = Namespace(
        bundle=folder / "bundle.json",
        challenge=CHALLENGE,
        safety_number=SAFETY_NUMBER,
        release=folder / "release.json",
        collateral=[folder / "collateral.json"],
        keep_collateral=None,
        pccs=NOBODY,
        json=False,
    )
    return Namespace(**{**vars(asked), **changes})


async def verified(
    asked: Namespace,
    *,
    trust: Trust = PLATFORM.trust,
    clock: Callable[[], float] = lambda: CLOCK,
) -> bool:
    return await verify(asked, trust=trust, clock=clock)


def verdicts(table: str) -> dict[str, str]:
    """Read a table: the first words of each line by its subject."""
    lines = re.findall(r"^(proven|claimed|failed|not checked) +(.+?)(?:  |$)", table, re.MULTILINE)
    return {label: verdict for verdict, label in lines}


async def run(
    *arguments: str | Path, folder: Path, environment: Mapping[str, str] | None = None
) -> tuple[str, str, int | None]:
    program = Path(sys.executable).with_name("signal-tee-bot")
    return await run_process(program, "verify", *arguments, folder=folder, environment=environment)


# Results for a good bundle


async def test_everything_asked_for_is_proven(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await verified(request(folder))
    printed = capsys.readouterr().out
    assert verdicts(printed)["the account in your chat"] == "proven"
    assert printed.splitlines()[-1] == (
        "Everything you asked for holds: the account in your chat belongs to the published code,"
        " which runs on genuine Intel hardware, closed to its operator."
        " Not looked at: the model behind the bot."
    )


@pytest.mark.parametrize(
    ("changes", "words", "is_proven"),
    [
        ({"release": None}, "Only the release file proves which program runs in it", True),
        ({"safety_number": None}, "44665 72466 96264 29303 74586 27907", True),
        ({"safety_number": None}, "View safety number", True),
        ({"challenge": "another"}, "one check failed (made for your challenge)", False),
        (
            {"safety_number": OTHER_SAFETY_NUMBER},
            "Do not rely on this bot: one check failed (the account in your chat).",
            False,
        ),
    ],
)
async def test_missing_and_mismatched_inputs_are_reported(
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    changes: dict[str, Any],
    words: str,
    is_proven: bool,
) -> None:
    assert await verified(request(folder, **changes)) is is_proven
    assert words in capsys.readouterr().out


async def test_programs_get_one_object(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await verified(request(folder, json=True))
    printed = json.loads(capsys.readouterr().out)
    assert printed["passed"] is True
    assert printed["checks"][0] == {
        "name": "debug",
        "verdict": "proven",
        "words": "the machine's memory is closed to its host",
    }
    assert printed["facts"]["compose_hash"] == AGENT.compose_hash.hex()
    assert printed["facts"]["safety_number_half"] == "446657246696264293037458627907"
    assert printed["facts"]["aci"] == STATEMENT.aci


async def test_words_of_strangers_cannot_draw_on_the_terminal(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = '{"model":"\\u001b[2J\\u202egood\\nproven  all of it"}'
    statement = replace(STATEMENT, policy_sha256=_sha256(policy))
    bundle = replace(soft_bundle(PLATFORM, AGENT, statement=statement), policy=policy)
    (folder / "bundle.json").write_bytes(bundle.to_json())
    assert await verified(request(folder))
    printed = capsys.readouterr().out
    assert "model: ?[2J?good?proven  all of it" in printed
    assert "\x1b" not in printed


# Collateral


async def test_kept_collateral_serves_without_the_service_while_it_is_valid(folder: Path) -> None:
    kept = folder / "kept"
    async with pccs(PLATFORM.collateral) as service:
        online = request(folder, collateral=(), pccs=service.url("/"), keep_collateral=kept)
        assert await verified(online)
    offline = request(folder, collateral=list(kept.iterdir()))
    assert await verified(offline)
    assert not await verified(offline, clock=lambda: CLOCK + 30 * DAY)


async def test_a_service_without_an_answer_proves_nothing_and_is_named(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with pccs(PLATFORM.collateral) as service:
        service.behaviours[TCB] = answer(b"busy", status=503)
        assert not await verified(request(folder, collateral=(), pccs=service.url("")))
    printed = capsys.readouterr().out
    assert verdicts(printed)["genuine Intel TDX hardware"] == "not checked"
    assert "Intel's collateral could not be fetched" in printed
    assert printed.splitlines()[-1].startswith("This proves too little")


async def test_collateral_of_another_platform_is_not_taken_for_this_one(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = SoftTdx(now=CLOCK, fmspc=bytes.fromhex("f00000000002"))
    (folder / "other.json").write_text(other.collateral)
    assert not await verified(request(folder, collateral=[folder / "other.json"]))
    assert "no collateral file is about this platform (FMSPC F00000000001)" in (
        capsys.readouterr().out
    )
    both = [folder / "other.json", folder / "collateral.json"]
    assert await verified(request(folder, collateral=both))


async def test_program_does_not_trust_a_test_root(folder: Path) -> None:
    assert not await verified(request(folder), trust=REAL)
    everything = (
        "bundle.json", "--challenge", CHALLENGE, "--safety-number", SAFETY_NUMBER,
        "--release", "release.json", "--collateral", "collateral.json",
    )  # fmt: skip
    printed, _, code = await run(*everything, folder=folder)
    assert code == 1
    assert verdicts(printed)["genuine Intel TDX hardware"] == "failed"
    table, _ = printed.split("\n\n", 1)
    assert set(verdicts(table).values()) == {"failed", "not checked"}


# A model behind the bot


async def test_bundle_of_a_bot_is_verified_with_fresh_words_of_intel_and_nvidia(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proving_world() as proving:
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "proved")
            await proving.here.signal.say("!verify blue horse")
            [file] = (await proving.here.answer()).attachments
        (folder / "bundle.json").write_bytes(file.data)
        asked = request(
            folder,
            challenge="blue horse",
            release=None,
            collateral=(),
            pccs=proving.intel.url(""),
            json=True,
        )
        capsys.readouterr()  # the bot's logs
        assert await verified(asked, trust=proving.trust, clock=time.time)
        found = printed_verdicts(capsys)
        assert found["model.gpu_firmware"] == "proven"
        assert found["model.tls_key"] == "claimed"
        for code, verdict in ((503, "not checked"), (400, "failed")):
            proving.cloud.nras.tokens_handler = status(code)
            assert not await verified(asked, trust=proving.trust, clock=time.time)
            assert printed_verdicts(capsys)["model.gpu_firmware"] == verdict


def printed_verdicts(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Read what `--json` printed."""
    return {c["name"]: c["verdict"] for c in json.loads(capsys.readouterr().out)["checks"]}


async def test_german_answer_to_verify_keeps_the_challenge_and_the_command_of_its_file(
    folder: Path,
) -> None:
    challenge = "Stopped."  # a sentence of the bot, which has a translation
    async with proving_world() as proving:
        async with running_bot(proving.settings(), trust=proving.trust):
            await until_status(proving, "proved")
            await proving.here.signal.say("!language de")
            await proving.here.answer()
            await proving.here.signal.say(f"!verify {challenge}")
            said = await proving.here.answer()
        [file] = said.attachments
        (folder / "bundle.json").write_bytes(file.data)
        asked = request(
            folder,
            challenge=challenge,
            release=None,
            collateral=(),
            pccs=proving.intel.url(""),
        )
        assert await verified(asked, trust=proving.trust, clock=time.time)
    lines = said.text.split("\n")
    [command] = [line for line in lines if line.startswith("signal-tee-bot ")]
    assert shlex.split(command)[3:] == [f"--challenge={challenge}", "--safety-number=all 60 digits"]
    assert lines[lines.index("AUFGABE") + 1] == f"“{challenge}”"
    assert {"DIE DATEI BEWEIST", "NUR DAS PROGRAMM SAGT", "DAS MODELL"} <= set(lines)
    assert "• Der Schlüssel des Kontos wurde in der Enklave erzeugt." in lines
    lines.remove(command)
    assert not re.search(r"\b(the|it|this|that|is)\b", "\n".join(lines), re.IGNORECASE)


async def test_bundle_with_a_broken_model_part_fails_only_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelEvidence(b"{", bytes(32), "qwen", None, CLOCK)
    (folder / "bundle.json").write_bytes(soft_bundle(PLATFORM, AGENT, model=model).to_json())
    async with pccs(PLATFORM.collateral) as service:
        online = request(folder, collateral=(), pccs=service.url(""), json=True)
        assert not await verified(online)
    checks = json.loads(capsys.readouterr().out)["checks"]
    assert [c["name"] for c in checks if c["verdict"] == "failed"] == ["model.report"]


async def test_evidence_of_another_model_than_the_bot_says_it_uses_fails(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = ModelEvidence(b"{}", bytes(32), "another", None, CLOCK)
    (folder / "bundle.json").write_bytes(replace(BUNDLE, model=model).to_json())
    assert not await verified(request(folder))
    assert verdicts(capsys.readouterr().out)["the model behind the bot"] == "failed"


# Genuine quotes that know nothing of this bot


def recorded_bundle() -> Bundle:
    quote, event_log = recorded_getquote("quote-report")
    texts = (STATEMENT.text(), POLICY, low_s(quote), event_log, "{}", "{}")
    return Bundle(*texts, None, None, "signal-bot-bundle", 2)


async def test_recorded_quote_is_genuine_but_made_for_another_statement(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "bundle.json").write_bytes(recorded_bundle().to_json())
    collateral = recorded(f"nearai/{CLOUD}/collateral_model.json")
    asked = request(folder, collateral=[collateral], release=None)
    assert not await verified(asked, trust=REAL)
    found = verdicts(capsys.readouterr().out)
    assert found["genuine Intel TDX hardware"] == found["hardware is up to date"] == "proven"
    assert {label for label, verdict in found.items() if verdict == "failed"} == {
        "configuration is the shown one",  # it was not recorded
        "the bot's statement is sealed in",
        "made for your challenge",
    }


# Wrong arguments and wrong files


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"challenge": ""}, "--challenge: 1 to 256 bytes"),
        ({"challenge": "\udcff"}, "--challenge: 1 to 256 bytes"),
        ({"challenge": "é" * 129}, "--challenge: 1 to 256 bytes"),
        ({"safety_number": "12345"}, "--safety-number: 60 digits"),
        ({"pccs": "ftp://example.org"}, "--pccs: an address"),
        ({"pccs": "https://[::"}, "--pccs: an address"),
        ({"pccs": "https://example.org/\n"}, "--pccs: an address"),
        ({"bundle": Path("nothing.json")}, "nothing.json: No such file or directory"),
        ({"bundle": Path()}, ".: Is a directory"),
        ({"collateral": [Path("nothing.json")]}, "nothing.json: No such file or directory"),
    ],
)
async def test_wrong_arguments_and_files_that_cannot_be_opened_are_settings_errors(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    with pytest.raises(SettingsError, match=f"^{re.escape(words)}"):
        await verified(request(folder, **changes))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("bundle.json", b"\xff\x00"),
        ("bundle.json", b"[" * 200_000),
        ("bundle.json", b" " * (MAX_BUNDLE_BYTES + 1)),
        ("bundle.json", b'{"type":"signal-bot-bundle","type":"signal-bot-bundle"}'),
        ("release.json", b'{"v":1,"v":1}'),
        ("release.json", b"\xff"),
        ("release.json", b" " * 2_000_000),
        ("collateral.json", b"\xff"),
        ("collateral.json", b"{}"),
        ("collateral.json", PLATFORM.collateral.encode()[:-1] + b', "tcb_info": ""}'),
        ("collateral.json", b"[" * 200_000),
        ("collateral.json", b"x" * 2_000_000),
    ],
)
async def test_invalid_file_is_reported_in_one_line(
    folder: Path, file: str, content: bytes
) -> None:
    (folder / file).write_bytes(content)
    with pytest.raises(MalformedEvidence, match=r"^(the|.*collateral\.json:?) [^\n]+$"):
        await verified(request(folder))


async def test_exit_codes_tell_proven_from_failed_from_misunderstood(folder: Path) -> None:
    for arguments, expected in (
        (["bundle.json"], 2),
        (["bundle.json", "--challenge", "x", "--safety-number", "1"], 2),
        (["release.json", "--challenge", "x"], 1),
    ):
        printed, errors, code = await run(*arguments, folder=folder)
        assert (printed, code) == ("", expected)
        assert errors
        assert "Traceback" not in errors


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
