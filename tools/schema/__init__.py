"""Tools from functions, and their declarations to the APIs of models."""

from tools.schema.declarations import (
    Declarations,
    from_gemini_name,
    gemini_name,
    to_anthropic,
    to_gemini,
    to_openai,
)
from tools.schema.from_function import parse_object, tool_from
from tools.schema.plain import Plain, parameters_of, plain

__all__ = [
    "Declarations",
    "Plain",
    "from_gemini_name",
    "gemini_name",
    "parameters_of",
    "parse_object",
    "plain",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "tool_from",
]
