"""`signal-tee-bot attest model`: pins of current evidence, and a bot that uses them."""

import json
import os
from pathlib import Path

import pytest

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.near_ai.pins import KNOWN, ModelPins, pins_sha256
from bot.cli.attest import IS_THERE, NEVER_SEEN, attest_model
from bot.cli.check import findings
from bot.errors import SettingsError
from tests.e2e.daemon_process import run_command
from tests.e2e.proving_world import ProvingWorld, proving_world
from tests.e2e.running_bot import running_bot
from tests.e2e.test_proof import SECRET, ask, until_status
from tests.fakes.openai_server import status
from tests.near_ai_captures import CLOUD, recorded_capture


async def attested(proving: ProvingWorld, output: Path, *, force: bool = False) -> bool:
    return await attest_model(proving.settings(), output, force=force, trust=proving.trust)


async def test_pins_accept_the_machines_that_were_seen_and_the_bot_answers_with_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "pins.json"
    async with proving_world() as proving:
        assert await attested(proving, file)
        settings = proving.settings("require", attestation={"model_pins": str(file)})
        async with running_bot(settings, trust=proving.trust):
            assert "hello" in await ask(proving, "hello")
            assert "only claimed" not in await ask(proving, "!status")
        pins = ModelPins.parse(file.read_text())
        assert pins.model.applications == proving.cloud.pins.model.applications
    printed = capsys.readouterr().out
    assert pins_sha256(pins.text()) in printed
    assert pins.model.systems[0].rtmr1 in printed
    assert NEVER_SEEN in printed


async def test_a_bot_with_pins_sends_nothing_to_an_invented_machine(tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    async with proving_world() as elsewhere:
        assert await attested(elsewhere, file)
    async with proving_world() as proving:
        settings = proving.settings("require", attestation={"model_pins": str(file)})
        async with running_bot(settings, trust=proving.trust):
            said = await ask(proving, SECRET)
            assert "application" in await until_status(proving, "does not hold")
        looked_at = {one.part: one async for one in findings(settings, trust=proving.trust)}
        assert looked_at["model proof"].verdict == "failed"
    assert said.startswith("I have not sent your message to the model, because")
    assert SECRET not in proving.words_at_the_cloud()


async def test_without_pins_it_is_said_that_the_machine_is_only_claimed() -> None:
    async with proving_world() as proving, running_bot(proving.settings(), trust=proving.trust):
        assert "no measurements are pinned" in await until_status(proving, "The model proved at")


@pytest.mark.parametrize("trouble", ["debug", "NVIDIA's silence", "NVIDIA's refusal"])
async def test_evidence_that_does_not_hold_makes_no_pins(
    trouble: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proving_world() as proving:
        proving.cloud.lies.debug = trouble == "debug"
        if trouble != "debug":
            code = 503 if trouble == "NVIDIA's silence" else 400
            proving.cloud.nras.tokens_handler = status(code)
        assert not await attested(proving, tmp_path / "pins.json")
    assert os.listdir(tmp_path) == []  # noqa: PTH208
    assert "No pins are made" in capsys.readouterr().out


async def test_pins_that_are_there_are_replaced_only_by_force(tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    file.write_text("mine")
    async with proving_world() as proving:
        with pytest.raises(SettingsError, match=IS_THERE):
            await attested(proving, file)
        assert (file.read_text(), proving.cloud.connections) == ("mine", 0)
        assert await attested(proving, file, force=True)
    assert "compose_hash" in file.read_text()


async def test_missing_evidence_plain_http_and_wrong_folder_are_reported(tmp_path: Path) -> None:
    async with proving_world() as proving:
        proving.cloud.report_handler = status(404)
        with pytest.raises(EvidenceUnavailable, match="LLM__BASE_URL shows no evidence"):
            await attested(proving, tmp_path / "pins.json")
        plain = proving.settings(llm={"base_url": "http://127.0.0.1:1/v1"})
        with pytest.raises(SettingsError, match="https"):
            await attest_model(plain, tmp_path / "pins.json")
        in_no_folder = tmp_path / "none" / "pins.json"
        proving.cloud.report_handler = proving.cloud.give_report
        with pytest.raises(SettingsError, match="No such file"):
            await attested(proving, in_no_folder)


async def test_a_models_own_endpoint_is_pinned_without_a_gateway(tmp_path: Path) -> None:
    file = tmp_path / "pins.json"
    async with proving_world() as proving:
        proving.cloud.direct = True
        assert await attested(proving, file)
    assert json.loads(file.read_text()).keys() == {"type", "v", "model", "kms_ids"}


def test_known_measurements_come_from_recorded_machines() -> None:
    for _, found in recorded_capture(CLOUD).verify().machines:
        assert found.quote is not None
        assert found.boot is not None
        measured = (found.quote.mr_td, *found.quote.rtmrs[:3], found.boot.app_id)
        assert all(value.hex() in KNOWN for value in measured)
        assert found.boot.os_image_hash is not None
        assert found.boot.os_image_hash.hex() in KNOWN
        assert found.boot.key_provider_id in KNOWN


@pytest.mark.parametrize(
    "pins",
    [{}, pytest.param({"ATTESTATION__MODEL_PINS": "nowhere.json"}, marks=pytest.mark.full)],
    ids=str,
)
async def test_a_bot_that_requires_proof_does_not_start_without_pins(
    pins: dict[str, str], tmp_path: Path
) -> None:
    required = {"SIGNAL__PHONE_NUMBER": "+15550100000", "ATTESTATION__MODEL_POLICY": "require"}
    code, _, err = await run_command(["run"], required | pins, folder=tmp_path)
    assert code == 2
    assert err.splitlines()[-1].startswith("ATTESTATION__MODEL_PINS: ")
