"""A line for each setting that is wrong: its name and what is expected, never its value."""

import difflib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from bot.config.names import ANY_NAME, setting_names
from bot.config.sources import DELIMITER

_A_NAME: Final = re.compile(r"(?<![A-Z0-9_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?![A-Z0-9_])")


def explain(problem: Mapping[str, Any]) -> str:
    """Describe one problem of pydantic in one line, without the value."""
    # pydantic marks a problem of a name itself by a part `[key]`.
    path = [part for part in problem["loc"] if isinstance(part, str) and part != "[key]"]
    known = frozenset(_with_chosen_names(setting_names(), path))
    prefixes = [DELIMITER.join(path[:length]).upper() for length in range(len(path), 0, -1)]
    name = next((prefix for prefix in prefixes if prefix in known), prefixes[0])
    if problem["type"] == "extra_forbidden":
        name = DELIMITER.join((name, *_keys_below(problem["input"]))).upper()
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        return f"{name}: no such setting" + (f"; did you mean {near[0]}?" if near else "")
    if problem["type"] == "missing":
        missing = "SIGNAL__PHONE_NUMBER" if name == "SIGNAL" else name
        where = ".env" if "__MODELS__" in missing else ".env, which signal-tee-bot setup makes"
        return f"{missing}: is required; set it in {where}"
    if problem["type"] in {"dict_type", "model_type"}:
        below = min(longer for longer in known if longer.startswith(name + DELIMITER))
        return f"{name}: has no value of its own; set what is below it, such as {below}"
    if name not in known:
        return _with_whole_names(name, _expectation(problem), known)
    return f"{name}: {_expectation(problem)}"


def _with_whole_names(section: str, sentence: str, known: Collection[str]) -> str:
    """Return a sentence about several settings of a section, with the names as one writes them."""

    def whole(found: re.Match[str]) -> str:
        name = f"{section}{DELIMITER}{found[0]}"
        return name if name in known else found[0]

    written = _A_NAME.sub(whole, sentence)
    return written if written.startswith(section) else f"{section}: {written}"


def _with_chosen_names(names: Iterable[str], path: Sequence[str]) -> Iterator[str]:
    """Yield the settings' names with the operator's names of this path filled in."""
    for name in names:
        parts = name.split(DELIMITER)
        for number, chosen in enumerate(path[: len(parts)]):
            if parts[number] == ANY_NAME.upper():
                parts[number] = chosen.upper()
        yield DELIMITER.join(parts)


def _keys_below(value: object) -> Iterator[str]:
    """Yield the rest of an unknown setting's name when its whole section is unknown."""
    while isinstance(value, Mapping) and value:
        key = next(iter(value))
        yield str(key)
        value = value[key]


def _expectation(problem: Mapping[str, Any]) -> str:
    if problem["type"] in {"bool_parsing", "bool_type"}:
        return "must be true or false"
    message = str(problem["msg"]).removeprefix("Value error, ")
    message = message.partition(", unable to parse")[0]
    return message.replace("Input should be", "must be").replace("String should", "must")
