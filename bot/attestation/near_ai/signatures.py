"""The signature of an answer: whose TEE vouches for the very bytes that went and came.

After a completion the endpoint hands out a signature over the hashes of its request and response.
A `provider_tee` one is made where the model runs and names the model; a `gateway` one is made by
the gateway before it and says nothing about which model answered. Both count only when the address
that signed is the one that a verified report vouches for.

Sources: https://docs.near.ai (chat verification), EIP-191 (version 0x45) for ECDSA, RFC 8032.
"""

import asyncio
import contextlib
import hmac
import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Final, Protocol
from urllib.parse import quote, urlencode

from coincurve import PublicKey
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.http import HttpAnswer, HttpService
from bot.attestation.near_ai.ethereum import ethereum_address, keccak256

ALGORITHM: Final = "ed25519"
"""What is asked for; an ECDSA answer is checked as well."""

TOTAL_SECONDS: Final = 120.0
"""From the first question to giving up; most have a signature before they say `[DONE]`."""
ONE_ANSWER_SECONDS: Final = 15.0
FIRST_PAUSE_SECONDS: Final = 0.5
MAX_PAUSE_SECONDS: Final = 15.0
MAX_ANSWER_BYTES: Final = 64 * 1024
MAX_ID_CHARACTERS: Final = 128

SECP256K1_HALF_ORDER: Final = (
    0x7FFFFFFF_FFFFFFFF_FFFFFFFF_FFFFFFFF_5D576E73_57A4501D_DFE92F46_681B20A0
)
_HASH: Final = re.compile(r"[0-9a-f]{64}")


class SignatureState(StrEnum):
    """What came of looking for a signature."""

    PROVEN = "proven"
    WRONG = "wrong"
    MISSING = "missing"
    UNATTESTED = "unattested"


class SignatureKind(StrEnum):
    """Whose signature it is; NONE where there is none."""

    PROVIDER_TEE = "provider_tee"
    GATEWAY = "gateway"
    NONE = ""


@dataclass(frozen=True, slots=True)
class SignatureVerdict:
    """What is known of one answer's signature.

    Attributes:
        state: PROVEN: signed by an attested key. WRONG: there is a signature and it does not hold.
            MISSING: there is none. UNATTESTED: it holds, but no report vouches for who signed.
        kind: whose signature it is.
        message: for people, one or two plain sentences.
    """

    state: SignatureState
    kind: SignatureKind
    message: str


class Signer(Protocol):
    """A key that a verified report vouches for."""

    @property
    def address(self) -> bytes:
        """20 bytes (ecdsa) or the public key's 32 bytes (ed25519)."""
        ...


class Signers(Protocol):
    """Knows who may sign. In use it is `bot.attestation.near_ai.service`."""

    def signers(self, kind: str, algorithm: str) -> Sequence[Signer]:
        """Return the attested signers of a kind of signature; none where there are none."""
        ...


_Hex = Annotated[str, Field(max_length=256, pattern=r"^(0x)?([0-9a-fA-F]{2})*$")]


class SignatureAnswer(BaseModel):
    """What the endpoint hands out as the signature of an exchange."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    text: Annotated[str, Field(max_length=1024)]
    signature: _Hex
    signing_address: _Hex
    signing_algo: str
    signature_kind: str | None = None


class NoSignature(BaseModel):
    """What the endpoint hands out where it has no signature and never will."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    error_code: str


_HandedOut: Final[TypeAdapter[SignatureAnswer | NoSignature]] = TypeAdapter(
    SignatureAnswer | NoSignature
)


