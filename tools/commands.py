"""`run_command` and `run_python`: programs that run in the workspace of a chat."""

import asyncio
import math
import re
import shlex
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from tools.base import MIN_LIMIT_BYTES, Caller, Consent, InvalidArguments, Tool
from tools.sandbox.errors import WorkError
from tools.sandbox.jail.jail import PLACE_SECONDS, Jail, Kind
from tools.sandbox.jail.program import (
    SEARCH_PATH,
    THE_SCRIPT,
    Bounds,
    Ended,
    Program,
    Stopped,
)
from tools.schema import tool_from
from tools.settings import MAX_RESULT_BYTES, Approval, CommandSettings
from tools.workspace.workspaces import Workspace, Workspaces

MAX_SECONDS: Final = 300
PAUSE_SECONDS: Final = 1.0
"""After a command that exceeded a bound other than time. Hundreds of processes that start and end
slow down the whole machine, and a model may try again at once."""
MAX_COMMAND_CHARACTERS: Final = 20_000
_AROUND_SECONDS: Final = PLACE_SECONDS + 30.0
"""Time before a command starts, and from its end to the end of its tool."""
_QUESTION: Final = (
    "Run this command? It can use the files of this chat and shared folders, but no network."
)
_PYTHON: Final = (
    "Run this Python program? It can use the files of this chat and shared folders, but no network."
)

_TOGETHER: Final = ("run_command", "run_python")
"""Tools that a person allows together, since both can do the same."""
_HINTS: Final = {
    **dict.fromkeys(("rm", "rmdir", "rmtree", "shred", "unlink"), "{word} deletes files"),
    **dict.fromkeys(("dd", "fdisk", "mkfs", "truncate"), "{word} overwrites what is there"),
    **dict.fromkeys(("doas", "su", "sudo"), "{word} asks for the rights of another user"),
    **dict.fromkeys(("halt", "poweroff", "reboot", "shutdown"), "{word} stops the machine"),
    **dict.fromkeys(("kill", "killall", "pkill"), "{word} ends programs"),
    **dict.fromkeys(("chmod", "chown"), "{word} changes who may use a file"),
}
"""Words of a command that its question warns of. A hint for the reader: the jail is the wall."""
_LIBRARIES: Final = (
    "numpy", "pandas", "scipy", "matplotlib", "sympy", "openpyxl", "docx", "pypdf", "PIL",
)  # fmt: skip
"""Libraries that the model is told of if the Python of the bot has them: programs run with it."""
_WORD: Final = re.compile(r"\w+")
_AS_UTF_8: Final = (
    "import sys; del sys.argv[0]; exec(compile(open(sys.argv[0], encoding='utf-8').read(),"
    " sys.argv[0], 'exec'), {'__name__': '__main__'})"
)
"""Runs a Python program as people have read it, whatever encoding a comment in it declares."""

_UNCOUNTED: Final = (
    "Not run: the workspace has too many files, or some that nobody may look at. The person can"
    " empty it with !clear files."
)
_STOPPED: Final = {
    "time": "It was ended after {seconds} seconds. timeout_seconds may be up to 300.",
    "memory": "It was ended: it took more than {memory} MB of memory.",
    "processes": "It was ended: it started more than {processes} processes.",
    "disk": "It was ended: the workspace may hold {disk} MB. Delete what is not needed.",
    "room": "It was ended: the disk of the workspaces was running out of room.",
    "files": "It was ended: there are too many files, or some that nobody may look at.",
}


_FENCED: Final = re.compile(r"\s*```[\w-]*\n(.*)\n```\s*", re.DOTALL)


def _without_fence(value: object) -> object:
    fenced = _FENCED.fullmatch(value) if isinstance(value, str) else None
    return value if fenced is None else fenced[1]


Line = Annotated[
    str,
    Field(min_length=1, max_length=MAX_COMMAND_CHARACTERS),
    BeforeValidator(_without_fence),
]
Words = Annotated[str, Field(max_length=MAX_COMMAND_CHARACTERS)]
Seconds = Annotated[int, Field(ge=0, le=MAX_SECONDS)]
"""0: as the settings say."""


Run = Callable[[tuple[str, ...], str, int], Awaitable[str]]
"""Runs a command with a script for some seconds; returns exit code and outputs for the model."""


async def _outgrown(workspace: Callable[[], Workspace]) -> Stopped | None:
    here = workspace()  # the sandbox that works in it may be replaced between looks
    try:
        used = await here.usage()
    except WorkError:
        return None  # it is busy, or its disk is slow; the next look tells
    used_bytes, files = used or (0, math.inf)
    if files > here.bounds["max_files"]:
        return "files"
    return "disk" if used_bytes > here.bounds["quota_bytes"] else None


