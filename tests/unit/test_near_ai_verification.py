"""Reports of NEAR AI Cloud: recorded genuine ones pass, and every change fails its check."""

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import pytest

from bot.attestation.checks import Verdict
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.nvidia import Devices, NrasWord
from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.near_ai.report import MAX_REPORT_BYTES, ModelEvidence
from bot.attestation.near_ai.verification import (
    FirmwareRule,
    ModelFindings,
    questions_of,
    verify_model,
)
from bot.attestation.quote import Collateral, parse_quote
from bot.attestation.trust import Trust
from tests.fakes.near_ai import NearAi, Signing
from tests.fakes.openai_server import echo
from tests.fakes.soft_gpu import SoftGpus, SoftNras
from tests.near_ai_captures import CLOUD, DIRECT, OUT_OF_DATE, Json, recorded_capture

TOKENS_END: Final = {CLOUD: 1782702412, DIRECT: 1782702394}
"""The `exp` of the recorded tokens, an hour after they were made."""


def failures(findings: ModelFindings) -> set[str]:
    return {check.name for check in findings.report.failures}


def failed(findings: ModelFindings) -> set[str]:
    """Return failed checks, without those that became impossible."""
    return set(verdicts(findings, Verdict.FAILED))


def verdicts(findings: ModelFindings, verdict: Verdict) -> list[str]:
    return [check.name for check in findings.report if check.verdict is verdict]


# Recorded evidence


@pytest.mark.parametrize("name", [CLOUD, DIRECT])
def test_a_recorded_report_passes_whole(name: str) -> None:
    capture = recorded_capture(name)
    findings = capture.verify()
    assert failures(findings) == set()
    assert findings.report.passed
    assert findings.tls_keys == {capture.evidence.peer_key_sha256}
    assert findings.expires_at == TOKENS_END[name]


def test_report_from_an_outdated_platform_fails_exactly_there() -> None:
    findings = recorded_capture(OUT_OF_DATE).verify()
    # The live TLS key was not recorded then, and the actions' hash is of another order of keys.
    assert failures(findings) == {"gateway.tcb", "tls_key", "compose_manager.actions"}
    assert "OutOfDate" in findings.report["gateway.tcb"].message


def test_report_names_unproven_parts() -> None:
    findings = recorded_capture(CLOUD).verify()
    assert verdicts(findings, Verdict.NOT_CHECKED) == ["model.gpu_binding", "model.weights"]
    what_a_system_says = ["boot_events", "compose", "images"]
    what_it_is = ["os", "application", "key_provider"]
    assert verdicts(findings, Verdict.CLAIMED) == [
        *(f"gateway.{name}" for name in (*what_a_system_says, *what_it_is)),
        *(f"model.{name}" for name in (*what_a_system_says, "name", *what_it_is)),
        *(f"compose_manager.{name}" for name in ("boot_events", "compose", "started")),
    ]


def test_without_nvidias_service_the_gpus_own_signatures_carry_the_proof() -> None:
    capture = recorded_capture(CLOUD)
    findings = capture.verify(nras=NrasWord(why="no answer in time"))
    assert findings.report.passed
    firmware = findings.report["model.gpu_firmware"]
    assert firmware.verdict is Verdict.NOT_CHECKED
    assert "no answer in time" in firmware.message
    assert findings.report["model.gpus"].verdict is Verdict.PROVEN
    assert findings.expires_at == min(one.expires_at for one in capture.collateral.values())


def test_a_report_is_valid_until_its_first_evidence_ends() -> None:
    capture = recorded_capture(CLOUD)
    assert capture.verify(now=TOKENS_END[CLOUD] - 1).report.passed
    ended = capture.verify(now=TOKENS_END[CLOUD])
    assert failures(ended) == {"model.gpu_tokens"}
    assert ended.expires_at is None


# Attacks on recorded evidence: the change, and exactly the checks that have to fail


