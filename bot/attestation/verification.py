"""Verification of a whole bundle: from Intel's signature to the Signal account in a chat.

A pure function of evidence, collateral, time and trust. The checks, in order: those of the enclave
(`tdx_guest`), `environment` (`release`), those of the statement below, those against a release
(`release`), and the model's, with names such as `model.quote` and `model.gateway.quote`.

All but the model's rest on the quote. Unless its signatures are verified, nothing else counts as
proven or claimed, because anyone can forge evidence whose parts fit together. A statement in turn
counts only if the quote holds its hash; it proves the account, and claims the rest.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hmac import compare_digest
from typing import Final

from bot.attestation.bundle import Bundle, ModelSeal, Statement, challenge_hash, statement_hash
from bot.attestation.checks import (
    Check,
    Report,
    Verdict,
    as_good_as,
    claimed,
    failed,
    not_checked,
    proven_if,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.nvidia import NrasWord
from bot.attestation.near_ai.pins import ModelPins, pins_sha256
from bot.attestation.near_ai.verification import FirmwareRule, verify_model
from bot.attestation.quote import TdQuote, low_s
from bot.attestation.release import Release, environment_check, release_checks
from bot.attestation.strict_json import decode
from bot.attestation.tdx_guest import CollateralFor, TdFindings, verify_td
from bot.attestation.trust import REAL, Trust
from bot.signal.account import contains_half, half

MAX_MODEL_AGE_SECONDS: Final = 3600
"""Greatest age of the model's evidence in the proof of a bot that requires it."""
REQUIRE: Final = "require"
MAX_SHOWN_VALUE: Final = 200
"""Characters that are shown of a value in the policy."""


@dataclass(frozen=True, slots=True)
class Asked:
    """Input of the person who verifies.

    Attributes:
        challenge: exactly as sent to the bot.
        safety_number: sixty digits, as Signal shows them in the chat with the bot.
    """

    challenge: str
    safety_number: str | None = None
    release: Release | None = None


class BundleReport(Report):
    """The checks of a bundle, and its contents for other programs, as good as the checks."""

    def __init__(self, checks: Iterable[Check], facts: Mapping[str, str | None]) -> None:
        super().__init__(checks)
        self.facts: Final = facts


def verify_bundle(
    bundle: Bundle,
    asked: Asked,
    *,
    collateral: CollateralFor,
    now: int,
    nras: Sequence[NrasWord] = (),
    look_at_model: bool = True,
    trust: Trust = REAL,
) -> BundleReport:
    """Check everything in a bundle; bad evidence is a failed check, never an error.

    Args:
        collateral: for every quote in the bundle.
        now: Unix seconds at which everything must be valid.
        nras: NVIDIA's word on each of the model's machines; empty if NVIDIA was not asked.
        look_at_model: whether to verify the model's evidence, and not only its hash and age.
    """
    td = (bundle.quote, bundle.event_log, bundle.app_compose)
    try:
        findings = verify_td(*td, collateral, now=now, trust=trust)
    except MalformedEvidence as error:
        return BundleReport([failed("quote", str(error))], {})
    is_running = findings.compose_hash is not None
    try:
        statement = Statement.parse(bundle.statement)
    except MalformedEvidence:
        statement = None
    parts = (
        *findings.report,
        environment_check(bundle.app_compose, asked.release, is_running=is_running),
        *_statement_checks(bundle, findings.quote, statement, asked),
        *release_checks(findings, asked.release, bundle.app_compose),
    )
    quote = findings.report["quote"]
    if quote.verdict is Verdict.PROVEN and low_s(bundle.quote) != bundle.quote:
        # Anyone can turn a signature into its other valid form; bots hand out the lower one.
        quote = failed("quote", "its signatures were rewritten: the bot hands out the lower form")
    own = Report(quote if check.name == "quote" else check for check in as_good_as(quote, parts))
    model: Iterable[Check] = ()
    if look_at_model:
        model = _model_checks(bundle, own, collateral, nras, now=now, trust=trust)
    return BundleReport((*own, *model), _facts(bundle, findings, statement))


def _facts(
    bundle: Bundle, findings: TdFindings, statement: Statement | None
) -> dict[str, str | None]:
    boot = findings.boot
    return {
        "compose_hash": boot.compose_hash.hex() if boot else None,
        "app_id": boot.app_id.hex() if boot else None,
        "instance_id": boot.instance_id.hex() if boot else None,
        "key_provider": boot.key_provider if boot else None,
        "key_provider_id": boot.key_provider_id if boot else None,
        "aci": statement.aci if statement else None,
        "safety_number_half": _half(statement) if statement else None,
        "version": statement.code.version if statement else None,
        "commit": statement.code.commit if statement else None,
        "issued_at": statement.issued_at if statement else None,
        "policy": bundle.policy,
        "model": bundle.model.model if bundle.model else None,
    }


def _half(statement: Statement) -> str:
    return half(statement.aci, bytes.fromhex(statement.identity_key))


# The statement


