"""Arguments that a model makes up: what a tool does not have is left out, and the model told so."""

import json
from dataclasses import dataclass
from typing import Final

from tools.base import Tool
from tools.display import visible

MAX_NAMED: Final = 5
_MAX_NAME_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class KnownArguments:
    """The arguments that a tool has.

    Attributes:
        text: as JSON.
        note: for the model, about the others.
    """

    text: str
    note: str


def without_unknown(tool: Tool, text: str) -> KnownArguments | None:
    """Return a call without the arguments that its tool does not have; None where it has all.

    Only a schema that closes its list of arguments tells which it does not have.
    """
    known = tool.parameters.get("properties")
    if not isinstance(known, dict) or tool.parameters.get("additionalProperties") is not False:
        return None
    try:
        sent = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(sent, dict) or not (unknown := [name for name in sent if name not in known]):
        return None
    kept = {name: value for name, value in sent.items() if name in known}
    named = ", ".join(visible(name[:_MAX_NAME_CHARACTERS]) for name in unknown[:MAX_NAMED])
    more = f" and {len(unknown) - MAX_NAMED} more" if len(unknown) > MAX_NAMED else ""
    note = f"\n[Ignored, because {tool.name} has no such argument: {named}{more}.]"
    return KnownArguments(json.dumps(kept), note)
