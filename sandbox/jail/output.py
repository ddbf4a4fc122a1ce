"""What a program writes, of which the beginning and the end are kept."""

import asyncio
from typing import Final

STREAM_BYTES: Final = 2**18
"""The half of what a stream holds until it is read."""
_READ_BYTES: Final = 2 * STREAM_BYTES
_PAUSE_SECONDS: Final = 0.01
"""Between two looks at a flood: who writes it waits, at some 50 MB a second, and nobody else."""


class Output:
    """Keeps the first and the last bytes of a stream, and counts those between.

    Args:
        most_bytes: that are kept.
    """

    def __init__(self, most_bytes: int) -> None:
        self._room = most_bytes // 2
        self._first = bytearray()
        self._last = bytearray()
        self._between = 0

    async def read(self, stream: asyncio.StreamReader) -> None:
        """Read a stream to its end."""
        while data := await stream.read(_READ_BYTES):
            self.take(data)
            if self._between:
                await asyncio.sleep(_PAUSE_SECONDS)

    def take(self, data: bytes) -> None:
        """Keep of further bytes what there is room for."""
        free = self._room - len(self._first)
        self._first += data[:free]
        self._last += data[free:]
        if (surplus := len(self._last) - self._room) > 0:
            self._between += surplus
            del self._last[:surplus]

    def text(self) -> str:
        """Return what was kept, with a note in the middle if something was not."""
        first = self._first.decode(errors="replace")
        last = self._last.decode(errors="replace")
        if not self._between:
            return (self._first + self._last).decode(errors="replace")
        return f"{first}\n[… {self._between:,} bytes are left out here …]\n{last}"
