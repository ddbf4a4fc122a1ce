"""What ties a quote to a statement, to a challenge, and to the Signal account in a chat.

What a statement says counts for nothing unless the quote holds its hash: then the checks on it
are not made at all. What it says beside the account is claimed: the measured code says so.
"""

import hashlib
from collections.abc import Iterator
from hmac import compare_digest
from typing import Final

from bot.attestation.bundle import Bundle
from bot.attestation.checks import (
    Check,
    Verdict,
    claimed,
    failed,
    not_checked,
    proven_if,
)
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.near_ai.pins import ModelPins, pins_sha256
from bot.attestation.quote import TdQuote
from bot.attestation.statement import ModelSeal, Statement, challenge_hash, statement_hash
from bot.attestation.strict_json import decode
from bot.messaging.safety_number import contains_half, half

MAX_MODEL_AGE_SECONDS: Final = 3600
"""How old the model's evidence may be in the proof of a bot that requires it."""
REQUIRE: Final = "require"
MAX_SHOWN_VALUE: Final = 200
"""Characters of one value of the policy."""

_ON_THE_STATEMENT: Final = (
    "safety_number", "linked_devices", "key_origin", "policy", "code", "issued_at",
)  # fmt: skip


def binding_checks(
    bundle: Bundle,
    quote: TdQuote | None,
    statement: Statement | None,
    *,
    challenge: str,
    safety_number: str | None,
) -> Iterator[Check]:
    """Check what a quote is tied to: "statement", "challenge", then what the statement says.

    Args:
        bundle: which the others come from.
        quote: its quote; None when unreadable.
        statement: its statement; None when it cannot be read.
        challenge: what the bundle was asked for with.
        safety_number: sixty digits, where somebody has them.
    """
    bound = _statement_check(quote, statement, bundle.statement)
    yield bound
    yield _challenge_check(quote, challenge)
    if statement is None or bound.verdict is not Verdict.PROVEN:
        why = "says nothing unless the quote vouches for the statement"
        yield from (not_checked(name, why, asked=True) for name in _ON_THE_STATEMENT)
        return
    yield _safety_number_check(statement, safety_number)
    yield _linked_devices_check(statement)
    yield _key_origin_check(statement)
    yield _policy_check(statement, bundle.policy)
    yield claimed("code", f"version {statement.version}, commit {statement.commit}")
    yield claimed("issued_at", f"{statement.issued_at}, by the clock of the machine")
    if statement.model is None:
        yield from _unsealed_check(bundle)
    else:
        yield from _sealed_checks(statement.model, bundle)


def _statement_check(quote: TdQuote | None, statement: Statement | None, text: str) -> Check:
    if statement is None:
        return failed("statement", "the statement is not one that this bot makes")
    if quote is None:
        return not_checked("statement", "the quote cannot be read", asked=True)
    return proven_if(
        compare_digest(quote.report_data[:32], statement_hash(text)),
        "statement",
        "the quote vouches for exactly this statement",
        "the quote vouches for another statement than this one",
    )


def _challenge_check(quote: TdQuote | None, challenge: str) -> Check:
    if quote is None:
        return not_checked("challenge", "the quote cannot be read", asked=True)
    return proven_if(
        compare_digest(quote.report_data[32:], challenge_hash(challenge)),
        "challenge",
        "the quote was made for this challenge, so it is no old one",
        "the quote was not made for this challenge: it is an old one, or somebody else's",
    )


def _safety_number_check(statement: Statement, safety_number: str | None) -> Check:
    if safety_number is None:
        return not_checked("safety_number", "no safety number was given to compare with")
    own = half(statement.aci, bytes.fromhex(statement.identity_key))
    return proven_if(
        contains_half(safety_number, own),
        "safety_number",
        "the account in your chat is the one that the statement names",
        "the account in your chat is another one: somebody shows you this bot's proof as theirs",
    )


def _linked_devices_check(statement: Statement) -> Check:
    if statement.linked_devices == 0:
        return claimed("linked_devices", "no other device is linked to the account")
    return failed(
        "linked_devices",
        f"devices outside are linked to the account ({statement.linked_devices}):"
        " whoever has them reads what you write",
    )


def _key_origin_check(statement: Statement) -> Check:
    if statement.key_origin == "generated-in-tee":
        return claimed("key_origin", "the account's key was made inside the enclave")
    return failed(
        "key_origin",
        "the account's key was brought in from outside: whoever made it may hold a copy,"
        " so the account need not live in the enclave alone",
    )


