"""What a verification found: one check after the other, each with its verdict and its message."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final


class Verdict(StrEnum):
    """How a check came out.

    CLAIMED is what measured code says about itself: as good as the code, not proven by hardware.
    """

    PROVEN = "proven"
    CLAIMED = "claimed"
    FAILED = "failed"
    NOT_CHECKED = "not checked"


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a report.

    Attributes:
        name: which check, one lower-case word or two joined by an underscore; the same check has
            the same name everywhere, so that tests and people can rely on it.
        verdict: how it came out.
        message: what that means, in one plain sentence; for NOT_CHECKED, why.
        asked: whether whoever verifies has asked for it. What nobody asked for (no release file,
            no safety number) may stay unchecked without spoiling the result.
    """

    name: str
    verdict: Verdict
    message: str
    asked: bool = True


class Report:
    """All checks of one verification, in the order in which they were made."""

    def __init__(self, checks: Iterable[Check]) -> None:
        self.checks: Final = tuple(checks)

    def __iter__(self) -> Iterator[Check]:
        return iter(self.checks)

    def __getitem__(self, name: str) -> Check:
        """Return the check of a name; KeyError when it was not made."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    @property
    def passed(self) -> bool:
        """Whether nothing failed, nothing asked for stayed unchecked, and something was checked."""
        return bool(self.checks) and all(
            check.verdict is not Verdict.FAILED
            and not (check.asked and check.verdict is Verdict.NOT_CHECKED)
            for check in self.checks
        )

    @property
    def failures(self) -> tuple[Check, ...]:
        """What keeps the report from passing, in order."""
        return tuple(
            check
            for check in self.checks
            if check.verdict is Verdict.FAILED
            or (check.asked and check.verdict is Verdict.NOT_CHECKED)
        )

    def under(self, prefix: str) -> "Report":
        """Return the same checks with a part's name before theirs: `gateway.quote`."""
        return Report(replace(check, name=f"{prefix}.{check.name}") for check in self.checks)


def proven(name: str, message: str) -> Check:
    """Return a check that hardware or cryptography answers for."""
    return Check(name, Verdict.PROVEN, message)


def claimed(name: str, message: str) -> Check:
    """Return what measured code says about itself."""
    return Check(name, Verdict.CLAIMED, message, asked=False)


def failed(name: str, message: str) -> Check:
    """Return a check that did not hold."""
    return Check(name, Verdict.FAILED, message)


def not_checked(name: str, why: str, *, asked: bool = False) -> Check:
    """Return a check that was not made, and why."""
    return Check(name, Verdict.NOT_CHECKED, why, asked=asked)


def as_good_as(quote: Check, checks: Iterable[Check]) -> Iterator[Check]:
    """Return checks that rest on a quote; unless that is proven, they prove and claim nothing.

    Anybody can make pieces that fit each other.
    """
    for check in checks:
        counts = check.verdict in {Verdict.PROVEN, Verdict.CLAIMED}
        if counts and quote.verdict is not Verdict.PROVEN:
            message = f"only if the quote is genuine: {check.message}"
            yield not_checked(check.name, message)
        else:
            yield check


def proven_if(holds: bool, name: str, message: str, otherwise: str) -> Check:
    """Return `message` as proven when it holds, `otherwise` as failed when not."""
    return proven(name, message) if holds else failed(name, otherwise)


_CLOSED: Final = frozenset({"debug", "attributes", "quote", "compose", "images", "environment"})


def is_closed(report: Report) -> bool:
    """Whether it is proven that a machine is closed to whoever operates it.

    An unknown system may say anything of what it started, so the system has to be proven, too.
    """
    return is_closed_by_a_known_system(report) and "os" in _proven(report)


def is_closed_by_a_known_system(report: Report) -> bool:
    """Whether a machine is closed to its operator if the system on it is a published one."""
    return _proven(report) >= _CLOSED


def _proven(report: Report) -> set[str]:
    return {check.name for check in report if check.verdict is Verdict.PROVEN}
