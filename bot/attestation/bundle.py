"""The file that goes with an answer to `!verify`: all that a stranger needs to check it.

{"type": "signal-bot-bundle", "v": 2,
 "statement":   the one line whose hash is in the quote,
 "policy":      canonical JSON whose SHA-256 is in the statement,
 "quote":       hex of the TDX quote,
 "event_log":   dstack's event log, a JSON text,
 "app_compose": the text whose SHA-256 is the compose hash,
 "vm_config":   how the machine was made, as dstack says; no check rests on it,
 "model":       what the model's endpoint showed; its SHA-256 is in the statement,
 "model_pins":  which of the model's machines the bot accepts; likewise}

Bundles of version 1 have no pins, and a statement that says nothing of the model's part.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from bot.attestation.canonical import canonical_json
from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.evidence import ModelEvidence
from bot.attestation.statement import MAX_STATEMENT_BYTES
from bot.attestation.strict_json import StrictModel, read

MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024

_TYPE: Final = "signal-bot-bundle"
_Text = Annotated[str, StringConstraints(max_length=MAX_BUNDLE_BYTES)]
_ShortText = Annotated[str, StringConstraints(max_length=MAX_STATEMENT_BYTES)]


@dataclass(frozen=True, slots=True)
class Bundle:
    """Evidence for one challenge. Nothing of it is believed before it is verified.

    Attributes:
        statement: text of a `Statement`.
        policy: what the bot says that it does; its SHA-256 is in the statement.
        quote: the TDX quote.
        event_log: JSON, what the enclave measured while it started.
        app_compose: what was to be started.
        vm_config: JSON of dstack, informational.
        model: what the model's endpoint showed the bot; None where it shows nothing.
        model_pins: JSON text of `ModelPins`; None where nothing is pinned.
    """

    statement: str
    policy: str
    quote: bytes
    event_log: str
    app_compose: str
    vm_config: str
    model: ModelEvidence | None
    model_pins: str | None = None

    def to_json(self) -> bytes:
        """Return the file."""
        return canonical_json(
            {
                "type": _TYPE,
                "v": 2,
                "statement": self.statement,
                "policy": self.policy,
                "quote": self.quote.hex(),
                "event_log": self.event_log,
                "app_compose": self.app_compose,
                "vm_config": self.vm_config,
                "model": self.model.to_plain() if self.model else None,
                "model_pins": self.model_pins,
            }
        ).encode()

    @classmethod
    def parse(cls, file: bytes) -> "Bundle":
        """Read a file.

        Raises:
            MalformedEvidence: it is no bundle, a newer one, or larger than 4 MiB.
        """
        if len(file) > MAX_BUNDLE_BYTES:
            raise MalformedEvidence("the bundle is larger than a bundle can be")
        wire = read(_Wire, file, "the bundle")
        return cls(
            statement=wire.statement,
            policy=wire.policy,
            quote=bytes.fromhex(wire.quote),
            event_log=wire.event_log,
            app_compose=wire.app_compose,
            vm_config=wire.vm_config,
            model=ModelEvidence.from_plain(wire.model) if wire.model is not None else None,
            model_pins=wire.model_pins,
        )


class _Wire(StrictModel):
    type: Literal["signal-bot-bundle"]
    v: Annotated[int, Field(ge=1, le=2)]
    statement: _ShortText
    policy: _ShortText
    quote: Annotated[
        str, StringConstraints(max_length=MAX_BUNDLE_BYTES, pattern="^([0-9a-f]{2})+$")
    ]
    event_log: _Text
    app_compose: _Text
    vm_config: _Text
    model: dict[str, object] | None
    model_pins: _Text | None = None

    @model_validator(mode="after")
    def _pins_since_version_two(self) -> Self:
        if (self.v == 1) is ("model_pins" in self.model_fields_set):
            raise ValueError("pins belong to version 2")
        return self
