"""How the tests of the whole bot run."""

from typing import Final

import pytest

from tests.e2e.hasty_bot import PROOF_SECONDS

RECEIPT_SECONDS: Final = 6.0
"""Longer than the handling of a receipt takes, even on a busy machine."""


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a short time for proofs that answers arrived."""
    monkeypatch.setattr("bot.chat.outbox.PROOF_SECONDS", PROOF_SECONDS)
    monkeypatch.setattr("bot.chat.outbox.RECEIPT_SECONDS", RECEIPT_SECONDS)
    for name in ("PAUSES", "LIMITED_PAUSES"):
        monkeypatch.setattr(f"bot.chat.outbox.{name}", (RECEIPT_SECONDS, RECEIPT_SECONDS))