def _statement_checks(
    bundle: Bundle, quote: TdQuote, statement: Statement | None, asked: Asked
) -> Iterator[Check]:
    bound = compare_digest(quote.report_data[:32], statement_hash(bundle.statement))
    yield proven_if(
        bound and statement is not None,
        "statement",
        "the quote vouches for exactly this statement",
        "the quote vouches for another statement, or this is not one that the bot makes",
    )
    yield proven_if(
        compare_digest(quote.report_data[32:], challenge_hash(asked.challenge)),
        "challenge",
        "the quote was made for this challenge, so it is not an old one",
        "the quote was not made for this challenge: it is an old one, or another person's",
    )
    if statement is None or not bound:
        why = "says nothing unless the quote vouches for the statement"
        names = "safety_number linked_devices key_origin policy code issued_at"
        yield from (not_checked(name, why, asked=True) for name in names.split())
        return
    if asked.safety_number is None:
        yield not_checked("safety_number", "no safety number was given to compare with")
    else:
        yield proven_if(
            contains_half(asked.safety_number, _half(statement)),
            "safety_number",
            "the account in your chat is the one that the statement names",
            "the account in your chat is another one, which shows you this bot's proof as its own",
        )
    yield _claimed_if(
        statement.linked_devices == 0,
        "linked_devices",
        "no other device is linked to the account",
        f"devices outside are linked to the account ({statement.linked_devices}): they can read"
        " what you write",
    )
    yield _claimed_if(
        statement.key_origin == "generated-in-tee",
        "key_origin",
        "the account's key was made inside the enclave",
        "the account's key was brought in from outside: its maker may hold a copy, so the account"
        " need not live in the enclave alone",
    )
    yield _policy_check(statement, bundle.policy)
    yield claimed("code", f"version {statement.code.version}, commit {statement.code.commit}")
    yield claimed("issued_at", f"{statement.issued_at}, by the clock of the machine")
    yield from _sealed_checks(statement.model, bundle)


def _claimed_if(holds: bool, name: str, message: str, otherwise: str) -> Check:
    return claimed(name, message) if holds else failed(name, otherwise)


def _policy_check(statement: Statement, policy: str) -> Check:
    digest = hashlib.sha256(policy.encode()).hexdigest()
    if not compare_digest(digest, statement.policy_sha256):
        return failed("policy", "the policy is another one than the statement names")
    try:
        values = decode(policy, "the policy")
    except MalformedEvidence as error:
        return failed("policy", str(error))
    if not isinstance(values, dict):
        return failed("policy", "the policy is not a list of values")
    if values.get("model_policy") not in (None, statement.model.policy):
        return failed("policy", "policy and statement say different things of the model")
    return claimed("policy", ", ".join(f"{key}: {_shown(v)}" for key, v in values.items()))


def _shown(value: object) -> str:
    if isinstance(value, list):
        text = "/".join(map(str, value)) or "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[:MAX_SHOWN_VALUE]}..."


def _sealed_checks(seal: ModelSeal, bundle: Bundle) -> Iterator[Check]:
    """Compare the model's part of a bundle with the hashes in the statement."""
    required = seal.policy == REQUIRE
    sealed, shown = seal.evidence_sha256, bundle.model.sha256() if bundle.model else None
    pins = bundle.model_pins
    if not required and sealed is shown is seal.pins_sha256 is pins is None:
        return
    missing = failed if required else not_checked
    if sealed is None and shown is None:
        yield missing("model_evidence", "the bot showed no evidence of a model")
        yield not_checked("model_age", "there is no evidence of a model")
    else:
        yield proven_if(
            compare_digest(sealed or "", shown or ""),
            "model_evidence",
            "the quote vouches for exactly this evidence of the model",
            "the evidence of the model is left out, or not what the statement names",
        )
        age = seal.age_seconds
        yield _claimed_if(
            age is not None and (age <= MAX_MODEL_AGE_SECONDS or not required),
            "model_age",
            f"the model's evidence was {age} seconds old, by the clock of the machine",
            "the statement does not say how old the model's evidence is, or it is older than an"
            " hour, and proves nothing of now",
        )
    if pins is None and seal.pins_sha256 is None:
        yield missing("model_pins", "the bot takes any machine for the model's: nothing is pinned")
        return
    yield _claimed_if(
        pins is not None and pins_sha256(pins) == seal.pins_sha256 and _can_read(pins),
        "model_pins",
        f"the bot accepts only the machines of these pins: {seal.pins_sha256}",
        "the pins are not those that the statement names, or cannot be read",
    )


def _can_read(pins: str) -> bool:
    try:
        ModelPins.parse(pins)
    except MalformedEvidence:
        return False
    return True


# The model


def _model_checks(
    bundle: Bundle,
    own: Report,
    collateral: CollateralFor,
    nras: Sequence[NrasWord],
    *,
    now: int,
    trust: Trust,
) -> Iterator[Check]:
    """Check the evidence of the model's endpoint with the pins that the statement names."""
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
        prefix = "" if check.name.startswith(("model.", "model_")) else "model."
        named = replace(check, name=f"{prefix}{check.name}")
        if check.name == "tls_key" and check.verdict is Verdict.PROVEN:
            # Only the bot has seen the key at the other end of its connection.
            named = claimed(named.name, f"by the bot's word, {check.message}")
        yield named


def _which_model_check(model: str, policy: str, own: Report) -> Check:
    if own["policy"].verdict is not Verdict.CLAIMED:
        return not_checked("model", "which model answers is unknown without a policy that counts")
    values = decode(policy, "the policy")
    if not isinstance(values, dict) or values.get("model") != model:
        return failed("model", "the evidence is about another model than the bot says it uses")
    if own["model_evidence"].verdict is not Verdict.PROVEN:
        return not_checked("model", f"the bot names {model}, but not the machines below")
    return claimed("model", f"the bot says that {model} answers, on machines as below")
