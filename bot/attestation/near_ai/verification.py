"""Verification of a report: which machines answer for a model, and which keys they hold.

docs/VERIFY.md explains each check. The names begin with the machine (`gateway.quote`,
`model.gpus`, `compose_manager.actions`; `model_2.…` for a second machine); a direct endpoint has no
gateway. For every machine all checks have to hold, except claims and checks that are impossible.
Without pins, `os`, `application` and `key_provider` are only claimed, and so are `boot_events`,
`compose` and `images`, because an unknown system may lie about the programs that it started.

Layout of the 64 bytes of report data, the same for gateway and model:

    [0:32]   SHA-256(address of the signing key, SHA-256 of the TLS key)
    [32:64]  the nonce

The compose manager has SHA-256(its actions as canonical JSON) and the nonce. A machine that is not
asked for its TLS key puts the bare address there, padded with zeros. That layout is refused: any
other hash there, such as the compose manager's, could pass for a key.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hmac import compare_digest
from typing import Any, Final, Literal

from Crypto.Hash import keccak
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    as_good_as,
    claimed,
    failed,
    not_checked,
    proven,
    proven_if,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.nvidia import (
    Devices,
    GpuFindings,
    NrasWord,
    gpu_question,
    verify_gpus,
    verify_nras,
)
from bot.attestation.near_ai.pins import ModelPins, Part, pin_checks
from bot.attestation.near_ai.report import (
    Machine,
    ModelEvidence,
    ModelMachine,
    ModelReport,
    read_report,
)
from bot.attestation.pinning import key_sha256
from bot.attestation.quote import TdQuote, parse_quote
from bot.attestation.strict_json import canonical_json
from bot.attestation.tdx_guest import CollateralFor, TdFindings, verify_td
from bot.attestation.trust import REAL, Trust

EARLIER_WORD: Final = "NVIDIA has vouched for these very GPUs"

_WHAT_A_SYSTEM_SAYS: Final = frozenset({"boot_events", "compose", "images"})


@dataclass(frozen=True, slots=True)
class FirmwareRule:
    """Rule for the firmware of GPUs.

    Attributes:
        required: whether a report passes only with NVIDIA's word on it.
        vouched_until: how long NVIDIA's earlier word on GPUs counts while its service is
            unreachable, in Unix seconds.
    """

    required: bool
    vouched_until: Mapping[Devices, float]


NOT_REQUIRED: Final = FirmwareRule(required=False, vouched_until={})


Signer = tuple[Literal["provider_tee", "gateway"], Literal["ed25519", "ecdsa"], bytes]
"""Kind of the signatures that a verified machine makes, algorithm, and address of its key: 20 bytes
(ecdsa, as Ethereum derives them) or the 32 bytes of the public key (ed25519)."""


@dataclass(frozen=True, slots=True)
class ModelFindings:
    """Result of a verification; holds keys only if the report has passed.

    Attributes:
        signers: first the gateway's, unless the endpoint is a direct one, then the models'.
        tls_keys: SHA-256 of the SubjectPublicKeyInfo of TLS keys at the address that was asked.
        expires_at: Unix seconds at which the first piece of evidence expires.
        vouched: the GPUs that NVIDIA vouches for in this evidence.
        machines: findings for each machine, also of a failed report.
    """

    report: Report
    signers: tuple[Signer, ...] = ()
    tls_keys: frozenset[bytes] = frozenset()
    expires_at: int | None = None
    vouched: tuple[Devices, ...] = ()
    machines: tuple[tuple[Part, TdFindings], ...] = ()


def questions_of(
    evidence: ModelEvidence,
) -> tuple[tuple[TdQuote, ...], tuple[dict[str, Any] | None, ...]]:
    """Return all quotes in a report, and each machine's question to NVIDIA's service.

    The question is None for unreadable GPUs.

    Raises:
        MalformedEvidence: the report or a quote cannot be read.
    """
    report = read_report(evidence.report)
    machines = (*([report.gateway] if report.gateway else ()), *report.models)
    managers = (machine.compose_manager_attestation for machine in report.models)
    raw = (
        *(machine.intel_quote for machine in machines),
        *(manager.quote for manager in managers if manager),
    )
    gpus = (gpu_question(one.nvidia_payload or "", evidence.nonce) for one in report.models)
    return tuple(map(parse_quote, raw)), tuple(gpus)


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
    """Verify everything in a report; bad evidence becomes failed checks.

    Args:
        nras: NVIDIA's word on the GPUs of each machine, in the report's order.
        now: Unix seconds at which everything must be valid.
        pins: None accepts any machine.
    """
    try:
        report = read_report(evidence.report)
    except MalformedEvidence as error:
        return ModelFindings(Report([failed("report", str(error))]))
    verification = _Verification(report, evidence, collateral, now, firmware, pins, trust)
    if report.gateway is not None:
        verification.gateway(report.gateway)
    verification.checks.append(_tls_key_check(report, evidence.peer_key_sha256))
    for number, machine in enumerate(report.models, start=1):
        asked = number <= len(nras)
        word = nras[number - 1] if asked else NrasWord(why="NVIDIA was not asked")
        verification.model(machine, number, word)
    if report.listed:
        message = "more machines are named without all of their evidence: their keys do not count"
        verification.checks.append(not_checked("listed", f"{report.listed} {message}"))
    return verification.findings()


@dataclass(slots=True)
class _Verification:
    """Inputs of `verify_model`, and the checks so far."""

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
        td = self._td("gateway", machine, machine.intel_quote, machine.event_log)
        if td is not None:
            self.machines.append(("gateway", td))
            keys = _key_checks(machine, td.quote, self.evidence.nonce)
            self._add("gateway", td, *keys, *pin_checks("gateway", td, self.pins))

    def model(self, machine: ModelMachine, number: int, nras: NrasWord) -> None:
        suffix = "" if number == 1 else f"_{number}"
        td = self._td(f"model{suffix}", machine, machine.intel_quote, machine.event_log)
        if td is None:
            return
        self.machines.append(("model", td))
        self._add(
            f"model{suffix}",
            td,
            *_key_checks(machine, td.quote, self.evidence.nonce),
            self._name_check(machine.model_name),
            *self._gpu_checks(machine.nvidia_payload, nras),
            *pin_checks("model", td, self.pins),
            not_checked("weights", "no measurement covers the weights of the model"),
        )
        self._manager(f"compose_manager{suffix}", machine, td.quote)

    def findings(self) -> ModelFindings:
        report, checks = self.report, Report(self.checks)
        if not checks.passed:
            return ModelFindings(checks, machines=tuple(self.machines))
        gateway = (report.gateway,) if report.gateway is not None else ()
        keys = (machine.tls_cert_fingerprint for machine in gateway or report.models)
        return ModelFindings(
            report=checks,
            signers=(
                *(("gateway", one.signing_algo, one.signing_address) for one in gateway),
                *(("provider_tee", one.signing_algo, one.signing_address) for one in report.models),
            ),
            tls_keys=frozenset(key for key in keys if key is not None),
            expires_at=min(self.ends),
            vouched=tuple(self.vouched),
            machines=tuple(self.machines),
        )

    def _td(
        self, part: str, machine: Machine, quote: bytes, event_log: str | list[Any]
    ) -> TdFindings | None:
        """Verify a quote; record a failed check and return None if it cannot be read."""
        td = (quote, event_log, machine.app_compose)
        try:
            found = verify_td(*td, self.collateral, now=self.now, trust=self.trust)
        except MalformedEvidence as error:
            self.checks.append(failed(f"{part}.quote", str(error)))
            return None
        if found.expires_at is not None:
            self.ends.append(found.expires_at)
        return found

    def _add(self, part: str, td: TdFindings, *checks: Check, leaving_out: str = "") -> None:
        """Record the checks on a machine's quote, and others that rest on it."""
        of_td = [check for check in td.report if check.name != leaving_out]
        if self.pins is None:
            of_td = [_by_an_unknown_system(check) for check in of_td]
        self.checks.extend(Report(as_good_as(td.report["quote"], (*of_td, *checks))).under(part))

    def _name_check(self, name: str | None) -> Check:
        if name is None and self.report.gateway is None:
            return not_checked("name", "the endpoint, which is one model's, does not name it")
        if name != self.evidence.model:
            return failed("name", "the report is about another model than the one asked for")
        return claimed("name", "the report is about the model that was asked for")

    def _gpu_checks(self, payload: str | None, nras: NrasWord) -> tuple[Check, ...]:
        if payload is None:
            return (failed("gpus", "the report holds no evidence of GPUs"),)
        nonce, elsewhere = self.evidence.nonce, frozenset(self.gpu_keys)
        gpus = verify_gpus(
            payload, nonce=nonce, now=self.now, trust=self.trust, elsewhere=elsewhere
        )
        self.gpu_keys |= gpus.own_keys
        why = "only the shared nonce shows that GPUs and processor are one machine"
        return (*gpus.checks, *self._nras_checks(gpus, nras), not_checked("gpu_binding", why))

    def _nras_checks(self, gpus: GpuFindings, nras: NrasWord) -> tuple[Check, ...]:
        if nras.refused:
            message = f"NVIDIA's service does not vouch for the GPUs: {nras.why}"
            return (failed("gpu_firmware", message),)
        if nras.why:
            return (self._earlier_word_check(gpus.devices, nras.why),)
        nonce, now, trust = self.evidence.nonce, self.now, self.trust
        checks, end = verify_nras(nras, nonce=nonce, serials=gpus.serials, now=now, trust=trust)
        if end is not None:
            self.ends.append(end)
        self.vouched.append(gpus.devices)
        return checks

    def _earlier_word_check(self, devices: Devices, why: str) -> Check:
        until = self.firmware.vouched_until.get(devices, 0)
        if until > self.now:
            self.ends.append(int(until))
            moment = datetime.fromtimestamp(until, UTC).strftime("%Y-%m-%d %H:%M UTC")
            counts = f"{EARLIER_WORD}, which counts until {moment} while its service is not reached"
            return proven("gpu_firmware", f"{counts} ({why})")
        return not_checked(
            "gpu_firmware",
            "the GPUs' signatures were checked here; NVIDIA's reference values and its list of "
            f"revoked certificates were not: {why}",
            asked=self.firmware.required,
        )

    def _manager(self, part: str, machine: ModelMachine, model: TdQuote) -> None:
        manager = machine.compose_manager_attestation
        if manager is None:
            why = "the report does not say what was started after the machine's boot"
            self.checks.append(failed(f"{part}.quote", why))
            return
        td = self._td(part, machine, manager.quote, manager.event_log)
        if td is None:
            return
        self._add(
            part,
            td,
            _nonce_check(td.quote, manager.nonce, self.evidence.nonce),
            proven_if(
                _identity(td.quote) == _identity(model),
                "machine",
                "this quote is of the very machine that runs the model",
                "this quote is of another machine than the model's",
            ),
            proven_if(
                compare_digest(td.quote.report_data[:32], _hash_of(manager.actions)),
                "actions",
                "the quote vouches for the whole log of actions",
                "the quote vouches for another log of actions",
            ),
            claimed("started", "only that log says which images run the model"),
            leaving_out="images",  # one compose file starts the model's machine and its manager
        )


