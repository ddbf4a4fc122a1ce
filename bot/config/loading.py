"""Read all settings at once; errors name settings and the expected values, never a value."""

import difflib
import logging
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final, get_args, get_origin
from urllib.parse import urlsplit

from dotenv import dotenv_values
from dotenv.parser import Binding, parse_stream
from pydantic import BaseModel, ValidationError

from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.observability.hardening import moved_variables
from tools.settings import TOOL_NAMES

ENV_FILE: Final = Path(".env")

CONTAINER_SECRETS: Final = Path("/run/secrets")

MAX_SECRET_BYTES: Final = 65_536

DELIMITER: Final = "__"

SECTIONS: Final = frozenset(Settings.model_fields)

WITHOUT_SECTION: Final = frozenset({"sandbox"})

EMPTY_MEANS_OFF: Final = frozenset({"health__listen"})

CHOSEN: Final = "NAME"
"""Stands in a setting's name for a name that the operator chooses."""

ALIKE: Final = 0.85
"""difflib's ratio of a misspelt setting: `LLMS__MODEL` counts as one, `LLM_CACHE` does not."""

COMMON: Final = frozenset({"LOG_LEVEL", "LOG_FORMAT"})
"""Variables of many programs, which may stand in the environment of the process."""

REMOVED: Final[Mapping[str, str]] = {
    "ACCESS__QUORUM": "delete it: in groups, one admin's yes allows a command",
    "BOT__SETTLE_SECONDS": "delete it: messages in a row join the running answer",
    "BOT__STEERING": "delete it: messages in a row join the running answer",
    "TOOLS__AUDIT_ARGUMENTS": "delete it: the audit keeps a hash of the arguments",
    "TOOLS__COMMANDS__NETWORK": "delete it: commands have no network",
    "TOOLS__CURRENT_TIME__ENABLED": "use TOOLS__DISABLED=date_time to disable the tool",
    "TOOLS__HELPERS__ENABLED": "use TOOLS__DISABLED=delegate to disable helpers",
    "TOOLS__MEMORY__ENABLED": "use TOOLS__DISABLED=remember to disable memory",
    "TOOLS__REMINDERS__ENABLED": "use TOOLS__DISABLED=remind to disable reminders",
    "TOOLS__REMINDERS__MAX_PER_PERSON": "delete it: each person may have 100 reminders",
}
"""Settings of earlier builds, and what to do instead."""

_A_NAME: Final = re.compile(r"(?<![A-Z0-9_])[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*(?![A-Z0-9_])")


def load_settings(overrides: Mapping[str, Mapping[str, object]] | None = None) -> Settings:
    """Read all settings.

    Args:
        overrides: values by section that win over every source.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    if ENV_FILE.is_dir():  # a folder hides all other problems
        raise SettingsError(f"{ENV_FILE}: is a folder; a file is expected")
    problems = (*_problems_of_env_file(), *_problems_of_environment())
    try:
        values = _by_section(_variables())
        for section, fields in (overrides or {}).items():
            values[section] = {**values.get(section, {}), **fields}
        settings = _validated(values)
    except SettingsError as error:
        raise SettingsError(*problems, *error.problems) from None
    if problems:
        raise SettingsError(*problems)
    return settings


def settings_of(variables: Mapping[str, str]) -> Settings:
    """Read settings only from these variables, named as in the environment.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    return _validated(_by_section(_set(variables)))


def settings_files() -> list[Path]:
    """Return the existing files that settings come from."""
    return [file for file in (ENV_FILE, *_secret_files()) if file.is_file()]


@cache
def setting_names() -> frozenset[str]:
    """Return every setting's name in the environment."""
    return frozenset(_names(Settings, ()))