def gateway(report: Json) -> Json:
    part: Json = report["gateway_attestation"]
    return part


def model(report: Json) -> Json:
    part: Json = report["model_attestations"][0] if "model_attestations" in report else report
    return part


def machines(report: Json) -> list[Json]:
    listed = report.get("all_attestations", [])
    others = [one for one in listed if one["intel_quote"] != report["intel_quote"]]
    needed = {"compose_manager_attestation", "nvidia_payload"}
    whole = [one for one in others if one.keys() >= needed]
    return report.get("model_attestations") or [report, *whole]


def manager(report: Json) -> Json:
    part: Json = model(report)["compose_manager_attestation"]
    return part


def whole(report: Json) -> Json:
    return report


def with_payload(change: Callable[[Json], object]) -> Callable[[Json], None]:
    def edit(report: Json) -> None:
        payload = json.loads(model(report)["nvidia_payload"])
        change(payload)
        model(report)["nvidia_payload"] = json.dumps(payload)

    return edit


def another_application(part: Callable[[Json], Json]) -> Callable[[Json], None]:
    def edit(report: Json) -> None:
        tcb_info = part(report)["info"]["tcb_info"]
        tcb_info["app_compose"] = tcb_info["app_compose"].replace("nearaidev", "nearaidov")

    return edit


def shorter_log(part: Callable[[Json], Json]) -> Callable[[Json], None]:
    def edit(report: Json) -> None:
        log = part(report)["event_log"]
        events = json.loads(log) if isinstance(log, str) else log
        part(report)["event_log"] = json.dumps(events[:-1])

    return edit


OTHER_KEY: Final = "ab" * 32
MISSING: Final = object()
CHANGED_FIELDS: Final[list[tuple[Callable[[Json], Json], Json, str]]] = [
    (gateway, {"tls_cert_fingerprint": OTHER_KEY}, "gateway.report_data tls_key"),
    (gateway, {"tls_cert_fingerprint": MISSING}, "gateway.report_data tls_key"),
    (gateway, {"signing_address": OTHER_KEY}, "gateway.report_data"),
    (gateway, {"request_nonce": OTHER_KEY}, "gateway.nonce"),
    (gateway, {"intel_quote": "xy"}, "report"),
    (gateway, {"info": MISSING}, "report"),
    (model, {"signing_address": OTHER_KEY, "signing_public_key": OTHER_KEY}, "model.report_data"),
    (model, {"signing_public_key": OTHER_KEY}, "model.signing_key"),
    (model, {"signing_algo": "ecdsa"}, "model.signing_key"),
    (model, {"signing_algo": "rsa"}, "report"),
    (model, {"tls_cert_fingerprint": OTHER_KEY}, "model.report_data"),
    (model, {"request_nonce": OTHER_KEY}, "model.nonce"),
    (model, {"model_name": "another/model"}, "model.name"),
    (model, {"model_name": MISSING}, "model.name"),
    (model, {"event_log": "?"}, "model.rtmrs"),
    (model, {"nvidia_payload": MISSING}, "model.gpus"),
    (model, {"compose_manager_attestation": MISSING}, "compose_manager.quote"),
    (model, {"intel_quote": "00"}, "model.quote"),
    (manager, {"quote": "00"}, "compose_manager.quote"),
    (manager, {"nonce": OTHER_KEY}, "compose_manager.nonce"),
    (manager, {"actions": [{"action": "compose_up"}]}, "compose_manager.actions"),
    (whole, {"tls_certificate": "-----BEGIN"}, "tls_key"),
    (whole, {"model_attestations": MISSING}, "report"),
    (whole, {"model_attestations": []}, "report"),
]


@pytest.mark.parametrize(("part", "fields", "expected"), CHANGED_FIELDS)
def test_a_changed_field_fails_its_check(
    part: Callable[[Json], Json], fields: Json, expected: str
) -> None:
    def edit(report: Json) -> None:
        for name, value in fields.items():
            if value is MISSING:
                del part(report)[name]
            else:
                part(report)[name] = value

    refused_by(edit, *expected.split())


