"""What a schema cannot say is said in the words of its description."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

_MAX_JSON_CHARACTERS: Final = 500


def with_words(schema: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return a schema whose description goes on with some sentences."""
    if not words:
        return dict(schema)
    description = schema.get("description", "").rstrip()
    if description and description[-1] not in ".!?:;":
        description += "."
    return {**schema, "description": " ".join(filter(None, (description, *words)))}


def value_words(label: str, value: object) -> str:
    """Say a value, as JSON."""
    return f"{label}: {_cut(compact(value))}."


def schema_words(label: str, schema: Mapping[str, Any]) -> str:
    """Say what cannot be shown as JSON Schema; of a long one, only what it is."""
    text = compact(schema)
    if len(text) > _MAX_JSON_CHARACTERS:
        outline = {key: schema[key] for key in ("type", "description") if key in schema}
        text = _cut(compact(outline))
    return f"{label}, as JSON Schema: {text}."


def property_words(name: str, schema: Mapping[str, Any], *, required: bool) -> str:
    """Say that there is an argument that cannot be shown, and what it is."""
    return schema_words(f"{'Needs' if required else 'May have'} {compact(name)}", schema)


def compact(value: object) -> str:
    """Return a value's JSON on one line."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_JSON_CHARACTERS else f"{text[:_MAX_JSON_CHARACTERS]}…"
