"""Tools from functions, and what each API is told of a tool's arguments."""

from tools.schema.dialects import Declarations, Described, to_anthropic, to_gemini, to_openai
from tools.schema.from_function import parse_object, tool_from
from tools.schema.names import from_gemini_name, gemini_name

__all__ = [
    "Declarations",
    "Described",
    "from_gemini_name",
    "gemini_name",
    "parse_object",
    "to_anthropic",
    "to_gemini",
    "to_openai",
    "tool_from",
]
