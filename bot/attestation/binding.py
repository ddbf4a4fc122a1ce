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
from bot.attestation.quote import TdQuote
from bot.attestation.safety_number import contains_half, half
from bot.attestation.statement import Statement, challenge_hash, statement_hash
from bot.attestation.strict_json import decode

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
        statement: its statement; None when it is none.
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
        return claimed("policy", _values(decode(policy, "the policy")))
    except MalformedEvidence as error:
        return failed("policy", str(error))


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
