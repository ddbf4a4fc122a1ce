"""NEAR AI Cloud on loopback: chat, attestation report and signatures, over HTTPS.

    async with near_ai() as cloud:
        ...  # cloud.base_url, cloud.trust, cloud.platform.collateral, cloud.nras

A gateway and a model's machine of a soft TDX platform sign what they answer. `cloud.handler`
scripts the chat as in tests.fakes.openai_server, whose steps also serve as faults:
`cloud.report_handler = status(503)`. `cloud.lies` and `cloud.edit` change the contents of the
report. NVIDIA's service runs next to it, see tests.fakes.nras.
"""

import asyncio
import contextlib
import hashlib
import json
import os
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast
from urllib.parse import parse_qs, urlsplit

from coincurve import PrivateKey
from Crypto.Hash import keccak
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from bot.attestation.near_ai.pins import ModelPins
from bot.attestation.strict_json import canonical_json
from bot.attestation.trust import Trust
from tests.fakes.certificates import Authority, ServerIdentity
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.near_ai_encryption import EncryptedModel, unchunked
from tests.fakes.nras import NrasServer, nras_server
from tests.fakes.openai_server import MODEL, OpenAiServer, Request, Step, echo, status
from tests.fakes.soft_gpu import SoftGpus
from tests.fakes.soft_tdx import SoftTdx

COMPLETION_ID: Final = b'"chatcmpl-1"'
"""Id of every completion of tests.fakes.openai_server."""
ACTIONS: Final = (
    {"action": "compose_up", "file": "model.yaml", "file_sha256": "ab" * 32, "tag": "v1"},
)

Body = dict[str, Any]


@dataclass
class Lies:
    """False statements of a report.

    Attributes:
        nonce: of an earlier question.
        key_sha256: a TLS key that another machine holds.
        debug: the machines are debug machines.
    """

    nonce: bytes | None = None
    key_sha256: bytes | None = None
    debug: bool = False


class Signing:
    def __init__(self) -> None:
        self.ed25519 = Ed25519PrivateKey.generate()
        self.ecdsa = PrivateKey()

    def public_key(self, algorithm: str) -> bytes:
        """Return 32 bytes (ed25519), or x and y (ecdsa)."""
        if algorithm == "ed25519":
            return self.ed25519.public_key().public_bytes_raw()
        return self.ecdsa.public_key.format(compressed=False)[1:]

    def address(self, algorithm: str) -> bytes:
        """Return the signer's address for the report data."""
        key = self.public_key(algorithm)
        return key if algorithm == "ed25519" else _keccak(key)[12:]

    def address_text(self, algorithm: str) -> str:
        """Return the address as reports and signatures spell it."""
        return ("" if algorithm == "ed25519" else "0x") + self.address(algorithm).hex()

    def sign(self, text: str, algorithm: str) -> str:
        if algorithm == "ed25519":
            return self.ed25519.sign(text.encode()).hex()
        message = b"\x19Ethereum Signed Message:\n%d%s" % (len(text.encode()), text.encode())
        signature = self.ecdsa.sign_recoverable(_keccak(message), hasher=None)
        return "0x" + (signature[:64] + bytes([27 + signature[64]])).hex()


@dataclass(frozen=True, slots=True)
class Signed:
    """Request and answer, byte for byte."""

    completion_id: str
    request: bytes
    response: bytes


