"""A report for people who have never heard of TDX: a table, and what it comes to."""

import textwrap
from collections.abc import Sequence
from typing import Final

from bot.attestation.checks import Check, Report, Verdict

LABELS: Final = {
    "debug": "closed to debuggers",
    "quote": "genuine Intel TDX hardware",
    "tcb": "hardware is up to date",
    "rtmrs": "start-up log is complete",
    "boot_events": "start-up in order",
    "compose": "configuration is the shown one",
    "images": "programs cannot be swapped",
    "statement": "the bot's statement is sealed in",
    "challenge": "made for your challenge",
    "safety_number": "the account in your chat",
    "linked_devices": "no other device reads along",
    "key_origin": "Signal key made inside",
    "policy": "what the bot says it does",
    "code": "what the bot says it is",
    "issued_at": "when the bot says this was made",
    "release": "the published code",
    "os": "the published system",
    "key_provider": "the published key service",
    "model": "the model behind the bot",
}
"""What each check looks at, in words. A check without a label is shown by its name."""

PART_LABELS: Final = {"model": "model", "gateway": "gateway", "compose_manager": "model's manager"}

LEGEND: Final = (
    "proven: hardware or cryptography vouches for it. claimed: the code that was proven says so.\n"
    "not checked: the line says why."
)

_COLOURS: Final = {
    Verdict.PROVEN: "32",
    Verdict.CLAIMED: "36",
    Verdict.FAILED: "1;31",
    Verdict.NOT_CHECKED: "33",
}
_GAP: Final = "  "
_MIN_WORDS_WIDTH: Final = 30
_NARROW_INDENT: Final = 4


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return one line for each check: its verdict, what it looks at, what it means.

    Args:
        report: what was found; its words may come from strangers and are made harmless.
        width: of the screen in columns, at which lines are wrapped; None: one line each.
        colours: whether verdicts are coloured for a terminal.
    """
    labels = [_harmless(label(check.name)) for check in report]
    verdict_width = max(len(verdict) for verdict in Verdict)
    label_width = max(map(len, labels), default=0)
    lines = []
    for check, name in zip(report, labels, strict=True):
        verdict = _coloured(check.verdict, verdict_width, colours=colours)
        words = _harmless(check.words)
        indent = verdict_width + label_width + 2 * len(_GAP)
        if width is not None and width - indent < _MIN_WORDS_WIDTH:
            lines.append(f"{verdict}{_GAP}{name}")
            lines += _wrapped(words, width, _NARROW_INDENT)
        else:
            first, *more = _wrapped(words, width, indent)
            lines += [f"{verdict}{_GAP}{name:<{label_width}}{_GAP}{first.lstrip()}", *more]
    return "\n".join(lines)


def label(name: str) -> str:
    """Return what a check looks at, in words: `model.quote` is about the model's part."""
    *parts, last = name.split(".")
    words = LABELS.get(last, last.replace("_", " "))
    return ", ".join([*(PART_LABELS.get(part, part) for part in parts), words])


def conclusion(report: Report) -> str:
    """Return in one sentence what a report comes to."""
    broken = [check for check in report if check.verdict is Verdict.FAILED]
    if broken:
        return f"Do not rely on this bot: {_count(broken)} failed ({_named(broken)})."
    if not report.passed:
        return f"This proves too little: {_named(report.failures)} could not be checked."
    open_ends = [check for check in report if check.verdict is Verdict.NOT_CHECKED]
    if open_ends:
        return f"Everything you asked for holds. Not looked at: {_named(open_ends)}."
    return "Everything holds."


def _count(checks: Sequence[Check]) -> str:
    return "one check" if len(checks) == 1 else f"{len(checks)} checks"


def _named(checks: Sequence[Check]) -> str:
    return "; ".join(_harmless(label(check.name)) for check in checks)


def _coloured(verdict: Verdict, width: int, *, colours: bool) -> str:
    padded = f"{verdict:<{width}}"
    return f"\033[{_COLOURS[verdict]}m{padded}\033[0m" if colours else padded


def _wrapped(words: str, width: int | None, indent: int) -> list[str]:
    if width is None:
        return [" " * indent + words]
    margin = " " * indent
    return textwrap.wrap(
        words, width, initial_indent=margin, subsequent_indent=margin, break_on_hyphens=False
    ) or [margin]


def _harmless(words: str) -> str:
    """Replace what would move a terminal's cursor, hide text, or end a line."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in words)
