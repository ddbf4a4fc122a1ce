"""argparse, with an example in the help of every command, and open to questions of a shell."""

import argparse
import re
import shutil
import sys
import textwrap
from collections.abc import Sequence
from difflib import get_close_matches
from textwrap import indent
from typing import Any, Final, NoReturn

_NOT_KNOWN: Final = re.compile(r"(?<=invalid choice: ')[^']+|(?<=unrecognized arguments: )-\S+")
"""What argparse calls a command or an option that it does not know."""

WRONG_USAGE: Final = 2


class CommandParser(argparse.ArgumentParser):
    """The parser of a command; it remembers what it takes.

    Attributes:
        summary: what it does, in a few words.
        examples: command lines that its help ends with.
        arguments: its options and positional arguments, in their order.
        commands: those below it, by name.
    """

    def __init__(self, *, summary: str = "", examples: Sequence[str] = (), **settings: Any) -> None:
        self.summary = summary
        self.examples = tuple(examples)
        self.arguments: list[argparse.Action] = []
        self.commands: dict[str, CommandParser] = {}
        super().__init__(**settings)

    def add_argument(self, *args: Any, **settings: Any) -> argparse.Action:
        """Add an option or a positional argument, as argparse does."""
        added = super().add_argument(*args, **settings)
        self.arguments.append(added)
        return added

    def error(self, message: str) -> NoReturn:
        """End with the usage and a message; of a misspelt command or option it names the right one.

        Raises:
            SystemExit: always.
        """
        chosen = next((self.commands[one] for one in sys.argv[1:] if one in self.commands), None)
        if chosen is not None and chosen is not self:
            chosen.error(message)
        parsers = (self, *self.commands.values())
        options = (
            name for one in parsers for part in one.arguments for name in part.option_strings
        )
        known = [*self.commands, *options]
        for wrong in _NOT_KNOWN.findall(message):
            if near := get_close_matches(wrong, known, n=1):
                self._end(f"there is no {wrong}; did you mean {near[0]}?")
        self._end(f"{message}; see {self.prog} --help")

    def _end(self, message: str) -> NoReturn:
        """End with the usage and a message, which a terminal shows in whole words."""
        self.print_usage(sys.stderr)
        text = f"{self.prog}: error: {message}"
        if sys.stderr is not None and sys.stderr.isatty():
            width = shutil.get_terminal_size().columns
            text = textwrap.fill(text, width, break_on_hyphens=False)
        self.exit(WRONG_USAGE, f"{text}\n")

    def format_help(self) -> str:
        """Return the help, with the examples at its end."""
        lines = indent("\n".join((*self.examples, "")), "  ")
        title = "examples" if len(self.examples) > 1 else "example"
        return f"{super().format_help()}\n{title}:\n{lines}" if lines else super().format_help()


class Commands:
    """The commands below a parser.

    Args:
        parser: of what stands before them.
        title: over their list in its help.
        metavar: their place in its usage.
        dest: of the chosen one's name among the arguments.
    """

    def __init__(self, parser: CommandParser, *, title: str, metavar: str, dest: str) -> None:
        self._of = parser
        self._added = parser.add_subparsers(
            title=title, required=True, metavar=metavar, dest=dest, parser_class=CommandParser
        )

    def add(self, name: str, help_: str, *examples: str, does: str = "") -> CommandParser:
        """Add a command.

        Args:
            name: as it is typed.
            help_: what it does, in a few words for the list.
            examples: the end of its help.
            does: the same in sentences, for its own help; else `help_`.
        """
        added = self._added.add_parser(
            name,
            help=help_,
            summary=help_,
            description=does or f"{help_[0].upper()}{help_[1:]}.",
            examples=examples,
        )
        self._of.commands[name] = added
        return added
