"""Findings of `check`, and those about the settings and the machine."""

import asyncio
import os
import platform
import resource
import shutil
import stat
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from ipaddress import ip_address
from pathlib import Path
from typing import Final, Literal

from bot import __version__, built_from
from bot.chat.profile import wanted_profile
from bot.cli.neighbours import neighbours
from bot.config.loading import settings_files
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError
from bot.observability.health import health_server
from bot.observability.health_client import ask, host_and_port
from bot.observability.metrics import measured
from bot.observability.process import DESCRIPTORS_WITHOUT_MODEL, size
from bot.signal.account import Profile
from bot.signal.signal_daemon import can_discard
from bot.signal.transport import spawned_signal_cli

PART_SECONDS: Final = 20.0
"""The longest check of one part."""
MIN_FREE_BYTES: Final = 512 * 2**20
"""Enough for a write-ahead log after a long backup, and for a busy day."""

MIN_KEY_CHARACTERS: Final = 16
HEALTH_SECONDS: Final = 5.0
CLOCK_SECONDS: Final = 60.0
"""Evidence and certificates tolerate far more; slow answers and rounding cause far less."""

Severity = Literal["ok", "warning", "failed"]


@dataclass(frozen=True, slots=True)
class Finding:
    """Line of the report."""

    part: str
    words: str
    verdict: Severity


ok = partial(Finding, verdict="ok")
warning = partial(Finding, verdict="warning")
failed = partial(Finding, verdict="failed")


def access(settings: Settings) -> Finding:
    """Say who is answered."""
    wanted, part = settings.access, "access"
    if wanted.note_to_self:
        return ok(part, "Only the note to self of the account is answered (ACCESS__NOTE_TO_SELF).")
    if wanted.policy == "open":
        return warning(part, "Everybody is answered (ACCESS__POLICY=open).")
    people = wanted.allowed | wanted.admins
    if wanted.policy == "allowlist" and not people:
        return warning(
            part,
            "Nobody is answered: the allowlist is empty. Set ACCESS__ALLOWED to numbers or ACIs,"
            " or ACCESS__POLICY=pairing.",
        )
    said = []
    if people:
        said.append(f"{len(people)} listed in ACCESS__ALLOWED and ACCESS__ADMINS may talk.")
    if wanted.policy == "pairing":
        by_chat = ", or an admin in Signal," if wanted.admins else ""
        said.append(
            f"Strangers get a code; signal-tee-bot pair approve CODE{by_chat} lets them in."
        )
    if any(person.startswith("+") for person in people):
        # Signal's default: people hide their number and are known by ACI alone.
        said.append("Numbers work only for people who show theirs to the bot; ACIs always work.")
        return warning(part, " ".join(said))
    return ok(part, " ".join(said))


def group_admins(settings: Settings, admins: Collection[str]) -> Iterator[Finding]:
    """Warn if groups have commands but the bot has no admin to allow them."""
    wanted = settings.access
    in_groups = wanted.groups != "off" and not wanted.note_to_self
    if in_groups and not admins and settings.tools.workspace.for_ == "everyone":
        yield warning(
            "admins",
            "In a group, commands need an admin's yes, and no admin is known: nobody can allow"
            " one. Add some to ACCESS__ADMINS, or run signal-tee-bot pair approve CODE --admin.",
        )


def safety_numbers(settings: Settings, admins: Collection[str]) -> Iterator[Finding]:
    """Say how people with a new key are treated; the note to self knows none."""
    part, policy = "safety numbers", settings.signal.trust
    if settings.access.note_to_self:
        return
    if policy == "always":
        yield warning(part, "Every new key is trusted at once (SIGNAL__TRUST=always).")
    elif admins:
        yield ok(part, "Admins are told about new ones and decide in the chat.")
    else:
        who = "Everybody" if policy == "verified" else "A person who reinstalls Signal"
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
    folder = settings.signal.data_dir if spawned is None else spawned.folder
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
            "signal-cli-rest-api deletes a name or picture that is missing, so the bot sets no"
            " profile. Set both BOT__PROFILE_NAME and BOT__PROFILE_PICTURE.",
        )


# The machine


def version() -> Finding:
    """Name what runs here, ready for a bug report."""
    python = platform.python_version()
    return ok("version", f"signal-tee-bot {__version__}, commit {built_from()}, Python {python}.")


def environment() -> Iterator[Finding]:
    """Warn if other packages have the names of the bot's own."""
    if (words := neighbours()) is not None:
        yield warning("environment", words)


def file_rights(settings: Settings) -> Finding:
    """Say which files with secrets every user of the machine may read."""
    files = [*settings_files(), *_with_companions(settings.store.path)]
    open_ones = [str(file) for file in files if _is_open_to_all(file)]
    if not open_ones:
        return ok("file rights", "Settings, secrets and the store cannot be read by other users.")
    return warning(
        "file rights", f"Every user of this machine may read {', '.join(open_ones)}: chmod o-r."
    )


