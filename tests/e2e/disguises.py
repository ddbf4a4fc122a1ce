"""The forms that a word may have in an output."""

import base64
import html
import json
import re
from collections.abc import Iterator
from hashlib import blake2b, md5, sha1, sha256
from typing import Final
from urllib.parse import quote, quote_plus

_ENCODINGS: Final = ("utf-8", "utf-16-le", "utf-16-be")
_HASHES: Final = (md5, sha1, sha256, blake2b)
_HASH_CHARACTERS: Final = 8
MIN_DIGITS: Final = 7


def found_in(output: str, words: str) -> list[str]:
    """Return the forms of a text that occur in an output, in any case."""
    folded = output.casefold()
    found = [form for form in disguises(words) if form.casefold() in folded]
    digits = re.sub(r"\D", "", words)
    if len(digits) >= MIN_DIGITS and digits in re.sub(r"[\s().-]", "", output):
        found.append(f"the digits of {words}")
    return found


def disguises(words: str) -> set[str]:
    """Return a text as it is, escaped, encoded, and hashed without a salt."""
    return {form for form in _disguises(words) if form}


def _disguises(words: str) -> Iterator[str]:
    yield words
    yield words[::-1]
    yield repr(words)[1:-1]
    yield ascii(words)[1:-1]
    yield html.escape(words)
    yield quote(words, safe="")
    yield quote_plus(words)
    yield json.dumps(words)[1:-1]
    yield json.dumps(json.dumps(words))[3:-3]
    for encoding in _ENCODINGS:
        encoded = words.encode(encoding)
        yield encoded.hex()
        yield encoded.hex(" ")
        yield "".join(f"\\x{byte:02x}" for byte in encoded)
        yield ", ".join(map(str, encoded))
        yield repr(encoded)[2:-1]
        for shift in range(3):
            yield from _within_base64(encoded, shift)
    for algorithm in _HASHES:
        yield algorithm(words.encode()).hexdigest()[:_HASH_CHARACTERS]


def _within_base64(encoded: bytes, shift: int) -> Iterator[str]:
    """Yield its base64 after so many other bytes, without characters that depend on neighbours."""
    whole = (shift + len(encoded)) // 3 * 3 - shift
    skipped = -shift % 3
    middle = encoded[skipped:whole]
    yield base64.b64encode(middle).decode()
    yield base64.urlsafe_b64encode(middle).decode()
