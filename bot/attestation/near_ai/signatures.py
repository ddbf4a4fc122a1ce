"""Signatures of answers: which TEE vouches for the exact bytes of a request and its response.

After a completion the endpoint hands out a signature over the hashes of request and response. A
`provider_tee` signature is made where the model runs and names the model. A `gateway` signature is
made by the gateway and does not tell which model answered. Both count only if a verified report
vouches for the signing address.

Sources: https://docs.near.ai (chat verification), EIP-191 (version 0x45) for ECDSA, RFC 8032.
"""

import asyncio
import contextlib
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from hmac import compare_digest
from typing import Annotated, Final, Literal, NamedTuple
from urllib.parse import quote, urlencode

from coincurve import PublicKey
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, Field, ValidationError

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.http import HttpService
from bot.attestation.near_ai.verification import ethereum_address, keccak256
from conversation_store.models import ExchangeState

ALGORITHM: Final = "ed25519"
"""In requests; an ECDSA answer is checked as well."""

TOTAL_SECONDS: Final = 120.0
"""For all questions about one answer; most signatures exist before `[DONE]`."""
ONE_ANSWER_SECONDS: Final = 15.0
FIRST_PAUSE_SECONDS: Final = 0.5
"""Before the second question; doubles from there."""
MAX_PAUSE_SECONDS: Final = 15.0
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_ID_CHARACTERS: Final = 128

SECP256K1_HALF_ORDER: Final = (
    0x7FFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_5D576E73_57A4501D_DFE92F46_681B20A0
)
_HASH: Final = re.compile(r"[0-9a-f]{64}")

AttestedSigners = Callable[[str, str], Collection[bytes]]
"""Returns the addresses of attested signers for a kind of signature and an algorithm."""


SignatureKind = Literal["provider_tee", "gateway", ""]
"""Origin of a signature; empty without a signature."""


class SignatureVerdict(NamedTuple):
    """Result for one answer.

    Attributes:
        state: `proven`: signed by an attested key. `wrong`: the signature does not hold, or is by
            another key. `missing`: the endpoint gave none. `unattested`: no report vouches for a
            key to check it with.
        message: for people, one or two plain sentences.
    """

    state: ExchangeState
    kind: SignatureKind
    message: str


_Hex = Annotated[str, Field(max_length=256, pattern=r"^(0x)?([0-9a-fA-F]{2})*$")]


class SignatureAnswer(BaseModel, frozen=True):
    """The endpoint's answer with a signature."""

    text: Annotated[str, Field(max_length=1024)]
    signature: _Hex
    signing_address: _Hex
    signing_algo: str
    signature_kind: str | None = None


_NoSignature = tuple[str, float | None]
"""Why there is no signature, and the pause in seconds after which there may be one."""


@dataclass(slots=True)
class AnswerSignatures:
    """Fetches and checks signatures of answers.

    Attributes:
        base_url: of the endpoint, up to and including `/v1`.
    """

    http: HttpService
    base_url: str
    api_key: str | None = field(repr=False)
    model: str
    signers: AttestedSigners

    async def check(
        self, exchange_id: str, request_sha256: str, response_sha256: str
    ) -> SignatureVerdict:
        """Fetch and check the signature of one exchange, within `TOTAL_SECONDS`.

        Args:
            request_sha256: hex, of the request's body as sent.
            response_sha256: hex, of the response's body as received.
        """
        if not exchange_id.strip(".") or len(exchange_id) > MAX_ID_CHARACTERS:
            return _missing("The endpoint gave its answer a name that no question can use.")
        if not any(self.signers(kind, ALGORITHM) for kind in _PROVEN):
            return SignatureVerdict("unattested", "", _NO_KEY)
        name = quote(exchange_id, safe="", errors="replace")
        query = urlencode({"model": self.model, "signing_algo": ALGORITHM})
        url = f"{self.base_url.rstrip('/')}/signature/{name}?{query}"
        answer: SignatureAnswer | _NoSignature = (_SILENT, None)
        pause = FIRST_PAUSE_SECONDS
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(TOTAL_SECONDS):
                while isinstance(answer := await self._ask(url), tuple):
                    _, retry_seconds = answer
                    if retry_seconds is None:
                        break
                    await asyncio.sleep(max(pause, retry_seconds))
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
        if isinstance(answer, tuple):
            return _missing(answer[0])
        return check_signature(answer, request_sha256, response_sha256, self.model, self.signers)

    async def _ask(self, url: str) -> SignatureAnswer | _NoSignature:
        try:
            answer = await self.http.ask(
                "GET",
                url,
                seconds=ONE_ANSWER_SECONDS,
                max_bytes=MAX_ANSWER_BYTES,
                api_key=self.api_key,
            )
        except EvidenceUnavailable:
            return _SILENT, 0.0
        if answer.status in (404, 408, 429) or answer.status >= 500:
            message = _NOT_STORED if answer.status == 404 else _SILENT
            return message, min(answer.retry_after_seconds or 0.0, TOTAL_SECONDS)
        try:
            return SignatureAnswer.model_validate_json(answer.body if answer.status == 200 else b"")
        except ValidationError:
            return "The endpoint refuses to give a signature for this answer.", None


