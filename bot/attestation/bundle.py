"""The file next to an answer to `!verify`: everything that a stranger needs to check the bot.

{"type": "signal-bot-bundle", "v": 2,
 "statement":   the line whose hash is in the quote,
 "policy":      canonical JSON whose SHA-256 is in the statement,
 "quote":       hex of the TDX quote,
 "event_log":   dstack's event log, a JSON text,
 "app_compose": the text whose SHA-256 is the compose hash,
 "vm_config":   how dstack made the machine; no check rests on it,
 "model":       evidence of the model's endpoint; its SHA-256 is in the statement,
 "model_pins":  which of the model's machines the bot accepts; its SHA-256 is in the statement}
"""

from typing import Annotated, Final, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass

from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.statement import MAX_STATEMENT_BYTES
from bot.attestation.strict_json import STRICT, HexBytes, canonical_json, plain, read

MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024

_ShortText = Annotated[str, Field(max_length=MAX_STATEMENT_BYTES)]


@dataclass(frozen=True, config=STRICT)
class Bundle:
    """Evidence for one challenge, not verified; the docstring of the module has the fields."""

    statement: _ShortText
    policy: _ShortText
    quote: HexBytes
    event_log: str
    app_compose: str
    vm_config: str
    model: ModelEvidence | None
    model_pins: str | None
    type: Literal["signal-bot-bundle"] = "signal-bot-bundle"
    v: Annotated[int, Field(ge=2, le=2)] = 2

    def to_json(self) -> bytes:
        """Return the file."""
        return canonical_json(plain(self)).encode()

    @classmethod
    def parse(cls, file: bytes) -> "Bundle":
        """Read a file."""
        if len(file) > MAX_BUNDLE_BYTES:
            raise MalformedEvidence("the bundle is larger than a bundle can be")
        return read(cls, file, "the bundle")
