"""Images as a model is shown them, through the real sandbox's process."""

import os
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from io import BytesIO
from typing import Any, Final

import pytest
from PIL import Image, PngImagePlugin

from bot.chat.image_worker import MAX_BYTES, MAX_SIDE
from bot.chat.media import IMAGE_LIMITS, MAX_IMAGE_BYTES, ImageReader, open_images
from conversation_store.models import Image as Shown
from tools.sandbox.errors import WorkError

RED, BLUE = (254, 0, 0), (0, 0, 254)
SECRET: Final = b"somewhere in Berlin"


def two_colours(width: int = 40, height: int = 20, mode: str = "RGB") -> Image.Image:
    """Red on the left, blue on the right."""
    image = Image.new("RGB", (width, height), RED)
    image.paste(BLUE, (width // 2, 0, width, height))
    return image.convert(mode)


def saved(image: Image.Image, form: str, **how: Any) -> bytes:
    file = BytesIO()
    image.save(file, form, **how)
    return file.getvalue()


def opened(stored: Shown) -> Image.Image:
    image = Image.open(BytesIO(stored.data))
    assert stored.content_type == f"image/{(image.format or '').lower()}"
    return image


def exif_of(orientation: int) -> Image.Exif:
    exif = Image.Exif()
    exif[0x0112] = orientation
    exif[0x010E] = SECRET.decode()
    return exif


async def read_once(data: bytes) -> Shown:
    async with open_images() as read:
        return await read(data)


def is_about(colour: Any, expected: tuple[int, int, int]) -> bool:
    return all(abs(a - b) < 40 for a, b in zip(colour, expected, strict=True))


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP", "GIF"])
async def test_the_usual_kinds_of_images_are_read(form: str) -> None:
    image = opened(await read_once(saved(two_colours(), form)))

    assert (image.format, image.size) == ("JPEG", (40, 20))
    assert is_about(image.getpixel((5, 10)), RED)
    assert is_about(image.getpixel((35, 10)), BLUE)


@pytest.mark.parametrize("form", ["JPEG", "PNG", "WEBP"])
async def test_image_is_upright_and_without_metadata(form: str) -> None:
    more: dict[str, Any] = {"xmp": SECRET} if form != "PNG" else {"pnginfo": _words()}
    if form == "JPEG":
        more["comment"] = SECRET
    turned = saved(two_colours(), form, exif=exif_of(6), icc_profile=SECRET * 20, **more)
    assert SECRET in turned or SECRET in _unpacked(turned)

    stored = await read_once(turned)

    image = opened(stored)
    assert image.size == (20, 40)
    assert is_about(image.getpixel((10, 5)), RED)
    assert is_about(image.getpixel((10, 35)), BLUE)
    assert SECRET not in stored.data
    assert not image.getexif()
    assert set(image.info) <= {"jfif", "jfif_version", "jfif_unit", "jfif_density"}


def _words() -> PngImagePlugin.PngInfo:
    words = PngImagePlugin.PngInfo()
    words.add_text("Comment", SECRET.decode())
    return words


def _unpacked(png: bytes) -> bytes:
    start = png.index(b"iCCP") + 4
    return zlib.decompress(png[png.index(b"\0\0", start) + 2 :])


async def test_animation_is_shown_by_its_first_picture() -> None:
    frames = [Image.new("RGB", (20, 20), colour) for colour in (RED, BLUE)]

    image = opened(await read_once(saved(frames[0], "GIF", save_all=True, append_images=frames)))

    assert is_about(image.getpixel((10, 10)), RED)


async def test_small_transparent_image_stays_transparent() -> None:
    glass = two_colours(mode="RGBA")
    glass.putalpha(Image.linear_gradient("L").resize(glass.size))

    image = opened(await read_once(saved(glass, "PNG")))

    assert (image.format, image.mode, image.size) == ("PNG", "RGBA", (40, 20))


async def test_large_transparent_image_is_shown_on_white() -> None:
    noise = Image.frombytes("RGBA", (1_200, 1_200), os.urandom(1_200 * 1_200 * 4))
    noise.paste((0, 0, 0, 0), (0, 0, 100, 100))

    stored = await read_once(saved(noise, "PNG"))

    image = opened(stored)
    assert image.format == "JPEG"
    assert len(stored.data) <= MAX_BYTES
    assert is_about(image.getpixel((image.width // 30, image.height // 30)), (255, 255, 255))


@pytest.mark.parametrize("mode", ["L", "P", "1", "CMYK", "LA", "I;16"])
async def test_images_of_other_modes_are_read(mode: str) -> None:
    image = Image.new(mode, (30, 30)) if mode == "I;16" else two_colours(30, 30, mode)

    stored = await read_once(saved(image, "JPEG" if mode == "CMYK" else "PNG"))

    assert opened(stored).size == (30, 30)


async def test_a_photograph_is_scaled_down_and_stays_below_its_bound() -> None:
    photograph = Image.frombytes("RGB", (4_000, 3_000), os.urandom(36_000_000))

    stored = await read_once(saved(photograph, "JPEG", quality=90))

    assert opened(stored).size == (MAX_SIDE, MAX_SIDE * 3 // 4)
    assert len(stored.data) <= MAX_BYTES


@pytest.mark.full
async def test_a_jpeg_of_two_hundred_million_pixels_is_read_and_a_png_of_them_refused() -> None:
    huge = Image.new("L", (16_000, 12_500), 200)
    async with open_images() as read:
        stored = await read(saved(huge, "JPEG"))
        with pytest.raises(WorkError, match="too many pixels"):
            await read(saved(huge, "PNG", compress_level=1))

    assert max(opened(stored).size) == MAX_SIDE


HEIC: Final = b"\0\0\0\x1cftypheic\0\0\0\0mif1heic" + bytes(100)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no image that I can read"),
        (b"no image at all", "no image that I can read"),
        (HEIC, "JPEG, PNG, WebP and GIF"),
        (saved(two_colours(), "TIFF"), "no image that I can read"),
        (saved(two_colours(400, 400), "PNG")[:150], "broken"),
        (saved(two_colours(400, 400), "JPEG")[:700], "broken"),
        (b"x" * (MAX_IMAGE_BYTES + 2**22), "too long"),
    ],
)
async def test_an_unreadable_image_is_an_error_in_words(data: bytes, words: str) -> None:
    with pytest.raises(WorkError, match=words):
        await read_once(data)


async def test_the_largest_file_that_is_read_fits_through_the_pipe() -> None:
    padded = saved(two_colours(), "JPEG") + bytes(MAX_IMAGE_BYTES)

    stored = await read_once(padded[:MAX_IMAGE_BYTES])

    assert opened(stored).size == (40, 20)


@asynccontextmanager
async def small_reader() -> AsyncIterator[ImageReader]:
    async with open_images(replace(IMAGE_LIMITS, memory_bytes=160 * 2**20)) as read:
        yield read


async def test_an_image_that_needs_too_much_memory_harms_no_other() -> None:
    async with small_reader() as read:
        with pytest.raises(WorkError, match=r"memory|broken|process ended"):
            await read(saved(Image.new("RGB", (7_500, 8_000)), "PNG", compress_level=1))

        assert opened(await read(saved(two_colours(), "JPEG"))).size == (40, 20)
