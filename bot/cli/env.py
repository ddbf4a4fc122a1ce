"""`signal-tee-bot env`: all settings, as a file `.env` to begin with."""

from argparse import Namespace
from importlib import resources
from typing import Final

from bot.cli.exit_codes import OK

EXAMPLE: Final = "env.example"
"""A link to `.env.example`, so that the installed program has it as well."""


def run(_: Namespace) -> int:
    """Print the list of settings; return the exit code."""
    print(example(), end="")
    return OK


def example() -> str:
    """Return the text of `.env.example`."""
    return resources.files(__package__).joinpath(EXAMPLE).read_text("utf-8")
