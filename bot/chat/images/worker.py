"""The program of the images' sandbox: `python -I -m bot.chat.images.worker`.

A request is an image as Base64, the reply a MIME type, a space, and the scaled image as Base64.
"""

import base64
from io import BytesIO

from PIL import Image, MpoImagePlugin, TiffImagePlugin

from bot.chat.images.scaling import FORMATS, scaled
from tools.sandbox.child import serve

LOADED_LATER = (MpoImagePlugin, TiffImagePlugin)
"""Pillow imports these only for some JPEG and for Exif; nothing can be opened then."""


def answer(request: str) -> str:
    """Return an image as a model is shown it; WorkError where it cannot be read."""
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
    Image.MAX_IMAGE_PIXELS = None  # `scaled` has a bound of its own, for what is really decoded
    load_everything()
    serve(answer)
