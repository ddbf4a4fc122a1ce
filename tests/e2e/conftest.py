"""How the tests of the whole bot run."""

import pytest

from tests.e2e.hasty_bot import PROOF_SECONDS


@pytest.fixture(autouse=True)
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait only a short time for proofs that answers of an earlier life arrived."""
    monkeypatch.setattr("bot.dispatch.outgoing.doubts.PROOF_SECONDS", PROOF_SECONDS)
