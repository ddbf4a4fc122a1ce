"""What `setup` has found out so far, and the file `.env` that comes of it."""

import re
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from dotenv import dotenv_values

from bot.cli.account_setup import UNKNOWN_NUMBER
from bot.cli.env import example
from bot.cli.env_file import ENV_FILE, write_private
from bot.config.env_lines import problems_in
from bot.config.llm import BASE_URLS, NEAR_AI
from bot.config.loading import settings_of
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError

DRAFT_FILE: Final = Path(".env.setup")
"""What was answered before `setup` was broken off."""

PRIVATE: Final = 0o600

OTHERS: Final = "\n# Taken over from the .env before.\n"

_PLAIN_VALUE: Final = re.compile(r"[A-Za-z0-9_./:@%+,=-]*")
_LINE: Final = re.compile(r"^#?(?P<name>[A-Z][A-Z0-9_]*)=.*$", re.MULTILINE)


class Draft:
    """Settings by their names; each answer is on disk before the next question."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = dict(values)

    @classmethod
    def begun(cls) -> "Draft | None":
        """Return what an earlier run has left; None if there was none, or it came to its end."""
        if not DRAFT_FILE.exists():
            return None
        draft = cls.read(DRAFT_FILE)
        return draft if draft.has_answers else None

    @classmethod
    def read(cls, file: Path) -> "Draft":
        """Return the settings in a file.

        Raises:
            BotError: it cannot be read.
            SettingsError: a line of it is none, or sets what is no setting.
        """
        try:
            found = dotenv_values(file, interpolate=False, encoding="utf-8-sig")
            problems = tuple(problems_in(file))
        except (OSError, UnicodeDecodeError) as error:
            raise BotError(f"{file} cannot be read") from error
        if problems:
            raise SettingsError(*problems)
        return cls({name: value for name, value in found.items() if value is not None})

    @property
    def has_answers(self) -> bool:
        """Whether anything was answered."""
        return bool(self._values)

    def __getitem__(self, name: str) -> str:
        return self._values.get(name, "")

    def keep(self, **answers: str) -> None:
        """Take answers, and remember them for the case that this is broken off."""
        self._values |= answers
        if not self._values:
            return
        _write(DRAFT_FILE, "".join(_line(name, self[name]) for name in sorted(self._values)))

    def forget_key_of_another(self, base_url: str) -> None:
        """Drop the model's key where an address is another server's than that it was made for."""
        before = self["LLM__BASE_URL"] or BASE_URLS.get(self["LLM__DIALECT"], NEAR_AI)
        if self["LLM__API_KEY"] and urlsplit(before).netloc != urlsplit(base_url).netloc:
            self.keep(LLM__API_KEY="")

    def settings(self, **more: str) -> Settings:
        """Return the settings as they would be.

        Raises:
            SettingsError: one of them is wrong.
        """
        known = self._values | more
        number = known.get("SIGNAL__PHONE_NUMBER") or UNKNOWN_NUMBER
        return settings_of(known | {"SIGNAL__PHONE_NUMBER": number})

    def write(self) -> None:
        """Make `.env` of the commented list of settings; one that is there is kept beside it."""
        if ENV_FILE.exists():
            written = Draft.read(ENV_FILE)
            if all(written[name] == value for name, value in self._values.items()):
                return
            moment = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
            before = ENV_FILE.rename(ENV_FILE.with_name(f"{ENV_FILE.name}.before-{moment}"))
            before.chmod(PRIVATE)  # it has keys, whoever could read it so far
        _write(ENV_FILE, self._filled(example()))

    def end(self) -> None:
        """Forget what was remembered: it is in `.env`."""
        DRAFT_FILE.unlink(missing_ok=True)

    def _filled(self, text: str) -> str:
        left = dict(self._values)

        def fill(line: re.Match[str]) -> str:
            name = line["name"]
            return _line(name, left.pop(name)).rstrip("\n") if name in left else line[0]

        filled = _LINE.sub(fill, text)
        others = "".join(_line(name, value) for name, value in left.items())
        return f"{filled}{OTHERS}{others}" if others else filled


def _line(name: str, value: str) -> str:
    if _PLAIN_VALUE.fullmatch(value):
        return f"{name}={value}\n"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name}='{quoted}'\n"


def _write(file: Path, text: str) -> None:
    try:
        write_private(file, text)
    except OSError as error:
        raise BotError(f"{file} cannot be written: {error.strerror}") from error
