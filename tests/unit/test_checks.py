"""What a report of checks comes to."""

from bot.attestation.checks import Report, claimed, failed, not_checked, proven

PROVEN, FAILED = proven("quote", "it is genuine"), failed("tcb", "it is old")
ASKED = not_checked("collateral", "nobody answered", asked=True)
NOT_ASKED = not_checked("release", "no file was given")


def test_a_report_of_nothing_has_not_passed() -> None:
    assert not Report([]).passed


def test_a_report_passes_when_nothing_failed_and_all_that_was_asked_for_was_checked() -> None:
    assert Report([PROVEN, claimed("code", "it says so"), NOT_ASKED]).passed
    assert not Report([PROVEN, FAILED]).passed
    assert not Report([PROVEN, ASKED]).passed


def test_failures_are_failed_checks_and_missing_asked_ones() -> None:
    assert Report([PROVEN, FAILED, NOT_ASKED, ASKED]).failures == (FAILED, ASKED)
