"""`!verify last`: the signer of the last answer."""

from typing import Final

import pytest

from bot.commands.verify import NO_SIGNATURES, signatures
from conversation_store.models import ExchangeState, StoredExchange


def signed(state: ExchangeState, kind: str = "", words: str = "") -> StoredExchange:
    return StoredExchange(1, 1, "chatcmpl-1", "00" * 32, "11" * 32, state, kind, words)


PROVEN: Final = signed("proven", "provider_tee", "The model's machine has signed.")
WRONG: Final = signed("wrong", "gateway", "The signature is of another key.")
MISSING: Final = signed("missing", words="The endpoint has none.")


@pytest.mark.parametrize(
    ("exchanges", "paragraphs"),
    [
        ([PROVEN], ["The model's machine has signed."]),
        (
            [PROVEN, signed("waiting"), PROVEN],
            [
                "In 2 of 3 cases: The model's machine has signed.",
                "In 1 of 3 cases: The signature is not checked yet. Ask again in a minute.",
            ],
        ),
        ([WRONG], ["The signature is of another key.\nDo not rely on the answer."]),
        ([MISSING], ["The endpoint has none.\nSo nothing proves which model answered."]),
    ],
)
def test_each_signature_is_explained(
    exchanges: list[StoredExchange], paragraphs: list[str]
) -> None:
    title, *found, ending = signatures(exchanges).split("\n\n")
    assert ("I asked the model" in title) == (len(exchanges) > 1)
    assert found == paragraphs
    assert "!verify" in ending
    assert signatures([]) == NO_SIGNATURES