class AnswerSignatures:
    """Fetches and checks signatures of answers.

    Args:
        http: how the endpoint is asked.
        base_url: of the endpoint, up to and including `/v1`.
        api_key: bearer token; None sends none.
        model: the model's name in the requests.
        signers: knows whose signatures count.
        first_pause_seconds: before the second question; it doubles from there.
        total_seconds: for all questions about one answer.
    """

    def __init__(
        self,
        http: HttpService,
        base_url: str,
        api_key: str | None,
        model: str,
        signers: Signers,
        *,
        first_pause_seconds: float = FIRST_PAUSE_SECONDS,
        total_seconds: float = TOTAL_SECONDS,
    ) -> None:
        self._http = http
        self._url = base_url.rstrip("/") + "/signature/"
        self._query = "?" + urlencode({"model": model, "signing_algo": ALGORITHM})
        self.use_key(api_key)
        self._model = model
        self._signers = signers
        self._first_pause_seconds = first_pause_seconds
        self._total_seconds = total_seconds

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        self._headers = {"authorization": f"Bearer {api_key}"} if api_key else {}

    async def check(
        self, exchange_id: str, request_sha256: str, response_sha256: str
    ) -> SignatureVerdict:
        """Return what came of the signature of one exchange, after `TOTAL_SECONDS` at the latest.

        Args:
            exchange_id: what the endpoint calls the completion.
            request_sha256: hex, of the request's body as it was sent.
            response_sha256: hex, of the response's body as it came.
        """
        if not exchange_id.strip(".") or len(exchange_id) > MAX_ID_CHARACTERS:
            return _missing("The endpoint named its answer in a way that nothing can be asked by.")
        if not any(self._signers.signers(kind, ALGORITHM) for kind in _PROVEN):
            return SignatureVerdict(SignatureState.UNATTESTED, SignatureKind.NONE, _NOBODY)
        url = self._url + quote(exchange_id, safe="", errors="replace") + self._query
        handed_out = await self._fetch(url)
        if isinstance(handed_out, SignatureVerdict):
            return handed_out
        return check_signature(
            handed_out, request_sha256, response_sha256, self._model, self._signers
        )

    async def _fetch(self, url: str) -> SignatureAnswer | SignatureVerdict:
        """Ask until there is a signature, a final refusal, or no time left."""
        said: SignatureAnswer | SignatureVerdict | _NotYet = _NotYet(_SILENT)
        pause = self._first_pause_seconds
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._total_seconds):
                while isinstance(said := await self._ask(url), _NotYet):
                    await asyncio.sleep(max(pause, said.seconds))
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
        return _missing(said.message) if isinstance(said, _NotYet) else said

    async def _ask(self, url: str) -> "SignatureAnswer | SignatureVerdict | _NotYet":
        try:
            answer = await self._http.ask(
                "GET",
                url,
                seconds=ONE_ANSWER_SECONDS,
                max_bytes=MAX_ANSWER_BYTES,
                headers=self._headers,
            )
        except EvidenceUnavailable:
            return _NotYet(_SILENT)
        if answer.status == 404:
            return _NotYet(_NOT_STORED, _asked_pause(answer))
        if answer.status in (408, 429) or answer.status >= 500:
            return _NotYet(_IN_TROUBLE, _asked_pause(answer))
        return _read(answer)


def check_signature(
    answer: SignatureAnswer,
    request_sha256: str,
    response_sha256: str,
    model: str,
    signers: Signers,
) -> SignatureVerdict:
    """Check one signature against our own hashes and the attested signers of its kind.

    Args:
        answer: what the endpoint handed out.
        request_sha256: hex, of the request's body as it was sent.
        response_sha256: hex, of the response's body as it came.
        model: the model's name in the request.
        signers: knows whose signatures count.
    """
    kind = _kind(answer)
    hashes = f"{request_sha256}:{response_sha256}"
    expected = {SignatureKind.PROVIDER_TEE: f"{model}:{hashes}", SignatureKind.GATEWAY: hashes}
    if kind is SignatureKind.NONE:
        return _wrong(kind, "it is of no kind that I know")
    if answer.text != expected[kind]:
        return _wrong(kind, "it is not for this question, this answer and this model")
    address = _bytes(answer.signing_address)
    if not _holds(answer.signing_algo, address, _bytes(answer.signature), answer.text.encode()):
        return _wrong(kind, "it does not belong to the key that it names")
    attested = signers.signers(kind, answer.signing_algo)
    if not attested:
        return SignatureVerdict(SignatureState.UNATTESTED, kind, _UNATTESTED)
    if not any(hmac.compare_digest(signer.address, address) for signer in attested):
        return _wrong(kind, "it was made with a key that is not the attested one")
    return SignatureVerdict(SignatureState.PROVEN, kind, _PROVEN[kind])


