"""The file next to an answer to `!verify`: everything that a stranger needs to check the bot.

{"type": "signal-bot-bundle", "v": 2,
 "statement":   the bot's claims about itself, one line of canonical JSON,
 "policy":      canonical JSON whose SHA-256 is in the statement,
 "quote":       hex of the TDX quote,
 "event_log":   dstack's event log, a JSON text,
 "app_compose": the text whose SHA-256 is the compose hash,
 "vm_config":   how dstack made the machine; no check rests on it,
 "model":       evidence of the model's endpoint; its SHA-256 is in the statement,
 "model_pins":  which of the model's machines the bot accepts; its SHA-256 is in the statement}

The quote's report data tie it to the statement and to a challenge:

    report_data[0:32]  = SHA256("signal-bot/report-data/v1" 0x00 || statement)
    report_data[32:64] = SHA256("signal-bot/nonce/v1"       0x00 || challenge)

Each hash begins with a name of its own (domain separation). So a quote never holds a stranger's
words as they are, and no challenge can make this bot sign data of another protocol.
"""

import hashlib
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints
from pydantic.dataclasses import dataclass

from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.report import ModelEvidence
from bot.attestation.strict_json import STRICT, Hash, HexBytes, canonical_json, plain, read

MAX_BUNDLE_BYTES: Final = 4 * 1024 * 1024
MAX_STATEMENT_BYTES: Final = 4096
MAX_CHALLENGE_BYTES: Final = 256
ISSUED_AT_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

KeyOrigin = Literal["generated-in-tee", "imported"]
ModelPolicy = Literal["off", "warn", "require"]

_STATEMENT_DOMAIN: Final = b"signal-bot/report-data/v1\0"
_CHALLENGE_DOMAIN: Final = b"signal-bot/nonce/v1\0"

_Label = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z.+_-]{1,64}$")]
_Uuid = Annotated[
    str, StringConstraints(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
]


@dataclass(frozen=True, config=STRICT)
class ModelSeal:
    """Part of a statement about the model's evidence in the same bundle.

    Attributes:
        policy: the setting `ATTESTATION__MODEL_POLICY`.
        evidence_sha256: hex; None without evidence.
        age_seconds: since the evidence was fetched, by the machine's clock; None without evidence.
        pins_sha256: hex, of the pins that the bot was started with; None without pins.
    """

    policy: ModelPolicy
    evidence_sha256: Hash | None
    age_seconds: Annotated[int, Field(ge=0, lt=2**31)] | None
    pins_sha256: Hash | None


@dataclass(frozen=True, config=STRICT)
class Code:
    """The bot's version and the commit of its source, as the build says."""

    commit: _Label
    version: _Label


@dataclass(frozen=True, config=STRICT, kw_only=True)
class Statement:
    """Claims of the bot, bound to its quote by `report_data`.

    Attributes:
        aci: uuid of the Signal account, lower case.
        identity_key: hex of the account's public identity key, 33 bytes (0x05 and the point).
        issued_at: UTC, as in 2026-06-29T02:06:57Z; as good as the machine's clock.
        linked_devices: devices of the account besides the primary one.
        policy_sha256: hex, of the policy in the same bundle.
    """

    type: Literal["signal-bot-identity"]
    v: Annotated[int, Field(ge=2, le=2)]
    aci: _Uuid
    code: Code
    identity_key: Annotated[str, StringConstraints(pattern="^05[0-9a-f]{64}$")]
    issued_at: Annotated[str, StringConstraints(pattern="^[0-9TZ:-]{20}$")]
    key_origin: KeyOrigin
    linked_devices: Annotated[int, Field(ge=0, le=1000)]
    model: ModelSeal
    policy_sha256: Hash

    def text(self) -> str:
        """Return the line of canonical JSON whose hash the quote holds."""
        return canonical_json(plain(self))

    @classmethod
    def parse(cls, text: str) -> "Statement":
        """Read a statement; any other spelling than that of `text` would have another hash."""
        if len(text) > MAX_STATEMENT_BYTES:
            raise MalformedEvidence("the statement is longer than a statement can be")
        statement = read(cls, text, "the statement")
        try:
            datetime.strptime(statement.issued_at, ISSUED_AT_FORMAT)  # noqa: DTZ007 - ends in Z
        except ValueError:
            raise MalformedEvidence("the statement's time is not a time") from None
        if statement.text() != text:
            raise MalformedEvidence("the statement is not written in the one canonical way")
        return statement


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
    type: Literal["signal-bot-bundle"]
    v: Annotated[int, Field(ge=2, le=2)]

    def to_json(self) -> bytes:
        """Return the file."""
        return canonical_json(plain(self)).encode()

    @classmethod
    def parse(cls, file: bytes) -> "Bundle":
        """Read a file."""
        if len(file) > MAX_BUNDLE_BYTES:
            raise MalformedEvidence("the bundle is larger than a bundle can be")
        return read(cls, file, "the bundle")


def report_data(statement_text: str, challenge: str) -> bytes:
    """Return the 64 bytes that a quote holds for a statement and one challenge."""
    return statement_hash(statement_text) + challenge_hash(challenge)


def statement_hash(statement_text: str) -> bytes:
    """Return the half of `report_data` that ties a quote to a statement."""
    return hashlib.sha256(_STATEMENT_DOMAIN + statement_text.encode()).digest()


def challenge_hash(challenge: str) -> bytes:
    """Return the half of `report_data` that ties a quote to a challenge."""
    return hashlib.sha256(_CHALLENGE_DOMAIN + challenge.encode()).digest()
