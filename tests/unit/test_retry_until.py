"""Retries of a question to the Signal side."""

import asyncio

import pytest

from bot.backoff import Backoff
from bot.chat.groups import RetryUntil
from bot.signal.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUntrusted,
)
from tests.skipped_waits import without_waiting

RETRY_UNTIL = RetryUntil(seconds=100.0, backoff=Backoff(first_seconds=1.0, longest_seconds=4.0))


class Asked:
    """A question that fails as it is told to; `times` is when it was asked."""

    def __init__(self, *troubles: SignalError) -> None:
        self.troubles = list(troubles)
        self.times: list[float] = []

    async def __call__(self) -> str:
        self.times.append(asyncio.get_running_loop().time())
        if self.troubles:
            raise self.troubles.pop(0)
        return "answer"


@without_waiting
async def test_a_question_is_repeated_after_each_wait_until_it_is_answered() -> None:
    asked = Asked(SignalTimeout("x"), SignalRateLimited("x", retry_after_seconds=30.0))
    assert await RETRY_UNTIL.call(asked) == "answer"
    first, second, third = asked.times
    assert second - first < 30.0 <= third - second


@without_waiting
async def test_no_attempt_begins_when_the_time_is_over() -> None:
    asked = Asked(*[SignalTimeout("x")] * 1_000)
    with pytest.raises(SignalTimeout):
        await RETRY_UNTIL.call(asked)
    assert 25 <= len(asked.times) < 200
    assert asked.times[-1] - asked.times[0] <= RETRY_UNTIL.seconds


@pytest.mark.parametrize("refusal", [SignalRejected("x"), SignalUntrusted("x")])
@without_waiting
async def test_a_refusal_is_an_answer(refusal: SignalError) -> None:
    asked = Asked(refusal)
    with pytest.raises(type(refusal)):
        await RETRY_UNTIL.call(asked)
    assert len(asked.times) == 1
