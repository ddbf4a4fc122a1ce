"""Images of workspaces, as the model that answers a chat is shown them."""

from bot.chat.images.client import ImageReader
from bot.llm.models import Models
from sandbox.errors import SandboxBug, WorkError
from tools.base import ToolImage


class ImageViewer:
    """Shows images to models. Implements `tools.workspace.images.Viewer`.

    Args:
        models: which one answers each chat, and whether it sees.
        images: makes an image fit for a model, behind walls.
    """

    def __init__(self, models: Models, images: ImageReader) -> None:
        self._models = models
        self._images = images

    async def can_see(self, chat: str) -> bool:
        """Return whether the model that answers a chat sees images."""
        return await self._models.route(chat).model.vision.can_see()

    async def view(self, data: bytes) -> ToolImage:
        """Return an image as a model is shown it; WorkError where it cannot be read."""
        try:
            image = await self._images(data)
        except SandboxBug:
            raise WorkError("This image cannot be read.") from None
        return ToolImage(image.content_type, image.data)
