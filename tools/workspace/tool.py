"""The tools that work with the files of a chat's workspace.

Most are deeds of `tools.workspace.inside`: the model sees the signature and the docstring of the
function that works behind the walls.
"""

import mimetypes
from collections.abc import Awaitable, Callable, Sequence
from functools import partial, wraps
from typing import Annotated, Any, Final

from pydantic import Field

from tools.base import MAX_FILES, Caller, Tool, ToolError, ToolFile, ToolOutput
from tools.documents.client import Read
from tools.sandbox.errors import WorkError
from tools.schema import tool_from
from tools.workspace.inside.changing import delete_file, edit_file, edit_notebook, write_file
from tools.workspace.inside.reading import list_files, numbered, search_files
from tools.workspace.workspaces import Workspace, Workspaces

MAX_PATH_CHARACTERS: Final = 1_000
MAX_TEXT_CHARACTERS: Final = 60_000
ANYTHING: Final = "application/octet-stream"

Path = Annotated[str, Field(max_length=MAX_PATH_CHARACTERS)]
Words = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Query = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS)]
LineNumber = Annotated[int, Field(ge=1)]
CellNumber = Annotated[int, Field(ge=0)]
_BOUNDED: Final = {
    **dict.fromkeys(("file_path", "directory"), Path),
    **dict.fromkeys(("pattern", "query"), Query),
    **dict.fromkeys(("content", "old_text", "new_text", "source"), Words),
    "cell": CellNumber,
}
"""Types of arguments, by their names. Behind the walls nothing knows pydantic."""

_DOCUMENTS: Final = (".docx", ".odp", ".ods", ".odt", ".pdf", ".pptx", ".xls", ".xlsm", ".xlsx")
_IMAGES: Final = (
    *(".avif", ".bmp", ".gif", ".heic", ".heif", ".jpeg", ".jpg", ".png", ".tif", ".tiff"),
    ".webp",
)
_BLIND: Final = (
    "{path} is an image, and you cannot see images. Say so to the person, if it matters; a program"
    " can tell you its size or its colours."
)
_TEXTS: Final = (".md", ".ics", ".yaml", ".yml", ".toml", ".ini", ".log", ".sh", ".rst")
_TYPES: Final = mimetypes.MimeTypes()  # the library's own table, and nothing of the machine's

Show = Callable[[Workspace, str], Awaitable[ToolOutput]]
"""Returns an image of a workspace for the model; raises WorkError."""


async def read_file(
    files: Workspace,
    read: Read,
    show: Show,
    file_path: Path,
    *,
    offset: LineNumber = 1,
    limit: LineNumber = 2_000,
) -> str | ToolOutput:
    """Read a text file or document, or see an image.

    Args:
        offset: Line to begin with, from 1.
        limit: Lines. Default 2000.
    """
    if file_path.lower().endswith(_IMAGES):
        return await show(files, file_path)
    if file_path.lower().endswith(_DOCUMENTS):
        document = await read(await files.fetch(file_path), "", "")
        return numbered(file_path, document.text.splitlines(), offset, limit, document.note)
    return await files.do("read_file", file_path=file_path, offset=offset, limit=limit)


async def send_file(
    files: Workspace,
    file_path: Path | Annotated[list[Path], Field(min_length=1, max_length=MAX_FILES)],
) -> ToolOutput:
    """Attach files to your answer; say there what they are.

    Args:
        file_path: revenue.png, or a list of up to 4.
    """
    paths = [file_path] if isinstance(file_path, str) else file_path
    sent = []
    for path in paths:
        data = await files.fetch(path)
        name = path.rstrip("/").rpartition("/")[2]
        sent.append(ToolFile(name, content_type_of(name), data))
    if len(set(paths)) < len(paths):
        raise ToolError("A path is there twice; nothing was sent.")
    return ToolOutput(f"The chat gets {', '.join(paths)} with your answer.", tuple(sent))


def content_type_of(name: str) -> str:
    """Return a MIME type for a file name."""
    if name.endswith(_TEXTS):
        return "text/plain"  # phones open it; of the own types of these they show nothing
    guessed, packed = _TYPES.guess_type(name)
    return guessed if guessed is not None and packed is None else ANYTHING


def suffix_of(content_type: str) -> str:
    """Return the suffix of files of a MIME type; empty if that is not known."""
    return _TYPES.guess_extension(content_type) or ""


def workspace_tools(workspaces: Workspaces, read: Read) -> Sequence[Tool]:
    """Return the tools that work in the workspace of the chat that they are called in."""

    def files(caller: Caller) -> Workspace:
        return workspaces.of(caller.chat, sees_shared=caller.is_admin)

    def changes_machine(arguments: Any, caller: Caller) -> bool:
        return caller.is_admin and workspaces.is_shared(arguments.file_path)

    async def show(chat: str, workspace: Workspace, file_path: str) -> ToolOutput:
        data = await workspace.fetch(file_path)
        image = await workspaces.view(chat, data) if workspaces.view else None
        if image is None:
            raise WorkError(_BLIND.format(path=file_path))
        return ToolOutput(f"You are shown the image {file_path}.", images=(image,))

    given: dict[str, Callable[[Caller], object]] = {"files": files}
    to_show = {"read": lambda _: read, "show": lambda caller: partial(show, caller.chat)}
    offered = partial(tool_from, admins_only=workspaces.admins_only)
    reads: Sequence[Callable[..., str]] = (list_files, search_files)
    writes: Sequence[Callable[..., str]] = (write_file, edit_file, edit_notebook, delete_file)
    return [
        # Strangers may have written the files that these read.
        *(offered(_deed(one), untrusted=True, given=given) for one in reads),
        offered(read_file, untrusted=True, given=given | to_show),
        # A person is asked before these change a folder of the machine.
        *(
            offered(
                _deed(one),
                changes=True,
                asks_if=changes_machine,
                untrusted=one is edit_file,  # it shows the lines around the change
                given=given,
            )
            for one in writes
        ),
        offered(send_file, changes=True, given=given),
    ]


def _deed(deed: Callable[..., str]) -> Callable[..., Awaitable[str]]:
    """Return a function that has a deed done in a workspace, with the deed's arguments."""

    @wraps(deed)
    async def forwarded(files: Workspace, **arguments: object) -> str:
        return await files.do(deed.__name__, **arguments)

    forwarded.__annotations__ = {
        name: _BOUNDED.get(name, kind) for name, kind in deed.__annotations__.items()
    }
    return forwarded