def _kind(answer: SignatureAnswer) -> SignatureKind:
    """Return the kind that is said and that the text has the shape of; NONE where they differ.

    A model's own TEE, asked directly, says no kind. Its name may hold colons, so the text is split
    from the right.
    """
    parts = answer.text.rsplit(":", 2)
    if not all(_HASH.fullmatch(part) for part in parts[-2:]):
        return SignatureKind.NONE
    shape = {2: SignatureKind.GATEWAY, 3: SignatureKind.PROVIDER_TEE}.get(len(parts))
    return shape if shape and answer.signature_kind in (None, shape) else SignatureKind.NONE


def _holds(algorithm: str, address: bytes, signature: bytes, text: bytes) -> bool:
    match algorithm:
        case "ed25519":
            return _is_ed25519_signature(address, signature, text)
        case "ecdsa":
            recovered = _recovered_address(signature, text)
            return recovered is not None and hmac.compare_digest(recovered, address)
        case _:
            return False


def _is_ed25519_signature(public_key: bytes, signature: bytes, text: bytes) -> bool:
    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, text)
    except (ValueError, InvalidSignature):
        return False
    return True


def _recovered_address(signature: bytes, text: bytes) -> bytes | None:
    """Return the address of whose EIP-191 signature of the text this is, None for nobody's.

    Of the several spellings of one signature only the usual one is taken: v is 27 or 28, s is in
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


# What the endpoint says -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NotYet:
    """No signature now; worth asking again, after so many seconds at the earliest."""

    message: str
    seconds: float = 0.0


def _asked_pause(answer: HttpAnswer) -> float:
    return min(answer.retry_after_seconds or 0.0, TOTAL_SECONDS)


def _read(answer: HttpAnswer) -> SignatureAnswer | SignatureVerdict:
    if answer.status != 200:
        return _missing("The endpoint refuses to give its signature.")
    try:
        handed_out = _HandedOut.validate_json(answer.body)
    except ValidationError:
        return _missing("The endpoint gave something else as its signature.")
    if isinstance(handed_out, NoSignature):
        return _missing("The endpoint says that it has no signature for this answer.")
    return handed_out


_SILENT: Final = "The endpoint did not answer the question for its signature."
_NOT_STORED: Final = "The endpoint has no signature for this answer, or not yet."
_IN_TROUBLE: Final = "The endpoint was in trouble or too busy to give its signature."
_NOBODY: Final = (
    "The model was not verified, so there is no key that a signature could be checked with."
)
_UNATTESTED: Final = (
    "The answer is signed, but nothing proves who signed it: there is no verified report for"
    " that key right now."
)
_PROVEN: Final = {
    SignatureKind.PROVIDER_TEE: (
        "The attested machine that the model runs in has signed exactly this question and this"
        " answer."
    ),
    SignatureKind.GATEWAY: (
        "The attested gateway before the model has signed exactly this question and this answer."
        " Its signature does not prove which model answered."
    ),
}


def _missing(message: str) -> SignatureVerdict:
    return SignatureVerdict(SignatureState.MISSING, SignatureKind.NONE, message)


def _wrong(kind: SignatureKind, why: str) -> SignatureVerdict:
    return SignatureVerdict(SignatureState.WRONG, kind, f"The answer's signature is wrong: {why}.")
