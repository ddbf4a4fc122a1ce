"""The command line. A command's module is imported when it is run, so `--version` answers at once.

Each has a function `run`, which takes the arguments and may return whether the command worked. Any
function of a command may raise BotError; its text names reason and remedy, and is printed here.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final, TextIO

from bot.cli.exit_codes import FAILED, INTERRUPTED, OK, WRONG_SETTINGS
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
    try:
        try:
            from bot.cli.arguments import read_arguments
            from bot.observability.hardening import harden

            read = read_arguments(arguments)
            harden()
            command = import_module(f"bot.cli.{read.command.replace('-', '_')}")
        except ImportError as error:
            from bot.cli.neighbours import explained

            raise explained(error) from error
        outcome = command.run(read)
        return outcome if type(outcome) is int else FAILED if outcome is False else OK
    except KeyboardInterrupt:
        return INTERRUPTED
    except BotError as error:
        from bot.cli.console import complain

        is_setting = isinstance(error, SettingsError)
        complain(str(error) if is_setting else f"signal-tee-bot: {error}")
        return WRONG_SETTINGS if is_setting else FAILED


def _flush_log() -> None:
    """Flush the log; a broken log must not fail the command."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _leave(sys.stderr)


def _leave(stream: TextIO) -> None:
    """Redirect a broken stream to nowhere, so that the flush at exit succeeds."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
