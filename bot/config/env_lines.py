"""What is wrong with the lines of `.env`, and with names in it that only look like settings.

pydantic-settings passes over both in silence: `LLM_API_KEY=…` would leave the bot without a key.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dotenv.parser import Binding, parse_stream

from bot.config.names import ANY_NAME, setting_names
from bot.config.sources import DELIMITER

CHOSEN: Final = ANY_NAME.upper()

ALIKE: Final = 0.85
"""So much of a name is a setting's, by difflib's ratio: `LLM_APIKEY` is one, `LLM_CACHE` none."""


def problems_in(file: Path) -> Iterator[str]:
    """Yield a sentence for each line of the file that says nothing, or sets what is no setting.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is no text.
    """
    with file.open(encoding="utf-8-sig") as lines:
        bindings = list(parse_stream(lines))
    for binding in bindings:
        if binding.error or (binding.key and binding.value is None):
            yield (
                f"{file}, line {_line(binding)}: is no setting; NAME=value is expected, and a"
                " quotation mark that is closed again"
            )
        elif binding.key and (meant := meant_by(binding.key)):
            yield (
                f"{file}, line {_line(binding)}: {binding.key} is no setting; did you mean {meant}?"
            )


def meant_by(name: str) -> str | None:
    """Return the setting that a name was perhaps meant to be; None for a setting, and for others.

    A name below a section that exists is left to that section, which takes no unknown names.
    """
    upper, known = name.upper(), setting_names()
    section, delimiter, _ = upper.partition(DELIMITER)
    if upper in known or (delimiter and section in {one.split(DELIMITER)[0] for one in known}):
        return None
    if (found := meant_but_for_underscores(upper)) is not None:
        return found
    plain = _with_one_underscore(upper)
    spelt = {_with_one_underscore(setting): setting for setting in known}
    near = difflib.get_close_matches(plain, spelt, n=1, cutoff=ALIKE)
    return spelt[near[0]] if near else None


def meant_but_for_underscores(name: str) -> str | None:
    """Return the setting that a name is, but for the number of underscores; None for others."""
    upper, known = name.upper(), setting_names()
    if DELIMITER in upper:
        return None
    for setting in sorted(known, key=len, reverse=True):
        if DELIMITER in setting and (found := re.fullmatch(_pattern(setting), upper)):
            chosen = iter(found.groups())
            parts = setting.split(DELIMITER)
            return DELIMITER.join(next(chosen) if part == CHOSEN else part for part in parts)
    return None


def _pattern(setting: str) -> str:
    """Return what the name of a setting looks like that is written with single underscores."""
    parts = setting.split(DELIMITER)
    return "_".join("(.+?)" if part == CHOSEN else part for part in parts)


def _with_one_underscore(name: str) -> str:
    return re.sub("_+", "_", name)


def _line(binding: Binding) -> int:
    text = binding.original.string
    return binding.original.line + len(text) - len(text.lstrip("\n"))
