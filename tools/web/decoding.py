"""Undoing the content coding of an answer, never beyond a bound (RFC 9110, 8.4)."""

import zlib
from typing import Final

from tools.errors import ToolError

_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's way to say "with a gzip header"
_MAX_SHOWN: Final = 8  # as a name; a sentence in its place is a stranger's, and not repeated


class Decoder:
    """Collects a body piece by piece and decodes it, and stops inflating at a bound.

    Args:
        coding: the Content-Encoding of the answer.
        max_bytes: of the decoded body.

    Raises:
        ToolError: the coding is not one that was asked for.
    """

    def __init__(self, coding: str, *, max_bytes: int) -> None:
        self._coding = coding.strip().lower()
        if self._coding not in {"", "identity", "gzip", "x-gzip", "deflate"}:
            is_name = self._coding.isalnum() and len(self._coding) <= _MAX_SHOWN
            name = f" ({self._coding})" if is_name else ""
            raise ToolError(f"The answer is compressed in a way that I cannot read{name}.")
        self._room = max_bytes
        self._decoded = bytearray()
        self._inflate = zlib.decompressobj(_GZIP) if "gzip" in self._coding else None

    @property
    def full(self) -> bool:
        """Whether the body is longer than the bound; then it is not decoded any further."""
        return len(self._decoded) > self._room

    def feed(self, piece: bytes) -> None:
        """Take the next piece as it came from the connection.

        Raises:
            ToolError: it is not what the coding says.
        """
        if self.full or not piece:
            return
        if self._coding in {"", "identity"}:
            self._decoded += piece[: self._room + 1 - len(self._decoded)]
            return
        try:
            self._inflated(piece)
        except zlib.error as error:
            raise ToolError("The answer is compressed wrongly and cannot be read.") from error

    def finish(self) -> bytes:
        """Return the body, cut at the bound.

        Raises:
            ToolError: it ends before its end.
        """
        if self._inflate is not None and not self._inflate.eof and not self.full:
            raise ToolError("The answer ends too early; try again.")
        return bytes(self._decoded[: self._room])

    def _inflated(self, piece: bytes) -> None:
        if self._inflate is None:
            self._inflate = zlib.decompressobj(_deflate_bits(piece))
        self._decoded += self._inflate.decompress(piece, self._room + 1 - len(self._decoded))


def _deflate_bits(start: bytes) -> int:
    """Tell zlib's format from bare deflate, which many servers send under the same name."""
    is_zlib = start[0] & 0x0F == 8 and (
        len(start) < 2 or int.from_bytes(start[:2], "big") % 31 == 0
    )
    return zlib.MAX_WBITS if is_zlib else -zlib.MAX_WBITS