ATTACKS: Final[dict[str, tuple[Callable[[Json], object], str]]] = {
    "another certificate": (
        lambda r: r.update(tls_certificate=gateway(r)["info"]["app_cert"]),
        "tls_key",
    ),
    "a gateway's log lacks an event": (shorter_log(gateway), "gateway.rtmrs"),
    "a model's log lacks an event": (shorter_log(model), "model.rtmrs"),
    "a manager's log lacks an event": (shorter_log(manager), "compose_manager.rtmrs"),
    "a gateway's application is another": (another_application(gateway), "gateway.compose"),
    "a model's application is another": (
        another_application(model),
        "model.compose compose_manager.compose",
    ),
    "the gateway shows the model's quote": (
        lambda r: gateway(r).update(intel_quote=model(r)["intel_quote"]),
        "gateway.rtmrs gateway.report_data",
    ),
    "the compose manager shows the model's quote": (
        lambda r: manager(r).update(quote=model(r)["intel_quote"]),
        "compose_manager.actions",
    ),
    "a GPU is left out": (with_payload(lambda p: p["evidence_list"].pop()), "model.gpu_tokens"),
    "GPUs of an earlier request": (
        with_payload(lambda p: p.update(nonce=OTHER_KEY)),
        "model.gpu_nonce",
    ),
    "too many models": (
        lambda r: r.update(model_attestations=r["model_attestations"] * 17),
        "report",
    ),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_an_attack_on_a_report_fails_its_check(attack: str) -> None:
    edit, expected = ATTACKS[attack]
    refused_by(edit, *expected.split())


def refused_by(edit: Callable[[Json], object], *checks: str) -> None:
    findings = recorded_capture(CLOUD).verify(edited=edit)
    assert failed(findings) == set(checks)
    assert not findings.report.passed
    assert (findings.signers, findings.tls_keys) == ((), frozenset())
    assert findings.expires_at is None


def test_earlier_report_relabelled_with_our_nonce_fails() -> None:
    def edit(report: Json) -> None:
        for part in (gateway(report), model(report)):
            part["request_nonce"] = OTHER_KEY
        manager(report)["nonce"] = OTHER_KEY
        with_payload(lambda p: p.update(nonce=OTHER_KEY))(report)
        with_payload(lambda p: [one.update(nonce=OTHER_KEY) for one in p["evidence_list"]])(report)

    findings = recorded_capture(CLOUD).verify(edited=edit, nonce=bytes.fromhex(OTHER_KEY))
    parts = ("gateway", "model", "compose_manager")
    assert failed(findings) == {
        *(f"{part}.nonce" for part in parts),
        "model.gpu_nonce",
        "model.gpu_tokens",
    }


def test_the_log_of_actions_of_another_machine_of_the_same_kind_is_refused() -> None:
    cloud = soft()
    report = cloud.report()
    quoted = parse_quote(bytes.fromhex(manager(report)["quote"]))
    other = (*quoted.rtmrs[:3], bytes(48))
    manager(report)["quote"] = cloud.cloud.platform.quote(
        quoted.report_data, quoted.mr_td, other, quoted.mr_config_id
    ).hex()
    assert failed(cloud.verify(report)) == {"compose_manager.rtmrs", "compose_manager.machine"}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"peer_key_sha256": bytes(32)}, "tls_key"),
        ({"peer_key_sha256": None}, "tls_key"),
        ({"model": "another/model"}, "model.name"),
    ],
)
def test_report_for_another_request_is_refused(changes: dict[str, Any], expected: str) -> None:
    assert failed(recorded_capture(CLOUD).verify(**changes)) == {expected}


