"""Images of a workspace, for a model that sees."""

from collections.abc import Awaitable, Callable
from typing import Final, Protocol

from sandbox.errors import WorkError
from tools.base import ToolImage, ToolOutput

_SUFFIXES: Final = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff"),
    ".webp",
)
_BLIND: Final = (
    "{path} is an image, and you cannot see images. Say so to the person, if it matters; a program"
    " can tell you its size or its colours."
)


class Viewer(Protocol):
    """Makes images fit for models. Implemented by `bot.chat.images.viewer.ImageViewer`."""

    async def can_see(self, chat: str) -> bool:
        """Return whether the model that answers a chat sees images."""
        ...

    async def view(self, data: bytes) -> ToolImage:
        """Return an image as a model is shown it; WorkError where it cannot be read."""
        ...


def may_be_image(file_path: str) -> bool:
    """Tell by its name whether a file is an image."""
    return file_path.lower().endswith(_SUFFIXES)


async def image_in(
    fetch: Callable[[str], Awaitable[bytes]], viewer: Viewer | None, chat: str, file_path: str
) -> ToolOutput:
    """Return an image of a workspace for the model that answers a chat.

    Args:
        fetch: returns a whole file of the workspace.
        viewer: makes it fit for the model; None: nothing does.
        chat: which model it is for.
        file_path: which image.

    Raises:
        WorkError: it is not there, too large, or cannot be read, or the model cannot see it.
    """
    if viewer is None or not await viewer.can_see(chat):
        raise WorkError(_BLIND.format(path=file_path))
    image = await viewer.view(await fetch(file_path))
    return ToolOutput(f"You are shown the image {file_path}.", images=(image,))