def _by_an_unknown_system(check: Check) -> Check:
    if check.name not in _WHAT_A_SYSTEM_SAYS or check.verdict is not Verdict.PROVEN:
        return check
    return claimed(check.name, f"by the word of a system that is not pinned, {check.message}")


# Keys and quotes

ADDRESS_BYTES: Final = 20


def keccak256(data: bytes) -> bytes:
    """Return Ethereum's hash: Keccak with the padding from before SHA-3."""
    return keccak.new(digest_bits=256, data=data).digest()


def ethereum_address(public_key: bytes) -> bytes:
    """Return the 20 bytes of address for the 64 bytes x and y of a public key."""
    return keccak256(public_key)[-ADDRESS_BYTES:]


def _key_checks(machine: Machine, quote: TdQuote, nonce: bytes) -> tuple[Check, ...]:
    tls_key = machine.tls_cert_fingerprint
    keys = hashlib.sha256(machine.signing_address + (tls_key or b"")).digest()
    return (
        _nonce_check(quote, machine.request_nonce, nonce),
        proven_if(
            tls_key is not None and compare_digest(quote.report_data[:32], keys),
            "report_data",
            "the quote vouches for the keys that the report names",
            "the quote vouches for other keys than the report names, or for no TLS key",
        ),
        proven_if(
            _key_fits(machine),
            "signing_key",
            f"the {machine.signing_algo} signing key belongs to the address in the quote",
            "the report's signing key does not belong to the address in the quote",
        ),
    )


