"""What `signal-tee-bot check` finds: a line about one part, and what the settings alone tell."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from bot.config.settings import Settings
from bot.dispatch.background.profile import wanted_profile
from bot.errors import SettingsError
from bot.messaging.account import Profile
from bot.messaging.daemon_requests import can_discard
from bot.wiring.parts import spawned_signal_cli


class Severity(StrEnum):
    """How a part is."""

    OK = "ok"
    WARNING = "warning"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    part: str
    verdict: Severity
    words: str


def access(settings: Settings) -> Finding:
    """Say who is answered."""
    wanted = settings.access
    if wanted.note_to_self:
        words = "Only the note to self of the account is answered (ACCESS__NOTE_TO_SELF)."
        return Finding("access", Severity.OK, words)
    if wanted.policy == "open":
        words = "Everybody is answered (ACCESS__POLICY=open)."
        return Finding("access", Severity.WARNING, words)
    people = wanted.allowed | wanted.admins
    if wanted.policy == "allowlist" and not people:
        words = (
            "Nobody is answered: the allowlist is empty. Set ACCESS__ALLOWED to numbers or ACIs,"
            " or ACCESS__POLICY=pairing."
        )
        return Finding("access", Severity.WARNING, words)
    said = []
    if people:
        said.append(f"{len(people)} listed in ACCESS__ALLOWED and ACCESS__ADMINS may talk.")
    if wanted.policy == "pairing":
        by_chat = " or an admin's !pair CODE" if wanted.admins else ""
        said.append(
            f"Strangers get a code; signal-tee-bot pair approve CODE{by_chat} lets them in."
        )
    if any(person.startswith("+") for person in people):
        # The default in Signal: who hides the number is known by ACI alone.
        said.append("A number fits only people who show theirs to the bot; an ACI always.")
        return Finding("access", Severity.WARNING, " ".join(said))
    return Finding("access", Severity.OK, " ".join(said))


def safety_numbers(settings: Settings) -> Iterator[Finding]:
    """Say what becomes of people with a new key; in the note to self there are none."""
    policy, has_admins = settings.signal.trust, bool(settings.access.admins)
    if settings.access.note_to_self:
        return
    verdict = Severity.WARNING
    if policy == "always":
        words = "Every new key is trusted at once (SIGNAL__TRUST=always)."
    elif not has_admins:
        who = "Everybody" if policy == "verified" else "Who installs Signal anew"
        words = (
            f"{who} waits until you run signal-cli trust by hand, and nobody is told of it: set"
            " ACCESS__ADMINS."
        )
    else:
        verdict, words = Severity.OK, "Admins are told about new ones and decide with !trust."
    yield Finding("safety numbers", verdict, words)


def attachments(settings: Settings) -> Iterator[Finding]:
    """Say whether files are deleted after use; signal-cli-rest-api can do that in any case."""
    if settings.signal.url.startswith("http"):
        return
    try:
        spawned = spawned_signal_cli(settings)
    except SettingsError:  # there can be no signal-cli, which is a finding of its own
        return
    folder = settings.signal.data_dir if spawned is None else spawned.data_dir
    verdict = Severity.WARNING
    if folder is None:
        words = (
            "What people send stays in signal-cli's folder: the bot does not know where that is."
            " Set SIGNAL__DATA_DIR."
        )
    elif can_discard(folder) or (spawned is not None and _is_yet_to_be_made(folder)):
        verdict, words = Severity.OK, "Deleted from signal-cli's folder after use."
    else:
        words = (
            "What people send stays in signal-cli's folder: SIGNAL__DATA_DIR is none in which the"
            " bot may delete."
        )
    yield Finding("attachments", verdict, words)


def _is_yet_to_be_made(folder: Path) -> bool:
    try:
        return not folder.exists()
    except OSError:  # it lies in one that the bot may not enter
        return False


def profile(settings: Settings) -> Iterator[Finding]:
    """Say whether the name and the picture that are wanted can be set, where any are."""
    bot = settings.bot
    try:
        wanted = wanted_profile(
            name=bot.profile_name, about=bot.profile_about, picture=bot.profile_picture
        )
    except SettingsError as error:
        yield Finding("profile", Severity.FAILED, f"{error}.")
        return
    is_whole = wanted.name is not None and wanted.picture is not None
    if settings.signal.url.startswith("http") and wanted != Profile() and not is_whole:
        words = (
            "signal-cli-rest-api would remove what is not sent along, so it is not set without"
            " both BOT__PROFILE_NAME and BOT__PROFILE_PICTURE."
        )
        yield Finding("profile", Severity.WARNING, words)
