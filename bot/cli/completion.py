"""`signal-tee-bot completion`: a script that completes commands with the Tab key of a shell."""

from argparse import Namespace
from pathlib import Path

import shtab

from bot.cli.arguments import CommandParser, command_line


def run(arguments: Namespace) -> None:
    """Print the script of a shell."""
    parser = command_line()
    _complete_files(parser)
    print(shtab.complete(parser, arguments.shell))


def _complete_files(parser: CommandParser) -> None:
    for action in parser.arguments:
        if action.type is Path:
            action.complete = shtab.FILE  # type: ignore[attr-defined]
    for command in parser.commands.values():
        _complete_files(command)