def test_the_models_part_or_the_tokens_of_another_report_are_refused() -> None:
    capture, other = recorded_capture(CLOUD), recorded_capture(DIRECT)
    assert failed(capture.verify(nras=other.nras)) == {"model.gpu_tokens"}
    swapped = capture.verify(edited=lambda r: r.update(model_attestations=[other.report]))
    # The machine is the same, so NVIDIA's tokens are about its GPUs.
    assert failed(swapped) == {"model.nonce", "model.gpu_nonce", "compose_manager.nonce"}


def test_a_direct_report_needs_its_own_tls_key() -> None:
    capture = recorded_capture(DIRECT)
    attested = capture.verify(edited=lambda report: report.pop("tls_cert_fingerprint"))
    assert failed(attested) == {"model.report_data", "tls_key"}
    assert failed(capture.verify(peer_key_sha256=bytes(32))) == {"tls_key"}


def test_a_gateways_report_does_not_pass_as_a_direct_one() -> None:
    capture = recorded_capture(CLOUD)
    flat = json.dumps(model(capture.report)).encode()
    assert failed(capture.verify(report=flat)) == {"tls_key"}


# Soft evidence: cases without a recording


@dataclass(frozen=True, slots=True)
class Soft:
    cloud: NearAi
    nras: SoftNras
    nonce: bytes
    algorithm: str

    def report(self) -> Json:
        report: Json = json.loads(json.dumps(self.cloud.report(self.nonce, self.algorithm)))
        return report

    def verify(self, report: Json, pins: ModelPins | None = None) -> ModelFindings:
        """Verify a report as if the cloud had just given it."""
        key = self.cloud.identity.key_sha256
        now = self.cloud.platform.now
        text = json.dumps(report).encode()
        return verify_model(
            ModelEvidence(text, self.nonce, self.cloud.model, key, now),
            collateral=lambda _: Collateral.parse(self.cloud.platform.collateral),
            nras=[self.nras.answer(one["nvidia_payload"]) for one in machines(report)],
            now=now,
            pins=pins,
            trust=self.trust,
        )

    @property
    def trust(self) -> Trust:
        root = self.cloud.gpus.root_sha256
        return Trust(self.cloud.platform.root_der, root, self.nras.issuer)


def soft(algorithm: str = "ed25519", *, direct: bool = False) -> Soft:
    cloud = NearAi(handler=echo, direct=direct)
    return Soft(cloud, SoftNras("https://nras.test", now=cloud.platform.now), NONCE, algorithm)


NONCE: Final = bytes(range(32))


@pytest.mark.parametrize("algorithm", ["ed25519", "ecdsa"])
@pytest.mark.parametrize("direct", [False, True], ids=["gateway", "direct"])
def test_both_kinds_of_keys_are_taken_from_a_report_that_passes(
    algorithm: str, direct: bool
) -> None:
    cloud = soft(algorithm, direct=direct)
    findings = cloud.verify(cloud.report())
    assert failures(findings) == set()
    gateway = ("gateway", algorithm, cloud.cloud.gateway_signing.address(algorithm))
    model = ("provider_tee", algorithm, cloud.cloud.model_signing.address(algorithm))
    assert findings.signers == ((model,) if direct else (gateway, model))
    assert findings.tls_keys == {cloud.cloud.identity.key_sha256}


def test_an_ecdsa_key_has_to_hash_to_its_address() -> None:
    cloud = soft("ecdsa")
    report = cloud.report()
    model(report)["signing_public_key"] = Signing().public_key("ecdsa").hex()
    assert failed(cloud.verify(report)) == {"model.signing_key"}
    del model(report)["signing_public_key"]
    assert failed(cloud.verify(report)) == {"model.signing_key"}
    report = cloud.report()
    gateway(report)["signing_address"] += "00"
    assert failed(cloud.verify(report)) == {"gateway.report_data", "gateway.signing_key"}


