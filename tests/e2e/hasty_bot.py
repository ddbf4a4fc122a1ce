"""The daemon with a short wait for receipts of answers from before a restart.

python -m tests.e2e.hasty_bot run
"""

import sys
from typing import Final

from bot.chat import outbox
from bot.cli.main import main

PROOF_SECONDS: Final = 0.4
"""Longer than waiting receipts take to arrive, even on a busy machine."""

if __name__ == "__main__":
    outbox.PROOF_SECONDS = PROOF_SECONDS  # type: ignore[misc]
    sys.exit(main())