@dataclass
class NearAi(OpenAiServer):
    """The running cloud; its handlers and lies may be changed at any time.

    Attributes:
        encryption: the model's end of it; `.read` holds what the model could read.
        direct: whether it is a model's own endpoint instead of the gateway.
        report_handler: answers GET /v1/attestation/report; at first `give_report`.
        signature_handler: answers GET /v1/signature/...; at first `give_signature`.
        signature_kind: the signer, `provider_tee` or `gateway`.
        lies: false statements of the report.
        edit: changes a report before it is sent.
        exchanges: every chat completion so far.
        reports: how many reports were asked for.
    """

    platform: SoftTdx = field(default_factory=SoftTdx)
    authority: Authority = field(default_factory=Authority)
    gpus: SoftGpus = field(default_factory=SoftGpus)
    nras: NrasServer = field(default_factory=NrasServer)
    direct: bool = False
    model: str = MODEL
    report_handler: Step = field(init=False)
    signature_kind: str = "provider_tee"
    lies: Lies = field(default_factory=Lies)
    edit: Callable[[Body], None] | None = None
    exchanges: list[Signed] = field(default_factory=list)
    reports: int = 0

    def __post_init__(self) -> None:
        self.identity: ServerIdentity = self.authority.issue()
        self.tls = self.identity.context()
        self.report_handler = self.give_report
        self.signature_handler = self.give_signature
        self.gateway_signing = Signing()
        self.model_signing = Signing()
        self.encryption = EncryptedModel(self.model_signing.ed25519.private_bytes_raw())
        self._gateway = SoftAgent(self.platform, _compose("gateway"))
        self._machine = SoftAgent(self.platform, _compose("model"))

    @property
    def trust(self) -> Trust:
        return Trust(
            intel_root=self.platform.root_der,
            nvidia_root_sha256=self.gpus.root_sha256,
            nras_url=self.nras.url,
            tls=self.authority.client_context(),
        )

    @property
    def pins(self) -> ModelPins:
        """Pins that accept this cloud's machines and no others."""
        gateway, model = (
            {
                "systems": [_system(machine)],
                "applications": [{"compose_hash": machine.compose_hash.hex()}],
            }
            for machine in (self._gateway, self._machine)
        )
        kms_id = json.loads(self._machine.key_provider_info)["id"]
        pins = {"type": "signal-bot-model-pins", "v": 1, "model": model, "kms_ids": [kms_id]}
        return ModelPins.parse(json.dumps(pins if self.direct else {**pins, "gateway": gateway}))

    def change_tls_key(self) -> None:
        """Use another key with an equally valid certificate from the next connection on."""
        assert self.tls is not None
        self.identity = self.authority.issue()
        self.identity.load_into(self.tls)

    def report(self, nonce: bytes, algorithm: str = "ed25519") -> Body:
        nonce = self.lies.nonce or nonce
        model = self._model_attestation(nonce, algorithm)
        if self.direct:
            others = {"all_attestations": [dict(model)]}
            return {**model, **others, **self._compose_manager(nonce)}
        gateway = self._attestation(self._gateway, self.gateway_signing, nonce, algorithm)
        return {
            "gateway_attestation": {**gateway, "event_log": json.dumps(gateway["event_log"])},
            "model_attestations": [{**model, **self._compose_manager(nonce)}],
            "tls_certificate": self.identity.certificate_pem,
        }

    def step_for(self, request: Request) -> Step:
        path = urlsplit(request.path).path
        if request.method == "POST" and path == "/v1/chat/completions":
            return self._chat
        if request.method == "GET" and path == "/v1/attestation/report":
            self.reports += 1
            return self.report_handler
        return super().step_for(request)

    # The report

    async def give_report(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer with a report, changed by `lies` and `edit`."""
        question = _question(request)
        report = self.report(
            bytes.fromhex(question["nonce"]), question.get("signing_algo", "ed25519")
        )
        if self.edit is not None:
            self.edit(report)
        await status(200, report)(request, writer)

    def _model_attestation(self, nonce: bytes, algorithm: str) -> Body:
        attestation = self._attestation(self._machine, self.model_signing, nonce, algorithm)
        return {
            **attestation,
            "model_name": self.model,
            "signing_public_key": self.model_signing.public_key(algorithm).hex(),
            "nvidia_payload": self.gpus.payload(nonce),
        }

    def _attestation(
        self, machine: SoftAgent, signing: Signing, nonce: bytes, algorithm: str
    ) -> Body:
        fingerprint = self.lies.key_sha256 or self.identity.key_sha256
        report_data = hashlib.sha256(signing.address(algorithm) + fingerprint).digest() + nonce
        return {
            "signing_address": signing.address_text(algorithm),
            "signing_algo": algorithm,
            "intel_quote": self._quote(machine, report_data),
            "event_log": machine.event_log,
            "report_data": report_data.hex(),
            "request_nonce": nonce.hex(),
            "tls_cert_fingerprint": fingerprint.hex(),
            "info": {"tcb_info": {"app_compose": machine.app_compose}},
        }

    def _compose_manager(self, nonce: bytes) -> Body:
        actions_hash = hashlib.sha256(canonical_json(ACTIONS).encode()).digest()
        return {
            "compose_manager_attestation": {
                "actions": ACTIONS,
                "actions_hash": actions_hash.hex(),
                "nonce": nonce.hex(),
                "nonce_source": "client",
                "quote": self._quote(self._machine, actions_hash + nonce),
                "event_log": json.dumps(self._machine.event_log),
                "report_data": (actions_hash + nonce).hex(),
            }
        }

    def _quote(self, machine: SoftAgent, report_data: bytes) -> str:
        return self.platform.quote(
            report_data,
            machine.mr_td,
            machine.rtmrs(),
            machine.mr_config_id,
            debug=self.lies.debug,
        ).hex()

    # Chat and signatures

    async def _chat(self, request: Request, writer: asyncio.StreamWriter) -> None:
        completion_id = f"cc-{len(self.exchanges):07d}"
        recorder = _Recorder(writer, completion_id)
        encrypted = "x-client-pub-key" in request.headers
        step = self.encryption.reads(self.handler) if encrypted else self.handler
        await step(request, recorder.as_writer())
        self.exchanges.append(Signed(completion_id, request.raw, recorder.body))

    async def give_signature(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer with the signature of an exchange."""
        completion_id = urlsplit(request.path).path.rsplit("/", 1)[1]
        found = [one for one in self.exchanges if one.completion_id == completion_id]
        if not found:
            error = {"type": "not_found_error", "message": "not stored"}
            await status(404, {"error": error})(request, writer)
            return
        algorithm = _question(request).get("signing_algo", "ecdsa")
        await status(200, self.signature(found[0], algorithm))(request, writer)

    def signature(self, exchange: Signed, algorithm: str = "ecdsa") -> Body:
        hashes = f"{_sha256(exchange.request)}:{_sha256(exchange.response)}"
        by_model = self.signature_kind == "provider_tee"
        signing = self.model_signing if by_model else self.gateway_signing
        text = f"{self.model}:{hashes}" if by_model else hashes
        return {
            "text": text,
            "signature": signing.sign(text, algorithm),
            "signing_address": signing.address_text(algorithm),
            "signing_algo": algorithm,
            "signature_kind": self.signature_kind,
        }


@contextlib.asynccontextmanager
async def near_ai(
    handler: Step = echo,
    *,
    tcb_status: str = "UpToDate",
) -> AsyncIterator[NearAi]:
    """Run the cloud and NVIDIA's service on free loopback ports.

    Args:
        handler: answers chat completions.
        tcb_status: Intel's verdict on the platform.
    """
    authority = Authority()
    async with nras_server(authority) as nras:
        cloud = NearAi(
            handler=handler,
            platform=SoftTdx(tcb_status),
            authority=authority,
            nras=nras,
        )
        await cloud.start()
        try:
            yield cloud
        finally:
            await cloud.stop()


class _Recorder:
    """Writer for a step: gives the completion its own id, and keeps the body."""

    def __init__(self, writer: asyncio.StreamWriter, completion_id: str) -> None:
        self._writer = writer
        # As long as the other id, so that lengths and the framing of chunks stay right.
        self._id = json.dumps(completion_id).encode()
        assert len(self._id) == len(COMPLETION_ID)
        self._written = bytearray()

    def as_writer(self) -> asyncio.StreamWriter:
        """Return it typed as a writer; the steps use only `write`, `writelines` and `drain`."""
        return cast("asyncio.StreamWriter", self)

    def write(self, data: bytes) -> None:
        data = data.replace(COMPLETION_ID, self._id)
        self._written += data
        self._writer.write(data)

    def writelines(self, pieces: list[bytes]) -> None:
        for piece in pieces:
            self.write(piece)

    async def drain(self) -> None:
        await self._writer.drain()

    @property
    def body(self) -> bytes:
        head, _, rest = bytes(self._written).partition(b"\r\n\r\n")
        return unchunked(rest) if b"transfer-encoding: chunked" in head.lower() else rest


def _question(request: Request) -> Mapping[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(request.path).query).items()}


def _system(machine: SoftAgent) -> dict[str, str]:
    registers = (machine.mr_td, *machine.rtmrs()[:3])
    names = ("mrtd", "rtmr0", "rtmr1", "rtmr2")
    measured = {name: value.hex() for name, value in zip(names, registers, strict=True)}
    return {"label": "soft", **measured}


def _compose(name: str) -> str:
    image = f"registry.example/nearai/{name}@sha256:{os.urandom(32).hex()}"
    services = f"services:\n  {name}:\n    image: {image}\n"
    return json.dumps(
        {
            "manifest_version": 2,
            "name": name,
            "runner": "docker-compose",
            "docker_compose_file": services,
        }
    )


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _keccak(data: bytes) -> bytes:
    return keccak.new(digest_bits=256, data=data).digest()
