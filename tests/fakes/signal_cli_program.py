"""A program that behaves as `signal-cli daemon` does, to be started as a child process.

`install` writes a start script named `signal-cli` into a folder for the PATH, as the real one has
such a script. Next to it, `starts` has a line of JSON for each start, `sent` one for each text that
was sent. Like the real one it refuses a socket file that exists, with exit code 3, and removes its
own at SIGTERM.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any, Final

from tests.fakes.json_rpc_server import Client, Json
from tests.fakes.registering import RegisteringSignalCli
from tests.fakes.signal_side import Sent

ROOT: Final = Path(__file__).parents[2]
SOCKET_IN_USE: Final = 3
BROKEN: Final = 7
TOO_OLD: Final = "signal-cli version is too old for the Signal-Server, please update."
MODULE: Final = "tests.fakes.signal_cli_program"
SAID: Final = "a message for nobody else"


def install(folder: Path, *options: str, become: bool = True) -> Path:
    """Write the start script and return the folder.

    Args:
        folder: for the script and its notes.
        options: `--stubborn` (SIGTERM does nothing), `--broken` (ends at once), `--busy` (no send
            comes to its end), `--deaf` (never listens), `--outdated` (ends, its log says why),
            or `--says VERSION`.
        become: whether the script becomes the program, or waits for it as a bad one does.
    """
    folder.mkdir(exist_ok=True)
    script = folder / "signal-cli"
    program = f'{sys.executable} -m {MODULE} {" ".join(options)} "{folder}/starts" "$@"'
    script.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={ROOT}\n{'exec ' if become else ''}{program}\n"
    )
    script.chmod(0o700)
    return folder


def starts(folder: Path) -> list[dict[str, Any]]:
    """Return the notes on each start so far: `pid`, `arguments`, `environment`."""
    notes = folder / "starts"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [json.loads(line) for line in lines]


def texts_sent(folder: Path) -> list[str]:
    notes = folder / "sent"
    lines = notes.read_text().splitlines() if notes.exists() else []
    return [json.loads(line) for line in lines]


def signs_of_life(folder: Path) -> int:
    """Return how often it has told its version so far."""
    notes = folder / "versions"
    return len(notes.read_text().splitlines()) if notes.exists() else 0


def note(file: Path, what: object) -> None:
    with file.open("a") as notes:
        notes.write(json.dumps(what) + "\n")


class _Program(RegisteringSignalCli):
    """Counts requests for its version."""

    notes: Path

    def _require_account(self) -> None:
        """Serves any account."""

    async def _version(self, client: Client, params: Json) -> object:
        note(self.notes.with_name("versions"), params)
        return await super()._version(client, params)


async def serve(chosen: argparse.Namespace) -> None:
    async def note_text(sent: Sent) -> None:
        note(chosen.notes.with_name("sent"), sent.text)
        if chosen.busy:
            await asyncio.Event().wait()

    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, (lambda: None) if chosen.stubborn else told.set)
    if chosen.deaf:
        await told.wait()
    async with _Program.open(chosen.socket) as side:
        side.notes = chosen.notes
        side.version = chosen.says or side.version
        side.on_send = note_text
        side.registrar.linked.set()
        await side.say(SAID)
        await told.wait()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--stubborn", action="store_true")
    parser.add_argument("--broken", action="store_true")
    parser.add_argument("--busy", action="store_true")
    parser.add_argument("--deaf", action="store_true")
    parser.add_argument("--outdated", action="store_true")
    parser.add_argument("--says")
    parser.add_argument("notes", type=Path)
    parser.add_argument("--config", type=Path)
    parser.add_argument("daemon", choices=["daemon"])
    parser.add_argument("--socket", type=Path, required=True)
    parser.add_argument("--receive-mode", choices=["manual"], required=True)
    parser.add_argument("--no-receive-stdout", action="store_true", required=True)
    chosen = parser.parse_args()
    start = {"pid": os.getpid(), "arguments": sys.argv[1:], "environment": dict(os.environ)}
    note(chosen.notes, start)
    for stream in (sys.stdout, sys.stderr):
        stream.write(f"{SAID}\n")
        stream.flush()
    if chosen.outdated:
        sys.stderr.write(f"Error loading state file for user +1: {TOO_OLD} (IOException)\n")
    if chosen.broken or chosen.outdated:
        return BROKEN
    if chosen.socket.exists():
        return SOCKET_IN_USE
    asyncio.run(serve(chosen))
    return 0


if __name__ == "__main__":
    sys.exit(main())
