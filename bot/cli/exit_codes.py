"""The exit codes of all commands."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
INTERRUPTED: Final = 130
