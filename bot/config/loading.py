"""Reads all settings at once; errors name settings and what is expected, never a value."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_settings.exceptions import SettingsError as UnparsableSettings

from bot.config.env_lines import problems_in
from bot.config.problems import explain
from bot.config.settings import GivenSettings, Settings
from bot.config.sources import DELIMITER, meant_for_us, secret_folders
from bot.errors import SettingsError

ENV_FILE: Final = Path(".env")


def load_settings(overrides: Mapping[str, Mapping[str, object]] | None = None) -> Settings:
    """Read all settings.

    Args:
        overrides: values by section that win over every source.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    if ENV_FILE.is_dir():  # nothing else can be told before it is a file
        raise SettingsError(f"{ENV_FILE}: is a folder; a file is expected")
    problems = _problems_of_env_file()
    try:
        settings = _validated(Settings, overrides or {})
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
    return _validated(GivenSettings, _by_section(variables))


def settings_files() -> list[Path]:
    """Return the existing files that settings come from."""
    sections = tuple(f"{name}{DELIMITER}" for name in Settings.model_fields)
    secrets = (file for folder in secret_folders() for file in sorted(folder.iterdir()))
    ours = (file for file in secrets if file.name.lower().startswith(sections))
    return [file for file in (ENV_FILE, *ours) if file.is_file()]


def _problems_of_env_file() -> tuple[str, ...]:
    try:
        # The library would print a warning for each line that is a problem here.
        logging.getLogger("dotenv").setLevel(logging.ERROR)
        return tuple(problems_in(ENV_FILE)) if ENV_FILE.is_file() else ()
    except (OSError, UnicodeDecodeError):
        return ()  # reading the settings says so


def _by_section(variables: Mapping[str, str]) -> dict[str, Any]:
    sections: dict[str, Any] = {}
    meant = meant_for_us({key.lower(): value for key, value in variables.items()})
    for name, value in sorted(meant.items()):
        *path, last = name.split(DELIMITER)
        section = sections
        for part in path:
            section = section.setdefault(part, {})
            if not isinstance(section, dict):
                raise SettingsError(f"{name.upper()}: is below a setting that has a value")
        section[last] = value
    return sections


def _validated(kind: type[Settings], values: Mapping[str, object]) -> Settings:
    try:
        settings = kind(**dict(values))  # type: ignore[arg-type]
    except ValidationError as error:
        raise SettingsError(*(explain(problem) for problem in error.errors())) from None
    except UnparsableSettings as error:
        raise SettingsError(f"a setting is not understood: {error}") from None
    except OSError as error:
        where = error.filename or ".env or a secret file"
        raise SettingsError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SettingsError(
            ".env or a secret file is no UTF-8 text: save it as such, or make it anew (setup)"
        ) from None
    _check_together(settings)
    return settings


def _check_together(settings: Settings) -> None:
    """Refuse settings that fit alone and not together."""
    attestation = settings.attestation
    required = attestation.model_policy == "require"
    wanted = {"ATTESTATION__MODEL_POLICY": required, "ATTESTATION__E2EE": attestation.e2ee}
    if urlsplit(settings.llm.base_url).scheme != "https" and any(wanted.values()):
        # Without TLS no key can identify the other side.
        name = next(name for name, on in wanted.items() if on)
        raise SettingsError(f"{name}: needs an LLM__BASE_URL that begins with https://")
    if settings.llm.dialect != "openai" and any(wanted.values()):
        name = next(name for name, on in wanted.items() if on)
        raise SettingsError(f"{name}: needs LLM__DIALECT=openai; no other API can prove anything")
    if settings.llm.api_key is not None and "@" in urlsplit(settings.llm.base_url).netloc:
        raise SettingsError(
            "LLM__API_KEY: must be unset, or LLM__BASE_URL without user and password: only one of"
            " them can be sent"
        )
    if settings.llm.transcription_model and (required or attestation.e2ee):
        # Voices would go to a model that nothing vouches for.
        raise SettingsError(
            "LLM__TRANSCRIPTION_MODEL: only the model that answers is verified, so with"
            " ATTESTATION__MODEL_POLICY=require or ATTESTATION__E2EE it must be unset"
        )
    if required and attestation.model_pins is None:
        # Proof from any machine that happens to answer is worth nothing.
        raise SettingsError(
            "ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=require, a file of"
            " the measurements to accept; this makes one: signal-tee-bot attest model --output FILE"
        )