def _policy_check(statement: Statement, policy: str) -> Check:
    digest = hashlib.sha256(policy.encode()).hexdigest()
    if not compare_digest(digest, statement.policy_sha256):
        return failed("policy", "the policy is another one than the statement names")
    try:
        values = decode(policy, "the policy")
        shown = _values(values)
    except MalformedEvidence as error:
        return failed("policy", str(error))
    if statement.model is not None and _model_policy(values) not in (None, statement.model.policy):
        return failed("policy", "policy and statement say different things of the model")
    return claimed("policy", shown)


def _model_policy(policy: object) -> object:
    return policy.get("model_policy") if isinstance(policy, dict) else None


# The model's part


def _sealed_checks(seal: ModelSeal, bundle: Bundle) -> Iterator[Check]:
    """Compare what a statement says of the model's part with what is in the bundle."""
    parts = (seal.evidence_sha256, bundle.model, seal.pins_sha256, bundle.model_pins)
    if seal.policy == REQUIRE or any(part is not None for part in parts):
        yield _model_evidence_check(seal, bundle.model)
        yield _model_age_check(seal)
        yield _model_pins_check(seal, bundle.model_pins)


def _unsealed_check(bundle: Bundle) -> Iterator[Check]:
    """Look at a bundle of an older bot, whose statement says nothing of the model's part.

    Whoever hands it on could have put in the evidence of any other machine, or left it out. So
    where the bot requires proof of its model, that part has to be sealed in.
    """
    try:
        policy = _model_policy(decode(bundle.policy, "the policy"))
    except MalformedEvidence:
        policy = None
    why = "the statement, of an older version of the bot, says nothing of the model's evidence"
    if policy == REQUIRE:
        yield failed("model_evidence", f"the bot requires proof of its model, but {why}")
    elif bundle.model is not None:
        yield not_checked("model_evidence", why)


def _model_evidence_check(seal: ModelSeal, model: ModelEvidence | None) -> Check:
    sealed, shown = seal.evidence_sha256, model.sha256() if model else None
    if sealed is None and shown is None:
        if seal.policy == REQUIRE:
            message = "the bot requires proof of its model, and has none to show"
            return failed("model_evidence", message)
        return not_checked("model_evidence", "the bot showed no evidence of a model")
    if shown is None:
        return failed("model_evidence", "the evidence of the model was left out")
    return proven_if(
        compare_digest(sealed or "", shown),
        "model_evidence",
        "the quote vouches for exactly this evidence of the model",
        "the evidence of the model is not what the statement names",
    )


def _model_age_check(seal: ModelSeal) -> Check:
    age = seal.age_seconds
    if seal.evidence_sha256 is None:
        return not_checked("model_age", "there is no evidence of a model")
    if age is None:
        return failed("model_age", "the statement does not say how old the model's evidence is")
    message = f"the model's evidence was {age} seconds old, by the clock of the machine"
    if age > MAX_MODEL_AGE_SECONDS and seal.policy == REQUIRE:
        return failed("model_age", f"{message}: more than an hour proves nothing of now")
    return claimed("model_age", message)


def _model_pins_check(seal: ModelSeal, pins: str | None) -> Check:
    shown = pins_sha256(pins) if pins is not None else None
    if shown != seal.pins_sha256:
        return failed("model_pins", "the pins are not those that the statement names")
    if pins is None:
        if seal.policy == REQUIRE:
            message = "the bot requires proof of its model, but from any machine: nothing is pinned"
            return failed("model_pins", message)
        return not_checked("model_pins", "the bot takes any machine for the model's")
    try:
        ModelPins.parse(pins)
    except MalformedEvidence as error:
        return failed("model_pins", str(error))
    return claimed("model_pins", f"the bot accepts the machines of these pins alone: {shown}")


def _values(policy: object) -> str:
    if not isinstance(policy, dict):
        raise MalformedEvidence("the policy is no list of values")
    return ", ".join(f"{key}: {_value(value)}" for key, value in policy.items())


def _value(value: object) -> str:
    if isinstance(value, list):
        text = "/".join(map(str, value)) or "none"
    elif isinstance(value, bool):
        text = "yes" if value else "no"
    else:
        text = str(value)
    return text if len(text) <= MAX_SHOWN_VALUE else f"{text[:MAX_SHOWN_VALUE]}..."
