"""Reports for people who do not know TDX: a table and its conclusion, the answer to `!verify`."""

import hashlib
import shlex
import textwrap
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from bot.attestation.bundle import Statement
from bot.attestation.checks import Check, Report, Verdict, is_closed, is_closed_if_published
from bot.signal.account import half, spaced

if TYPE_CHECKING:
    # Only for its type: a bot without a TEE does not load the verification.
    from bot.attestation.bundle import Bundle

LABELS: Final = {
    "debug": "closed to debuggers",
    "quote": "genuine Intel TDX hardware",
    "tcb": "hardware is up to date",
    "attributes": "started without side doors",
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
    # On the model alone.
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
"""Names of the checks, in words."""

PARTS: Final = {
    "model": "the model",
    "model.gateway": "the model's gateway",
    "model.compose_manager": "the model's manager",
}
"""Machines, by the part of a check's name before the last dot."""

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
_NARROW_INDENT: Final = 4


def label(name: str) -> str:
    """Return the name of a check in words."""
    last = name.rpartition(".")[2]
    return LABELS.get(last) or last.replace("_", " ")


def table(report: Report, *, width: int | None = None, colours: bool = False) -> str:
    """Return a line for each check: verdict, name and message.

    Args:
        report: may hold strangers' words; the table makes them harmless for a terminal.
        width: columns of the screen, at which lines are wrapped; None does not wrap.
    """
    labels = [_harmless(label(check.name)) for check in report]
    label_width = max(map(len, labels), default=0)
    indent = _VERDICT_WIDTH + label_width + 2 * len(_GAP)
    margin = " " * (indent if width is None or width > 1.5 * indent else _NARROW_INDENT)
    lines: list[str] = []
    part = ""
    for check, what in zip(report, labels, strict=True):
        if (now := _part(check.name)) != part:
            part = now
            lines += ["", f"{_harmless(PARTS.get(part, part))}:"]
        verdict = f"{check.verdict:<{_VERDICT_WIDTH}}"
        line = f"{verdict}{_GAP}{what:<{label_width}}{_GAP}{_harmless(check.message)}"
        if width is not None:
            line = textwrap.fill(line, width, subsequent_indent=margin)
        if colours:
            line = line.replace(verdict, f"\033[{_COLOURS[check.verdict]}m{verdict}\033[0m", 1)
        lines.append(line)
    return "\n".join(lines)


def conclusion(report: Report) -> str:
    """Return the result of a report in a sentence or two."""
    broken = report.with_verdict(Verdict.FAILED)
    if broken:
        count = "one check" if len(broken) == 1 else f"{len(broken)} checks"
        return f"Do not rely on this bot: {count} failed ({_named(broken)})."
    if not report.passed:
        return f"This proves too little: {_named(report.failures)} could not be checked."
    open_ends = report.with_verdict(Verdict.NOT_CHECKED)
    return _achieved(report) + (f" Not looked at: {_named(open_ends)}." if open_ends else "")


def _achieved(report: Report) -> str:
    """Say what a report proves; unknown code may call any account its own."""
    proven = report.proven_names
    account = "the account in your chat" if "safety_number" in proven else "the account named below"
    closed = ", closed to its operator" if is_closed(report) else ""
    left = "" if closed else " It is not proven that nothing is left to its operator."
    if {"release", "os"} <= proven:
        return (
            f"Everything you asked for holds: {account} belongs to the published code, which runs"
            f" on genuine Intel hardware{closed}.{left}"
        )
    return (
        f"Everything you asked for holds: a machine of genuine Intel hardware{closed} calls"
        f" {account} its own.{left} Only the release file proves which program runs in it, and so"
        " whether that is true (--release)."
    )


def how_to_compare(own_half: str) -> str:
    """Return instructions to compare the account of a bundle with the one in a person's chat.

    Args:
        own_half: the thirty digits of the account in every safety number.
    """
    return f"""\
Is it the account in your chat? Its half of the safety number is

    {spaced(own_half)}

In Signal, open the chat with the bot, tap its name, then View safety number. These
thirty digits must be the first or the last half of it. If they are not, this is the
proof of another bot. (--safety-number "all 60 digits" compares them for you.)"""


def _part(name: str) -> str:
    return name.rpartition(".")[0]


def _named(checks: Sequence[Check]) -> str:
    return ", ".join(_harmless(_full_label(check.name)) for check in checks)


def _full_label(name: str) -> str:
    part = _part(name)
    return f"{label(name)} ({PARTS.get(part, part)})" if part else label(name)


def _harmless(message: str) -> str:
    """Replace characters that could move the cursor, hide or imitate text."""
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in message)


# The answer to `!verify`

FILE_NAME: Final = "signal-tee-bot-proof.json"
MAX_SHOWN_CHECKS: Final = 3
SHOWN_CLAIMS: Final = ("key_origin", "linked_devices", "code")

