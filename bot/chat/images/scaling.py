"""An image of a person as a model is shown it. Runs inside the sandbox."""

from collections.abc import Iterator
from io import BytesIO
from typing import Final

from PIL import Image, ImageOps, UnidentifiedImageError

from tools.sandbox.pool import WorkError

MAX_SIDE: Final = 1_568
"""Pixels. A larger image is scaled down by the endpoints themselves before a model sees it.
Source: https://docs.anthropic.com/en/docs/build-with-claude/vision."""
MAX_BYTES: Final = 2**20
MAX_PIXELS: Final = 64_000_000
"""Of an image as it is decoded; a JPEG is decoded at a fraction of its size."""
FORMATS: Final = ("JPEG", "PNG", "WEBP", "GIF")

_SMALLER: Final = ((MAX_SIDE, 85), (MAX_SIDE, 65), (1_024, 65), (768, 50))
"""Longest side and quality, the best first; the last fits, whatever the image shows."""
_WHITE: Final = (255, 255, 255)

Encoded = tuple[str, bytes]
"""A MIME type and the bytes."""


def scaled(data: bytes) -> Encoded:
    """Return an image upright, scaled down, and with nothing in it but what it shows.

    Of what moves it is the first picture. It is a PNG where parts of it are transparent and that is
    small enough, else a JPEG.

    Raises:
        WorkError: it is no image that can be read; the text says why.
    """
    image = _opened(data)
    if image.width * image.height > MAX_PIXELS:
        raise WorkError("This image has too many pixels for me.")
    try:
        picture = _picture(image)
    except MemoryError:
        raise
    except Exception as error:  # an image may be made to trip its decoder anywhere
        raise WorkError("This image is broken and cannot be read.") from error
    return next(encoded for encoded in _encodings(picture) if len(encoded[1]) <= MAX_BYTES)


def _opened(data: bytes) -> Image.Image:
    """Open an image; it is decoded later, and a JPEG then at the smallest size that is enough."""
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
        image.draft(None, (2 * MAX_SIDE, 2 * MAX_SIDE))
    except UnidentifiedImageError:
        raise WorkError(
            "This is no image that I can read; I read JPEG, PNG, WebP and GIF."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # as above
        raise WorkError("This image is broken and cannot be read.") from error
    return image


def _picture(image: Image.Image) -> Image.Image:
    """Decode an image, scale it, turn it upright, and copy its pixels away from all else."""
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
