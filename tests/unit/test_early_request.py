"""When the answer to an early request counts."""

import asyncio
from collections.abc import Callable, Sequence

import pytest

from bot.chat.early_request import MAX_EARLY_REQUESTS, Question, asking_early
from bot.llm.errors import LlmUnavailable
from bot.llm.messages import Completion, ModelRequest
from conversation_store.models import AcceptedMessage, Message, Role

ANSWER = Completion(Message(Role.ASSISTANT, "hi"), "stop", None, "m")


def request(words: str) -> Question:
    return Question("default", ModelRequest([Message(Role.USER, words)]))


def nothing() -> None:
    """Nobody is told that the model makes them wait."""


class Model:
    """Answers when it is told to, or fails."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.asked: list[Question] = []
        self.cancelled = 0
        self.fails = False
        self.still_trying: Callable[[], None] = nothing

    async def prepare(self, _: Sequence[AcceptedMessage]) -> Question:
        return request("hello")

    async def ask(self, asked: Question, still_trying: Callable[[], None]) -> Completion:
        self.asked.append(asked)
        self.still_trying = still_trying
        try:
            await self.go_on.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if self.fails:
            raise LlmUnavailable("It cannot be reached.")
        return ANSWER

    async def begin(self) -> None:
        """Let what was begun come to its wait."""
        for _ in range(5):
            await asyncio.sleep(0)


async def test_the_answer_is_given_once_and_only_to_the_same_request() -> None:
    model = Model()
    async with asking_early(model.prepare, model.ask) as early:
        early.ask([])
        await model.begin()
        model.go_on.set()
        assert await early.answer_to(request("hello"), nothing) is ANSWER
        assert await early.answer_to(request("hello"), nothing) is None
        early.ask([])
        await model.begin()
        assert await early.answer_to(request("hello!"), nothing) is None
    assert len(model.asked) == 2


async def test_what_was_asked_before_and_what_is_left_at_the_end_are_broken_off() -> None:
    model = Model()
    async with asking_early(model.prepare, model.ask) as early:
        for _ in range(MAX_EARLY_REQUESTS + 2):
            early.ask([])
            await model.begin()
    await model.begin()
    assert len(model.asked) == model.cancelled == MAX_EARLY_REQUESTS


async def test_a_failure_counts_only_where_it_comes_while_the_turn_waits_for_it() -> None:
    model = Model()
    model.fails = True
    async with asking_early(model.prepare, model.ask) as early:
        early.ask([])
        await model.begin()
        waiting = asyncio.create_task(early.answer_to(request("hello"), nothing))
        await model.begin()
        model.go_on.set()
        with pytest.raises(LlmUnavailable):
            await waiting
        early.ask([])
        await model.begin()
        assert await early.answer_to(request("hello"), nothing) is None


async def test_a_request_that_is_not_made_yet_is_not_waited_for() -> None:
    model = Model()
    async with asking_early(model.prepare, model.ask) as early:
        early.ask([])
        assert await early.answer_to(request("hello"), nothing) is None
        await model.begin()
    assert model.asked == []


async def test_whoever_stops_waiting_breaks_the_request_off() -> None:
    model = Model()
    async with asking_early(model.prepare, model.ask) as early:
        early.ask([])
        await model.begin()
        waiting = asyncio.create_task(early.answer_to(request("hello"), nothing))
        await model.begin()
        waiting.cancel()
        await asyncio.wait([waiting])
    await model.begin()
    assert model.cancelled == 1


async def test_a_long_wait_is_told_to_the_turn_whether_it_has_begun_to_wait_or_not() -> None:
    model = Model()
    told: list[str] = []
    async with asking_early(model.prepare, model.ask) as early:
        early.ask([])
        await model.begin()
        model.still_trying()
        waiting = asyncio.create_task(
            early.answer_to(request("hello"), lambda: told.append("before"))
        )
        await model.begin()
        assert told == ["before"]
        waiting.cancel()
        early.ask([])
        await model.begin()
        waiting = asyncio.create_task(
            early.answer_to(request("hello"), lambda: told.append("after"))
        )
        await model.begin()
        assert told == ["before"]
        model.still_trying()
        model.go_on.set()
        assert await waiting is ANSWER
    assert told == ["before", "after"]
