"""Reading all settings at once; errors name settings and what is expected, never a value."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from pydantic import ValidationError
from pydantic_settings.exceptions import SettingsError as UnparsableSettings

from bot.config.problems import explain
from bot.config.settings import GivenSettings, Settings
from bot.config.sources import DELIMITER, meant_for_us, secret_folders
from bot.errors import SettingsError


def load_settings(overrides: Mapping[str, Mapping[str, object]] | None = None) -> Settings:
    """Read all settings.

    Args:
        overrides: values by section that win over every source.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    return _validated(Settings, overrides or {})


def settings_of(variables: Mapping[str, str]) -> Settings:
    """Read settings from variables as they would stand in the environment, and nowhere else.

    Raises:
        SettingsError: one line for each setting that is wrong, unknown or missing.
    """
    return _validated(GivenSettings, _by_section(variables))


def settings_files() -> list[Path]:
    """Return the files that settings come from, as far as they are there."""
    sections = tuple(f"{name}{DELIMITER}" for name in Settings.model_fields)
    secrets = (file for folder in secret_folders() for file in sorted(folder.iterdir()))
    ours = (file for file in secrets if file.name.lower().startswith(sections))
    return [file for file in (Path(".env"), *ours) if file.is_file()]


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
        raise SettingsError(".env or a secret file is no text") from None
    _require_tls_for_proof(settings)
    _refuse_unproven_listening(settings)
    _require_pins(settings)
    return settings


def _require_tls_for_proof(settings: Settings) -> None:
    """Refuse what could never work: without TLS no key shows whom one talks to."""
    wanted = {
        "ATTESTATION__MODEL_POLICY": settings.attestation.model_policy == "require",
        "ATTESTATION__E2EE": settings.attestation.e2ee,
    }
    if urlsplit(settings.llm.base_url).scheme != "https" and any(wanted.values()):
        name = next(name for name, on in wanted.items() if on)
        raise SettingsError(f"{name}: needs an LLM__BASE_URL that begins with https://")


def _require_pins(settings: Settings) -> None:
    """Refuse to require proof of the model from whatever machine happens to answer."""
    if settings.attestation.model_policy == "require" and settings.attestation.model_pins is None:
        raise SettingsError(
            "ATTESTATION__MODEL_PINS: is required by ATTESTATION__MODEL_POLICY=require, a file of"
            " the measurements to accept; this makes one: signal-tee-bot attest model --output FILE"
        )


def _refuse_unproven_listening(settings: Settings) -> None:
    """Refuse to send voices to a model that nothing vouches for, where proof is required."""
    proof_is_required = settings.attestation.model_policy == "require" or settings.attestation.e2ee
    if settings.llm.transcription_model and proof_is_required:
        raise SettingsError(
            "LLM__TRANSCRIPTION_MODEL: only the model that answers is verified, so with"
            " ATTESTATION__MODEL_POLICY=require or ATTESTATION__E2EE it must be unset"
        )
