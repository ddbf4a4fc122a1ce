"""The exit codes of all commands."""

from typing import Final

OK: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
CHANGED: Final = 3
"""Of `watch`: all is proven, and something is different from the last time."""
INTERRUPTED: Final = 130
