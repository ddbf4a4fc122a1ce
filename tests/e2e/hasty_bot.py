"""The daemon, which waits only a short time for proofs that answers of an earlier life arrived.

python -m tests.e2e.hasty_bot run
"""

import sys
from typing import Final

from bot.chat import outbox
from bot.cli.main import main

PROOF_SECONDS: Final = 0.4
"""Longer than receipts that wait take to come in, however busy the machine is."""

if __name__ == "__main__":
    outbox.PROOF_SECONDS = PROOF_SECONDS  # type: ignore[misc]
    sys.exit(main())