def _nonce_check(quote: TdQuote, stated: bytes, nonce: bytes) -> Check:
    return proven_if(
        compare_digest(quote.report_data[32:], nonce) and compare_digest(stated, nonce),
        "nonce",
        "the quote was made for this request",
        "the quote was made for another request",
    )


def _hash_of(actions: object) -> bytes:
    try:
        return hashlib.sha256(canonical_json(actions).encode()).digest()
    except (RecursionError, UnicodeEncodeError):
        return b""  # no machine can have hashed these


def _identity(quote: TdQuote) -> tuple[object, ...]:
    """Return values that differ even between machines of one kind: RTMR3 has the instance's id."""
    owner = (quote.mr_owner, quote.mr_owner_config)
    return (quote.mr_td, quote.rtmrs, quote.mr_config_id, owner)


def _key_fits(machine: Machine) -> bool:
    """Return whether address and public key fit; the gateway's report may leave out an ecdsa key.

    For ed25519 the address is the key itself.
    """
    key, address = machine.signing_public_key, machine.signing_address
    if machine.signing_algo == "ed25519":
        return len(address) == 32 and compare_digest(address if key is None else key, address)
    if key is None:
        return not isinstance(machine, ModelMachine) and len(address) == ADDRESS_BYTES
    return len(key) == 64 and compare_digest(ethereum_address(key), address)


def _tls_key_check(report: ModelReport, peer_key_sha256: bytes | None) -> Check:
    asked = report.gateway if report.gateway is not None else report.models[0]
    attested = asked.tls_cert_fingerprint
    if attested is None:
        return failed("tls_key", "the report names no TLS key")
    if peer_key_sha256 is None:
        return failed("tls_key", "the connection was not made over TLS")
    if report.tls_certificate is not None and _key_of(report.tls_certificate) != attested:
        return failed("tls_key", "the report's TLS certificate has another key than its quote")
    return proven_if(
        compare_digest(attested, peer_key_sha256),
        "tls_key",
        "the connection ends inside the attested machine",
        "the connection ends somewhere else than in the attested machine",
    )


def _key_of(pem: str) -> bytes | None:
    """Return SHA-256 of the public key in a chain's first certificate."""
    try:
        leaf = x509.load_pem_x509_certificate(pem.encode())
        return key_sha256(leaf.public_bytes(Encoding.DER))
    except (ValueError, UnsupportedAlgorithm):
        return None
