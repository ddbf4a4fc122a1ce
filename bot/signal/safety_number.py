"""Signal's safety number: sixty digits, thirty from each account, the same in all of its chats.

Version 2, as libsignal makes it (`NumericFingerprintGenerator`, 5200 iterations, stable id = ACI).
"""

import hashlib
from hmac import compare_digest
from typing import Final
from uuid import UUID

HALF_DIGITS: Final = 30
SAFETY_NUMBER_DIGITS: Final = 2 * HALF_DIGITS

_ITERATIONS: Final = 5200
_VERSION: Final = bytes(2)
_GROUP_DIGITS: Final = 5


def half(aci: str, identity_key: bytes) -> str:
    """Return the thirty digits of an account, by its ACI and public identity key (33 bytes)."""
    digest = _VERSION + identity_key + UUID(aci).bytes
    for _ in range(_ITERATIONS):
        digest = hashlib.sha512(digest + identity_key).digest()
    groups = (digest[at : at + 5] for at in range(0, HALF_DIGITS, 5))
    return "".join(f"{int.from_bytes(group, 'big') % 10**_GROUP_DIGITS:05}" for group in groups)


def spaced(digits: str) -> str:
    """Return digits in groups of five, as Signal shows them."""
    return " ".join(digits[at : at + _GROUP_DIGITS] for at in range(0, len(digits), _GROUP_DIGITS))


def is_safety_number(text: str) -> bool:
    """Whether a text is sixty digits, with or without white space between them."""
    digits = _without_space(text)
    return len(digits) == SAFETY_NUMBER_DIGITS and digits.isascii() and digits.isdigit()


def contains_half(safety_number: str, half: str) -> bool:
    """Whether thirty digits are the first or the last half of a safety number."""
    if not is_safety_number(safety_number):
        return False
    digits = _without_space(safety_number)
    first, last = digits[:HALF_DIGITS], digits[HALF_DIGITS:]
    return compare_digest(first, half) or compare_digest(last, half)


def _without_space(text: str) -> str:
    return "".join(text.split())
