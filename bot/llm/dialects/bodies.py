"""What the bodies of requests have in common, whatever the dialect."""

import json
from collections.abc import Mapping, Sequence

from pydantic_core import PydanticSerializationError, to_json

from bot.llm.dialect import Asked, Parameter
from bot.llm.messages import ToolSpec


def dumped(body: Mapping[str, object]) -> bytes:
    """Return a body as JSON."""
    try:
        return to_json(body)  # a fifth of the time of json.dumps
    except PydanticSerializationError:
        # Half a surrogate pair has no UTF-8: it becomes a question mark instead of an error.
        return json.dumps(body, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def shown_tools(asked: Asked) -> Sequence[ToolSpec]:
    """Return the tools of a request: none where they may not be called and that cannot be said."""
    if Parameter.TOOL_CHOICE in asked.omitted and not asked.request.may_call:
        return ()
    return asked.request.tools
