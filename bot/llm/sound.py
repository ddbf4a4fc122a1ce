"""Kinds and durations of spoken files, read from their first bytes and their frames.

Phones play AAC (bare, or in an MP4 container) and Opus in an Ogg container as voice notes. Anything
else counts as no sound, also WAV and MP3. A message of Signal names no duration: phones read it
from the file, so a file without a readable duration counts as broken.

References: ISO/IEC 13818-7 (ADTS), ISO/IEC 14496-12 (MP4), RFC 3533 (Ogg), RFC 7845 (Opus in Ogg).
"""

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

MAX_STEPS: Final = 20_000
"""Frames, pages or boxes of a file; 300 s of AAC at 48 kHz have 14,000 frames."""

_ADTS_RATES: Final = (
    96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000,
    7_350,
)  # fmt: skip
_ADTS_HEADER_BYTES: Final = 7
_ADTS_SAMPLES: Final = 1_024
_OPUS_RATE: Final = 48_000
"""Opus counts samples at this rate, whatever the rate of the recording."""
_OGG_HEADER: Final = struct.Struct("<4sBBqIIIB")
_UNKNOWN_POSITION: Final = -1


class NoSound(ValueError):
    """The bytes are no file that phones play as a voice note."""


@dataclass(frozen=True, slots=True)
class SoundFile:
    """A file that phones play.

    Attributes:
        suffix: of its name.
        seconds: its duration.
    """

    content_type: str
    suffix: str
    seconds: float


def sound_file(data: bytes) -> SoundFile:
    """Return the kind and the duration of a spoken file.

    Raises:
        NoSound: phones do not play it, or its duration cannot be read.
    """
    duration: Callable[[bytes], float]
    if data.startswith(b"OggS"):
        kind, suffix, duration = "audio/ogg", "ogg", _ogg_seconds
    elif data[4:8] == b"ftyp":
        kind, suffix, duration = "audio/mp4", "m4a", _mp4_seconds
    elif data[:1] == b"\xff" and data[1:2] and data[1] & 0xF6 == 0xF0:
        kind, suffix, duration = "audio/aac", "aac", _adts_seconds
    else:
        raise NoSound("It begins like no voice note.")
    try:
        seconds = duration(data)
    except (struct.error, IndexError, ZeroDivisionError):
        raise NoSound("It breaks off.") from None
    if seconds <= 0:
        raise NoSound("It is silent.")
    return SoundFile(kind, suffix, seconds)


def _adts_seconds(data: bytes) -> float:
    """Add up the frames; each header tells its length and its rate."""
    place, seconds = 0, 0.0
    for _ in range(MAX_STEPS):
        if place == len(data):
            return seconds
        if data[place] != 0xFF or data[place + 1] & 0xF6 != 0xF0:
            raise NoSound("A frame is missing.")
        rate = _ADTS_RATES[data[place + 2] >> 2 & 0xF]
        length = int.from_bytes(data[place + 3 : place + 6]) >> 5 & 0x1FFF
        if length < _ADTS_HEADER_BYTES:
            raise NoSound("A frame is too short.")
        seconds += _ADTS_SAMPLES * (1 + (data[place + 6] & 3)) / rate
        place += length
    raise NoSound("It has too many frames.")


def _ogg_seconds(data: bytes) -> float:
    """Return the position of the last page, without the samples that are skipped."""
    skipped: int | None = None
    last, place = 0, 0
    for _ in range(MAX_STEPS):
        if place >= len(data):
            break
        magic, _, _, position, _, _, _, segments = _OGG_HEADER.unpack_from(data, place)
        body = place + _OGG_HEADER.size + segments
        if magic != b"OggS":
            raise NoSound("A page is missing.")
        if skipped is None:
            if data[body : body + 8] != b"OpusHead":
                raise NoSound("It is Ogg without Opus.")
            (skipped,) = struct.unpack_from("<H", data, body + 10)
        if position != _UNKNOWN_POSITION:
            last = max(last, position)
        place = body + sum(data[place + _OGG_HEADER.size : body])
    else:
        raise NoSound("It has too many pages.")
    return (last - (skipped or 0)) / _OPUS_RATE


def _mp4_seconds(data: bytes) -> float:
    """Return the duration in the header of the movie (`mvhd`)."""
    if b"mp4a" not in data:
        raise NoSound("It is MP4 without AAC.")
    movie = next((body for name, body in _boxes(data) if name == b"moov"), b"")
    header = next((body for name, body in _boxes(movie) if name == b"mvhd"), b"")
    # Version 1 has dates and a duration of 64 bits.
    scale, length = struct.unpack_from(*((">IQ", header, 20) if header[0] else (">II", header, 12)))
    return float(length / scale)


def _boxes(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yield name and content of the boxes of an MP4 file, or of one of its boxes."""
    place = 0
    for _ in range(MAX_STEPS):
        if place + 8 > len(data):
            return
        size, name, header = *struct.unpack_from(">I4s", data, place), 8
        if size == 1:
            (size,), header = struct.unpack_from(">Q", data, place + 8), 16
        size = size or len(data) - place  # 0: up to the end
        if size < header:
            raise NoSound("A box is too short.")
        yield name, data[place + header : place + size]
        place += size