def _said(ended: Ended, bounds: Bounds, quota_bytes: int) -> str:
    parts = [f"exit code {ended.exit_code}"]
    if ended.stopped is not None:
        why = _STOPPED[ended.stopped].format(
            seconds=f"{bounds.seconds:g}",
            memory=bounds.memory_bytes >> 20,
            processes=bounds.processes,
            disk=quota_bytes >> 20,
        )
        parts.append(why)
    for name, text in (("stdout", ended.output), ("stderr", ended.errors)):
        if text.strip():
            parts.append(f"{name}:\n{text.rstrip()}")
    return "\n".join(parts)


async def run_command(
    run: Run, command: Line, arguments: Words = "", timeout_seconds: Seconds = 0
) -> str:
    """Run a shell line in the workspace, without a network. shared/ is /shared/ there.

    Args:
        arguments: Of a program, without a shell.
        timeout_seconds: At most 300. Default 30.
    """
    if not arguments.strip():
        return await run(("sh", THE_SCRIPT), command, timeout_seconds)
    try:
        words = shlex.split(arguments)
    except ValueError as error:
        raise InvalidArguments(f"arguments: {error}") from None
    return await run((command.strip(), *words), "", timeout_seconds)


async def run_python(run: Run, code: Line, timeout_seconds: Seconds = 0) -> str:
    """Run a Python 3 program in the workspace, without a network; the person's files are in inbox/.

    Print results; save plots and files here, then call send_file.

    Args:
        timeout_seconds: At most 300. Default 30.
    """
    return await run(("python3", "-I", "-c", _AS_UTF_8, THE_SCRIPT), code, timeout_seconds)


def consent_to(arguments: Any, approval: Approval) -> Consent:
    """Return the consent that a call of `run_command` or `run_python` needs."""
    if approval == "never":
        return Consent(asks=False)
    written = " ".join(text for text in dict(arguments).values() if isinstance(text, str))
    words = dict.fromkeys(_WORD.findall(written))
    hints = tuple(_HINTS[word].format(word=word) for word in words if word in _HINTS)
    return Consent(covers=_TOGETHER, hints=hints)


async def try_jail() -> tuple[Kind, tuple[str, ...]]:
    """Return the kind of jail that works here, and why better ones do not; or ToolUnavailable."""
    jail = Jail()
    with TemporaryDirectory() as folder:
        return await jail.kind(Path(folder)), jail.refused


@asynccontextmanager
async def open_commands(
    workspaces: Workspaces, settings: CommandSettings, *, result_limit_bytes: int = MAX_RESULT_BYTES
) -> AsyncIterator[Sequence[Tool]]:
    """Provide the tools that run commands, as far as this machine has programs for them."""
    jail = Jail()
    room = max(MIN_LIMIT_BYTES, result_limit_bytes - MIN_LIMIT_BYTES)  # without frame and exit code
    output_bytes = min(settings.max_output_bytes, room)

    async def run(caller: Caller, command: tuple[str, ...], script: str, seconds: int) -> str:
        of_chat = partial(workspaces.of, caller.chat, sees_shared=caller.is_admin)
        workspace = of_chat()
        quota_bytes = workspace.bounds["quota_bytes"]
        used = await workspace.usage()
        if used is None:
            raise WorkError(_UNCOUNTED)
        used_bytes, _ = used
        bounds = Bounds(
            seconds=min(seconds or settings.timeout_seconds, MAX_SECONDS),
            memory_bytes=settings.memory_mb * 2**20,
            file_bytes=max(0, quota_bytes - used_bytes),
            output_bytes=output_bytes // 2,
        )
        shared = {name: folder.path for name, folder in workspace.shared.items()}
        program = Program(command, workspace.files, script, shared)
        try:
            ended = await jail.run(program, bounds, partial(_outgrown, of_chat), caller.person)
        finally:
            await workspace.give_back()
        if ended.stopped not in {None, "time"}:
            await asyncio.sleep(PAUSE_SECONDS)
        return _said(ended, bounds, quota_bytes)

    offered = partial(
        tool_from,
        side_effects=True,
        untrusted=True,
        admins_only=workspaces.admins_only,
        timeout_seconds=MAX_SECONDS + _AROUND_SECONDS,
        given={"run": lambda caller: partial(run, caller)},
        consent=partial(consent_to, approval=settings.approval),
        told={"timeout_seconds": lambda seconds: (f"up to {seconds} s",)},
    )
    python = offered(run_python, question=_PYTHON)
    if libraries := [name for name in _LIBRARIES if find_spec(name) is not None]:
        described = f"{python.description} It has {', '.join(libraries)}."
        python = replace(python, description=described)
    tools = [python]
    if shutil.which("sh", path=SEARCH_PATH):
        tools.append(offered(run_command, question=_QUESTION))
    yield tools