def test_quote_without_a_tls_key_fails() -> None:
    cloud = soft()
    report = cloud.report()
    part = gateway(report)
    quoted = parse_quote(bytes.fromhex(part["intel_quote"]))
    in_the_other_layout = cloud.cloud.gateway_signing.address(cloud.algorithm) + cloud.nonce
    part["intel_quote"] = cloud.cloud.platform.quote(
        in_the_other_layout, quoted.mr_td, quoted.rtmrs, quoted.mr_config_id
    ).hex()
    del part["tls_cert_fingerprint"]
    assert failed(cloud.verify(report)) == {"gateway.report_data", "tls_key"}


def test_a_direct_report_without_a_models_name_claims_none() -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    del report["model_name"]
    findings = cloud.verify(report)
    assert findings.report.passed
    assert findings.report["model.name"].verdict is Verdict.NOT_CHECKED


def another_machine(cloud: Soft) -> Json:
    """Return evidence of a second machine of the model, with its own signing key and GPUs."""
    cloud.cloud.model_signing = Signing()
    cloud.cloud.gpus = SoftGpus(like=cloud.cloud.gpus)
    return model(cloud.report())


def test_every_machine_of_a_model_has_to_verify() -> None:
    cloud = soft()
    both = cloud.report()
    both["model_attestations"].append(other := another_machine(cloud))
    findings = cloud.verify(both)
    assert failures(findings) == set()
    assert [kind for kind, *_ in findings.signers] == ["gateway", "provider_tee", "provider_tee"]
    assert findings.report["model_2.gpu_firmware"].verdict is Verdict.PROVEN
    other["signing_address"] = OTHER_KEY
    other["compose_manager_attestation"]["actions"] = []
    assert failed(cloud.verify(both)) == {
        "model_2.report_data",
        "model_2.signing_key",
        "compose_manager_2.actions",
    }


def test_two_machines_cannot_show_the_same_gpus() -> None:
    cloud = soft()
    both = cloud.report()
    other = another_machine(cloud)
    other["nvidia_payload"] = model(both)["nvidia_payload"]
    both["model_attestations"].append(other)
    assert failed(cloud.verify(both)) == {"model_2.gpu_chain"}
    both["model_attestations"][1] = model(both)
    assert failed(cloud.verify(both)) == {"model_2.gpu_chain"}


def test_a_further_machine_of_a_direct_report_is_verified_like_the_first() -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    other = another_machine(cloud)
    report["all_attestations"].append(other)
    findings = cloud.verify(report)
    assert failures(findings) == set()
    assert len(findings.signers) == 2
    other["request_nonce"] = OTHER_KEY
    assert failed(cloud.verify(report)) == {"model_2.nonce"}
    other["request_nonce"] = NONCE.hex()
    other["compose_manager_attestation"]["actions"] = []
    assert failed(cloud.verify(report)) == {"compose_manager_2.actions"}


@pytest.mark.parametrize("missing", ["nvidia_payload", "compose_manager_attestation"])
def test_keys_of_a_further_machine_with_incomplete_evidence_do_not_count(missing: str) -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    first = cloud.cloud.model_signing
    other = another_machine(cloud)
    del other[missing]
    other["tls_cert_fingerprint"] = OTHER_KEY
    report["all_attestations"].append(other)
    findings = cloud.verify(report)
    assert findings.report.passed
    assert findings.signers == (("provider_tee", "ed25519", first.address("ed25519")),)
    assert findings.tls_keys == {cloud.cloud.identity.key_sha256}
    assert findings.report["listed"].verdict is Verdict.NOT_CHECKED


# Which machines they are


def invented_machine(cloud: Soft, **changes: Any) -> NearAi:
    """Cloud of an attacker who runs any program on genuine hardware, with genuine GPUs."""
    other = NearAi(
        handler=echo, platform=cloud.cloud.platform, authority=cloud.cloud.authority, **changes
    )
    other.gpus = SoftGpus(like=cloud.cloud.gpus)
    return other


