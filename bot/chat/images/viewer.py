"""Images of workspaces for the model that answers a chat."""

from bot.chat.images.client import ImageReader
from bot.llm.models import Models
from tools.base import ToolImage
from tools.sandbox.pool import SandboxBug, WorkError


async def view(models: Models, read: ImageReader, chat: str, data: bytes) -> ToolImage | None:
    """Return an image for the model that answers a chat; None if that model sees no images.

    WorkError if the image cannot be read. It is read behind walls.
    """
    if not await models.route(chat).model.vision.can_see():
        return None
    try:
        image = await read(data)
    except SandboxBug:
        raise WorkError("This image cannot be read.") from None
    return ToolImage(image.content_type, image.data)
