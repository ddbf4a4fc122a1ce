"""End-to-end encryption to the model: NEAR AI's protocol `ed25519`, version 2.

Each field of a conversation is encrypted by itself: X25519 between a fresh key and the other
side's Ed25519 key in its Montgomery form, HKDF-SHA256, XChaCha20-Poly1305. On the wire a field is
lower-case hex of ephemeral public key (32 bytes), nonce (24), ciphertext and tag (16).

Sources: RFC 7748 (X25519 and the map), RFC 5869 (HKDF), draft-irtf-cfrg-xchacha-03; for the wire,
https://github.com/nearai/inference-proxy.
"""

from collections.abc import Callable, Mapping
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from nacl.bindings import (
    crypto_aead_xchacha20poly1305_ietf_decrypt,
    crypto_aead_xchacha20poly1305_ietf_encrypt,
    crypto_sign_ed25519_pk_to_curve25519,
    crypto_sign_ed25519_sk_to_curve25519,
)
from nacl.exceptions import CryptoError
from nacl.utils import random

from bot.attestation.errors import ModelNotVerified

KEY_BYTES: Final = 32
NONCE_BYTES: Final = 24
TAG_BYTES: Final = 16
KEY_PURPOSE: Final = b"ed25519_encryption"
FIELD_PRIME: Final = 2**255 - 19

NO_KEY: Final = (
    "I have not sent your message to the model, because it must be encrypted to a key that the"
    " model has proven to be its own, and there is none right now. Please try again in a few"
    " minutes."
)
BAD_KEY: Final = (
    "I have not sent your message to the model, because the key that it must be encrypted to is"
    " not a usable one."
)


class RequestKeys:
    """Keys of one request and its answer, in memory only.

    Args:
        model_key: the model's Ed25519 public key, 32 bytes.

    Raises:
        ValueError: `model_key` is not a point of the curve, or has small order.
    """

    def __init__(self, model_key: bytes) -> None:
        own = Ed25519PrivateKey.generate()
        ephemeral = X25519PrivateKey.generate()
        self._own = montgomery_private_key(own.private_bytes_raw())
        # One exchange serves all fields of a request: each has a random nonce of 192 bits.
        self._ephemeral = ephemeral.public_key().public_bytes_raw()
        self._key = _shared_key(ephemeral, montgomery_public_key(model_key))
        self.headers: Final[Mapping[str, str]] = {
            "x-signing-algo": "ed25519",
            "x-encryption-version": "2",
            "x-encrypt-all-fields": "true",
            "x-client-pub-key": own.public_key().public_bytes_raw().hex(),
            "x-model-pub-key": model_key.hex(),
        }

    def seal(self, text: str) -> str:
        """Encrypt one field of the request; an empty field stays empty."""
        if not text:
            return ""
        nonce = random(NONCE_BYTES)
        # Half a surrogate pair has no UTF-8: it becomes a question mark instead of an error.
        plaintext = text.encode(errors="replace")
        sealed = crypto_aead_xchacha20poly1305_ietf_encrypt(plaintext, None, nonce, self._key)
        return (self._ephemeral + nonce + sealed).hex()

    def open(self, text: str) -> str:
        """Decrypt one field of the answer; see `open_field`."""
        return open_field(self._own, text)


async def request_keys(model_key: Callable[[], bytes | None]) -> RequestKeys:
    """Return fresh keys for one request, which only the attested model can read.

    Args:
        model_key: returns the model's Ed25519 public key while a verified report vouches for it.

    Raises:
        ModelNotVerified: no verified report vouches for a usable key.
    """
    key = model_key()
    if key is None:
        raise ModelNotVerified(NO_KEY)
    try:
        return RequestKeys(key)
    except ValueError:
        raise ModelNotVerified(BAD_KEY) from None


def open_field(own: X25519PrivateKey, text: str) -> str:
    """Decrypt one field; an empty field stays empty.

    Every field has exactly one spelling: upper-case hex and unreduced points are refused, although
    the mathematics would accept them.

    Raises:
        ValueError: it is encrypted to another key, or was changed on its way.
    """
    if not text:
        return ""
    try:
        return _decrypted(own, bytes.fromhex(text), text).decode()
    except (ValueError, CryptoError):
        # `from None`: the error could quote the model's words.
        raise ValueError("this is not encrypted to this key") from None


def _decrypted(own: X25519PrivateKey, field: bytes, text: str) -> bytes:
    ephemeral, rest = field[:KEY_BYTES], field[KEY_BYTES:]
    is_whole = len(rest) >= NONCE_BYTES + TAG_BYTES and field.hex() == text
    if not is_whole or int.from_bytes(ephemeral, "little") >= FIELD_PRIME:
        raise ValueError("another spelling, or not reduced")
    key = _shared_key(own, X25519PublicKey.from_public_bytes(ephemeral))
    nonce, sealed = rest[:NONCE_BYTES], rest[NONCE_BYTES:]
    return crypto_aead_xchacha20poly1305_ietf_decrypt(sealed, None, nonce, key)


def montgomery_private_key(ed25519_seed: bytes) -> X25519PrivateKey:
    """Return the X25519 key with the scalar of an Ed25519 key (RFC 8032, section 5.1.5)."""
    # libsodium reads only the seed, but expects the public key after it.
    scalar = crypto_sign_ed25519_sk_to_curve25519(ed25519_seed.ljust(2 * KEY_BYTES, b"\0"))
    return X25519PrivateKey.from_private_bytes(scalar)


def montgomery_public_key(ed25519_key: bytes) -> X25519PublicKey:
    """Return the X25519 key of an Ed25519 key: u = (1 + y) / (1 - y) (RFC 7748, section 4.1).

    Raises:
        ValueError: the key is not 32 bytes, not reduced, or not in the prime-order subgroup.
    """
    y = int.from_bytes(ed25519_key, "little") & (2**255 - 1)  # the last bit is the sign of x
    if y >= FIELD_PRIME:
        raise ValueError("this is not an Ed25519 public key: it is not reduced")
    try:
        u = crypto_sign_ed25519_pk_to_curve25519(ed25519_key)
    except (ValueError, CryptoError):
        raise ValueError("this is not an Ed25519 public key") from None
    return X25519PublicKey.from_public_bytes(u)


def _shared_key(own: X25519PrivateKey, other: X25519PublicKey) -> bytes:
    """Return the symmetric key; ValueError for a point of small order, whose secret is zero."""
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=KEY_PURPOSE).derive(own.exchange(other))
