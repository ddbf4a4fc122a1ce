"""A command at a terminal, with its screen and its input."""

import asyncio
import codecs
import fcntl
import os
import re
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

from tests.e2e.quick_start import Program, start_with

READ_BYTES: Final = 65_536
ROWS: Final = 24
COLUMNS: Final = 80


class Terminal:
    """A program at a terminal of its own. Made by `at_a_terminal`.

    Attributes:
        shown: everything that the terminal has got so far.
    """

    def __init__(self, process: Program, keys: int) -> None:
        self._process = process
        self._keys = keys
        self._changed = asyncio.Condition()
        self._seen = 0
        self.shown = ""

    async def reads(self, text: str) -> None:
        """Wait until the program has written this, wrapped or not, after the text read before."""
        wanted = re.compile(r"\s+".join(map(re.escape, text.split())))
        async with self._changed:
            await self._changed.wait_for(lambda: wanted.search(self.shown, self._seen))
        found = wanted.search(self.shown, self._seen)
        assert found is not None
        self._seen = found.end()

    async def answers(self, question: str, answer: str) -> None:
        await self.reads(question)
        os.write(self._keys, f"{answer}\n".encode())

    def types(self, keys: str) -> None:
        os.write(self._keys, keys.encode())

    def presses_ctrl_c(self) -> None:
        os.write(self._keys, b"\x03")

    async def exit_code(self) -> int:
        return await self._process.wait()

    async def listen(self) -> None:
        decode = codecs.getincrementaldecoder("utf-8")().decode
        while piece := await self._read():
            self.shown += decode(piece)
            async with self._changed:
                self._changed.notify_all()

    async def _read(self) -> bytes:
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._keys, readable.set)
        try:
            await readable.wait()
            return os.read(self._keys, READ_BYTES)
        except OSError:  # the error of a terminal without writers
            return b""
        finally:
            loop.remove_reader(self._keys)


@asynccontextmanager
async def at_a_terminal(
    *arguments: str,
    url: str,
    folder: Path,
    columns: int = COLUMNS,
    rows: int = ROWS,
    path: Path | None = None,
) -> AsyncIterator[Terminal]:
    """Run `python -m bot ...` at a terminal until the end of the block."""
    keys, its = os.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))
    search = os.environ["PATH"] if path is None else f"{path}:{os.environ['PATH']}"
    variables = {
        "PATH": search,
        "SIGNAL__URL": url,
        "STORE__PATH": str(folder / "store.db"),
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",  # nothing answers where the cursor is
    }
    files = dict.fromkeys((0, 1, 2), Connection(its))
    process = await start_with(files, "bot", *arguments, environment=variables, folder=folder)
    terminal = Terminal(process, keys)
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(terminal.listen())
        try:
            yield terminal
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
    os.close(keys)
