"""`run_command` and `run_python`: programs that run in the workspace of a chat."""

import shlex
import shutil
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Final

from pydantic import Field

from sandbox.errors import WorkError, WorkTimeout, WorkUnavailable
from sandbox.jail.jail import PLACE_SECONDS, Jail
from sandbox.jail.program import THE_SCRIPT, Bounds, Ended, Program, Stopped
from tools.base import Caller, Tool
from tools.errors import InvalidArguments, ToolUnavailable
from tools.schema import tool_from
from tools.settings import CommandSettings
from tools.workspace.workspaces import Workspace, Workspaces

MAX_SECONDS: Final = 300
MAX_COMMAND_CHARACTERS: Final = 20_000
_AROUND_SECONDS: Final = PLACE_SECONDS + 30.0
"""Until it starts, and from its end until its tool has ended."""

Line = Annotated[str, Field(min_length=1, max_length=MAX_COMMAND_CHARACTERS)]
Words = Annotated[str, Field(max_length=MAX_COMMAND_CHARACTERS)]
Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]

_STOPPED: Final = {
    Stopped.TIME: "It was ended after {seconds} seconds. timeout_seconds may be up to 300.",
    Stopped.MEMORY: "It was ended: it took more than {memory} MB of memory.",
    Stopped.PROCESSES: "It was ended: it started more than {processes} processes.",
    Stopped.DISK: "It was ended: the workspace may hold {disk} MB. Delete what is not needed.",
    Stopped.FILES: "It was ended: the workspace has too many files. Delete what is not needed.",
}


class Commands:
    """Runs commands in one chat's workspace.

    Args:
        workspace: where.
        jail: runs them.
        settings: what they may take.
    """

    def __init__(self, workspace: Workspace, jail: Jail, settings: CommandSettings) -> None:
        self._workspace = workspace
        self._jail = jail
        self._settings = settings

    async def run(self, command: tuple[str, ...], script: str, seconds: int | None) -> str:
        """Run a command to its end and return what came of it, for the model.

        Args:
            command: program and arguments.
            script: what it reads as its script.
            seconds: how long it may take; None: as the settings say.

        Raises:
            WorkError: it cannot be run.
        """
        used = await self._workspace.usage()
        settings = self._settings
        bounds = Bounds(
            seconds=min(seconds or settings.timeout_seconds, MAX_SECONDS),
            memory_bytes=settings.memory_bytes,
            file_bytes=max(0, self._workspace.quota_bytes - used.disk_bytes),
            output_bytes=settings.max_output_bytes // 2,
        )
        program = Program(command, self._workspace.files, script)
        ended = await self._jail.run(program, bounds, self._outgrown)
        return self._said(ended, bounds)

    async def _outgrown(self) -> Stopped | None:
        try:
            used = await self._workspace.usage()
        except WorkTimeout:
            return None  # a disk that is slow now; the next look tells
        except WorkError:
            return Stopped.FILES  # more than can be counted
        if used.disk_bytes > self._workspace.quota_bytes:
            return Stopped.DISK
        return Stopped.FILES if used.files > self._workspace.max_files else None

    def _said(self, ended: Ended, bounds: Bounds) -> str:
        parts = [f"exit code {ended.exit_code}"]
        if ended.stopped is not None:
            why = _STOPPED[ended.stopped].format(
                seconds=f"{bounds.seconds:g}",
                memory=bounds.memory_bytes >> 20,
                processes=bounds.processes,
                disk=self._workspace.quota_bytes >> 20,
            )
            parts.append(why)
        parts += [
            f"{name}:\n{text.rstrip()}"
            for name, text in (("stdout", ended.output), ("stderr", ended.errors))
            if text.strip()
        ]
        return "\n".join(parts)


async def run_command(
    commands: Commands, command: Line, arguments: Words = "", timeout_seconds: Seconds | None = None
) -> str:
    """Run a shell command in this chat's workspace. There is no network.

    Args:
        commands: The chat's own.
        command: A line for the shell; with arguments, the name of a program to run without one.
        arguments: Of the program, quoted as in a shell; empty for a line for the shell.
        timeout_seconds: How long it may take.
    """
    if not arguments.strip():
        return await commands.run(("sh", THE_SCRIPT), command, timeout_seconds)
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise InvalidArguments(f"arguments: {error}") from None
    return await commands.run((command.strip(), *words), "", timeout_seconds)


async def run_python(commands: Commands, code: Line, timeout_seconds: Seconds | None = None) -> str:
    """Run a Python program in this chat's workspace. There is no network.

    Save figures as files and send them with send_file.

    Args:
        commands: The chat's own.
        code: The whole program; it prints what you want to know.
        timeout_seconds: How long it may take.
    """
    return await commands.run(("python3", "-I", THE_SCRIPT), code, timeout_seconds)


_RUNNING: Final[Mapping[Callable[..., Awaitable[str]], str]] = {
    run_command: "command",
    run_python: "Python program",
}


def command_tools(workspaces: Workspaces, jail: Jail, settings: CommandSettings) -> Sequence[Tool]:
    """Return the tools that run commands in the workspace of the chat that they are called in."""

    def commands(caller: Caller) -> Commands:
        return Commands(workspaces.of(caller.chat), jail, settings)

    async def probe() -> None:
        try:
            with TemporaryDirectory() as folder:
                await jail.kind(Path(folder))
        except WorkUnavailable as error:
            raise ToolUnavailable(str(error)) from None

    return [
        tool_from(
            function,
            side_effects=True,
            question=f"Run this {what} in the workspace of this chat?",
            untrusted=True,
            admins_only=workspaces.admins_only,
            timeout_seconds=MAX_SECONDS + _AROUND_SECONDS,
            probe=probe,
            given={"commands": commands},
        )
        for function, what in _RUNNING.items()
        if function is not run_command or shutil.which("sh")
    ]
