"""Starting the program from a process that has imported it: a tenth of the processor time.

What starts is a process of its own, with its own environment, folder and output, to be killed at
any moment. What Python does before and after the program is not in it, such as PYTHONDEVMODE.
"""

import asyncio
import fcntl
import multiprocessing
import os
import runpy
import signal
import sys
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

MAX_LINE_BYTES: Final = 1024 * 1024

_server = multiprocessing.get_context("forkserver")
_server.set_forkserver_preload(["bot.app", "bot.cli.arguments", "bot.cli.run", __name__])


class Program:
    """A process with its exit. Made by `start` and `start_with`."""

    def __init__(self, process: multiprocessing.process.BaseProcess) -> None:
        assert process.pid is not None
        self._process = process
        self.pid = process.pid
        self._ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(process.sentinel, self._end)

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):  # it has just ended
            os.kill(self.pid, number)

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.returncode is not None
        return self.returncode

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._process.sentinel)
        self._ended.set()


async def start(
    module: str,
    *arguments: str,
    environment: Mapping[str, str],
    folder: Path,
    errors_apart: bool = False,
) -> tuple[Program, asyncio.StreamReader, asyncio.StreamReader]:
    """Start `python -m module arguments`; return it with its standard output and error.

    Args:
        errors_apart: standard error has a stream of its own.
    """
    pipes = [_server.Pipe(duplex=False) for _ in range(2 if errors_apart else 1)]
    writers = [writer for _, writer in pipes]
    numbered = {1: writers[0], 2: writers[-1]}
    program = await start_with(numbered, module, *arguments, environment=environment, folder=folder)
    streams = [await _stream(reader) for reader, _ in pipes]
    return program, streams[0], streams[-1]


async def start_with(
    files: Mapping[int, Connection],
    module: str,
    *arguments: str,
    environment: Mapping[str, str],
    folder: Path,
) -> Program:
    """Start `python -m module arguments`.

    Args:
        files: by descriptor; closed here. A terminal at 0 becomes its own, others read nothing.
    """
    process = _server.Process(
        target=_run, args=(dict(files), module, arguments, dict(environment), folder)
    )
    await asyncio.to_thread(process.start)  # the first one waits for the imports
    for file in set(files.values()):
        file.close()
    return Program(process)


async def _stream(pipe: Connection) -> asyncio.StreamReader:
    stream = asyncio.StreamReader(MAX_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(stream), pipe
    )
    return stream


def _run(
    files: Mapping[int, Connection],
    module: str,
    arguments: Sequence[str],
    environment: Mapping[str, str],
    folder: Path,
) -> None:
    for number, file in files.items():
        os.dup2(file.fileno(), number)
    for file in set(files.values()):
        file.close()
    sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
    if os.isatty(0):
        os.setsid()
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that Ctrl-C is a signal
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv[1:] = arguments
    runpy.run_module(module, run_name="__main__", alter_sys=True)