def test_pins_by_hash_or_by_id_prove_the_answering_machines() -> None:
    cloud = soft()
    by_hash = json.loads(cloud.cloud.pins.text())
    by_id = json.loads(cloud.cloud.pins.text())
    for part in ("gateway", "model"):
        [application] = by_hash[part]["applications"]
        by_id[part]["applications"] = [{"app_id": application["compose_hash"][:40]}]
    for pins in (by_hash, by_id):
        findings = cloud.verify(cloud.report(), ModelPins.parse(json.dumps(pins)))
        assert failures(findings) == set()
        assert verdicts(findings, Verdict.CLAIMED) == ["model.name", "compose_manager.started"]


def test_an_unknown_machine_on_genuine_hardware_passes_only_without_pins() -> None:
    cloud = soft()
    invented = replace(cloud, cloud=invented_machine(cloud))
    report = invented.report()
    unpinned = invented.verify(report)
    assert unpinned.report.passed
    assert unpinned.report["model.application"].verdict is Verdict.CLAIMED
    pinned = invented.verify(report, cloud.cloud.pins)
    assert failed(pinned) == {"gateway.application", "model.application"}
    assert (pinned.signers, pinned.tls_keys) == ((), frozenset())


OTHER: Final = "99" * 48
WRONG_PINS: Final[list[tuple[Callable[[Json], object], str]]] = [
    *(
        (lambda p, name=name: p["model"]["systems"][0].update({name: OTHER}), "model.os")
        for name in ("mrtd", "rtmr0", "rtmr1", "rtmr2")
    ),
    (lambda p: p["gateway"]["systems"][0].update(rtmr1=OTHER), "gateway.os"),
    (lambda p: p["model"]["applications"][0].update(compose_hash=OTHER[:64]), "model.application"),
    (lambda p: p["model"].update(applications=[{"app_id": OTHER[:40]}]), "model.application"),
    (
        lambda p: p["model"].update(applications=p["gateway"]["applications"]),
        "model.application",
    ),
    (lambda p: p.update(kms_ids=["99"]), "gateway.key_provider model.key_provider"),
    (lambda p: p.pop("gateway"), "gateway.os gateway.application"),
]


@pytest.mark.parametrize(("change", "expected"), WRONG_PINS)
def test_unpinned_machine_fails_and_its_keys_do_not_count(
    change: Callable[[Json], object], expected: str
) -> None:
    cloud = soft()
    plain = json.loads(cloud.cloud.pins.text())
    change(plain)
    findings = cloud.verify(cloud.report(), ModelPins.parse(json.dumps(plain)))
    assert failed(findings) == set(expected.split())
    assert (findings.signers, findings.tls_keys) == ((), frozenset())


def test_every_further_machine_has_to_be_a_pinned_one() -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    invented = replace(cloud, cloud=invented_machine(cloud, direct=True)).report()
    invented["tls_cert_fingerprint"] = report["tls_cert_fingerprint"]
    report["all_attestations"].append(invented)
    assert "model_2.application" in failed(cloud.verify(report, cloud.cloud.pins))


# NVIDIA's word on the firmware


def test_nvidias_last_verdict_counts_only_for_the_same_gpus_and_its_time() -> None:
    capture = recorded_capture(CLOUD)
    [devices] = capture.verify().vouched
    until = capture.now + 60

    def silent(known: Devices) -> ModelFindings:
        rule = FirmwareRule(required=True, vouched_until={known: until})
        return capture.verify(nras=NrasWord(why="HTTP 503"), firmware=rule)

    vouched = silent(devices)
    assert vouched.report.passed
    assert vouched.expires_at == until
    assert vouched.vouched == ()  # nothing new was said, so it counts no longer than before
    assert "vouched for these very GPUs" in vouched.report["model.gpu_firmware"].message
    fewer = frozenset(list(devices)[1:])
    assert failures(silent(fewer)) == {"model.gpu_firmware"}
    until = capture.now
    assert failures(silent(devices)) == {"model.gpu_firmware"}


