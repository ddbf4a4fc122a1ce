"""Results of a verification: one check after the other, each with a verdict and a sentence."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """Result of a check.

    CLAIMED is a statement of measured code about itself: as good as the code, not proven by
    hardware.
    """

    PROVEN = "proven"
    CLAIMED = "claimed"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Check:
    """A line of a report.

    Attributes:
        name: lower-case words joined by underscores; stable, so that tests and people can rely on
            it.
        message: one plain sentence; for NOT_CHECKED, the reason.
        asked: whether the person asked for it. A check without input from the person (no release
            file, no safety number) may stay unchecked, and the report still passes.
    """

    name: str
    verdict: Verdict
    message: str
    asked: bool = True


def proven(name: str, message: str) -> Check:
    """Return a check that hardware or cryptography vouches for."""
    return Check(name, Verdict.PROVEN, message)


def claimed(name: str, message: str) -> Check:
    """Return a statement of measured code about itself."""
    return Check(name, Verdict.CLAIMED, message, asked=False)


def failed(name: str, message: str) -> Check:
    """Return a check with a bad result."""
    return Check(name, Verdict.FAILED, message)


def not_checked(name: str, why: str, *, asked: bool = False) -> Check:
    """Return a check that was not possible."""
    return Check(name, Verdict.NOT_CHECKED, why, asked=asked)


def proven_if(holds: bool, name: str, message: str, otherwise: str) -> Check:
    """Return `message` as proven if it holds, else `otherwise` as failed."""
    return proven(name, message) if holds else failed(name, otherwise)


class Report:
    """All checks of one verification, in order."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self.checks: Final = tuple(checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, name: str) -> Check:
        """Return the check of a name; KeyError if there is no such check."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def with_verdict(self, verdict: Verdict) -> tuple[Check, ...]:
        """Return the checks with one verdict, in order."""
        return tuple(check for check in self.checks if check.verdict is verdict)

    @property
    def proven_names(self) -> set[str]:
        """Names of the proven checks."""
        return {check.name for check in self.with_verdict(Verdict.PROVEN)}

    @property
    def failures(self) -> tuple[Check, ...]:
        """Checks that keep the report from passing: failed, or asked for and not checked."""
        return tuple(
            check
            for check in self.checks
            if check.verdict is Verdict.FAILED
            or (check.asked and check.verdict is Verdict.NOT_CHECKED)
        )

    @property
    def passed(self) -> bool:
        """Whether there are checks and no failures."""
        return bool(self.checks) and not self.failures

    def under(self, prefix: str) -> "Report":
        """Return the same checks with a prefix before their names: `gateway.quote`."""
        return Report(replace(check, name=f"{prefix}.{check.name}") for check in self.checks)


def as_good_as(quote: Check, checks: Iterable[Check]) -> Iterator[Check]:
    """Yield checks that rest on a quote; without a proven quote they prove and claim nothing.

    Anyone can forge evidence whose parts fit together.
    """
    for check in checks:
        counts = check.verdict in {Verdict.PROVEN, Verdict.CLAIMED}
        if counts and quote.verdict is not Verdict.PROVEN:
            yield not_checked(check.name, f"only if the quote is genuine: {check.message}")
        else:
            yield check


_CLOSED_BY_HARDWARE: Final = {"debug", "attributes", "quote", "compose", "images"}
_BY_RELEASE: Final = {"environment", "os"}


def is_closed(report: Report) -> bool:
    """Return whether it is proven that a machine is closed to its operator.

    The system must be a published one, because an unknown system may lie about the programs that
    it started.
    """
    return report.proven_names >= _CLOSED_BY_HARDWARE | _BY_RELEASE


def is_closed_if_published(report: Report) -> bool:
    """Return whether a machine with published code and system is closed to its operator."""
    return report.proven_names >= _CLOSED_BY_HARDWARE
