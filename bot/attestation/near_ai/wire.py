"""The wire of `GET /v1/attestation/report`, as the gateway and a model's own endpoint answer it.

The gateway wraps: `gateway_attestation`, `model_attestations` and the certificate of its TLS side.
A model's own endpoint is flat: the model's attestation, and all of them again in
`all_attestations`. Unknown keys are ignored; what a check needs has to be there, and is bounded.
"""

from binascii import unhexlify
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from bot.attestation.errors import MalformedEvidence
from bot.attestation.near_ai.evidence import MAX_MODEL_NAME, MAX_REPORT_BYTES
from bot.attestation.strict_json import Text, decode

MAX_MACHINES: Final = 16
MAX_ACTIONS: Final = 10_000
MAX_EVENTS: Final = 10_000
_MAX_QUOTE_BYTES: Final = 64 * 1024


def _bytes_of_hex(value: object) -> object:
    return unhexlify(value.removeprefix("0x")) if isinstance(value, str) else value


def _object_of_json(value: object) -> object:
    return decode(value, "tcb_info") if isinstance(value, str) else value


Digest = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(min_length=32, max_length=32)]
_Key = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(max_length=64)]
_Quote = Annotated[bytes, BeforeValidator(_bytes_of_hex), Field(max_length=_MAX_QUOTE_BYTES)]
_EventLog = Text | Annotated[list[Any], Field(max_length=MAX_EVENTS)]
"""Some services write it as an array, others as a string with the JSON of that array."""


class _Wire(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)


class TcbInfo(_Wire):
    """What dstack measured; only the application's text is used, quote and log say the rest."""

    app_compose: Text


class Info(_Wire):
    """What the guest agent says about itself."""

    tcb_info: Annotated[TcbInfo, BeforeValidator(_object_of_json)]


class Machine(_Wire):
    """A trust domain that signs answers: its quote, and what the quote is about."""

    signing_algo: Literal["ed25519", "ecdsa"]
    signing_address: _Key
    signing_public_key: _Key | None = None
    intel_quote: _Quote
    event_log: _EventLog
    info: Info
    request_nonce: Digest
    tls_cert_fingerprint: Digest | None = None


class ComposeManager(_Wire):
    """The part of a model's machine that starts containers, and what it has done since boot."""

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
    """A report in one shape, whichever endpoint it is from.

    Attributes:
        gateway: None when the model's own endpoint was asked.
        models: the machines that run the model, at least one.
        listed: how many more are named without a manager's log or GPUs of their own; their keys
            count for nothing, so nothing else of them is read.
        tls_certificate: PEM, of the machine that was asked; the leaf stands first.
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
    """Read an endpoint's report.

    Raises:
        MalformedEvidence: it is too long, no JSON, or lacks something that a check needs.
    """
    if len(report) > MAX_REPORT_BYTES:
        raise MalformedEvidence("the report is longer than this program reads")
    value = decode(report, "the report")
    try:
        if isinstance(value, dict) and "gateway_attestation" in value:
            return _of_gateway(_GatewayAnswer.model_validate(value))
        return _of_model(_DirectAnswer.model_validate(value))
    except ValidationError as error:
        where = ".".join(str(part) for part in error.errors()[0]["loc"][:3]) or "its beginning"
        raise MalformedEvidence(f"the report cannot be read at {where}") from None


def _of_gateway(answer: _GatewayAnswer) -> ModelReport:
    return ModelReport(
        gateway=answer.gateway_attestation,
        models=tuple(answer.model_attestations),
        listed=0,
        tls_certificate=answer.tls_certificate,
    )


def _of_model(answer: _DirectAnswer) -> ModelReport:
    # The machine that was asked is listed again, without its compose manager.
    others = [m for m in answer.all_attestations if m.intel_quote != answer.intel_quote]
    whole = [m for m in others if m.nvidia_payload and m.compose_manager_attestation]
    return ModelReport(
        gateway=None,
        models=(answer, *whole),
        listed=len(others) - len(whole),
        tls_certificate=answer.tls_certificate,
    )