def test_nvidia_gets_only_the_parsed_evidence_of_the_gpus() -> None:
    cloud = soft()
    report = cloud.report()
    payload = json.loads(model(report)["nvidia_payload"])
    payload["debug"] = {"policy": "accept"}
    payload["evidence_list"][0]["verdict"] = "good"
    chain = base64.b64decode(payload["evidence_list"][0]["certificate"])
    payload["evidence_list"][0]["certificate"] = base64.b64encode(b"# hello\n" + chain).decode()
    model(report)["nvidia_payload"] = json.dumps(payload)
    text = json.dumps(report).encode()
    _, [asked] = questions_of(ModelEvidence(text, NONCE, cloud.cloud.model, None, 0))
    assert asked is not None
    assert asked.keys() == {"arch", "evidence_list", "nonce"}
    for one in asked["evidence_list"]:
        assert one.keys() == {"arch", "certificate", "evidence"}
    assert b"hello" not in base64.b64decode(asked["evidence_list"][0]["certificate"])


def test_evidence_under_test_roots_is_refused_with_the_real_roots() -> None:
    cloud = soft()
    report = json.dumps(cloud.report()).encode()
    platform = cloud.cloud.platform
    findings = verify_model(
        ModelEvidence(report, NONCE, cloud.cloud.model, cloud.cloud.identity.key_sha256, 0),
        collateral=lambda _: Collateral.parse(platform.collateral),
        nras=[NrasWord(b"[]", b"{}")],
        now=platform.now,
    )
    expected = {"gateway.quote", "model.quote", "compose_manager.quote"}
    assert failed(findings) == expected | {"model.gpu_chain", "model.gpu_tokens"}


def test_tcb_info_may_be_json_in_a_text() -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    report["info"]["tcb_info"] = json.dumps(report["info"]["tcb_info"])
    assert cloud.verify(report).report.passed
    report["info"]["tcb_info"] = "{"
    assert failed(cloud.verify(report)) == {"report"}


# Malformed reports


@pytest.mark.parametrize(
    "report",
    [
        b"",
        b"null",
        b"[]",
        b"<html>",
        b"\xff",
        b"[" * 100_000,
        b'{"gateway_attestation": 1, "gateway_attestation": 2}',
        b" " * (MAX_REPORT_BYTES + 1),
    ],
    ids=["nothing", "null", "list", "page", "not UTF-8", "deep", "key twice", "too long"],
)
def test_invalid_report_is_refused_whole(report: bytes) -> None:
    cloud = soft()
    findings = verify_model(
        ModelEvidence(report, NONCE, cloud.cloud.model, None, 0),
        collateral=lambda _: "not asked",
        nras=[],
        now=cloud.cloud.platform.now,
    )
    assert failures(findings) == {"report"}
    with pytest.raises(MalformedEvidence):
        questions_of(ModelEvidence(report, NONCE, cloud.cloud.model, None, 0))


@pytest.mark.parametrize("action", ["[" * 900 + "]" * 900, '"\\ud800"'], ids=["deep", "surrogate"])
def test_actions_that_have_no_canonical_form_are_refused(action: str) -> None:
    cloud = soft(direct=True)
    report = cloud.report()
    report["compose_manager_attestation"]["actions"] = [{"action": json.loads(action)}]
    assert failed(cloud.verify(report)) <= {"compose_manager.actions", "report"}
    assert failed(cloud.verify(report))


FMSPC_AT: Final = 2719
"""In the recorded quote of the compose manager: a byte of its platform's kind."""


def test_quote_that_names_another_kind_of_platform_is_not_proven() -> None:
    def edit(report: Json) -> None:
        changed = bytearray(bytes.fromhex(manager(report)["quote"]))
        changed[FMSPC_AT] ^= 1  # no collateral was recorded for that kind
        manager(report)["quote"] = changed.hex()

    findings = recorded_capture(CLOUD).verify(edited=edit)
    assert "compose_manager.quote" not in findings.report.proven_names
    assert not findings.report.passed
