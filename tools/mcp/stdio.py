"""A server that is a command of ours and speaks over its standard streams.

One message is one line (https://modelcontextprotocol.io/specification, Transports, stdio). The
command gets the few variables that any program needs and those that the operator wrote for it,
never this program's own environment, which holds secrets. Its program is looked for on the PATH and
then beside this program, where `uvx` is installed. What it writes to standard error is discarded
unless an operator listens: it may hold anything. At the end its standard input is closed, then its
whole process group is asked to end, then killed.
"""

import asyncio
import os
import shutil
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, SubprocessStreamProtocol
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Final, Self, cast

from anyio import BrokenResourceError
from mcp.client._transport import TransportStreams
from mcp.shared.message import SessionMessage
from mcp.types.jsonrpc import jsonrpc_message_adapter

from tools.mcp.errors import CommandNotFound, MessageTooLong, Unreachable
from tools.mcp.last_words import LastWords
from tools.mcp.transport import MAX_MESSAGE_BYTES, Closing
from tools.settings import McpServer

EXIT_SECONDS: Final = 1.0
"""For each step of ending a process: its input is closed, it is asked, it is killed."""
MAX_UNREAD_BYTES: Final = 1024 * 1024
_STDERR: Final = 2
_PARTS_OF: Final = {"uvx": "uv (pip install uv)", "npx": "Node.js"}
_INHERITED: Final = (
    *("HOME", "LANG", "LC_ALL", "LOGNAME", "PATH", "TMPDIR", "TZ", "USER"),
    *("NODE_EXTRA_CA_CERTS", "SSL_CERT_DIR", "SSL_CERT_FILE"),  # behind a proxy that opens TLS
)


@asynccontextmanager
async def stdio_streams(
    server: McpServer, last_words: LastWords | None = None
) -> AsyncIterator[TransportStreams]:
    """Run a server's command and speak with it; at the end nothing of it is left.

    Args:
        server: with a command.
        last_words: keeps what the command writes to its standard error; discarded without it.

    Raises:
        CommandNotFound: there is no such program.
        OSError: the command cannot be started.
    """
    loop = asyncio.get_running_loop()
    environment = _environment(server.environment)
    if shutil.which(server.command[0], os.F_OK, environment["PATH"]) is None:
        raise not_found(server.command[0])
    transport, streams = await loop.subprocess_exec(
        lambda: _Streams(loop, server.name, last_words),
        *server.command,
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL if last_words is None else PIPE,
        env=environment,
        start_new_session=True,
    )
    group = transport.get_pid()
    stdin = cast("asyncio.StreamWriter", streams.stdin)
    try:
        yield _Lines(cast("asyncio.StreamReader", streams.stdout)), _Input(stdin)
    finally:
        try:
            await _end(group, stdin, streams.exited)
        finally:
            _signal(group, signal.SIGKILL)
            if last_words is not None:
                await _within_bound(streams.said_all)
            transport.close()


def not_found(program: str, *, root: Path = Path("/")) -> CommandNotFound:
    """Say that a program is missing, and what to do: in an image nothing can be installed."""
    part = _PARTS_OF.get(program)
    name = program if part else "The MCP server's command"
    if not Path(root, "etc/os-release").exists():
        return CommandNotFound(
            f"{name} was not found, and nothing can be installed in this image. Run the MCP server"
            " in a container of its own and name its URL."
        )
    return CommandNotFound(
        f"{name} was not found on the bot's PATH. It is part of {part}."
        if part
        else f"{name} was not found."
    )


@asynccontextmanager
async def socket_streams(path: str, *, timeout_seconds: float) -> AsyncIterator[TransportStreams]:
    """Speak with a server that runs as a service of its own, its standard streams being a socket.

    Each connection has a process of its own there (systemd.socket(5), Accept=), which ends as it
    would when its standard input is closed.

    Args:
        path: of the Unix socket.
        timeout_seconds: for connecting.

    Raises:
        Unreachable: nobody listens there, or this program may not connect.
    """
    try:
        async with asyncio.timeout(timeout_seconds):
            reader, writer = await asyncio.open_unix_connection(path, limit=MAX_MESSAGE_BYTES)
    except OSError as error:  # TimeoutError is one, too
        raise Unreachable("The MCP server could not be reached.") from error
    try:
        yield _Lines(reader), _Input(writer)
    finally:
        writer.transport.abort()


class _Streams(SubprocessStreamProtocol):
    """The command's streams, and word of its end that waits for nobody else who has its pipes."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, server: str, last_words: LastWords | None
    ) -> None:
        super().__init__(limit=MAX_MESSAGE_BYTES, loop=loop)
        self._server = server
        self._last_words = last_words
        self.exited = asyncio.Event()
        self.said_all = asyncio.Event()

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        if fd == _STDERR and self._last_words is not None and isinstance(data, bytes):
            self._last_words.hear(self._server, data)
        else:
            super().pipe_data_received(fd, data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        super().pipe_connection_lost(fd, exc)
        if fd == _STDERR:
            self.said_all.set()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


def _environment(wanted: Mapping[str, str]) -> dict[str, str]:
    inherited = {name: os.environ[name] for name in _INHERITED if name in os.environ}
    beside = str(Path(sys.executable).parent)
    path = os.pathsep.join((inherited.get("PATH") or os.defpath, beside))
    return {**inherited, "PATH": path, **wanted}


async def _end(group: int, stdin: asyncio.StreamWriter, exited: asyncio.Event) -> None:
    """Close the command's input, then ask its process group to end, then kill what is left."""
    if not stdin.transport.is_closing():
        stdin.transport.abort()  # what it has not read yet is of no use any more
    if not await _within_bound(exited):
        _signal(group, signal.SIGTERM)
        await _within_bound(exited)
    _signal(group, signal.SIGKILL)
    await _within_bound(exited)


async def _within_bound(exited: asyncio.Event) -> bool:
    # Not `asyncio.timeout`: up to Python 3.11.2 its end is taken for another cancellation in a task
    # that is being cancelled.
    with suppress(TimeoutError):
        await asyncio.wait_for(exited.wait(), EXIT_SECONDS)
    return exited.is_set()


def _signal(group: int, number: signal.Signals) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)


class _Lines(Closing):
    """What the command writes, a message a line; a line that is no message is an exception."""

    def __init__(self, stdout: asyncio.StreamReader) -> None:
        self._stdout = stdout

    async def receive(self) -> SessionMessage | Exception:
        return await anext(self)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            line = await self._stdout.readline()
        except ValueError:
            raise MessageTooLong("The MCP server sent more at once than is taken in.") from None
        except ConnectionError:  # a socket's way to end with something unread
            line = b""
        if not line:
            raise StopAsyncIteration
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError as error:
            return error


class _Input(Closing):
    """What the command reads, a message a line.

    Nobody waits for the command to read: who gives up a call has to say so at once. A command
    that has left too much unread counts as gone.
    """

    def __init__(self, stdin: asyncio.StreamWriter) -> None:
        self._stdin = stdin

    async def send(self, item: SessionMessage, /) -> None:
        if self._stdin.transport.get_write_buffer_size() > MAX_UNREAD_BYTES:
            raise BrokenResourceError
        message = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        self._stdin.write(message.encode() + b"\n")
