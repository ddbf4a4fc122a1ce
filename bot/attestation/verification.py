"""A bundle as a whole: from Intel's signature to the Signal account in front of somebody.

The checks, in order: those of the enclave (`td`), of what is left to its operator
(`environment`), of what it is tied to (`binding`), those against a release (`release`), and the
model's, under names such as `model.quote` and `model.gateway.quote`.

All but the model's rest on the quote. Where its signatures are not verified, nothing else counts
as proven or claimed, however well the pieces fit: anybody can make pieces that fit.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bot.attestation.binding import binding_checks
from bot.attestation.bundle import Bundle
from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    as_good_as,
    claimed,
    failed,
    not_checked,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.evidence import NrasWord
from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.near_ai.verification import FirmwareRule, verify_model
from bot.attestation.operator_inputs import environment_check
from bot.attestation.quote import low_s
from bot.attestation.release import Release, release_checks
from bot.attestation.statement import Statement
from bot.attestation.strict_json import decode
from bot.attestation.tdx_guest import CollateralFor, TdEvidence, TdFindings, verify_td
from bot.attestation.trust import REAL, Trust
from bot.messaging.safety_number import half


@dataclass(frozen=True, slots=True)
class BundleFacts:
    """What a bundle says, for programs that look further. As good as the report beside it.

    Attributes:
        compose_hash: hex, of the configuration that started.
        app_id: hex, the application to dstack.
        instance_id: hex, this machine to dstack.
        key_provider: where the enclave's keys come from.
        key_provider_id: which one, hex.
        aci: uuid of the Signal account.
        safety_number_half: the thirty digits that it contributes to every safety number.
        version: of the bot.
        commit: of its source.
        issued_at: UTC, when the bot made the bundle.
        policy: JSON text, what the bot says that it does.
        model: the model that it answers with.
    """

    compose_hash: str | None
    app_id: str | None
    instance_id: str | None
    key_provider: str | None
    key_provider_id: str | None
    aci: str | None
    safety_number_half: str | None
    version: str | None
    commit: str | None
    issued_at: str | None
    policy: str
    model: str | None


class BundleReport(Report):
    """The checks of a bundle, and what it is about."""

    def __init__(self, checks: Iterable[Check], facts: BundleFacts) -> None:
        super().__init__(checks)
        self.facts: Final = facts


def verify_bundle(
    bundle: Bundle,
    *,
    challenge: str,
    collateral: CollateralFor,
    now: int,
    safety_number: str | None = None,
    release: Release | None = None,
    nras: Sequence[NrasWord] = (),
    look_at_model: bool = True,
    trust: Trust = REAL,
) -> BundleReport:
    """Check everything in a bundle. Bad evidence is never an error: it becomes a failed check.

    Args:
        bundle: what the bot handed out.
        challenge: what it was asked with.
        collateral: Intel's word on the platforms of the quotes in it.
        now: Unix seconds at which everything must be valid.
        safety_number: sixty digits, as Signal shows them in the chat with the bot.
        release: what was published.
        nras: NVIDIA's word on the GPUs of each of the model's machines; empty: it was not asked.
        look_at_model: whether the model's evidence is verified as well; that it is sealed in, and
            how old it is, is looked at in any case.
        trust: whose roots.
    """
    evidence = TdEvidence(bundle.quote, bundle.event_log, bundle.app_compose)
    findings = verify_td(evidence, collateral, now=now, trust=trust)
    statement = _read_statement(bundle.statement)
    parts = (
        *findings.report,
        environment_check(bundle.app_compose, is_running=findings.compose_hash is not None),
        *binding_checks(
            bundle, findings.quote, statement, challenge=challenge, safety_number=safety_number
        ),
        *release_checks(findings, release, app_compose=bundle.app_compose),
    )
    quote = _with_its_form(findings.report["quote"], bundle.quote, statement)
    own = Report(quote if check.name == "quote" else check for check in as_good_as(quote, parts))
    model = (
        _model_checks(bundle, own, collateral, nras, now=now, trust=trust) if look_at_model else ()
    )
    return BundleReport((*own, *model), _facts(bundle, findings, statement))


def _with_its_form(check: Check, quote: bytes, statement: Statement | None) -> Check:
    """Refuse a quote whose signatures somebody has rewritten; show it where bots handed out both.

    Anybody can turn a signature into its other form, which is as valid (`quote.low_s`). Bots hand
    out one of the two since statements of version 2.
    """
    if check.verdict is not Verdict.PROVEN or low_s(quote) == quote:
        return check
    if statement is not None and statement.model is not None:
        return failed(check.name, "its signatures were rewritten: the bot hands out the lower form")
    return replace(check, message=f"{check.message}; its signatures are not in their lower form")


def _read_statement(text: str) -> Statement | None:
    try:
        return Statement.parse(text)
    except MalformedEvidence:
        return None


def _model_checks(
    bundle: Bundle,
    own: Report,
    collateral: CollateralFor,
    nras: Sequence[NrasWord],
    *,
    now: int,
    trust: Trust,
) -> Iterator[Check]:
    """Check what the model's endpoint showed, with the pins that the bot's statement names."""
    model = bundle.model
    if model is None:
        yield not_checked("model", "the bot showed no evidence of a model")
        return
    yield _which_model_check(model.model, bundle.policy, own)
    has_pins = any(c.name == "model_pins" and c.verdict is Verdict.CLAIMED for c in own)
    findings = verify_model(
        model,
        collateral=collateral,
        nras=nras,
        now=now,
        firmware=FirmwareRule(required=bool(nras), vouched_until={}),
        pins=ModelPins.parse(bundle.model_pins) if has_pins and bundle.model_pins else None,
        trust=trust,
    )
    for check in findings.report:
        named = replace(check, name=_in_the_models_part(check.name))
        yield _said_by_the_bot(named) if check.name == "tls_key" else named


def _in_the_models_part(name: str) -> str:
    """Put `model.` before a name, unless it is there: `model.quote` is the model's own quote."""
    return name if name.startswith(("model.", "model_")) else f"model.{name}"


