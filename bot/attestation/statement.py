"""What the measured code says about itself, and how a quote is tied to it.

    report_data[0:32]  = SHA256("signal-bot/report-data/v1" 0x00 || statement)
    report_data[32:64] = SHA256("signal-bot/nonce/v1"       0x00 || challenge)

Both are hashed under a name of their own. So nobody's words get into a quote as they are, and no
challenge can make this bot sign what another protocol would take for its own.
"""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Final, Literal

from pydantic import Field, StringConstraints

from bot.attestation.canonical import canonical_json
from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import StrictModel, read

MAX_STATEMENT_BYTES: Final = 4096
MAX_CHALLENGE_BYTES: Final = 256
ISSUED_AT_FORMAT: Final = "%Y-%m-%dT%H:%M:%SZ"

KeyOrigin = Literal["generated-in-tee", "imported"]
ModelPolicy = Literal["off", "warn", "require"]

_STATEMENT_DOMAIN: Final = b"signal-bot/report-data/v1\0"
_CHALLENGE_DOMAIN: Final = b"signal-bot/nonce/v1\0"
_TYPE: Final = "signal-bot-identity"

_Hash = Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
_Label = Annotated[str, StringConstraints(pattern="^[0-9A-Za-z.+_-]{1,64}$")]
_Uuid = Annotated[
    str, StringConstraints(pattern="^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$")
]


class ModelSeal(StrictModel):
    """What a statement says of the model's evidence that goes with it.

    Attributes:
        policy: what happens while the model is not verified.
        evidence_sha256: hex, of the evidence; None where there is none.
        age_seconds: since the evidence was fetched, by the machine's clock; None without evidence.
        pins_sha256: hex, of the pins that the bot was started with; None where it has none.
    """

    policy: ModelPolicy
    evidence_sha256: _Hash | None
    age_seconds: Annotated[int, Field(ge=0, lt=2**31)] | None
    pins_sha256: _Hash | None


@dataclass(frozen=True, slots=True)
class Statement:
    """What the bot says, bound to its quote by `report_data`.

    Attributes:
        aci: uuid of the Signal account, lower case.
        identity_key: hex of the account's public identity key, 33 bytes (0x05 and the point).
        issued_at: UTC, as in 2026-06-29T02:06:57Z; as good as the machine's clock.
        key_origin: whether the key was made inside the enclave.
        linked_devices: devices of the account beside the primary one. Whoever holds one reads
            along, so a bundle that names any fails.
        policy_sha256: hex, of the policy that goes with the statement.
        commit: of the source, as the build says.
        version: of the bot, as the build says.
        model: of the model's evidence beside it; None in statements of version 1, which say
            nothing of it.
    """

    aci: str
    identity_key: str
    issued_at: str
    key_origin: KeyOrigin
    linked_devices: int
    policy_sha256: str
    commit: str
    version: str
    model: ModelSeal | None = None

    def text(self) -> str:
        """Return the one line of canonical JSON whose hash the quote holds."""
        said = {
            "aci": self.aci,
            "code": {"commit": self.commit, "version": self.version},
            "identity_key": self.identity_key,
            "issued_at": self.issued_at,
            "key_origin": self.key_origin,
            "linked_devices": self.linked_devices,
            "policy_sha256": self.policy_sha256,
            "type": _TYPE,
        }
        if self.model is None:
            return canonical_json({**said, "v": 1})
        return canonical_json({**said, "model": self.model.model_dump(), "v": 2})

    @classmethod
    def parse(cls, text: str) -> "Statement":
        """Read a statement.

        Raises:
            MalformedEvidence: it is not a statement, is of another version, or is not written as
                `text` writes it: then two texts would say the same.
        """
        if len(text) > MAX_STATEMENT_BYTES:
            raise MalformedEvidence("the statement is longer than a statement can be")
        wire = read(_Wire, text, "the statement")
        _require_time(wire.issued_at)
        said = {name: value for name, value in wire if name not in {"type", "v", "code"}}
        statement = cls(**said, **dict(wire.code))
        if statement.text() != text:
            raise MalformedEvidence("the statement is not written in the one canonical way")
        return statement


def report_data(statement_text: str, challenge: str) -> bytes:
    """Return the 64 bytes that the quote of a statement holds, made for one challenge."""
    return statement_hash(statement_text) + challenge_hash(challenge)


def statement_hash(statement_text: str) -> bytes:
    """Return the half of `report_data` that ties a quote to a statement, 32 bytes."""
    return hashlib.sha256(_STATEMENT_DOMAIN + statement_text.encode()).digest()


def challenge_hash(challenge: str) -> bytes:
    """Return the half of `report_data` that ties a quote to a challenge, 32 bytes."""
    return hashlib.sha256(_CHALLENGE_DOMAIN + challenge.encode()).digest()


def _require_time(issued_at: str) -> None:
    try:
        datetime.strptime(issued_at, ISSUED_AT_FORMAT)  # noqa: DTZ007 - the Z is in the format
    except ValueError:
        raise MalformedEvidence("the statement's time is not a time") from None


class _Code(StrictModel):
    commit: _Label
    version: _Label


class _Wire(StrictModel):
    type: Literal["signal-bot-identity"]
    v: Annotated[int, Field(ge=1, le=2)]
    aci: _Uuid
    code: _Code
    identity_key: Annotated[str, StringConstraints(pattern="^05[0-9a-f]{64}$")]
    issued_at: Annotated[str, StringConstraints(pattern="^[0-9TZ:-]{20}$")]
    key_origin: KeyOrigin
    linked_devices: Annotated[int, Field(ge=0, le=1000)]
    policy_sha256: _Hash
    model: ModelSeal | None = None
