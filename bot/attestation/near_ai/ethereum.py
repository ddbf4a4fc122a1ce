"""Addresses as Ethereum derives them; NEAR AI names its ECDSA keys by them."""

from typing import Final

from Crypto.Hash import keccak

ADDRESS_BYTES: Final = 20


def keccak256(data: bytes) -> bytes:
    """Return the hash that Ethereum uses: Keccak before NIST padded it otherwise for SHA-3."""
    return keccak.new(digest_bits=256, data=data).digest()


def ethereum_address(public_key: bytes) -> bytes:
    """Return the 20 bytes of address that belong to the 64 bytes x and y of a public key."""
    return keccak256(public_key)[-ADDRESS_BYTES:]
