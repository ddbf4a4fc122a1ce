"""The names of all settings, as they are written in the environment."""

from collections.abc import Iterator
from typing import Final, get_args, get_origin

from pydantic import BaseModel

from bot.config.settings import Settings
from bot.config.sources import DELIMITER

ANY_NAME: Final = "name"
"""The place in a setting's name for a name that the operator chooses."""


def setting_names() -> frozenset[str]:
    """Return every setting's name in the environment."""
    return frozenset(_names(Settings, ()))


def _names(model: type[BaseModel], path: tuple[str, ...]) -> Iterator[str]:
    for attribute, field in model.model_fields.items():
        name = field.alias or attribute  # `for` is no name in Python
        kind, *of_what = (field.annotation, *get_args(field.annotation))
        if get_origin(kind) is dict:
            kind, path_to = of_what[-1], (*path, name, ANY_NAME)
        else:
            path_to = (*path, name)
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield from _names(kind, path_to)
        else:
            yield DELIMITER.join(path_to).upper()