def check_signature(
    answer: SignatureAnswer,
    request_sha256: str,
    response_sha256: str,
    model: str,
    signers: AttestedSigners,
) -> SignatureVerdict:
    """Check one signature against our own hashes and the attested signers of its kind."""
    kind = _kind(answer)
    hashes = f"{request_sha256}:{response_sha256}"
    if not kind:
        return _wrong(kind, "its kind is unknown to me")
    if answer.text != (hashes if kind == "gateway" else f"{model}:{hashes}"):
        return _wrong(kind, "it is not for this question, this answer and this model")
    address = _bytes(answer.signing_address)
    if not _holds(answer.signing_algo, address, _bytes(answer.signature), answer.text.encode()):
        return _wrong(kind, "it does not belong to the key that it names")
    attested = signers(kind, answer.signing_algo)
    if not attested:
        return SignatureVerdict("unattested", kind, _UNATTESTED)
    if not any(compare_digest(signer, address) for signer in attested):
        return _wrong(kind, "it was made with a key that is not the attested one")
    return SignatureVerdict("proven", kind, _PROVEN[kind])


def _kind(answer: SignatureAnswer) -> SignatureKind:
    """Return the kind that fits the text's shape; empty if the answer states another kind.

    A model's own TEE, asked directly, states no kind. The model's name may hold colons, so the
    text is split from the right.
    """
    parts = answer.text.rsplit(":", 2)
    if not all(_HASH.fullmatch(part) for part in parts[-2:]):
        return ""
    shapes: dict[int, SignatureKind] = {2: "gateway", 3: "provider_tee"}
    shape = shapes.get(len(parts), "")
    return shape if answer.signature_kind in (None, shape) else ""


def _holds(algorithm: str, address: bytes, signature: bytes, text: bytes) -> bool:
    if algorithm == "ecdsa":
        recovered = _recovered_address(signature, text)
        return recovered is not None and compare_digest(recovered, address)
    if algorithm != "ed25519":
        return False
    try:
        Ed25519PublicKey.from_public_bytes(address).verify(signature, text)
    except (ValueError, InvalidSignature):
        return False
    return True


def _recovered_address(signature: bytes, text: bytes) -> bytes | None:
    """Return the address of an EIP-191 signature of the text, or None.

    One signature has several spellings. Only the usual one is accepted: v is 27 or 28, and s is in
    the lower half of the order (EIP-2).
    """
    v, s = signature[64:], int.from_bytes(signature[32:64], "big")
    if v not in (b"\x1b", b"\x1c") or s > SECP256K1_HALF_ORDER:
        return None
    message = b"\x19Ethereum Signed Message:\n%d%s" % (len(text), text)
    recoverable = signature[:64] + bytes([v[0] - 27])
    try:
        key = PublicKey.from_signature_and_message(recoverable, keccak256(message), hasher=None)
    except ValueError:
        return None
    return ethereum_address(key.format(compressed=False)[1:])


def _bytes(hexadecimal: str) -> bytes:
    return bytes.fromhex(hexadecimal.removeprefix("0x"))


def _missing(message: str) -> SignatureVerdict:
    return SignatureVerdict("missing", "", message)


def _wrong(kind: SignatureKind, why: str) -> SignatureVerdict:
    return SignatureVerdict("wrong", kind, f"The answer's signature is wrong: {why}.")


_SILENT: Final = "The endpoint is in trouble, or did not answer the question for its signature."
_NOT_STORED: Final = "The endpoint has no signature for this answer, or not yet."
_NO_KEY: Final = (
    "The model was not verified, so there is no key that a signature could be checked with."
)
_UNATTESTED: Final = (
    "The answer is signed, but nothing proves who signed it: there is no verified report for"
    " that key right now."
)
_PROVEN: Final = {
    "provider_tee": (
        "The attested machine that the model runs in has signed exactly this question and this"
        " answer."
    ),
    "gateway": (
        "The attested gateway before the model has signed exactly this question and this answer."
        " Its signature does not prove which model answered."
    ),
}
