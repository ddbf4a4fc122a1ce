"""Whether a report proves which machines answer for a model, and whose keys they hold.

Checks, in this order (of a direct endpoint without those of `gateway`; `model_2` and so on where
several machines run the model):

    report                      only when it cannot be read
    gateway.debug .quote .tcb .attributes .tdx_module .rtmrs .boot_events .compose .images
                                see `bot.attestation.tdx_guest`
    gateway.nonce               quote and report were made for our request
    gateway.report_data         the quote vouches for signing key and TLS key
    gateway.signing_key         key, address and algorithm belong together
    gateway.os .application .key_provider   which machine it is, see `pins`; only claimed while
                                nothing is pinned, and then boot_events, compose and images are
                                so too: an unknown system may say anything of what it started
    listed                      only of a direct endpoint that names further machines without all
                                of their evidence: their keys do not count
    tls_key                     the machine that was asked holds the key of the TLS connection
    model.…                     all that of the gateway, and
    model.name                  claimed: the report is about the model that was asked for; a direct
                                endpoint need not name it
    model.gpu_chain .gpu_nonce .gpus    the GPUs' own signatures, see `gpu`
    model.gpu_tokens .gpu_firmware      NVIDIA's word on them, see `nras`. Where its service cannot
                                        be reached, gpu_firmware rests on what it said of the same
                                        GPUs before, while that counts; else it is not checked,
                                        which may be enough where nobody requires it
    model.gpu_binding           never made: one nonce is all that ties GPUs and processor
    model.weights               never made: nothing measures them
    compose_manager.debug … .compose .nonce    its own quote
    compose_manager.machine     that quote is of the model's machine
    compose_manager.actions     the quote vouches for its log of what it started
    compose_manager.started     claimed: what runs there is what that log names

All of them have to hold, of every machine; what is never made or only claimed does not count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Literal

from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    as_good_as,
    claimed,
    failed,
    not_checked,
    proven,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.binding import (
    actions_check,
    nonce_check,
    public_key_of,
    report_data_check,
    same_machine_check,
    signing_key_check,
    tls_key_check,
)
from bot.attestation.near_ai.evidence import (
    ModelEvidence,
    NrasAnswer,
    NrasRefusal,
    NrasSilence,
    NrasWord,
)
from bot.attestation.near_ai.gpu import Devices, GpuFindings, gpu_question, verify_gpus
from bot.attestation.near_ai.nras import verify_nras
from bot.attestation.near_ai.pins import ModelPins, Part, pin_checks
from bot.attestation.near_ai.wire import (
    Machine,
    ModelMachine,
    ModelReport,
    read_report,
)
from bot.attestation.quote import TdQuote, parse_quote
from bot.attestation.tdx_guest import CollateralFor, TdEvidence, TdFindings, verify_td
from bot.attestation.trust import REAL, Trust

EARLIER_WORD: Final = "NVIDIA has vouched for these very GPUs"
_IN_THE_MODELS_PART: Final = "images"
"""One compose file starts the model's machine and the compose manager in it."""

_WHAT_A_SYSTEM_SAYS: Final = frozenset({"boot_events", "compose", "images"})
_NRAS_NOT_ASKED: Final = NrasSilence("NVIDIA was not asked")


@dataclass(frozen=True, slots=True)
class FirmwareRule:
    """When the firmware of GPUs counts as known.

    Attributes:
        required: whether a report passes only with NVIDIA's word on it.
        vouched_until: GPUs that NVIDIA has vouched for before, and how long that counts while its
            service cannot be reached, in Unix seconds.
    """

    required: bool
    vouched_until: Mapping[Devices, int]


NOT_REQUIRED: Final = FirmwareRule(required=False, vouched_until={})


@dataclass(frozen=True, slots=True)
class Signer:
    """A key that a verified machine signs answers with.

    Attributes:
        algorithm: of the signatures.
        address: what the quote vouches for: 20 bytes (ecdsa, as Ethereum derives them) or the
            32 bytes of the public key (ed25519).
        public_key: 64 bytes x and y (ecdsa) or 32 bytes (ed25519); None where the report names an
            ecdsa address alone, as the gateway's does.
    """

    algorithm: Literal["ed25519", "ecdsa"]
    address: bytes
    public_key: bytes | None


@dataclass(frozen=True, slots=True)
class ModelFindings:
    """What came out. Without a report that passed there are no keys in it.

    Attributes:
        report: the checks, in order.
        gateway: who signs in the gateway; None for a direct endpoint.
        models: who signs for the model, one for each of its machines.
        tls_keys: SHA-256 of the SubjectPublicKeyInfo of the TLS keys that verified machines hold
            at the address that was asked.
        expires_at: Unix seconds at which the first piece of evidence is no longer valid.
        vouched: the GPUs of each machine that NVIDIA vouches for in this very evidence.
        machines: what was found of each machine, also where the report has not passed.
    """

    report: Report
    gateway: Signer | None
    models: tuple[Signer, ...]
    tls_keys: frozenset[bytes]
    expires_at: int | None
    vouched: tuple[Devices, ...] = ()
    machines: tuple[tuple[Part, TdFindings], ...] = ()


