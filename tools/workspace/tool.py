"""The tools of workspaces, as they are offered."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from documents.client import Read
from tools.base import Caller, Tool, ToolOutput
from tools.schema import tool_from
from tools.workspace.files import READING, WRITING, read_file, send_file
from tools.workspace.images import image_in
from tools.workspace.workspaces import Workspace, Workspaces


def workspace_tools(workspaces: Workspaces, read: Read) -> Sequence[Tool]:
    """Return the tools that work in the workspace of the chat that they are called in.

    Args:
        workspaces: of all chats.
        read: turns documents into text.
    """

    def workspace(caller: Caller) -> Workspace:
        return workspaces.of(caller.chat, person=caller.person, sees_shared=caller.is_admin)

    def changes_machine(arguments: Any, caller: Caller) -> bool:
        return caller.is_admin and workspaces.is_shared(arguments.file_path)

    async def show(chat: str, workspace: Workspace, file_path: str) -> ToolOutput:
        return await image_in(workspace.fetch, workspaces.viewer, chat, file_path)

    given: dict[str, Callable[[Caller], object]] = {"workspace": workspace}
    of_reading = {
        **given,
        "read": lambda _: read,
        "show": lambda caller: partial(show, caller.chat),
    }
    return [
        tool_from(
            function,
            untrusted=function in READING,
            changes=function not in READING,
            admins_only=workspaces.admins_only,
            asks_if=changes_machine if function in WRITING else None,
            given=of_reading if function is read_file else given,
        )
        for function in (*READING, *WRITING, send_file)
    ]
