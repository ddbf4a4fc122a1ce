"""argparse, with an example in the help of every command, and open to questions of a shell."""

import argparse
from collections.abc import Sequence
from textwrap import indent
from typing import Any


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