def _names(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute  # `for` is a keyword of Python
        kind, *of_what = (field.annotation, *get_args(field.annotation))
        if get_origin(kind) is dict:
            kind, path_to = of_what[-1], (*path, name, CHOSEN)
        else:
            path_to = (*path, name)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _names(kind, path_to)
        else:
            yield DELIMITER.join(path_to).upper()


# The environment, then `.env`, then secret files; the first that has a setting wins.


def _variables() -> dict[str, str]:
    """Return the variables of all sources that name our sections, in lower case.

    Raises:
        SettingsError: a file cannot be read.
    """
    try:
        secrets = {file.name: _secret(file) for file in reversed(list(_secret_files()))}
        file = dotenv_values(ENV_FILE, encoding="utf-8-sig") if ENV_FILE.is_file() else {}
    except OSError as error:
        where = error.filename or ".env or a secret file"
        raise SettingsError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(
            ".env or a secret file is no UTF-8 text: save it as UTF-8, or run setup again"
        ) from None
    found = _set(secrets) | _set(file) | _set(os.environ) | _set(moved_variables())
    return {name: value for name, value in found.items() if _is_ours(name)}


def _set(variables: Mapping[str, str | None]) -> dict[str, str]:
    """Drop empty values, and names such as LOG or BOT that may belong to other programs."""
    lower = {name.lower(): value for name, value in variables.items()}
    return {
        name: value or ""
        for name, value in lower.items()
        if (DELIMITER in name or name in WITHOUT_SECTION) and (value or name in EMPTY_MEANS_OFF)
    }


def _is_ours(name: str) -> bool:
    section, delimiter, _ = name.lower().partition(DELIMITER)
    return section in (SECTIONS if delimiter else WITHOUT_SECTION)


def _secret_files() -> Iterator[Path]:
    """Yield the secret files with settings.

    Raises:
        OSError: the service's own folder cannot be read, so its secrets would count as unset.
    """
    folders = []
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and Path(credentials).is_dir():
        folders.append(Path(credentials))
    # On a server without containers, this folder may be another program's.
    if CONTAINER_SECRETS.is_dir() and os.access(CONTAINER_SECRETS, os.R_OK | os.X_OK):
        folders.append(CONTAINER_SECRETS)
    for folder in folders:
        for file in sorted(folder.iterdir()):
            if _is_ours(file.name) and file.is_file():
                yield file


def _secret(file: Path) -> str:
    if file.stat().st_size > MAX_SECRET_BYTES:
        raise SettingsError(f"{file}: has more than {MAX_SECRET_BYTES:,} bytes")
    return file.read_text("utf-8").strip()


def _by_section(variables: Mapping[str, str]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    for name, value in sorted(variables.items()):
        *path, last = name.split(DELIMITER)
        section = sections
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise SettingsError(f"{name.upper()}: is below a setting that has a value")
        section[last] = value
    return sections


def _validated(values: Mapping[str, object]) -> Settings:
    try:
        settings = Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(*(_explained(problem) for problem in error.errors())) from None
    if problems := tuple(_problems_together(settings)):
        raise SettingsError(*problems)
    return settings


def may_be_measured(url: str) -> bool:
    """Return whether an address is on this machine, or may be a service of the compose file."""
    host = urlsplit(url).hostname or ""
    return is_local(host) or re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,62}", host) is not None


def is_local(host: str) -> bool:
    """Return whether a host is this machine."""
    with suppress(ValueError):
        return ip_address(host).is_loopback
    return host == "localhost"


def _problems_together(settings: Settings) -> Iterator[str]:
    """Yield a sentence for each setting that is right alone but not with the others."""
    llm, attestation = settings.llm, settings.attestation
    required = attestation.model_policy == "require"
    if required or attestation.e2ee:
        name = "ATTESTATION__MODEL_POLICY" if required else "ATTESTATION__E2EE"
        if urlsplit(llm.base_url).scheme != "https":
            # Without TLS no key can identify the other side.
            yield f"{name}: needs an LLM__BASE_URL that begins with https://"
        if llm.dialect != "openai":
            yield f"{name}: needs LLM__DIALECT=openai; no other API can prove anything"
        for what, model, url in (
            ("TRANSCRIPTION", llm.transcription_model, llm.transcription_url),
            ("SPEECH", llm.speech_model, llm.speech_url),
        ):
            # Voices would go to a model that nothing vouches for.
            if model and (url is None or not may_be_measured(url)):
                yield (
                    f"LLM__{what}_URL: only the model that answers is verified, so with {name} it"
                    " has to be on this machine, or a service of the measured compose file"
                )
    if llm.api_key is not None and "@" in urlsplit(llm.base_url).netloc:
        yield (
            "LLM__API_KEY: must be unset, or LLM__BASE_URL without user and password: only one of"
            " them can be sent"
        )
    if required and attestation.model_pins is None:
        # Proof from any machine that happens to answer is worth nothing.
        yield (
            "ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=require, a file of"
            " the measurements to accept; this makes one: signal-tee-bot attest model --output FILE"
        )
    of_servers = tuple(f"{server}_" for server in settings.mcp.servers)
    for tool in sorted(settings.tools.disabled - TOOL_NAMES):
        if not tool.startswith(of_servers):
            near = difflib.get_close_matches(tool, TOOL_NAMES, n=1)
            meant = f"; did you mean {near[0]}?" if near else ""
            yield f"TOOLS__DISABLED: names a tool that does not exist{meant}"


# Names that only look like settings: `LLM_API_KEY=…` would leave the bot without a key.


def _problems_of_env_file() -> Iterator[str]:
    # The library would print a warning for each line that is a problem here.
    logging.getLogger("dotenv").setLevel(logging.ERROR)
    with suppress(OSError, UnicodeDecodeError):  # reading the settings says so
        if ENV_FILE.is_file():
            yield from problems_in(ENV_FILE)


def _problems_of_environment() -> Iterator[str]:
    """Yield a sentence for each variable that differs from a setting only in its underscores.

    Compose's `env_file` puts all lines of `.env` there.
    """
    for name in sorted(os.environ.keys() - COMMON):
        if (meant := _meant_by(name)) is not None:
            yield f"{name} is no setting; did you mean {meant}?"


def problems_in(file: Path) -> Iterator[str]:
    """Yield a sentence for each line of the file that is unreadable or only looks like a setting.

    Raises:
        OSError: the file cannot be read.
        UnicodeDecodeError: it is not text.
    """
    with file.open(encoding="utf-8-sig") as lines:
        bindings = list(parse_stream(lines))
    for binding in bindings:
        if binding.error or (binding.key and binding.value is None):
            yield (
                f"{file}, line {_line(binding)}: is no setting; NAME=value is expected, and a"
                " quotation mark that is closed again"
            )
        elif binding.key and (meant := _meant_by(binding.key) or _misspelt(binding.key)):
            yield (
                f"{file}, line {_line(binding)}: {binding.key} is no setting; did you mean {meant}?"
            )


def _meant_by(name: str) -> str | None:
    """Return the setting that differs from a name only in its underscores; None if none does.

    A section refuses unknown names below itself, so this leaves those alone.
    """
    upper, known = name.upper(), setting_names()
    section = upper.partition("_")[0].lower()
    if section not in SECTIONS or DELIMITER in name or upper in known:
        return None
    for setting in sorted(known, key=len, reverse=True):
        parts = setting.split(DELIMITER)
        pattern = "_".join("(.+?)" if part == CHOSEN else part.replace("_", "_?") for part in parts)
        if found := re.fullmatch(pattern, upper):
            chosen = iter(found.groups())
            return DELIMITER.join(next(chosen) if part == CHOSEN else part for part in parts)
    return None


def _misspelt(name: str) -> str | None:
    """Return the setting that a name of an unknown section probably means, or None.

    `STOER__KEY` must not leave the store without its key.
    """
    section, delimiter, _ = name.lower().partition(DELIMITER)
    if name.upper() in setting_names() or (delimiter and section in SECTIONS):
        return None
    near = difflib.get_close_matches(name.upper(), setting_names(), n=1, cutoff=ALIKE)
    return near[0] if near else None


def _line(binding: Binding) -> int:
    text = binding.original.string
    return binding.original.line + len(text) - len(text.lstrip("\n"))


# A line for each wrong setting


def _explained(problem: Mapping[str, Any]) -> str:
    """Describe one problem of pydantic in one line, without the value."""
    # pydantic marks a problem of a name itself by a part `[key]`.
    path = [part for part in problem["loc"] if isinstance(part, str) and part != "[key]"]
    known = frozenset(_with_chosen_names(name, path) for name in setting_names())
    prefixes = [DELIMITER.join(path[:length]).upper() for length in range(len(path), 0, -1)]
    name = next((prefix for prefix in prefixes if prefix in known), prefixes[0])
    if problem["type"] == "extra_forbidden":
        name = DELIMITER.join((name, *_keys_below(problem["input"]))).upper()
        if (instead := REMOVED.get(name)) is not None:
            return f"{name}: no longer exists; {instead}"
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
    """Write the names in a sentence about several settings of a section in full."""

    def whole(found: re.Match[str]) -> str:
        name = f"{section}{DELIMITER}{found[0]}"
        return name if name in known else found[0]

    written = _A_NAME.sub(whole, sentence)
    return written if written.startswith(section) else f"{section}: {written}"


def _with_chosen_names(name: str, path: Sequence[str]) -> str:
    """Fill the operator's names of this path into a setting's name."""
    parts = name.split(DELIMITER)
    for number, chosen in enumerate(path[: len(parts)]):
        if parts[number] == CHOSEN:
            parts[number] = chosen.upper()
    return DELIMITER.join(parts)


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
