"""What `!verify last` says: who signed the requests and answers behind the last answer."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from conversation_store.models import ExchangeState, StoredExchange

NO_SIGNATURES: Final = (
    "There are no signatures to show: I have not answered in this chat yet, or nothing is kept of"
    " my answer, or the model's endpoint is not asked for any. So nothing proves which model wrote"
    " to you."
)
ONLY_MY_WORD: Final = "I checked this myself; whether you can believe me is what !verify is for."

_WAITING: Final = "The signature is not checked yet. Ask again in a minute."
_CONSEQUENCE: Final = {
    ExchangeState.WRONG: " Do not rely on the answer.",
    ExchangeState.MISSING: " So nothing proves which model answered.",
}


def last_answer(exchanges: Sequence[StoredExchange]) -> str:
    """Return what the signatures of an answer's exchanges with the model mean, for people."""
    if not exchanges:
        return NO_SIGNATURES
    title = "WHO SIGNED MY LAST ANSWER"
    total = len(exchanges)
    if total > 1:
        title = f"{title}\nI asked the model {total} times for it."
    findings = Counter(map(_meaning, exchanges))
    lines = (
        meaning if count == total else f"{count} of {total}: {meaning}"
        for meaning, count in findings.items()
    )
    return "\n\n".join((title, *lines, ONLY_MY_WORD))


def _meaning(exchange: StoredExchange) -> str:
    if exchange.state is ExchangeState.WAITING:
        return _WAITING
    return exchange.message + _CONSEQUENCE.get(exchange.state, "")
