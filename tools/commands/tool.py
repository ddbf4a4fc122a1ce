"""`run_command` and `run_python`: programs that run in the workspace of a chat."""

import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sandbox.errors import WorkError, WorkUnavailable
from sandbox.jail.jail import PLACE_SECONDS, Jail
from sandbox.jail.program import THE_SCRIPT, Bounds, Ended, Program, Stopped
from sandbox.policy import SandboxPolicy
from sandbox.pool import Limits, Sandbox
from tools.base import Caller, Consent, Tool
from tools.commands.machine import this_machine
from tools.errors import InvalidArguments
from tools.schema import tool_from
from tools.settings import CommandApproval, CommandSettings
from tools.workspace.workspaces import Workspace, Workspaces

READER: Final = "tools.commands.inside.program"
MAX_SECONDS: Final = 300
MAX_COMMAND_CHARACTERS: Final = 20_000
_AROUND_SECONDS: Final = PLACE_SECONDS + 30.0
"""Until it starts, and from its end until its tool has ended."""

_TO_READ: Final = Limits(line_bytes=2**18, idle_seconds=600.0)
_QUESTION: Final = "Run this {} in the workspace of this chat?"

Line = Annotated[str, Field(min_length=1, max_length=MAX_COMMAND_CHARACTERS)]
Words = Annotated[str, Field(max_length=MAX_COMMAND_CHARACTERS)]
_COOKIE: Final = re.compile(r"^[ \t\f]*#.*?coding[:=]", re.MULTILINE)


def _in_utf_8(code: str) -> str:
    """Return a program that is what it looks like: a comment on top could say otherwise."""
    if _COOKIE.search("\n".join(code.splitlines()[:2])):
        raise ValueError("the encoding is UTF-8; leave the comment about it out")
    return code


Code = Annotated[Line, AfterValidator(_in_utf_8)]
Seconds = Annotated[int, Field(ge=1, le=MAX_SECONDS)]

_UNCOUNTED: Final = (
    "Not run: the workspace has too many files, or some that nobody may look at. The person can"
    " empty it with !clear files."
)
_STOPPED: Final = {
    Stopped.TIME: "It was ended after {seconds} seconds. timeout_seconds may be up to 300.",
    Stopped.MEMORY: "It was ended: it took more than {memory} MB of memory.",
    Stopped.PROCESSES: "It was ended: it started more than {processes} processes.",
    Stopped.DISK: "It was ended: the workspace may hold {disk} MB. Delete what is not needed.",
    Stopped.FILES: "It was ended: there are too many files, or some that nobody may look at.",
}


