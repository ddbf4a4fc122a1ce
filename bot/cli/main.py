"""The command line. A command's module is imported when it is run, so `--version` answers at once.

Each has a function `run`, which takes the arguments and returns the exit code.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Final, TextIO

from bot.cli.arguments import read_arguments
from bot.cli.exit_codes import FAILED, INTERRUPTED, WRONG_SETTINGS
from bot.errors import BotError, SettingsError

CANNOT_WRITE: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 failed, 2 wrong settings."""
    try:
        try:
            return _outcome(arguments)
        finally:
            _flush_log()
            if sys.stdout is not None:
                sys.stdout.flush()  # so that a failing write fails here and not at exit
    except BrokenPipeError:
        _leave(sys.stdout)  # the reader has seen enough, as `head` has
        return FAILED
    except OSError as error:
        if error.errno not in CANNOT_WRITE or error.filename is not None:
            raise
        _leave(sys.stdout)
        print(f"signal-tee-bot: the output cannot be written: {error.strerror}", file=sys.stderr)
        return FAILED


def _outcome(arguments: Sequence[str] | None) -> int:
    read = read_arguments(arguments)
    from bot.process.hardening import harden

    try:
        harden()
        command = _module_of(read.command)
        result: int = command.run(read)
    except SettingsError as error:
        from bot.cli.console import complain

        complain("\n".join(error.problems))
        return WRONG_SETTINGS
    except BotError as error:
        from bot.cli.console import complain

        complain(f"signal-tee-bot: {error}")
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return result


def _module_of(command: str) -> ModuleType:
    name = f"bot.cli.{command}"
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        raise BotError(f"{command} is not part of this image; run it in a checkout") from None


def _flush_log() -> None:
    """Flush the log; one that cannot be written must not fail the command."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _leave(sys.stderr)


def _leave(stream: TextIO) -> None:
    """Redirect a broken stream to nowhere, so that the flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
