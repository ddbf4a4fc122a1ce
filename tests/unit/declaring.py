"""Declares a tool with a given schema to APIs, with a check of the declaration."""

from typing import Any

from tests.declaration_rules import check_anthropic, check_gemini
from tools.base import ToolSpec
from tools.schema import parameters_of, plain, to_anthropic, to_gemini


def acting(schema: Any, name: str = "act") -> ToolSpec:
    """Return a tool with a schema, which need not be valid."""
    return ToolSpec(name, "Acts.", parameters_of(plain(schema) or {}))


def anthropic(schema: Any) -> dict[str, Any]:
    declared = to_anthropic(acting(schema))
    check_anthropic(declared)
    found: dict[str, Any] = declared["input_schema"]
    return found


def gemini(schema: Any) -> dict[str, Any]:
    declared = to_gemini(acting(schema))
    check_gemini(declared)
    return declared
