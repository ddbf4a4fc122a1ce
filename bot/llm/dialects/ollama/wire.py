"""What Ollama answers, as far as it is read."""

import json
from typing import Annotated, Any

from pydantic import BeforeValidator, WrapValidator

from bot.llm.dialects.lenient import Count, Few, Label, Wire, none_if_wrong


def _dumped(arguments: object) -> object:
    """Return arguments, which come as an object, as JSON."""
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)


class Function(Wire):
    """What is called, and with what."""

    name: str
    arguments: Annotated[str, BeforeValidator(_dumped)] = "{}"


class Call(Wire):
    """A tool call, always whole."""

    id: Label = None
    function: Function


class Said(Wire):
    """A piece of what the model says; what it thinks is left out."""

    content: str | None = None
    tool_calls: Few[Call] | None = None


class ChatLine(Wire):
    """One line of an answer, or all of it."""

    model: Label = None
    message: Said | None = None
    done: bool = False
    done_reason: Label = None
    prompt_eval_count: Annotated[Count | None, WrapValidator(none_if_wrong)] = None
    eval_count: Annotated[Count | None, WrapValidator(none_if_wrong)] = None
    error: Any = None


class Tag(Wire):
    """A model on the server's disk."""

    model: str = ""
    name: str = ""


class Tags(Wire):
    """Answer of `GET /api/tags`."""

    models: tuple[Tag, ...] = ()


class Shown(Wire):
    """Answer of `POST /api/show`."""

    capabilities: Annotated[tuple[str, ...] | None, WrapValidator(none_if_wrong)] = None
