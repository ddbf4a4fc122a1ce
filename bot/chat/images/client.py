"""The scaling of images seen from the daemon."""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from conversation_store.models import Image
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy, WorkError

MAX_FILE_BYTES: Final = 20 * 2**20
IMAGE_LIMITS: Final = Limits(
    memory_bytes=768 * 2**20,
    call_seconds=10.0,
    line_bytes=32 * 2**20,  # MAX_FILE_BYTES as Base64
    reply_bytes=2 * 2**20,  # MAX_SHOWN_BYTES as Base64
    idle_seconds=180.0,
)
MAX_SHOWN_BYTES: Final = 2**20
"""As much as `scaling.MAX_BYTES`, which is out of reach: Pillow is not loaded here."""
_TYPES: Final = frozenset({"image/jpeg", "image/png"})

ImageReader = Callable[[bytes], Awaitable[Image]]
"""Makes of an image's file what a model is shown; raises WorkError where it cannot be read."""


@asynccontextmanager
async def open_images(
    limits: Limits = IMAGE_LIMITS, sandboxes: SandboxPolicy | None = None
) -> AsyncIterator[ImageReader]:
    """Provide a reader; its processes start with the first image and end when idle."""
    async with Sandbox("bot.chat.images.worker", limits, policy=sandboxes) as sandbox:

        async def read(data: bytes) -> Image:
            reply = await sandbox.call(base64.b64encode(data).decode("ascii"))
            return _image(reply)

        yield read


def _image(reply: str) -> Image:
    """Read a reply of a process that a hostile image may have made its own."""
    content_type, _, data = reply.partition(" ")
    try:
        image = Image(content_type, base64.b64decode(data, validate=True))
    except ValueError:
        image = Image("", b"")
    if image.content_type not in _TYPES or not 0 < len(image.data) <= MAX_SHOWN_BYTES:
        raise WorkError("This image cannot be read.")
    return image
