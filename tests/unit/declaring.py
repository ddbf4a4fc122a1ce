"""A tool of which only the schema is known, declared to APIs that check what they get."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.declaration_rules import check_anthropic, check_gemini
from tools.schema import to_anthropic, to_gemini


@dataclass(frozen=True)
class Described:
    """A tool of which nothing is known but what a model is told."""

    parameters: Mapping[str, Any]
    name: str = "act"
    description: str = "Acts."


def anthropic(schema: Any) -> dict[str, Any]:
    declared = to_anthropic(Described(schema))
    check_anthropic(declared)
    found: dict[str, Any] = declared["input_schema"]
    return found


def gemini(schema: Any) -> dict[str, Any]:
    declared = to_gemini(Described(schema))
    check_gemini(declared)
    return declared
