"""Scale images for a model. Runs inside the sandbox: `python -I -m bot.chat.image_worker`.

A request is an image as Base64, the reply a MIME type, a space, and the scaled image as Base64.
"""

import base64
from collections.abc import Iterator
from io import BytesIO
from typing import Final

from PIL import Image, ImageOps, MpoImagePlugin, TiffImagePlugin, UnidentifiedImageError

from tools.sandbox.child import serve
from tools.sandbox.errors import WorkError

LOADED_LATER = (MpoImagePlugin, TiffImagePlugin)
"""Imported now: Pillow imports these when it needs them, and then no file may be opened."""

MAX_SIDE: Final = 1_568
"""Pixels. Endpoints themselves scale down larger images before a model sees them.
Source: https://docs.anthropic.com/en/docs/build-with-claude/vision."""
MAX_BYTES: Final = 2**20
MAX_PIXELS: Final = 64_000_000
"""Bound of a decoded image; a JPEG is decoded at a fraction of its size."""
FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF")

_SMALLER: Final = ((MAX_SIDE, 85), (MAX_SIDE, 65), (1_024, 65), (768, 50))
"""Longest side and quality, the best first; the last fits for any image."""
_WHITE: Final = (255, 255, 255)
_DEEP_MODES: Final = frozenset({"I", "I;16", "I;16B", "I;16L", "I;16N"})
"""Grey with 16 bits; Pillow gives colours 8 bits when it opens a file."""

Encoded = tuple[str, bytes]
"""A MIME type and the bytes."""


def scaled(data: bytes) -> Encoded:
    """Return an image upright, scaled down and without metadata; WorkError if it is unreadable.

    An animation becomes its first picture. The result is a PNG if parts are transparent and the
    PNG is small enough, otherwise a JPEG.
    """
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
        image.draft(None, (2 * MAX_SIDE, 2 * MAX_SIDE))  # decodes JPEG at a sufficient size
        picture = _picture(image)
    except (MemoryError, WorkError):
        raise
    except UnidentifiedImageError:
        raise WorkError(
            "This is no image that I can read; I read JPEG, PNG, WebP and GIF."
        ) from None
    except Exception as error:  # a hostile image may raise anything in its decoder
        raise WorkError("This image is broken and cannot be read.") from error
    return next(encoded for encoded in _encodings(picture) if len(encoded[1]) <= MAX_BYTES)


def _picture(image: Image.Image) -> Image.Image:
    """Decode an image, scale it, turn it upright, and copy only its pixels."""
    if image.width * image.height > MAX_PIXELS:
        raise WorkError("This image has too many pixels for me.")
    if image.mode in _DEEP_MODES:  # Pillow would cut the values off at 255
        image = image.convert("I").point(lambda value: value / 256).convert("L")
    mode = "RGBA" if image.has_transparency_data else "RGB"
    picture = image if image.mode == mode else image.convert(mode)
    picture.thumbnail((MAX_SIDE, MAX_SIDE))
    upright = ImageOps.exif_transpose(picture)
    if mode == "RGBA" and upright.getchannel("A").getextrema()[0] == 255:
        upright = upright.convert("RGB")
    clean = Image.new(upright.mode, upright.size)
    clean.paste(upright)
    return clean


def _encodings(picture: Image.Image) -> Iterator[Encoded]:
    if picture.mode == "RGBA":
        yield "image/png", _saved(picture, "PNG", optimize=True)
        opaque = Image.new("RGB", picture.size, _WHITE)
        opaque.paste(picture, mask=picture.getchannel("A"))
        picture = opaque
    for side, quality in _SMALLER:
        picture.thumbnail((side, side))
        yield "image/jpeg", _saved(picture, "JPEG", quality=quality)


def _saved(picture: Image.Image, form: str, **how: int) -> bytes:
    file = BytesIO()
    picture.save(file, form, **how)
    return file.getvalue()


def answer(request: str) -> str:
    """Return an image as the model sees it; raise WorkError if it cannot be read."""
    content_type, data = scaled(base64.b64decode(request))
    return f"{content_type} {base64.b64encode(data).decode('ascii')}"


def load_everything() -> None:
    """Read a small image of each format, so that every part of the library is loaded from disk."""
    exif = Image.Exif()
    exif[0x0112] = 6  # the orientation
    for form in FORMATS:
        sample = BytesIO()
        Image.new("RGBA" if form == "PNG" else "RGB", (2, 2)).save(sample, form, exif=exif)
        scaled(sample.getvalue())


if __name__ == "__main__":
    Image.MAX_IMAGE_PIXELS = None  # `scaled` has its own bound, for the decoded pixels
    load_everything()
    serve(answer)