PROOF: Final = (
    "Proof of what answers you here. Do not take my word for it: the attached file can be checked"
    " without trusting me."
)
NO_PROOF: Final = (
    "This does not prove that nobody else reads along: my own check of the attached file found"
    " something wrong. Until that is fixed, treat me as if my operator could read what you write."
)


def chat_report(
    bundle: "Bundle", report: Report, *, challenge: str, chosen: bool, in_group: bool, model: str
) -> str:
    """Return the answer to `!verify` as plain text, for a person with a phone in their hand.

    Each line is translated by itself.

    Args:
        report: the bot's own check of the bundle.
        chosen: whether the person chose the challenge.
        in_group: whether the answer goes to a group, which has no safety number.
        model: the state of the model's proof, in a sentence or two.
    """
    failed = report.with_verdict(Verdict.FAILED)
    compose_hash = hashlib.sha256(bundle.app_compose.encode()).hexdigest()
    paragraphs = (
        *([NO_PROOF, f"WHAT IS WRONG\n{_shown(failed)}"] if failed else _success(bundle, report)),
        _challenge(challenge, chosen=chosen),
        f"PROGRAM (compose hash; the published ones are in the release file)\n{compose_hash}",
        _safety_number(Statement.parse(bundle.statement), in_group=in_group),
        f"THE MODEL\n{model}",
        _how_to_check(challenge),
    )
    return "\n\n".join(paragraphs)


def _success(bundle: "Bundle", report: Report) -> Iterator[str]:
    yield PROOF
    unchecked = [check for check in report.failures if check.verdict is Verdict.NOT_CHECKED]
    if unchecked:
        why = report_line(unchecked[0].message)
        yield f"NOT CHECKED HERE\n{why}\nYour own check will tell whether the file is genuine."
    yield (
        f"{'IF IT IS GENUINE, THE FILE PROVES' if unchecked else 'THE FILE PROVES'}\n"
        "• It comes from a machine with Intel's protected hardware.\n"
        "• That machine calls the Signal account with the digits below its own."
    )
    yield (
        "TOGETHER WITH THE PUBLISHED RELEASE FILE IT ALSO PROVES\n"
        "• In that machine runs the published program, and not one that lies about all of this.\n"
        f"• {_left_to_the_operator(bundle, report)}"
    )
    claims = (report[name] for name in SHOWN_CLAIMS)
    said = [report_line(claim.message) for claim in claims if claim.verdict is Verdict.CLAIMED]
    if said:
        yield "\n".join(("ONLY THE PROGRAM SAYS", *said))


def _left_to_the_operator(bundle: "Bundle", report: Report) -> str:
    """Say how far the machine is closed if its code and system are published ones."""
    from bot.attestation.app_compose import read_app_compose, variables_of  # noqa: PLC0415

    variables = variables_of(read_app_compose(bundle.app_compose))
    if variables:
        return f"The operator of that machine sets {', '.join(variables)}, and nothing else."
    if is_closed_if_published(report):
        return "That machine is one that Intel's hardware closes even to its operator."
    return "The operator of that machine sets nothing in it."


def _challenge(challenge: str, *, chosen: bool) -> str:
    age = (
        "The file cannot be older than these words of yours."
        if chosen
        else "I made it up, so the file may be an old one. For a fresh one send !verify and some"
        " words of your own."
    )
    return f"CHALLENGE\n“{challenge}”\n{age}"  # quoted: never translated


def _safety_number(statement: Statement, *, in_group: bool) -> str:
    digits = spaced(half(statement.aci, bytes.fromhex(statement.identity_key)))
    middle = len(digits) // 2
    where = "In our private chat, not in this group, tap" if in_group else "Tap"
    return (
        f"MY HALF OF THE SAFETY NUMBER\n{digits[:middle]}\n{digits[middle + 1 :]}\n"
        f"{where} my name at the top, then View safety number: these digits must be its first or"
        " its last half. If they are not, this is another bot's proof."
    )


def _how_to_check(challenge: str) -> str:
    return (
        "CHECK IT on a computer: save the file there, then\n"
        f"signal-tee-bot verify {FILE_NAME} --challenge={shlex.quote(challenge)}"
        ' --safety-number="all 60 digits"\n'
        "Add --release and the published release file: without it any program may be behind this."
        " docs/VERIFY.md in the source explains each step."
        " !verify last: who signed my last answer."
    )


def _shown(checks: Sequence[Check]) -> str:
    """Return the messages of the first checks, each message once."""
    messages = list(dict.fromkeys(check.message for check in checks))
    more = len(messages) - MAX_SHOWN_CHECKS
    shown = "\n".join(map(report_line, messages[:MAX_SHOWN_CHECKS]))
    return shown + (f"\nAnd {more} more." if more > 0 else "")


def report_line(message: str) -> str:
    """Return a check's message as a line; translations have it in this form."""
    return f"• {message[:1].upper()}{message[1:]}" + ("" if message.endswith(".") else ".")
