"""`run_command` and `run_python`: programs that run in the workspace of a chat."""

import asyncio
import json
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from sandbox.errors import SandboxBug, WorkError
from sandbox.jail.control_groups import Controller
from sandbox.jail.jail import PLACE_SECONDS, Jail, Kind
from sandbox.jail.program import THE_SCRIPT, Bounds, Ended, Program, Stopped
from sandbox.policy import SandboxPolicy
from sandbox.pool import Limits, Sandbox
from tools.base import Caller, Consent, Tool
from tools.commands.machine import this_machine
from tools.errors import InvalidArguments
from tools.schema import tool_from
from tools.settings import CommandApproval, CommandSettings
from tools.web.lookup import Resolver
from tools.web.proxy import PORTS, Proxy
from tools.workspace.workspaces import Workspace, Workspaces

READER: Final = "tools.commands.inside.program"
MAX_SECONDS: Final = 300
PAUSE_SECONDS: Final = 1.0
"""After a command that was ended for what it took, other than time. To start and end hundreds of
processes takes the machine from everybody: a model that tries again at once is slowed down."""
MAX_COMMAND_CHARACTERS: Final = 20_000
_AROUND_SECONDS: Final = PLACE_SECONDS + 30.0
"""Until it starts, and from its end until its tool has ended."""

_TO_READ: Final = Limits(line_bytes=2**18, idle_seconds=600.0)
_QUESTION: Final = "Run this {} in the workspace of this chat{}?"
_WITH_NETWORK: Final = ", with access to the internet"
_NO_NETWORK: Final = "There is no network."
_NETWORK: Final = (
    f"The public internet is reached on ports {' and '.join(map(str, sorted(PORTS)))}, and only"
    " through the HTTP proxy that http_proxy and https_proxy name."
)
_HARMLESS_HAVE_NONE: Final = " What runs without the person being asked has no network."

Asked = Mapping[str, object]
"""A command, as it is read behind walls; see `tools.commands.inside.program`."""
ProxyFor = Callable[[Asked], Awaitable[Proxy | None]]
"""Returns the proxy of a command; None: it has no network."""

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
    Stopped.ROOM: "It was ended: the disk of the workspaces was running out of room.",
    Stopped.FILES: "It was ended: there are too many files, or some that nobody may look at.",
}


