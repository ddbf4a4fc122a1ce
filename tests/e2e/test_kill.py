"""`kill -9` at random moments under traffic: every accepted message gets exactly one answer.

After each life of the daemon its store is held against what the Signal side accepted and what
the model was asked.
"""

import asyncio
import signal
from collections import Counter, defaultdict
from contextlib import suppress
from enum import StrEnum
from itertools import pairwise
from random import Random
from typing import Final

import pytest

from bot.chat.handler import GIVEN_UP, MAX_ATTEMPTS
from tests.e2e.daemon_process import HASTY, Daemon, daemon, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import EMPTY, Part, read_store
from tests.e2e.traffic import Question, Traffic, answers
from tests.fakes.signal_side import Sent

ORDINARY_KILLS: Final = 3
FULL_KILLS: Final = 200

LIFE_SECONDS: Final = 15.0
START_SECONDS: Final = 0.6
"""About as long as a start takes: within it a kill may come before anything has happened."""
MAX_STEPS: Final = 60
MAX_WAIT_SECONDS: Final = 0.004


@pytest.mark.parametrize(
    "kills", [ORDINARY_KILLS, pytest.param(FULL_KILLS, marks=pytest.mark.full)]
)
async def test_each_accepted_message_gets_one_answer_however_often_the_bot_is_killed(
    kills: int, capsys: pytest.CaptureFixture[str]
) -> None:
    async with world() as here:
        trial = Trial(here, seed=kills)
        for _ in range(kills):
            await trial.live_and_be_killed()
        await trial.live_in_peace()
    with capsys.disabled():
        print(f"\n{trial.summary()}")  # noqa: T201 - the counts are part of the result


class End(StrEnum):
    """How a life of the daemon ends."""

    STARTING = "while starting"
    AT_ONCE = "right at a step of the traffic"
    SOON = "soon after one"
    STOPPING = "while stopping"


class Fate:
    """Ends a life of the daemon once so many steps of the traffic have happened.

    Args:
        random: chooses how and when.
    """

    def __init__(self, random: Random) -> None:
        self.end = random.choice(tuple(End))
        self._steps = random.randint(1, MAX_STEPS)
        self._wait_seconds = random.uniform(
            0, START_SECONDS if self.end is End.STARTING else MAX_WAIT_SECONDS
        )
        self._due = asyncio.Event()
        self._running: Daemon | None = None

    def step(self) -> None:
        """Count a step of the traffic."""
        self._steps -= 1
        if self._steps == 0:
            self._due.set()
            if self.end is End.AT_ONCE and self._running is not None:
                self._running.send_signal(signal.SIGKILL)

    async def befall(self, running: Daemon) -> None:
        """Wait for the moment, then kill."""
        self._running = running
        if self.end is not End.STARTING:
            await self._due.wait()
        if self.end is End.STOPPING:
            running.send_signal(signal.SIGTERM)
        if self.end is not End.AT_ONCE:
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.Event().wait(), self._wait_seconds)
        await running.killed()


