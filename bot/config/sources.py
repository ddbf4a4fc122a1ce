"""Where values come from: the environment, `.env`, secret files."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from pydantic.fields import FieldInfo

DELIMITER: Final = "__"

EMPTY_MEANS_OFF: Final = frozenset({"health__listen"})

WITHOUT_SECTION: Final = frozenset({"sandbox"})

CONTAINER_SECRETS: Final = Path("/run/secrets")


def meant_for_us(variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Drop empty values, and names such as LOG or BOT that may belong to other programs."""
    return {
        name: value
        for name, value in variables.items()
        if (DELIMITER in name or name in WITHOUT_SECTION) and (value or name in EMPTY_MEANS_OFF)
    }


def as_written(_name: str, _field: FieldInfo | None, value: object) -> object:
    """Return a value undecoded, because JSON in place of a section would bypass settings' names.

    `enable_decoding=False` does not cover the values of dictionaries.
    """
    return value


def secret_folders() -> Iterator[Path]:
    """Yield the existing folders of secrets.

    Raises:
        OSError: the service's own folder cannot be read, so its secrets would count as unset.
    """
    credentials = os.environ.get("CREDENTIALS_DIRECTORY")
    if credentials and Path(credentials).is_dir():
        next(Path(credentials).iterdir(), None)
        yield Path(credentials)
    # On a server without containers, this folder may be another program's.
    if CONTAINER_SECRETS.is_dir() and os.access(CONTAINER_SECRETS, os.R_OK | os.X_OK):
        yield CONTAINER_SECRETS