class Commands:
    """Runs commands in one chat's workspace.

    Args:
        workspace: returns where; its process may be another one each time.
        jail: runs them.
        settings: what they may take.
        proxy_for: gives them a network.
    """

    def __init__(
        self,
        workspace: Callable[[], Workspace],
        jail: Jail,
        settings: CommandSettings,
        proxy_for: ProxyFor,
    ) -> None:
        self._workspace = workspace
        self._jail = jail
        self._settings = settings
        self._proxy_for = proxy_for

    async def run(
        self, command: tuple[str, ...], script: str, seconds: int | None, asked: Asked
    ) -> str:
        """Run a command to its end and return what came of it, for the model.

        Args:
            command: program and arguments.
            script: what it reads as its script.
            seconds: how long it may take; None: as the settings say.
            asked: the same, as it is read.

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
        if (proxy := await self._proxy_for(asked)) is not None:
            program = replace(program, network=proxy.serve)
        async with self._keeping_versions():
            ended = await self._jail.run(program, bounds, self._outgrown)
        if ended.stopped not in {None, Stopped.TIME}:
            await asyncio.sleep(PAUSE_SECONDS)
        return self._said(ended, bounds, proxy.refusals if proxy is not None else ())

    @asynccontextmanager
    async def _keeping_versions(self) -> AsyncIterator[None]:
        """Keep what is overwritten or deleted inside; a command runs also where nothing can be."""
        snapshot = ""
        with suppress(WorkError, SandboxBug):
            snapshot = await self._workspace().do("before_command")
        try:
            yield
        finally:
            with suppress(WorkError, SandboxBug):
                await self._workspace().do("after_command", snapshot=snapshot)

    async def _outgrown(self) -> Stopped | None:
        workspace = self._workspace()
        try:
            used = await workspace.usage()
        except WorkError:
            return None  # it is busy, or its disk is slow; the next look tells
        if used is None or used.files > workspace.max_files:
            return Stopped.FILES
        return Stopped.DISK if used.disk_bytes > workspace.quota_bytes else None

    def _said(self, ended: Ended, bounds: Bounds, refusals: Sequence[str]) -> str:
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
        if refusals:
            parts.append("\n".join(("the network refused:", *refusals)))
        return "\n".join(parts)


async def run_command(
    commands: Commands, command: Line, arguments: Words = "", timeout_seconds: Seconds | None = None
) -> str:
    """Run a shell command in this chat's workspace. What is in shared/ is in /shared/ there, to
    be read alone.

    Args:
        commands: The chat's own.
        command: A line for the shell; with arguments, the name of a program to run without one.
        arguments: Of the program, quoted as in a shell; empty for a line for the shell.
        timeout_seconds: How long it may take.
    """  # noqa: D205 - the model reads all of it
    if not arguments.strip():
        shell = ("sh", THE_SCRIPT)
        return await commands.run(shell, command, timeout_seconds, {"line": command})
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise InvalidArguments(f"arguments: {error}") from None
    program = (command.strip(), *words)
    return await commands.run(program, "", timeout_seconds, {"words": program})


async def run_python(commands: Commands, code: Code, timeout_seconds: Seconds | None = None) -> str:
    """Run a Python program in this chat's workspace. Save figures as files and send them with
    send_file.

    Args:
        commands: The chat's own.
        code: The whole program; it prints what you want to know.
        timeout_seconds: How long it may take.
    """  # noqa: D205 - as above
    python = ("python3", "-I", THE_SCRIPT)
    return await commands.run(python, code, timeout_seconds, {"code": code})


class Reader:
    """Says what commands need of people, by what they are going to do.

    Args:
        sandbox: reads them.
        approval: which of them a person is asked about.
        network: they may have one. What could use it, and so carry a conversation away, is then
            asked about each time: nobody can allow it for longer.
    """

    def __init__(
        self, sandbox: Sandbox, approval: CommandApproval, *, network: bool = False
    ) -> None:
        self._sandbox = sandbox
        self._approval = approval
        self._network = network

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
        return replace(consent, covers=() if self._network else ("run_python",))

    async def may_reach(self, asked: Asked) -> bool:
        """Whether a command may have a network.

        One that nobody is asked about because it is harmless may not: that it is harmless was
        said of commands without a network.
        """
        if self._approval is not CommandApproval.DANGEROUS:
            return True
        try:
            return bool((await self._reading(asked)).risks)
        except WorkError:
            return False

    async def _consent(self, asked: Asked) -> Consent:
        if self._approval is CommandApproval.NEVER:
            return Consent(asks=False)
        reading = await self._reading(asked)
        for_longer = not (reading.is_open or (self._network and reading.risks))
        covers = [f"run_command: {name}" for name in reading.programs] if for_longer else ()
        asks = self._approval is CommandApproval.ASK or bool(reading.risks)
        return Consent(asks=asks, covers=tuple(covers), risks=tuple(reading.risks))

    async def _reading(self, asked: Asked) -> "_Reading":
        return _Reading.model_validate_json(await self._sandbox.call(json.dumps(asked)))


class _Reading(BaseModel):
    """What the sandbox replies; see `tools.commands.inside.shell.Reading`."""

    model_config = ConfigDict(strict=True, extra="forbid")

    programs: list[str]
    risks: list[str]
    is_open: bool


async def try_jail() -> tuple[Kind, frozenset[Controller] | None]:
    """Try a jail and return which kind this machine allows, and what bounds it as a whole.

    For whoever only looks: a bot finds it out with the first command.

    Raises:
        WorkUnavailable: none; says why.
    """
    jail = Jail(this_machine())
    return await _kind_of(jail), jail.controllers


async def _kind_of(jail: Jail) -> Kind:
    with TemporaryDirectory() as folder:
        return await jail.kind(Path(folder))


@asynccontextmanager
async def open_commands(
    workspaces: Workspaces,
    settings: CommandSettings,
    sandboxes: SandboxPolicy,
    *,
    jail: Jail | None = None,
    make_proxy: Callable[[], Proxy] | None = None,
) -> AsyncIterator[Sequence[Tool]]:
    """Provide the tools that run commands in the workspace of the chat that they are called in.

    Args:
        workspaces: of all chats.
        settings: what commands may take.
        sandboxes: what is demanded of the sandbox in which commands are read.
        jail: in which they run; None: the best that this machine allows.
        make_proxy: of one command; None: it reaches the internet.

    Raises:
        WorkUnavailable: commands are to have a network, and there can be no jail here.
    """
    jail = jail or Jail(this_machine())
    # What the model is told of a network has to be true before the first command.
    network = settings.network and (await _kind_of(jail)).has_network
    make_proxy = make_proxy or partial(Proxy, Resolver().look_up)

    async with Sandbox(READER, _TO_READ, policy=sandboxes) as sandbox:
        reader = Reader(sandbox, settings.approval)
        of_reaching = Reader(sandbox, settings.approval, network=True)

        async def no_proxy(_: Asked) -> None:
            return None

        async def a_proxy(asked: Asked) -> Proxy | None:
            return make_proxy() if await of_reaching.may_reach(asked) else None

        def commands(proxy_for: ProxyFor, caller: Caller) -> Commands:
            of_chat = partial(
                workspaces.of,
                caller.chat,
                person=caller.person,
                sees_shared=caller.is_admin,
            )
            return Commands(of_chat, jail, settings, proxy_for if caller.is_admin else no_proxy)

        admins_only = workspaces.admins_only
        tools = _tools(reader, partial(commands, no_proxy), _NO_NETWORK, admins_only=admins_only)
        if network:
            words = _NETWORK
            if settings.approval is CommandApproval.DANGEROUS:
                words += _HARMLESS_HAVE_NONE
            given = partial(commands, a_proxy)
            reaching = _tools(of_reaching, given, words, _WITH_NETWORK, admins_only=admins_only)
            pairs = zip(tools, reaching, strict=True)
            tools = [replace(tool, for_admins=for_admins) for tool, for_admins in pairs]
        yield tools


def _tools(
    reader: Reader,
    commands: Callable[[Caller], Commands],
    network: str,
    question: str = "",
    *,
    admins_only: bool,
) -> list[Tool]:
    """Return the tools that this machine has programs for.

    Args:
        reader: says whether a person is asked.
        commands: runs them for a caller.
        network: what the model is told of it.
        question: what the person who is asked is told of it.
        admins_only: they do not exist for anybody else.
    """
    offered = partial(
        tool_from,
        side_effects=True,
        untrusted=True,
        admins_only=admins_only,
        timeout_seconds=MAX_SECONDS + _AROUND_SECONDS,
        given={"commands": commands},
    )
    tools = [
        offered(
            run_python,
            question=_QUESTION.format("Python program", question),
            consent=reader.of_python,
        )
    ]
    if shutil.which("sh", path=this_machine().path):
        tools.append(
            offered(
                run_command,
                question=_QUESTION.format("command", question),
                consent=reader.of_command,
            )
        )
    return [replace(tool, description=f"{tool.description} {network}") for tool in tools]
