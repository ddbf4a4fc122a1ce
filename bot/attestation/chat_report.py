"""The answer to `!verify`: what a proof is worth, for someone with a phone in their hand."""

import hashlib
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from bot.attestation.checks import Check, Report, Verdict, is_closed_by_a_known_system
from bot.attestation.statement import Statement
from bot.messaging.safety_number import half, spaced

if TYPE_CHECKING:
    # By its name alone: the verification behind it is loaded where there is something to prove.
    from bot.attestation.proof import Proof

FILE_NAME: Final = "signal-tee-bot-proof.json"
MAX_SHOWN_CHECKS: Final = 3
SHOWN_CLAIMS: Final = ("key_origin", "linked_devices", "code")

PROOF: Final = (
    "Proof of what answers you here. Do not take my word for it: the attached file can be checked"
    " without trusting me."
)
NO_PROOF: Final = (
    "This does not prove that nobody else reads along: my own check of the attached file found"
    " something wrong. Until that is mended, treat me as if my operator could read what you write."
)


def chat_report(proof: "Proof", *, challenge: str, chosen: bool, in_group: bool, model: str) -> str:
    """Return the answer, as plain text of a few short paragraphs.

    Args:
        proof: what goes along as a file.
        challenge: what the proof was made for.
        chosen: whether the person chose the challenge.
        in_group: whether the answer goes to a group, which has no safety number.
        model: the state of the model's proof, in a sentence or two.

    Raises:
        MalformedEvidence: the bundle holds no valid statement.
    """
    statement = Statement.parse(proof.bundle.statement)
    failed = [check for check in proof.report if check.verdict is Verdict.FAILED]
    paragraphs = (
        *(_failure(failed) if failed else _success(proof.report)),
        _challenge(challenge, chosen=chosen),
        _program(proof.bundle.app_compose),
        _safety_number(statement, in_group=in_group),
        f"THE MODEL\n{model}",
        _how_to_check(challenge),
    )
    return "\n\n".join(paragraphs)


def _success(report: Report) -> Iterator[str]:
    yield PROOF
    unchecked = [check for check in report.failures if check.verdict is Verdict.NOT_CHECKED]
    if unchecked:
        why = _sentence(unchecked[0].message)
        yield f"NOT CHECKED HERE\n{why} So whether the file is genuine, your own check will tell."
    yield (
        f"{'IF IT IS GENUINE, ' if unchecked else ''}THE FILE PROVES\n"
        "• It comes from a machine with Intel's protected hardware.\n"
        "• That machine calls the Signal account with the digits below its own."
    )
    yield (
        "TOGETHER WITH THE PUBLISHED RELEASE FILE IT ALSO PROVES\n"
        "• In that machine runs the published program, and not one that lies about all of this.\n"
        f"• {_left_to_the_operator(report)}"
    )
    claims = (report[name] for name in SHOWN_CLAIMS)
    said = [f"• {_sentence(claim.message)}" for claim in claims if claim.verdict is Verdict.CLAIMED]
    if said:
        yield "\n".join(("ONLY THE PROGRAM SAYS", *said))


def _left_to_the_operator(report: Report) -> str:
    """Say how far the machine is closed, for a known system: another may say anything of it."""
    if is_closed_by_a_known_system(report):
        return "That machine is one that Intel's hardware closes even to its operator."
    return _sentence(report["environment"].message)


def _failure(failed: list[Check]) -> Iterator[str]:
    yield NO_PROOF
    yield f"WHAT IS WRONG\n{_shown(failed)}"


def _challenge(challenge: str, *, chosen: bool) -> str:
    age = (
        "The file cannot be older than these words of yours."
        if chosen
        else "I made it up, so the file may be an old one. For a fresh one send !verify and some"
        " words of your own."
    )
    return f"CHALLENGE\n{challenge}\n{age}"


def _program(app_compose: str) -> str:
    digest = hashlib.sha256(app_compose.encode()).hexdigest()
    return f"PROGRAM (compose hash; the published ones are in the release file)\n{digest}"


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


def _shown(checks: list[Check]) -> str:
    """Return the words of the first checks; the same words, as of a missing piece, once."""
    message = list(dict.fromkeys(check.message for check in checks))
    more = len(message) - MAX_SHOWN_CHECKS
    shown = " ".join(_sentence(text) for text in message[:MAX_SHOWN_CHECKS])
    return shown + (f" And {more} more." if more > 0 else "")


def _sentence(message: str) -> str:
    return message[:1].upper() + message[1:] + ("" if message.endswith(".") else ".")