def quotes_of(report: bytes) -> tuple[TdQuote, ...]:
    """Return the quotes in a report, for which collateral is needed.

    Raises:
        MalformedEvidence: the report, or a quote in it, cannot be read.
    """
    read = read_report(report)
    machines = (*([read.gateway] if read.gateway else ()), *read.models)
    managers = (machine.compose_manager_attestation for machine in read.models)
    quotes = (
        *(machine.intel_quote for machine in machines),
        *(manager.quote for manager in managers if manager),
    )
    return tuple(parse_quote(quote) for quote in quotes)


def gpu_questions_of(evidence: ModelEvidence) -> tuple[dict[str, Any] | None, ...]:
    """Return what NVIDIA's service is to be asked about each machine; None without readable GPUs.

    Raises:
        MalformedEvidence: the report cannot be read.
    """
    machines = read_report(evidence.report).models
    return tuple(_gpu_question(machine, evidence.nonce) for machine in machines)


def _gpu_question(machine: ModelMachine, nonce: bytes) -> dict[str, Any] | None:
    try:
        return gpu_question(machine.nvidia_payload or "", nonce)
    except MalformedEvidence:
        return None


def verify_model(
    evidence: ModelEvidence,
    *,
    collateral: CollateralFor,
    nras: Sequence[NrasWord],
    now: int,
    firmware: FirmwareRule = NOT_REQUIRED,
    pins: ModelPins | None = None,
    trust: Trust = REAL,
) -> ModelFindings:
    """Verify everything that a report says; bad evidence becomes failed checks.

    Args:
        evidence: the report, and what it was asked with.
        collateral: Intel's word on each platform.
        nras: NVIDIA's word on the GPUs of each machine, in the report's order.
        now: Unix seconds at which everything must be valid.
        firmware: when the firmware of the GPUs counts as known.
        pins: which machines are accepted; None: any.
        trust: whose roots.
    """
    try:
        report = read_report(evidence.report)
    except MalformedEvidence as error:
        return _without_keys(Report([failed("report", str(error))]))
    verification = _Verification(report, evidence, collateral, now, firmware, pins, trust)
    if report.gateway is not None:
        verification.gateway(report.gateway)
    verification.tls_key()
    for number, machine in enumerate(report.models, start=1):
        word = nras[number - 1] if number <= len(nras) else _NRAS_NOT_ASKED
        verification.model(machine, number, word)
    verification.listed()
    return verification.findings()


