"""What is known about the model in use, and the messages about it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Final

from bot.attestation.checks import Report, Verdict
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.near_ai.verification import EARLIER_WORD

NAMED_CHECKS: Final = 3
"""Failed checks that are named; of more it is only said how many."""


class ModelState(StrEnum):
    """What is known about the model, in a word."""

    PENDING = "pending"
    VERIFIED = "verified"
    FAILED = "failed"
    UNAVAILABLE = "unavailable"
    NOT_OFFERED = "not_offered"


@dataclass(frozen=True, slots=True)
class ModelVerdict:
    """What is known about the model, and since when.

    Attributes:
        state: in a word.
        reason: why it is not verified or, for a verified one, what troubles its next
            verification; a clause, empty where there is nothing to say.
        since: unix seconds at which it came to this.
        report: the checks, where there was something to check.
        expires_at: unix seconds, for a verified model.
        evidence: what was checked.
    """

    state: ModelState
    reason: str
    since: int
    report: Report | None = None
    expires_at: int | None = None
    evidence: ModelEvidence | None = None


def refusal(verdict: ModelVerdict) -> str:
    """Return the sentence for a person whose message is not sent to a model without proof."""
    match verdict.state:
        case ModelState.PENDING:
            why = "its proof of who can read along is still being checked"
            advice = "please try again in a minute"
        case ModelState.FAILED:
            why = f"its proof of who can read along does not hold ({verdict.reason})"
            advice = _TELL
        case ModelState.NOT_OFFERED:
            why = "its endpoint cannot prove who reads along, and I may only use one that can"
            advice = _TELL
        case _:
            why = verdict.reason
            advice = "please try again in a few minutes, and tell whoever runs me if it stays"
    return f"I have not sent your message to the model, because {why}; {advice}."


def summary(verdict: ModelVerdict) -> str:
    """Return one or two sentences about the model for `!verify` and `!status`."""
    match verdict.state:
        case ModelState.PENDING:
            return "The model's proof of who can read along is being checked."
        case ModelState.VERIFIED:
            open_ends = f"{_firmware(verdict.report)}{_unpinned(verdict.report)}"
            return f"{_verified(verdict)}{open_ends}{_trouble(verdict)}"
        case ModelState.FAILED:
            return f"The model's proof does not hold, since {_when(verdict)}: {_failed(verdict)}."
        case ModelState.UNAVAILABLE:
            return f"The model is not verified, since {_when(verdict)}: {verdict.reason}."
        case ModelState.NOT_OFFERED:
            return f"The model's endpoint cannot prove who reads along: {verdict.reason}."


_TELL: Final = "please tell whoever runs me"


def _failed(verdict: ModelVerdict) -> str:
    """Return why it failed, and the names of the checks for who wants to look closer."""
    names = [check.name for check in verdict.report.failures] if verdict.report else []
    more = len(names) - NAMED_CHECKS
    named = ", ".join(names[:NAMED_CHECKS]) + (f" and {more} more" if more > 0 else "")
    return f"{verdict.reason} ({named})"


def _verified(verdict: ModelVerdict) -> str:
    until = f", which holds until {_moment(verdict.expires_at)}" if verdict.expires_at else ""
    return (
        f"The model proved at {_when(verdict)} that it runs in a trusted execution environment"
        f"{until}."
    )


def _firmware(report: Report | None) -> str:
    checks = [check for check in report or () if check.name.endswith("gpu_firmware")]
    if any(check.verdict is Verdict.NOT_CHECKED for check in checks):
        return " Its GPUs were checked by their own signatures only, without NVIDIA's service."
    if any(check.message.startswith(EARLIER_WORD) for check in checks):
        return " NVIDIA's service does not answer now; what it said of these GPUs before counts."
    return ""


def _unpinned(report: Report | None) -> str:
    claims = report is not None and any(
        check.name.endswith(".os") and check.verdict is Verdict.CLAIMED for check in report
    )
    if not claims:
        return ""
    return " Which system and program run there is only claimed: no measurements are pinned."


def _trouble(verdict: ModelVerdict) -> str:
    return f" Proving it again does not work now: {verdict.reason}." if verdict.reason else ""


def _when(verdict: ModelVerdict) -> str:
    return _moment(verdict.since)


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")