class Trial:
    """Lives of a daemon, one after the other, on the same store and under the same traffic.

    Args:
        here: both sides of the daemon.
        seed: of the traffic, and of how and when the lives end.
    """

    def __init__(self, here: World, *, seed: int) -> None:
        self._here = here
        self._fates = Random(seed)
        self._fate: Fate | None = None
        self._ends: Counter[End] = Counter()
        self._traffic = Traffic(here.signal, Random(seed), self._step)
        here.model.handler = self._traffic.model
        self._settings = environment(
            here,
            ACCESS__GROUPS="always",
            BOT__STEERING="false",  # the traffic counts one answer for each message
            LLM__CONTEXT_TOKENS="3000",
            LOG__LEVEL="error",
        )
        self._store = EMPTY
        self._lost: frozenset[int] = frozenset()
        self._repeated: dict[int, Part] = {}
        self._given_up = 0

    async def live_and_be_killed(self) -> None:
        """Start the daemon, kill it, and look at what is left."""
        fate = self._fate = Fate(self._fates)
        self._ends[fate.end] += 1
        await self._traffic.write_everywhere(self._is_unanswered)
        async with asyncio.timeout(LIFE_SECONDS):
            async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
                await fate.befall(running)
        await self._look(running)
        self._lost = self._missing()

    async def live_in_peace(self) -> None:
        """Start the daemon, let it finish, and tell it to stop."""
        self._fate = None
        signal_side, last_words = self._here.signal, await self._traffic.last_words()
        async with daemon(self._settings, folder=self._here.folder, module=HASTY) as running:
            await signal_side.until(lambda: last_words <= {sent.text for sent in signal_side.sent})
            running.send_signal(signal.SIGTERM)
            assert await running.exit_code() == 0
        await self._look(running)
        assert self._missing() == self._lost, "Only a kill may lose what is not accepted yet"
        self._check_answers()
        self._check_order()

    def summary(self) -> str:
        """Return what happened in all lives together."""
        ends = ", ".join(f"{count} {end}" for end, count in sorted(self._ends.items()))
        return (
            f"{self._ends.total()} kills ({ends}): {len(self._traffic.said)} messages,"
            f" {len(self._lost)} lost in a socket, {len(self._store.outcomes)} accepted and"
            f" answered ({self._given_up} given up); {len(self._repeated)} of"
            f" {len(answers(self._here.signal.sent))} sends were repetitions"
        )

    def _step(self) -> None:
        if self._fate is not None:
            self._fate.step()

    def _is_unanswered(self, question: Question) -> bool:
        timestamp = question.timestamp
        return timestamp not in self._lost and self._store.outcomes.get(timestamp) is None

    def _missing(self) -> frozenset[int]:
        """Messages that were written to a daemon and not accepted by it."""
        said = [question.timestamp for question in self._traffic.said]
        written = said[: len(said) - self._here.signal.undelivered]
        return frozenset(written) - self._store.outcomes.keys()

    # After every life

    async def _look(self, running: Daemon) -> None:
        await self._here.signal.wait_until_alone()
        before, self._store = self._store, read_store(self._here.folder / "store.db")
        assert len(running.stderr) == len(running.events("turn.given_up"))
        assert before.outcomes.keys() <= self._store.outcomes.keys(), "Accepted, then forgotten"
        assert before.answered <= self._store.answered, "Answered, then not"
        assert before.marked.items() <= self._store.marked.items(), "Marked, then changed"
        self._check_requests(before.answered, before.calling)
        self._check_sends()

    def _check_requests(self, answered: frozenset[int], calling: frozenset[int]) -> None:
        """The model is not asked again for what was on disk when this life began."""
        timestamps = {question.name: question.timestamp for question in self._traffic.said}
        for asked, times in Counter(self._traffic.asked).items():
            assert times == 1, "Asked twice in one life"
            assert timestamps[asked.name] not in answered, "Asked again for a finished answer"
            assert asked.has_result or timestamps[asked.name] not in calling, "Called twice"
        self._traffic.asked.clear()
        self._here.model.requests.clear()
        self._here.model.received.clear()

    def _check_sends(self) -> None:
        """What Signal accepted is marked, but for the last in a chat when the end came.

        That one is at the head of what the store still has to send, so it will be repeated.
        """
        sends = answers(self._here.signal.sent)
        known = self._store.marked.keys() | self._repeated.keys()
        last_in_chat = {sent.chat: sent for sent in sends}
        for sent in sends:
            if sent.timestamp not in known:
                assert last_in_chat[sent.chat] is sent, "Not marked, and yet the chat went on"
                part = self._store.first_waiting(str(sent.chat))
                assert part is not None, "Sent, and then neither marked nor waiting"
                assert part.text == sent.text, "Not what the store had to send"
                self._repeated[sent.timestamp] = part

    # In the end

    def _check_answers(self) -> None:
        """Every accepted message has its one answer, sent, marked and right."""
        assert self._store.answered == self._store.outcomes.keys()
        assert self._store.open_calls == 0
        assert {part.state for part in self._store.parts} == {"sent"}
        sent = {one.timestamp: one for one in self._here.signal.sent}
        parts: defaultdict[int, list[Sent]] = defaultdict(list)
        for timestamp, part in self._store.marked.items():
            parts[part.question].append(sent[timestamp])
        questions = {question.timestamp: question for question in self._traffic.said}
        assert parts.keys() == self._store.outcomes.keys() == questions.keys() - self._lost
        for timestamp, answer in parts.items():
            self._check_answer(questions[timestamp], answer)

    def _check_answer(self, question: Question, answer: list[Sent]) -> None:
        assert {sent.chat for sent in answer} == {question.chat}
        texts = tuple(sent.text for sent in answer)
        if texts == (GIVEN_UP,):
            self._given_up += 1
            assert self._store.attempts[question.timestamp] == MAX_ATTEMPTS + 1
        else:
            assert texts == question.answer
            assert question.needs_call == (question.timestamp in self._store.calling)

    def _check_order(self) -> None:
        """Each chat got its answers in the order of its messages, part by part."""
        places = {(part.question, part.number): n for n, part in enumerate(self._store.parts)}
        parts = self._store.marked | self._repeated
        chats: defaultdict[str, list[int]] = defaultdict(list)
        for sent in answers(self._here.signal.sent):
            part = parts[sent.timestamp]
            chats[part.chat].append(places[part.question, part.number])
        for order in chats.values():
            assert all(earlier <= later for earlier, later in pairwise(order))