@dataclass(slots=True)
class _Verification:
    """By what a report is judged, see `verify_model`; collects checks and what they rest on."""

    report: ModelReport
    evidence: ModelEvidence
    collateral: CollateralFor
    now: int
    firmware: FirmwareRule
    pins: ModelPins | None
    trust: Trust
    checks: list[Check] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    gpu_keys: set[bytes] = field(default_factory=set)
    vouched: list[Devices] = field(default_factory=list)
    machines: list[tuple[Part, TdFindings]] = field(default_factory=list)

    def gateway(self, machine: Machine) -> None:
        td = self._td(machine.intel_quote, machine.event_log, machine.info.tcb_info.app_compose)
        keys = self._binding_checks(machine, td.quote, address_is_enough=True)
        self.machines.append(("gateway", td))
        self._add("gateway", td, *keys, *pin_checks("gateway", td, self.pins))

    def tls_key(self) -> None:
        self.checks.append(tls_key_check(self.report, self.evidence.peer_key_sha256))

    def listed(self) -> None:
        if self.report.listed:
            message = (
                "more machines are named without all of their evidence: their keys do not count"
            )
            self.checks.append(not_checked("listed", f"{self.report.listed} {message}"))

    def model(self, machine: ModelMachine, number: int, nras: NrasWord) -> None:
        suffix = "" if number == 1 else f"_{number}"
        td = self._td(machine.intel_quote, machine.event_log, machine.info.tcb_info.app_compose)
        keys = self._binding_checks(machine, td.quote, address_is_enough=False)
        gpus = self._gpu_checks(machine.nvidia_payload, nras)
        name = self._name_check(machine.model_name)
        pinned = pin_checks("model", td, self.pins)
        self.machines.append(("model", td))
        self._add(f"model{suffix}", td, *keys, name, *gpus, *pinned, _weights())
        self._add_manager(f"compose_manager{suffix}", machine, td)

    def findings(self) -> ModelFindings:
        report = self.report
        checks = Report(self.checks)
        if not checks.passed:
            return _without_keys(checks, tuple(self.machines))
        asked = (report.gateway,) if report.gateway is not None else report.models
        keys = (machine.tls_cert_fingerprint for machine in asked)
        return ModelFindings(
            report=checks,
            gateway=_signer(report.gateway) if report.gateway is not None else None,
            models=tuple(_signer(machine) for machine in report.models),
            tls_keys=frozenset(key for key in keys if key is not None),
            expires_at=min(self.ends),
            vouched=tuple(self.vouched),
            machines=tuple(self.machines),
        )

    def _td(self, quote: bytes, event_log: str | list[object], app_compose: str) -> TdFindings:
        evidence = TdEvidence(quote, event_log, app_compose)
        found = verify_td(evidence, self.collateral, now=self.now, trust=self.trust)
        if found.expires_at is not None:
            self.ends.append(found.expires_at)
        return found

    def _binding_checks(
        self, machine: Machine, quote: TdQuote | None, *, address_is_enough: bool
    ) -> tuple[Check, ...]:
        return (
            nonce_check(quote, machine.request_nonce, self.evidence.nonce),
            report_data_check(quote, machine),
            signing_key_check(machine, address_is_enough=address_is_enough),
        )

    def _name_check(self, name: str | None) -> Check:
        if name is None and self.report.gateway is None:
            return not_checked("name", "the endpoint, which is one model's, does not name it")
        if name != self.evidence.model:
            return failed("name", "the report is about another model than the one asked for")
        return claimed("name", "the report is about the model that was asked for")

    def _gpu_checks(self, payload: str | None, nras: NrasWord) -> tuple[Check, ...]:
        if payload is None:
            return (failed("gpus", "the report holds no evidence of GPUs"),)
        gpus = verify_gpus(
            payload,
            nonce=self.evidence.nonce,
            now=self.now,
            trust=self.trust,
            elsewhere=frozenset(self.gpu_keys),
        )
        self.gpu_keys |= gpus.own_keys
        return (*gpus.checks, *self._nras_checks(gpus, nras), _gpu_binding())

    def _nras_checks(self, gpus: GpuFindings, nras: NrasWord) -> tuple[Check, ...]:
        match nras:
            case NrasAnswer():
                return self._nras_answer_checks(gpus, nras)
            case NrasRefusal(why):
                message = f"NVIDIA's service does not vouch for the GPUs: {why}"
                return (failed("gpu_firmware", message),)
            case NrasSilence():
                return (self._silent_firmware_check(gpus.devices, nras),)

    def _nras_answer_checks(self, gpus: GpuFindings, answer: NrasAnswer) -> tuple[Check, ...]:
        found = verify_nras(
            answer,
            nonce=self.evidence.nonce,
            serials=gpus.serials,
            now=self.now,
            trust=self.trust,
        )
        if found.expires_at is not None:
            self.ends.append(found.expires_at)
        if gpus.devices is not None:
            self.vouched.append(gpus.devices)
        return found.checks

    def _silent_firmware_check(self, devices: Devices | None, nras: NrasSilence) -> Check:
        until = self.firmware.vouched_until.get(devices, 0) if devices is not None else 0
        if until > self.now:
            self.ends.append(until)
            moment = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            message = (
                f"{EARLIER_WORD}, which counts until {moment} while its service is not reached"
            )
            return proven("gpu_firmware", f"{message} ({nras.why})")
        return not_checked(
            "gpu_firmware",
            "the GPUs' signatures were checked here; NVIDIA's reference values and its list of "
            f"revoked certificates were not: {nras.why}",
            asked=self.firmware.required,
        )

    def _add_manager(self, part: str, machine: ModelMachine, model: TdFindings) -> None:
        manager = machine.compose_manager_attestation
        if manager is None:
            why = "the report does not say what was started after the machine's boot"
            self.checks.extend(Report([failed("quote", why)]).under(part))
            return
        td = self._td(manager.quote, manager.event_log, machine.info.tcb_info.app_compose)
        self._add(
            part,
            td,
            nonce_check(td.quote, manager.nonce, self.evidence.nonce),
            same_machine_check(td.quote, model.quote),
            actions_check(td.quote, manager),
            claimed("started", "which images run the model is the word of that log alone"),
            leaving_out=_IN_THE_MODELS_PART,
        )

    def _add(self, part: str, td: TdFindings, *checks: Check, leaving_out: str = "") -> None:
        """Take note of what a machine's quote says, and of what else rests on it."""
        of_td = [check for check in td.report if check.name != leaving_out]
        if self.pins is None:
            of_td = [_by_an_unknown_system(check) for check in of_td]
        self.checks.extend(Report(as_good_as(td.report["quote"], (*of_td, *checks))).under(part))


def _signer(machine: Machine) -> Signer:
    return Signer(machine.signing_algo, machine.signing_address, public_key_of(machine))


def _without_keys(
    report: Report, machines: tuple[tuple[Part, TdFindings], ...] = ()
) -> ModelFindings:
    return ModelFindings(report, None, (), frozenset(), None, machines=machines)


def _by_an_unknown_system(check: Check) -> Check:
    """Which code runs, a system that nobody has pinned can only claim."""
    if check.name not in _WHAT_A_SYSTEM_SAYS or check.verdict is not Verdict.PROVEN:
        return check
    return claimed(check.name, f"by the word of a system that nobody has pinned, {check.message}")


def _weights() -> Check:
    return not_checked("weights", "no measurement covers the weights of the model")


def _gpu_binding() -> Check:
    return not_checked(
        "gpu_binding", "that GPUs and processor are one machine rests on the shared nonce alone"
    )
