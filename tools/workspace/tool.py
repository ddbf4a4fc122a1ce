"""The tools of workspaces, as they are offered."""

from collections.abc import Sequence

from tools.base import Caller, Tool
from tools.schema import tool_from
from tools.workspace.files import CHANGING, READING
from tools.workspace.workspaces import Workspace, Workspaces


def workspace_tools(workspaces: Workspaces) -> Sequence[Tool]:
    """Return the tools that work in the workspace of the chat that they are called in."""

    def workspace(caller: Caller) -> Workspace:
        return workspaces.of(caller.chat)

    return [
        tool_from(
            function,
            untrusted=function in READING,
            admins_only=workspaces.admins_only,
            given={"workspace": workspace},
        )
        for function in (*READING, *CHANGING)
    ]
