"""A report for people who have never heard of TDX: a table, and what it comes to."""

import textwrap
from collections.abc import Sequence
from typing import Final

from bot.attestation.checks import Check, Report, Verdict, is_closed, is_closed_by_a_known_system
from bot.messaging.safety_number import spaced

LABELS: Final = {
    "debug": "closed to debuggers",
    "quote": "genuine Intel TDX hardware",
    "tcb": "hardware is up to date",
    "attributes": "started without side doors",
    "tdx_module": "a published TDX module",
    "rtmrs": "start-up log is complete",
    "boot_events": "start-up in order",
    "compose": "configuration is the shown one",
    "images": "programs cannot be swapped",
    "environment": "nothing left to its operator",
    "statement": "the bot's statement is sealed in",
    "challenge": "made for your challenge",
    "safety_number": "the account in your chat",
    "linked_devices": "no other device reads along",
    "key_origin": "Signal key made inside",
    "policy": "what the bot says it does",
    "code": "what the bot says it is",
    "issued_at": "when the bot says this was made",
    "model_evidence": "the model's evidence is sealed in",
    "model_age": "how old the model's evidence is",
    "model_pins": "machines that count as the model's",
    "release": "the published code",
    "os": "the published system",
    "key_provider": "the published key service",
    "model": "the model behind the bot",
}
"""What each check on the bot looks at, in words."""

MODEL_LABELS: Final = {
    "report": "a readable report",
    "nonce": "made for one request",
    "report_data": "keys are sealed in",
    "signing_key": "key that signs answers",
    "tls_key": "the connection ends there",
    "name": "the model that was asked for",
    "gpu_chain": "genuine NVIDIA hardware",
    "gpu_nonce": "GPUs: made for one request",
    "gpus": "GPUs signed their state",
    "gpu_tokens": "NVIDIA looked at the GPUs",
    "gpu_firmware": "NVIDIA vouches for the GPUs",
    "gpu_binding": "GPUs belong to the machine",
    "weights": "the model's weights",
    "machine": "on the model's machine",
    "listed": "further machines",
    "actions": "log of actions is complete",
    "started": "what it started",
    "application": "the model's programs",
}
"""Those on the model beside them. A check without a label is shown by its name."""

PARTS: Final = {
    "model": "the model",
    "model.gateway": "the model's gateway",
    "model.compose_manager": "the model's manager",
}
"""Whose checks they are, by what stands before the last dot of their names."""

LEGEND: Final = """\
proven       hardware or cryptography vouches for it
claimed      the code says so: as good as that code
not checked  the line says why"""

_COLOURS: Final = {
    Verdict.PROVEN: "32",
    Verdict.CLAIMED: "36",
    Verdict.FAILED: "1;31",
    Verdict.NOT_CHECKED: "33",
}
_VERDICT_WIDTH: Final = max(len(verdict) for verdict in Verdict)
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
    layout = _Layout(max(map(len, labels), default=0), width, colours=colours)
    lines: list[str] = []
    part = ""
    for check, what in zip(report, labels, strict=True):
        if (now := _part(check.name)) != part:
            part = now
            lines += ["", f"{_harmless(PARTS.get(part, part))}:"]
        lines += layout.lines(check, what)
    return "\n".join(lines)


class _Layout:
    """Columns of a table; on a narrow screen the words stand below."""

    def __init__(self, label_width: int, width: int | None, *, colours: bool) -> None:
        self._label_width = label_width
        self._width = width
        self._colours = colours
        self._indent = _VERDICT_WIDTH + label_width + 2 * len(_GAP)
        self._narrow = width is not None and width - self._indent < _MIN_WORDS_WIDTH

    def lines(self, check: Check, what: str) -> list[str]:
        verdict = f"{check.verdict:<{_VERDICT_WIDTH}}"
        if self._colours:
            verdict = f"\033[{_COLOURS[check.verdict]}m{verdict}\033[0m"
        message = _harmless(check.message)
        if self._narrow:
            return [f"{verdict}{_GAP}{what}", *self._wrapped(message, _NARROW_INDENT)]
        first, *more = self._wrapped(message, self._indent)
        return [f"{verdict}{_GAP}{what:<{self._label_width}}{_GAP}{first.lstrip()}", *more]

    def _wrapped(self, message: str, indent: int) -> list[str]:
        margin = " " * indent
        if self._width is None:
            return [margin + message]
        return textwrap.wrap(
            message, self._width, initial_indent=margin, subsequent_indent=margin
        ) or [margin]


def label(name: str) -> str:
    """Return what a check looks at, in words."""
    last = name.rpartition(".")[2]
    return LABELS.get(last) or MODEL_LABELS.get(last) or last.replace("_", " ")


def _part(name: str) -> str:
    return name.rpartition(".")[0]


def conclusion(report: Report) -> str:
    """Return in one sentence what a report comes to."""
    broken = [check for check in report if check.verdict is Verdict.FAILED]
    if broken:
        return f"Do not rely on this bot: {_count(broken)} failed ({_named(broken)})."
    if not report.passed:
        return f"This proves too little: {_named(report.failures)} could not be checked."
    open_ends = [check for check in report if check.verdict is Verdict.NOT_CHECKED]
    return _achieved(report) + (f" Not looked at: {_named(open_ends)}." if open_ends else "")


def _achieved(report: Report) -> str:
    """Say what a report proves; a code that is not known may call any account its own."""
    proven = {check.name for check in report if check.verdict is Verdict.PROVEN}
    account = "the account in your chat" if "safety_number" in proven else "the account named below"
    closed, left = "", " It is not proven that nothing is left to whoever operates it."
    if is_closed(report):
        closed, left = ", closed to whoever operates it,", ""
    elif is_closed_by_a_known_system(report):
        left = " Nobody has looked at its system, and an unknown one may let its operator look in."
    if {"release", "os"} <= proven:
        return (
            f"Everything you asked for holds: {account} belongs to the published code, which runs"
            f" on genuine Intel hardware{closed.removesuffix(',')}.{left}"
        )
    return (
        f"Everything you asked for holds: a machine of genuine Intel hardware{closed} calls"
        f" {account} its own.{left} Which program runs in it, and so whether that is true, only"
        " the release file proves (--release)."
    )


def how_to_compare(half: str) -> str:
    """Return how somebody finds out whether a bundle is about the account in their chat.

    Args:
        half: the thirty digits that the account contributes to its safety numbers.
    """
    return f"""\
Is it the account in your chat? Its half of the safety number is

    {spaced(half)}

In Signal, open the chat with the bot, tap its name, then View safety number. These
thirty digits must be the first or the last half of it. If they are not, this is the
proof of another bot. (--safety-number "all 60 digits" compares them for you.)"""


def _count(checks: Sequence[Check]) -> str:
    return "one check" if len(checks) == 1 else f"{len(checks)} checks"


def _named(checks: Sequence[Check]) -> str:
    return ", ".join(_harmless(_full_label(check.name)) for check in checks)


def _full_label(name: str) -> str:
    part = _part(name)
    return f"{label(name)} ({PARTS.get(part, part)})" if part else label(name)


def _harmless(message: str) -> str:
    """Replace what could move a terminal's cursor, hide or imitate text, or not be shown."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in message)