def _which_model_check(model: str, text: str, own: Report) -> Check:
    if own["policy"].verdict is not Verdict.CLAIMED:
        return not_checked("model", "which model answers is unknown without a policy that counts")
    values = decode(text, "the policy")
    if not isinstance(values, dict) or values.get("model") != model:
        return failed("model", "the evidence is about another model than the bot says it uses")
    if own["model_evidence"].verdict is not Verdict.PROVEN:
        return not_checked("model", f"the bot names {model}, but not the machines below")
    return claimed("model", f"the bot says that {model} answers, on machines as below")


def _said_by_the_bot(check: Check) -> Check:
    """Whose key the bot met at the other end of its connection, nobody else has seen."""
    if check.verdict is not Verdict.PROVEN:
        return check
    return claimed(check.name, f"by the bot's word, {check.message}")


def _facts(bundle: Bundle, findings: TdFindings, statement: Statement | None) -> BundleFacts:
    boot = findings.boot
    return BundleFacts(
        compose_hash=boot.compose_hash.hex() if boot else None,
        app_id=boot.app_id.hex() if boot else None,
        instance_id=boot.instance_id.hex() if boot else None,
        key_provider=boot.key_provider if boot else None,
        key_provider_id=boot.key_provider_id if boot else None,
        aci=statement.aci if statement else None,
        safety_number_half=_half(statement) if statement else None,
        version=statement.version if statement else None,
        commit=statement.commit if statement else None,
        issued_at=statement.issued_at if statement else None,
        policy=bundle.policy,
        model=bundle.model.model if bundle.model else None,
    )


def _half(statement: Statement) -> str:
    return half(statement.aci, bytes.fromhex(statement.identity_key))