def new_store(settings: Settings, *, encrypted: bool) -> Finding:
    """Say whether and how a missing store can be made; make nothing."""
    folder = _nearest(settings.store.path)
    if not stat.S_ISDIR(_mode(folder)):
        return failed("store", f"STORE__PATH: {folder} is a file, where a folder is needed.")
    if not os.access(folder, os.W_OK | os.X_OK):
        return failed("store", f"STORE__PATH: the bot may not write in {folder}.")
    return encryption(settings, "The first start makes it", encrypted=encrypted)


def encryption(settings: Settings, words: str, *, encrypted: bool) -> Finding:
    """Say whether the store is encrypted, after some words about it."""
    if not encrypted:
        return warning(
            "store",
            f"{words}, but without encryption. Stop the bot and run signal-tee-bot encrypt, which"
            " makes a STORE__KEY.",
        )
    key = settings.store.key  # short ones are found by trying
    if key is not None and len(key.get_secret_value()) < MIN_KEY_CHARACTERS:
        return warning(
            "store",
            f"{words}, encrypted, but STORE__KEY can be guessed. Stop the bot, put a longer one"
            " into .env (openssl rand -hex 32 makes one), and run signal-tee-bot encrypt.",
        )
    return ok("store", f"{words}, encrypted at rest.")


def disk(settings: Settings) -> Iterator[Finding]:
    """Report the free space on the disk, and copies next to the store."""
    path = settings.store.path
    free = shutil.disk_usage(_nearest(path)).free
    taken = sum(file.stat().st_size for file in _with_companions(path))
    words = f"{size(free)} free; the store takes {size(taken)}."
    if free < max(MIN_FREE_BYTES, taken):
        words += " A full disk holds every message back: make room, or move STORE__PATH."
        yield warning("disk", words)
    else:
        yield ok("disk", words)
    beside = path.parent.glob(f"{path.name}.*") if stat.S_ISDIR(_mode(path.parent)) else ()
    copies = sorted(set(beside) - {Path(f"{path}.lock")})
    if copies:
        yield warning(
            "copies",
            f"{', '.join(file.name for file in copies)} next to the store may still hold messages"
            " that people have deleted. Delete these copies when you no longer need them.",
        )


async def health_address(settings: Settings) -> Finding:
    """Report whether the address of health is free, and whether other machines reach it."""
    listen = settings.health.listen
    if not listen:
        return ok("health", "Not served: HEALTH__LISTEN is empty.")
    try:
        async with health_server(listen=listen, checks={}, metrics=measured):
            words = f"HEALTH__LISTEN is free: {listen}."
    except BotError as error:
        if not await _is_the_bot(listen):
            return failed(
                "health", f"{error}. Set another address, or end the program that uses this one."
            )
        words = f"Answered by the running bot at {listen}."
    if _is_loopback(listen):
        return ok("health", words)
    words += (
        " Other machines may reach it and see how busy the bot is: keep it behind a firewall or"
        " on a private network, or set HEALTH__LISTEN=127.0.0.1:8081."
    )
    return warning("health", words)


def descriptors(settings: Settings) -> Finding:
    """Say whether enough files and connections may be open at once."""
    needed = DESCRIPTORS_WITHOUT_MODEL + settings.llm.max_concurrency
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY or most >= needed:
        return ok(
            "descriptors", f"As many files and connections as needed may be open: {needed:,}."
        )
    return warning(
        "descriptors",
        f"Only {most:,} files and connections may be open at once here, and {needed:,} may be"
        " needed: raise LimitNOFILE= of the service, or ulimit -Hn; or lower LLM__MAX_CONCURRENCY.",
    )


def clock(there: datetime | None) -> Iterator[Finding]:
    """Compare the clock with that of the model's endpoint, if it tells its time."""
    if there is None:
        return
    ahead = (datetime.now(UTC) - there).total_seconds()
    if abs(ahead) <= CLOCK_SECONDS:
        yield ok("clock", "Agrees with that of the model's endpoint.")
        return
    direction = "ahead of" if ahead > 0 else "behind"
    yield warning(
        "clock",
        f"{abs(ahead):,.0f} seconds {direction} that of the model's endpoint: proofs, disappearing"
        " messages and retention go by it. See timedatectl.",
    )


def _with_companions(store: Path) -> list[Path]:
    """Return those files of a store that exist."""
    names = (store, Path(f"{store}-wal"), Path(f"{store}-shm"))
    return [file for file in names if stat.S_ISREG(_mode(file))]


def _is_open_to_all(file: Path) -> bool:
    """Return whether other users may read a file, and enter every folder on the way to it."""
    ways = (_mode(parent) & stat.S_IXOTH for parent in file.absolute().parents)
    return bool(_mode(file) & stat.S_IROTH) and all(ways)


def _nearest(path: Path) -> Path:
    """Return the folder of the store, or the nearest path above it that exists."""
    return next(parent for parent in path.absolute().parents if _mode(parent))


def _mode(path: Path) -> int:
    """Return a file's type and permissions; 0 if they cannot be read."""
    try:
        return path.stat().st_mode
    except OSError:
        return 0


def _is_loopback(listen: str) -> bool:
    host, _ = host_and_port(listen)
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _is_the_bot(listen: str) -> bool:
    """Return whether a bot's health answers there."""
    try:
        async with asyncio.timeout(HEALTH_SECONDS):
            return await ask(listen, "/healthz") == b"ok\n"
    except OSError:  # TimeoutError is one
        return False
