"""Images for the model, decoded and scaled in a sandboxed process.

Pillow is loaded only there (`bot/chat/image_worker.py`).
"""

import base64
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

from bot.llm.models import Models
from conversation_store.models import Image
from tools.base import ToolImage
from tools.sandbox.errors import SandboxBug, WorkError
from tools.sandbox.pool import Limits, Sandbox, SandboxPolicy

MAX_FILE_BYTES: Final = 20 * 2**20
IMAGE_LIMITS: Final = Limits(
    memory_bytes=768 * 2**20,
    call_seconds=10.0,
    line_bytes=32 * 2**20,  # MAX_FILE_BYTES as Base64
    reply_bytes=2 * 2**20,  # MAX_SHOWN_BYTES as Base64
    idle_seconds=180.0,
)
MAX_SHOWN_BYTES: Final = 2**20
"""Equal to `image_worker.MAX_BYTES`, which cannot be imported without Pillow."""
_TYPES: Final = frozenset({"image/jpeg", "image/png"})

ImageReader = Callable[[bytes], Awaitable[Image]]
"""Scales an image file for a model; raises WorkError if it cannot be read."""


@asynccontextmanager
async def open_images(
    limits: Limits = IMAGE_LIMITS, sandboxes: SandboxPolicy | None = None
) -> AsyncIterator[ImageReader]:
    """Provide a reader; its processes start with the first image and end when idle."""
    async with Sandbox("bot.chat.image_worker", limits, policy=sandboxes) as sandbox:

        async def read(data: bytes) -> Image:
            return _image(await sandbox.call(base64.b64encode(data).decode("ascii")))

        yield read


def _image(reply: str) -> Image:
    """Read the reply of a process that a hostile image may have taken over."""
    content_type, _, data = reply.partition(" ")
    try:
        image = Image(content_type, base64.b64decode(data, validate=True))
    except ValueError:
        image = Image("", b"")
    if image.content_type not in _TYPES or not 0 < len(image.data) <= MAX_SHOWN_BYTES:
        raise WorkError("This image cannot be read.")
    return image


async def view(models: Models, read: ImageReader, chat: str, data: bytes) -> ToolImage | None:
    """Return an image of a workspace for the chat's model; None if that model sees no images."""
    if not await models.route(chat).model.sees_images():
        return None
    try:
        image = await read(data)
    except SandboxBug:
        raise WorkError("This image cannot be read.") from None
    return ToolImage(image.content_type, image.data)
