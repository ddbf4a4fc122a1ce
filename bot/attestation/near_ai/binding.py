"""What ties a quote to this request, to a signing key and to a TLS connection.

NEAR AI's machines put into the 64 bytes of report data (the same layout for gateway and model):

    [0:32]   SHA-256(address of the signing key, SHA-256 of the TLS key)
    [32:64]  the nonce

and the compose manager SHA-256(its actions as canonical JSON), the nonce. A machine that is not
asked for its TLS key puts the bare address there, filled up with zeros. That layout is refused:
in it any other hash at that place, such as the compose manager's, reads as somebody's key.
"""

import hashlib
import hmac
from typing import Final

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding

from bot.attestation.canonical import canonical_json
from bot.attestation.checks import Check, failed, not_checked, proven_if
from bot.attestation.http import key_sha256
from bot.attestation.near_ai.ethereum import ADDRESS_BYTES, ethereum_address
from bot.attestation.near_ai.wire import ComposeManager, Machine, ModelReport
from bot.attestation.quote import TdQuote

_HASH_BYTES: Final = 32
_ED25519_KEY_BYTES: Final = 32
_ECDSA_KEY_BYTES: Final = 64


def nonce_check(quote: TdQuote | None, stated: bytes, nonce: bytes) -> Check:
    """Return `nonce`: whether quote and report were made for our request."""
    if quote is None:
        return _without_quote("nonce")
    signed = quote.report_data[_HASH_BYTES:]
    return proven_if(
        hmac.compare_digest(signed, nonce) and hmac.compare_digest(stated, nonce),
        "nonce",
        "the quote was made for this request",
        "the quote was made for another request",
    )


def report_data_check(quote: TdQuote | None, machine: Machine) -> Check:
    """Return `report_data`: whether the quote vouches for the signing key and the TLS key."""
    if quote is None:
        return _without_quote("report_data")
    if machine.tls_cert_fingerprint is None:
        return failed("report_data", "the report names no TLS key for the quote to vouch for")
    expected = hashlib.sha256(machine.signing_address + machine.tls_cert_fingerprint).digest()
    return proven_if(
        hmac.compare_digest(quote.report_data[:_HASH_BYTES], expected),
        "report_data",
        "the quote vouches for the keys that the report names",
        "the quote vouches for other keys than the report names",
    )


def public_key_of(machine: Machine) -> bytes | None:
    """Return the public signing key: of ed25519 the address is the key itself."""
    if machine.signing_algo == "ed25519" and machine.signing_public_key is None:
        return machine.signing_address
    return machine.signing_public_key


def signing_key_check(machine: Machine, *, address_is_enough: bool) -> Check:
    """Return `signing_key`: whether key, address and algorithm belong together.

    Args:
        machine: whose key.
        address_is_enough: the report may leave out an ecdsa key, as the gateway's does.
    """
    key, address = public_key_of(machine), machine.signing_address
    if key is None:
        fits = address_is_enough and len(address) == ADDRESS_BYTES
    elif machine.signing_algo == "ed25519":
        fits = len(key) == _ED25519_KEY_BYTES and hmac.compare_digest(key, address)
    else:
        fits = len(key) == _ECDSA_KEY_BYTES and hmac.compare_digest(ethereum_address(key), address)
    return proven_if(
        fits,
        "signing_key",
        f"the {machine.signing_algo} signing key belongs to the address in the quote",
        "the report's signing key does not belong to the address in the quote",
    )


def tls_key_check(report: ModelReport, peer_key_sha256: bytes | None) -> Check:
    """Return `tls_key`: whether the machine that was asked holds the connection's TLS key."""
    asked = report.gateway if report.gateway is not None else report.models[0]
    attested = asked.tls_cert_fingerprint
    if attested is None:
        return failed("tls_key", "the report names no TLS key")
    if peer_key_sha256 is None:
        return failed("tls_key", "the connection was not made over TLS")
    if report.tls_certificate is not None and _key_of(report.tls_certificate) != attested:
        return failed("tls_key", "the report's TLS certificate has another key than its quote")
    return proven_if(
        hmac.compare_digest(attested, peer_key_sha256),
        "tls_key",
        "the connection ends inside the attested machine",
        "the connection ends somewhere else than in the attested machine",
    )


def actions_check(quote: TdQuote | None, manager: ComposeManager) -> Check:
    """Return `actions`: whether the quote vouches for the compose manager's log."""
    if quote is None:
        return _without_quote("actions")
    return proven_if(
        hmac.compare_digest(quote.report_data[:_HASH_BYTES], _hash_of_actions(manager)),
        "actions",
        "the quote vouches for the whole log of actions",
        "the quote vouches for another log of actions",
    )


def same_machine_check(quote: TdQuote | None, other: TdQuote | None) -> Check:
    """Return `machine`: whether two quotes are of one machine, in one state."""
    if quote is None or other is None:
        return _without_quote("machine")
    return proven_if(
        _identity(quote) == _identity(other),
        "machine",
        "this quote is of the very machine that runs the model",
        "this quote is of another machine than the model's",
    )


def _identity(quote: TdQuote) -> tuple[object, ...]:
    """RTMR3 holds the instance's id, so it differs even between machines of one kind."""
    owner = (quote.mr_owner, quote.mr_owner_config)
    return (quote.mr_td, quote.rtmrs, quote.mr_config_id, owner)


def _hash_of_actions(manager: ComposeManager) -> bytes:
    try:
        return hashlib.sha256(canonical_json(manager.actions).encode()).digest()
    except (RecursionError, UnicodeEncodeError):
        return b""  # nothing that a machine can have hashed


def _key_of(pem: str) -> bytes | None:
    """Return SHA-256 of the public key of a chain's first certificate."""
    try:
        leaf = x509.load_pem_x509_certificate(pem.encode())
        return key_sha256(leaf.public_bytes(Encoding.DER))
    except (ValueError, UnsupportedAlgorithm):
        return None


def _without_quote(name: str) -> Check:
    return not_checked(name, "the quote cannot be read", asked=True)
