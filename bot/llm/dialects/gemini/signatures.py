"""Signatures of what a model thought before a call, which Gemini wants back with that very call.

Reference: https://ai.google.dev/gemini-api/docs/thought-signatures
"""

import json
from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from conversation_store.models import Message, ModelState

MAX_STATE_CHARACTERS: Final = 256 * 1024

FOREIGN: Final = "skip_thought_signature_validator"
"""What the API takes in place of a signature for calls that another model made."""

_SIGNATURES: Final[TypeAdapter[list[str | None]]] = TypeAdapter(list[str | None])


def kept_signatures(of: str, signatures: Sequence[str | None]) -> ModelState | None:
    """Return what is to be kept of the calls of an answer; None if that is too much.

    Calls without a signature are kept as such: their model needs none.
    """
    data = json.dumps(signatures)
    return ModelState(of, data) if len(data) <= MAX_STATE_CHARACTERS else None


def signatures_of(message: Message, of: str, *, foreign: bool) -> list[str | None]:
    """Return a signature, or None, for each call of a message.

    Args:
        message: of an assistant.
        of: the model that is asked.
        foreign: calls of other models are marked as such.
    """
    count = len(message.tool_calls)
    state = message.state
    if state is not None and state.of == of and len(state.data) <= MAX_STATE_CHARACTERS:
        try:
            found = _SIGNATURES.validate_json(state.data)
        except ValueError:
            found = []
        if len(found) == count:
            return found
    # Of calls that are made at once only the first has a signature.
    return [FOREIGN if foreign and not number else None for number in range(count)]
