"""`signal-tee-bot env`, and the file `.env`: its example, its values, and how it is written."""

import os
import re
import tempfile
from argparse import Namespace
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dotenv import dotenv_values

from bot.cli.account_setup import UNKNOWN_NUMBER
from bot.config.llm import BASE_URLS, NEAR_AI
from bot.config.loading import problems_in, settings_of
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError

EXAMPLE: Final = "env.example"
"""A link to `.env.example`, so that the installed program has it as well."""


def run(_: Namespace) -> None:
    """Print the list of settings."""
    print(example(), end="")


def example() -> str:
    """Return the text of `.env.example`."""
    return resources.files(__package__).joinpath(EXAMPLE).read_text("utf-8")


ENV_FILE: Final = Path(".env")


def read_key(option: str, file: Path) -> str:
    """Return the key in the file of an option."""
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BotError(f"{option}: {file} cannot be read") from error


def add_setting(name: str, value: str) -> None:
    """Set a setting that has no value in `.env` yet; make the file if it is missing."""
    try:
        text = ENV_FILE.read_text() if ENV_FILE.exists() else ""
        line, empty = f"{name}={value}", re.compile(rf"^#?{name}=[ \t]*$", re.MULTILINE)
        if empty.search(text):
            text = empty.sub(line, text, count=1)
        else:
            text = f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}{line}\n"
    except OSError as error:
        raise BotError(f"{ENV_FILE} cannot be read: {error.strerror}") from error
    write_private(ENV_FILE, text)


def write_private(file: Path, text: str) -> None:
    """Write a file that only its owner may read; a crash leaves the old or the new one, whole."""
    # A link stays a link; its target is replaced.
    real = Path(os.path.realpath(file))
    try:
        descriptor, name = tempfile.mkstemp(dir=real.parent, prefix=f"{real.name}.")
        try:
            with os.fdopen(descriptor, "w") as draft:
                draft.write(text)
                draft.flush()
                os.fsync(draft.fileno())
            Path(name).rename(real)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise BotError(f"{file} cannot be written: {error.strerror}") from error


DRAFT_FILE: Final = Path(".env.setup")
"""Keeps the answers of an interrupted `setup`."""

PRIVATE: Final = 0o600

OTHERS: Final = "\n# Taken over from the .env before.\n"

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_LINE: Final = re.compile(r"^#?(?P<name>[A-Z][A-Z0-9_]*)=.*$", re.MULTILINE)


@dataclass(slots=True)
class Draft:
    """Settings by their names; each answer is on disk before the next question."""

    values: dict[str, str]

    @classmethod
    def begun(cls) -> "Draft | None":
        """Return the answers of an interrupted run, or None."""
        _refuse_link()
        if not DRAFT_FILE.exists():
            return None
        draft = cls.read(DRAFT_FILE)
        return draft if draft.values else None

    @classmethod
    def read(cls, file: Path) -> "Draft":
        """Return the settings in a file."""
        try:
            found = dotenv_values(file, interpolate=False, encoding="utf-8-sig")
            problems = tuple(problems_in(file))
        except (OSError, UnicodeDecodeError) as error:
            raise BotError(f"{file} cannot be read") from error
        if problems:
            raise SettingsError(*problems)
        return cls({name: value for name, value in found.items() if value is not None})

    def __getitem__(self, name: str) -> str:
        return self.values.get(name, "")

    def keep(self, **answers: str) -> None:
        """Take answers, and store them in case `setup` is interrupted."""
        self.values |= answers
        if not self.values:
            return
        _refuse_link()
        write_private(DRAFT_FILE, "".join(_line(name, self[name]) for name in sorted(self.values)))

    def forget_key_of_another(self, base_url: str) -> None:
        """Drop the model's key if an address belongs to another server than the key."""
        before = self["LLM__BASE_URL"] or BASE_URLS.get(self["LLM__DIALECT"], NEAR_AI)
        if self["LLM__API_KEY"] and urlsplit(before).netloc != urlsplit(base_url).netloc:
            self.keep(LLM__API_KEY="")

    def settings(self, **more: str) -> Settings:
        """Return the settings that the answers would give."""
        known = self.values | more
        number = known.get("SIGNAL__PHONE_NUMBER") or UNKNOWN_NUMBER
        return settings_of(known | {"SIGNAL__PHONE_NUMBER": number})

    def write(self) -> None:
        """Write `.env` from the commented list of settings; rename an existing file."""
        if ENV_FILE.exists():
            written = Draft.read(ENV_FILE)
            if all(written[name] == value for name, value in self.values.items()):
                return
            moment = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
            before = ENV_FILE.rename(ENV_FILE.with_name(f"{ENV_FILE.name}.before-{moment}"))
            before.chmod(PRIVATE)  # it has keys
        left = dict(self.values)

        def fill(line: re.Match[str]) -> str:
            name = line["name"]
            return _line(name, left.pop(name)).rstrip("\n") if name in left else line[0]

        filled = _LINE.sub(fill, example())
        others = "".join(_line(name, value) for name, value in left.items())
        write_private(ENV_FILE, f"{filled}{OTHERS}{others}" if others else filled)

    def end(self) -> None:
        """Delete the stored answers, which are in `.env` now."""
        DRAFT_FILE.unlink(missing_ok=True)


def _refuse_link() -> None:
    """Refuse a draft that is a link: the keys in it would stay where the link leads."""
    if DRAFT_FILE.is_symlink():
        raise BotError(
            f"{DRAFT_FILE} is a link, but setup keeps keys in it for a while: remove the link"
        )


def _line(name: str, value: str) -> str:
    if _PLAIN_VALUE.fullmatch(value):
        return f"{name}={value}\n"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{quoted}'\n"
