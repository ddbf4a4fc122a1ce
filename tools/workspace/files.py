"""The tools that work with the files of a chat's workspace.

Each is a function of a `Workspace` and of what the model says; what it does is done behind walls,
see `tools.workspace.inside`.
"""

from collections.abc import Awaitable, Callable
from typing import Annotated, Final, Literal

from pydantic import Field

from documents.client import Read
from tools.base import ToolFile, ToolOutput
from tools.errors import ToolError
from tools.files import MAX_FILES
from tools.workspace.documents import document_in, may_be_document, numbered
from tools.workspace.images import may_be_image
from tools.workspace.kinds import content_type_of
from tools.workspace.workspaces import Workspace

MAX_PATH_CHARACTERS: Final = 1_000
MAX_TEXT_CHARACTERS: Final = 60_000

Path = Annotated[str, Field(max_length=MAX_PATH_CHARACTERS)]
Words = Annotated[str, Field(max_length=MAX_TEXT_CHARACTERS)]
Query = Annotated[str, Field(min_length=1, max_length=MAX_PATH_CHARACTERS)]
Show = Callable[[Workspace, str], Awaitable[ToolOutput]]
"""Returns an image of a workspace for the model; raises WorkError."""
LineNumber = Annotated[int, Field(ge=1)]
CellNumber = Annotated[int, Field(ge=0)]


async def list_files(
    workspace: Workspace, directory: Path = ".", *, recursive: bool = False
) -> str:
    """List the files of this chat's workspace. What people send lies in inbox/.

    Args:
        workspace: The chat's own.
        directory: Folder inside the workspace.
        recursive: Also those in folders below.
    """
    return await workspace.do("list_files", directory=directory, recursive=recursive)


async def find_files(workspace: Workspace, pattern: Query, directory: Path = ".") -> str:
    """Find files of the workspace by their names, newest first.

    Args:
        workspace: The chat's own.
        pattern: With * and ?, such as *.csv.
        directory: Folder inside the workspace.
    """
    return await workspace.do("find_files", pattern=pattern, directory=directory)


async def file_info(workspace: Workspace, file_path: Path) -> str:
    """Say whether a file of the workspace exists, how large it is and when it was changed.

    Args:
        workspace: The chat's own.
        file_path: Path of the file inside the workspace.
    """
    return await workspace.do("file_info", file_path=file_path)


async def read_file(
    workspace: Workspace,
    read: Read,
    show: Show,
    file_path: Path,
    *,
    offset: LineNumber = 1,
    limit: LineNumber = 2_000,
) -> str | ToolOutput:
    """Read a file of the workspace: text and documents as numbered lines; an image is shown to you.

    Args:
        workspace: The chat's own.
        read: Turns documents into text.
        show: Makes an image fit for the model.
        file_path: Path of the file inside the workspace.
        offset: First line.
        limit: How many lines.
    """
    if may_be_image(file_path):
        return await show(workspace, file_path)
    if may_be_document(file_path):
        document = await document_in(workspace, read, file_path)
        return numbered(document, offset, limit)
    return await workspace.do("read_file", file_path=file_path, offset=offset, limit=limit)


async def search_files(
    workspace: Workspace,
    query: Query,
    directory: Path = ".",
    pattern: Query = "*",
    *,
    recursive: bool = True,
    regex: bool = False,
    case_sensitive: bool = False,
) -> str:
    """Search the text files of the workspace; gives path, line number and line.

    Args:
        workspace: The chat's own.
        query: What to look for.
        directory: Folder inside the workspace.
        pattern: Only in files with such names.
        recursive: Also in folders below.
        regex: The query is a regular expression.
        case_sensitive: Capitals count.
    """
    return await workspace.do(
        "search_files",
        query=query,
        directory=directory,
        pattern=pattern,
        recursive=recursive,
        regex=regex,
        case_sensitive=case_sensitive,
    )


async def write_file(
    workspace: Workspace, file_path: Path, content: Words, *, create_directories: bool = True
) -> str:
    """Write a text file into the workspace, in place of one that is there.

    Args:
        workspace: The chat's own.
        file_path: Path of the file inside the workspace.
        content: All of it.
        create_directories: Make the folders on the way.
    """
    return await workspace.do(
        "write_file",
        file_path=file_path,
        content=content,
        create_directories=create_directories,
    )


async def edit_file(
    workspace: Workspace,
    file_path: Path,
    old_text: Words,
    new_text: Words,
    *,
    replace_all: bool = False,
) -> str:
    """Replace a text in a file of the workspace; gives the changed lines.

    Args:
        workspace: The chat's own.
        file_path: Path of the file inside the workspace.
        old_text: Exactly as it stands there, with enough around it to be found once.
        new_text: What takes its place.
        replace_all: Wherever it stands.
    """
    return await workspace.do(
        "edit_file",
        file_path=file_path,
        old_text=old_text,
        new_text=new_text,
        replace_all=replace_all,
    )


async def edit_notebook(
    workspace: Workspace,
    file_path: Path,
    cell: CellNumber,
    *,
    mode: Literal["replace", "insert", "delete"] = "replace",
    source: Words = "",
    cell_type: Literal["code", "markdown", "raw"] = "code",
) -> str:
    """Change one cell of a Jupyter notebook of the workspace; read_file shows its cells.

    Args:
        workspace: The chat's own.
        file_path: Path of the notebook inside the workspace.
        cell: Its number, from 0; of a new cell, where it will be.
        mode: What to do with the cell.
        source: What the cell says from now on.
        cell_type: What kind of cell it is from now on.
    """
    return await workspace.do(
        "edit_notebook",
        file_path=file_path,
        cell=cell,
        mode=mode,
        source=source,
        cell_type=cell_type,
    )


async def delete_file(workspace: Workspace, file_path: Path) -> str:
    """Delete a file of the workspace, or a folder with what is in it.

    Args:
        workspace: The chat's own.
        file_path: Path of the file inside the workspace.
    """
    return await workspace.do("delete_file", file_path=file_path)


async def send_file(
    workspace: Workspace,
    file_path: Path | Annotated[list[Path], Field(min_length=1, max_length=MAX_FILES)],
    caption: Annotated[str, Field(max_length=MAX_PATH_CHARACTERS)] = "",
) -> ToolOutput:
    """Send one or several files of the workspace to the chat, with your answer.

    Args:
        workspace: The chat's own.
        file_path: One path, or a list of them.
        caption: What you are going to say about them.
    """
    paths = [file_path] if isinstance(file_path, str) else file_path
    files = []
    for path in paths:
        data = await workspace.fetch(path)
        name = path.rstrip("/").rpartition("/")[2]
        files.append(ToolFile(name, content_type_of(name), data))
    if len(set(paths)) < len(paths):
        raise ToolError("A path is there twice; nothing was sent.")
    said = f" Caption for your answer: {caption}" if caption else ""
    return ToolOutput(f"The chat gets {', '.join(paths)} with your answer.{said}", tuple(files))


READING: Final = (list_files, find_files, file_info, read_file, search_files)
"""What they return was perhaps written by strangers."""

WRITING: Final = (write_file, edit_file, edit_notebook, delete_file)
"""What they change in a folder of the machine, a person is asked about."""
