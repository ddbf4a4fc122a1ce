"""Findings of `check`, and those that need only the settings."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from bot.chat.profile import wanted_profile
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.signal.account import Profile
from bot.signal.signal_daemon import can_discard
from bot.signal.transport import spawned_signal_cli

PART_SECONDS: Final = 20.0
"""The longest check of one part."""


class Severity(StrEnum):
    """The verdict on a part."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """Line of the report."""

    part: str
    verdict: Severity
    words: str


@dataclass(slots=True)
class Waits:
    """The part that `check` waits for, in a few words, with the setting and the bound."""

    words: str = "this machine"


def ok(part: str, words: str) -> Finding:
    """Return the finding that a part works."""
    return Finding(part, Severity.OK, words)


def warning(part: str, words: str) -> Finding:
    """Return the finding that a part works, but should be looked at."""
    return Finding(part, Severity.WARNING, words)


def failed(part: str, words: str) -> Finding:
    """Return the finding that a part does not work."""
    return Finding(part, Severity.FAILED, words)


def access(settings: Settings) -> Finding:
    """Say who is answered."""
    wanted = settings.access
    if wanted.note_to_self:
        return ok(
            "access", "Only the note to self of the account is answered (ACCESS__NOTE_TO_SELF)."
        )
    if wanted.policy == "open":
        return warning("access", "Everybody is answered (ACCESS__POLICY=open).")
    people = wanted.allowed | wanted.admins
    if wanted.policy == "allowlist" and not people:
        return warning(
            "access",
            "Nobody is answered: the allowlist is empty. Set ACCESS__ALLOWED to numbers or ACIs,"
            " or ACCESS__POLICY=pairing.",
        )
    said = []
    if people:
        said.append(f"{len(people)} listed in ACCESS__ALLOWED and ACCESS__ADMINS may talk.")
    if wanted.policy == "pairing":
        by_chat = " or an admin's !pair CODE" if wanted.admins else ""
        said.append(
            f"Strangers get a code; signal-tee-bot pair approve CODE{by_chat} lets them in."
        )
    if any(person.startswith("+") for person in people):
        # Signal's default: people hide their number and are known by ACI alone.
        said.append("A number fits only people who show theirs to the bot; an ACI always.")
        return warning("access", " ".join(said))
    return ok("access", " ".join(said))


def group_admins(settings: Settings, *, admins: int) -> Iterator[Finding]:
    """Warn if groups have commands but the bot has no admin to allow them."""
    wanted = settings.access
    if wanted.groups == "off" or wanted.note_to_self or admins:
        return
    if settings.tools.workspace.for_ == "everyone":
        yield warning(
            "admins",
            "In a group, commands need an admin's yes, and no admin is known: nobody can allow"
            " one. Add some to ACCESS__ADMINS, or run signal-tee-bot pair approve CODE --admin.",
        )


def safety_numbers(settings: Settings, *, has_admins: bool = False) -> Iterator[Finding]:
    """Say how people with a new key are treated; the note to self knows none.

    Args:
        has_admins: a code made a person an admin.
    """
    part, policy = "safety numbers", settings.signal.trust
    if settings.access.note_to_self:
        return
    if policy == "always":
        yield warning(part, "Every new key is trusted at once (SIGNAL__TRUST=always).")
    elif settings.access.admins or has_admins:
        yield ok(part, "Admins are told about new ones and decide with !trust.")
    else:
        who = "Everybody" if policy == "verified" else "Who installs Signal anew"
        yield warning(
            part,
            f"{who} waits until you run signal-cli trust by hand, and nobody is told of it: set"
            " ACCESS__ADMINS, or run signal-tee-bot pair approve CODE --admin.",
        )


def attachments(settings: Settings) -> Iterator[Finding]:
    """Say whether files are deleted after use; signal-cli-rest-api always can."""
    if settings.signal.url.startswith("http"):
        return
    try:
        spawned = spawned_signal_cli(settings)
    except SettingsError:  # signal-cli is missing, which is a finding of its own
        return
    folder = settings.signal.data_dir if spawned is None else spawned.data_dir
    stays = "What people send stays in signal-cli's folder:"
    if folder is None:
        yield warning(
            "attachments", f"{stays} the bot does not know where that is. Set SIGNAL__DATA_DIR."
        )
    elif can_discard(folder) or (spawned is not None and _is_yet_to_be_made(folder)):
        yield ok("attachments", "Deleted from signal-cli's folder after use.")
    else:
        yield warning(
            "attachments", f"{stays} SIGNAL__DATA_DIR is none in which the bot may delete."
        )


def _is_yet_to_be_made(folder: Path) -> bool:
    try:
        return not folder.exists()
    except OSError:  # a folder above it is closed to the bot
        return False


def profile(settings: Settings) -> Iterator[Finding]:
    """Say whether the wanted name and picture can be set, if there are any."""
    bot = settings.bot
    try:
        wanted = wanted_profile(
            name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
        )
    except SettingsError as error:
        yield failed("profile", f"{error}.")
        return
    is_whole = wanted.name is not None and wanted.picture is not None
    if settings.signal.url.startswith("http") and wanted != Profile() and not is_whole:
        yield warning(
            "profile",
            "signal-cli-rest-api would remove what is not sent along, so it is not set without"
            " both BOT__PROFILE_NAME and BOT__PROFILE_PICTURE.",
        )