class Commands:
    """Runs commands in one chat's workspace.

    Args:
        workspace: returns where; its process may be another one each time.
        jail: runs them.
        settings: what they may take.
    """

    def __init__(
        self, workspace: Callable[[], Workspace], jail: Jail, settings: CommandSettings
    ) -> None:
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
        workspace, settings = self._workspace(), self._settings
        used = await workspace.usage()
        if used is None:
            raise WorkError(_UNCOUNTED)
        bounds = Bounds(
            seconds=min(seconds or settings.timeout_seconds, MAX_SECONDS),
            memory_bytes=settings.memory_bytes,
            file_bytes=max(0, workspace.quota_bytes - used.disk_bytes),
            output_bytes=settings.max_output_bytes // 2,
        )
        program = Program(command, workspace.files, script, workspace.shared_folders)
        ended = await self._jail.run(program, bounds, self._outgrown)
        return self._said(ended, bounds)

    async def _outgrown(self) -> Stopped | None:
        workspace = self._workspace()
        try:
            used = await workspace.usage()
        except WorkError:
            return None  # it is busy, or its disk is slow; the next look tells
        if used is None or used.files > workspace.max_files:
            return Stopped.FILES
        return Stopped.DISK if used.disk_bytes > workspace.quota_bytes else None

    def _said(self, ended: Ended, bounds: Bounds) -> str:
        parts = [f"exit code {ended.exit_code}"]
        if ended.stopped is not None:
            why = _STOPPED[ended.stopped].format(
                seconds=f"{bounds.seconds:g}",
                memory=bounds.memory_bytes >> 20,
                processes=bounds.processes,
                disk=self._workspace().quota_bytes >> 20,
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

    What is in shared/ is in /shared/ here, and may only be read.

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


async def run_python(commands: Commands, code: Code, timeout_seconds: Seconds | None = None) -> str:
    """Run a Python program in this chat's workspace. There is no network.

    Save figures as files and send them with send_file.

    Args:
        commands: The chat's own.
        code: The whole program; it prints what you want to know.
        timeout_seconds: How long it may take.
    """
    return await commands.run(("python3", "-I", THE_SCRIPT), code, timeout_seconds)


class Reader:
    """Says what commands need of people, by what they are going to do.

    Args:
        sandbox: reads them.
        approval: which of them a person is asked about.
    """

    def __init__(self, sandbox: Sandbox, approval: CommandApproval) -> None:
        self._sandbox = sandbox
        self._approval = approval

    async def of_command(self, arguments: Any) -> Consent:
        """Return what a call of `run_command` needs; its programs may be allowed for longer."""
        if not arguments.arguments.strip():
            return await self._consent({"line": arguments.command})
        try:
            words = [arguments.command.strip(), *shlex.split(arguments.arguments)]
        except ValueError:
            return Consent()  # it is refused when it runs
        return await self._consent({"words": words})

    async def of_python(self, arguments: Any) -> Consent:
        """Return what a call of `run_python` needs; all of them may be allowed for longer."""
        consent = await self._consent({"code": arguments.code})
        return replace(consent, covers=("run_python",))

    async def _consent(self, command: Mapping[str, object]) -> Consent:
        if self._approval is CommandApproval.NEVER:
            return Consent(asks=False)
        reading = _Reading.model_validate_json(await self._sandbox.call(json.dumps(command)))
        covers = () if reading.is_open else [f"run_command: {name}" for name in reading.programs]
        asks = self._approval is CommandApproval.ASK or bool(reading.risks)
        return Consent(asks=asks, covers=tuple(covers), risks=tuple(reading.risks))


class _Reading(BaseModel):
    """What the sandbox replies; see `tools.commands.inside.shell.Reading`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    programs: list[str]
    risks: list[str]
    is_open: bool


async def trouble_with_jails() -> str:
    """Try a jail and return why there can be none here; empty where there can.

    For whoever only looks: a bot finds it out with the first command.
    """
    try:
        with TemporaryDirectory() as folder:
            await Jail(this_machine()).kind(Path(folder))
    except WorkUnavailable as error:
        return str(error)
    return ""


@asynccontextmanager
async def open_commands(
    workspaces: Workspaces, settings: CommandSettings, sandboxes: SandboxPolicy
) -> AsyncIterator[Sequence[Tool]]:
    """Provide the tools that run commands in the workspace of the chat that they are called in.

    Args:
        workspaces: of all chats.
        settings: what commands may take.
        sandboxes: what is demanded of the sandbox in which commands are read.
    """
    machine = this_machine()
    jail = Jail(machine)

    def commands(caller: Caller) -> Commands:
        of_chat = partial(workspaces.of, caller.chat, sees_shared=caller.is_admin)
        return Commands(of_chat, jail, settings)

    async with Sandbox(READER, _TO_READ, policy=sandboxes) as sandbox:
        reader = Reader(sandbox, settings.approval)
        offered = partial(
            tool_from,
            side_effects=True,
            untrusted=True,
            admins_only=workspaces.admins_only,
            timeout_seconds=MAX_SECONDS + _AROUND_SECONDS,
            given={"commands": commands},
        )
        tools = [
            offered(
                run_python, question=_QUESTION.format("Python program"), consent=reader.of_python
            )
        ]
        if shutil.which("sh", path=machine.path):
            tools.append(
                offered(
                    run_command, question=_QUESTION.format("command"), consent=reader.of_command
                )
            )
        yield tools
