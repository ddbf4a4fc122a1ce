"""The tools of workspaces, as they are offered."""

from collections.abc import Callable, Sequence

from documents.client import Read
from tools.base import Caller, Tool
from tools.schema import tool_from
from tools.workspace.files import CHANGING, READING, read_file
from tools.workspace.workspaces import Workspace, Workspaces


def workspace_tools(workspaces: Workspaces, read: Read) -> Sequence[Tool]:
    """Return the tools that work in the workspace of the chat that they are called in.

    Args:
        workspaces: of all chats.
        read: turns documents into text.
    """

    def workspace(caller: Caller) -> Workspace:
        return workspaces.of(caller.chat)

    given: dict[str, Callable[[Caller], object]] = {"workspace": workspace}
    return [
        tool_from(
            function,
            untrusted=function in READING,
            admins_only=workspaces.admins_only,
            given=given if function is not read_file else {**given, "read": lambda _: read},
        )
        for function in (*READING, *CHANGING)
    ]
