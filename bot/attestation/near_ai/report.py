"""Reports of `GET /v1/attestation/report`, as the gateway and a model's own endpoint answer it.

The gateway's report has `gateway_attestation`, `model_attestations` and its TLS certificate. The
report of a model's own endpoint is the attestation of the machine that was asked;
`all_attestations` lists all machines, this one included. Unknown keys are ignored; every value
that a check needs is required and bounded.
"""

import hashlib
from binascii import unhexlify
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AliasPath,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from bot.attestation.errors import MalformedEvidence
from bot.attestation.strict_json import STRICT, HexBytes, Text, canonical_json, decode, plain

NONCE_BYTES: Final = 32
MAX_REPORT_BYTES: Final = 4 * 1024 * 1024
"""A recorded report of one model with eight GPUs has 350 kB."""
MAX_MODEL_NAME: Final = 256
MAX_MACHINES: Final = 16
MAX_ACTIONS: Final = 10_000
MAX_EVENTS: Final = 10_000
_MAX_QUOTE_BYTES: Final = 64 * 1024


def _utf8(value: object) -> object:
    return value.encode() if isinstance(value, str) else value


_Utf8 = Annotated[bytes, BeforeValidator(_utf8), PlainSerializer(bytes.decode)]
_Hash = Annotated[HexBytes, Field(min_length=32, max_length=32)]


@dataclass(frozen=True, config=STRICT)
class ModelEvidence:
    """A report of the model's endpoint, not verified, and the request for it.

    Attributes:
        report: the endpoint's JSON, byte for byte.
        peer_key_sha256: SHA-256 of the SubjectPublicKeyInfo of the TLS peer on the report's
            connection; None without TLS.
        fetched_at: Unix seconds.
    """

    report: _Utf8
    nonce: _Hash
    model: Text
    peer_key_sha256: _Hash | None
    fetched_at: Annotated[int, Field(ge=0)]

    def text(self) -> str:
        """Return it as canonical JSON."""
        return canonical_json(plain(self))

    def sha256(self) -> str:
        """Return the hash in hex that a statement holds."""
        return hashlib.sha256(self.text().encode()).hexdigest()


# The wire


def _bytes_of_hex(value: object) -> object:
    return unhexlify(value.removeprefix("0x")) if isinstance(value, str) else value


def _compose_of(tcb_info: object) -> object:
    info = decode(tcb_info, "tcb_info") if isinstance(tcb_info, str) else tcb_info
    return info.get("app_compose") if isinstance(info, dict) else None


Digest = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(min_length=32, max_length=32)]
_Key = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(max_length=64)]
_Quote = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(max_length=_MAX_QUOTE_BYTES)]
_EventLog = Text | Annotated[list[Any], Field(max_length=MAX_EVENTS)]
"""Some services write an array, others a string with the JSON of that array."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class Machine(_Wire):
    """A trust domain that signs answers."""

    signing_algo: Literal["ed25519", "ecdsa"]
    signing_address: _Key
    signing_public_key: _Key | None = None
    intel_quote: _Quote
    event_log: _EventLog
    app_compose: Annotated[
        Text,
        BeforeValidator(_compose_of),
        Field(validation_alias=AliasPath("info", "tcb_info")),
    ]
    request_nonce: Digest
    tls_cert_fingerprint: Digest | None = None


class ComposeManager(_Wire):
    """Part of a model's machine that starts containers, with its log since the boot."""

    actions: Annotated[list[dict[str, Any]], Field(max_length=MAX_ACTIONS)]
    nonce: Digest
    quote: _Quote
    event_log: _EventLog


class ModelMachine(Machine):
    """A trust domain with GPUs that runs the model."""

    model_name: Annotated[str, Field(max_length=MAX_MODEL_NAME)] | None = None
    nvidia_payload: Text | None = None
    compose_manager_attestation: ComposeManager | None = None


class ModelReport(_Wire):
    """A report in one shape for both kinds of endpoint.

    Attributes:
        gateway: None if the model's own endpoint was asked.
        models: the machines that run the model, at least one.
        listed: count of further machines without a manager's log or GPUs; their keys count for
            nothing, so nothing else of them is read.
        tls_certificate: PEM, of the machine that was asked; the leaf comes first.
    """

    gateway: Machine | None
    models: tuple[ModelMachine, ...]
    listed: int
    tls_certificate: str | None


class _GatewayAnswer(_Wire):
    gateway_attestation: Machine
    model_attestations: Annotated[list[ModelMachine], Field(min_length=1, max_length=MAX_MACHINES)]
    tls_certificate: Text | None = None


class _DirectAnswer(ModelMachine):
    all_attestations: Annotated[list[ModelMachine], Field(max_length=MAX_MACHINES)] = []
    tls_certificate: Text | None = None


def read_report(report: bytes) -> ModelReport:
    """Read an endpoint's report."""
    if len(report) > MAX_REPORT_BYTES:
        raise MalformedEvidence("the report is longer than this program reads")
    value = decode(report, "the report")
    try:
        if isinstance(value, dict) and "gateway_attestation" in value:
            wrapped = _GatewayAnswer.model_validate(value)
            return ModelReport(
                gateway=wrapped.gateway_attestation,
                models=tuple(wrapped.model_attestations),
                listed=0,
                tls_certificate=wrapped.tls_certificate,
            )
        answer = _DirectAnswer.model_validate(value)
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:3]) or "its beginning"
        raise MalformedEvidence(f"the report cannot be read at {where}") from None
    # The machine that was asked is listed again, without its compose manager.
    others = [m for m in answer.all_attestations if m.intel_quote != answer.intel_quote]
    whole = [m for m in others if m.nvidia_payload and m.compose_manager_attestation]
    return ModelReport(
        gateway=None,
        models=(answer, *whole),
        listed=len(others) - len(whole),
        tls_certificate=answer.tls_certificate,
    )
