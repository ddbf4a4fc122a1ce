"""Who is taken for a bot, and who never is."""

import random
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.dispatch.turns.loop_guard import (
    MAX_KNOWN,
    MAX_ROUNDS,
    PAUSE_SECONDS,
    QUICK_CHARACTERS,
    LoopGuard,
    LoopVerdict,
)
from conversation_store.models import ChatId

GROUP = ChatId.parse("group:g")
CHAT = ChatId.parse("direct:ada")
ADA = "ada"
DAY_MINUTES = 24 * 60


@dataclass(slots=True)
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


class Conversation:
    """The bot answers everything that it may; somebody writes so long after each answer."""

    def __init__(self, *, messages_per_minute: int = 20, thinks_seconds: float = 0.0) -> None:
        self.clock = Clock()
        self.guard = LoopGuard(messages_per_minute=messages_per_minute, clock=self.clock)
        self.thinks_seconds = thinks_seconds

    def write(
        self, *, after: float, length: int = 40, author: str = ADA, chat: ChatId = CHAT
    ) -> LoopVerdict:
        self.clock.now += after
        verdict = self.guard.verdict(chat, author, length)
        if verdict is LoopVerdict.TALK:
            self.clock.now += self.thinks_seconds
            self.guard.answered(chat, author)
        return verdict

    def until_silence(self, *, after: float = 0.5, length: int = 40) -> int:
        """Let a bot write until it is silenced; return how many of its messages were answered."""
        for answered in range(10_000):
            if self.write(after=after, length=length) is LoopVerdict.FIRST_SILENCE:
                return answered
        raise AssertionError("never silenced")


@dataclass(frozen=True, slots=True)
class Profile:
    """How somebody writes: seconds after an answer, characters, seconds until the next answer."""

    after: tuple[float, float]
    length: tuple[int, int]
    answered: tuple[float, float]
    rounds: int

    def talk(self, dice: random.Random, talk: Conversation) -> int:
        """Write round after round; return how many were answered before a silence."""
        for number in range(self.rounds):
            talk.thinks_seconds = dice.uniform(*self.answered)
            verdict = talk.write(after=dice.uniform(*self.after), length=dice.randint(*self.length))
            if verdict is not LoopVerdict.TALK:
                return number
        return self.rounds


BOTS: Final = {
    "an echo": Profile((0.0, 0.3), (20, 60), (0.01, 0.1), 12),
    "a fast model before a fast one": Profile((0.3, 0.6), (60, 300), (0.3, 0.9), 12),
    "a fast model before a slow one": Profile((0.4, 2.0), (80, 400), (4.0, 20.0), 120),
    "slow models that write much": Profile((4.0, 9.0), (200, 1_500), (5.0, 30.0), 120),
    "a slow model that sometimes writes little": Profile((1.0, 4.0), (30, 300), (1.0, 9.0), 300),
    "slow models that write little": Profile((5.0, 60.0), (10, 60), (5.0, 60.0), 510),
    "an autoresponder that says ok": Profile((0.05, 0.4), (2, 2), (0.5, 5.0), 510),
    "a bot that is asked once a minute": Profile((60.0, 110.0), (5, 200), (1.0, 9.0), 510),
}
"""Each with so many rounds as it may have at the most."""

PEOPLE: Final = {
    "a quiz, as fast as fingers are": Profile((0.0, 2.0), (1, 1), (0.0, 3.0), 499),
    "a quiz with words": Profile((0.2, 3.0), (1, 10), (0.0, 5.0), 499),
    "the fastest on a phone": Profile((3.0, 8.0), (5, 40), (0.5, 20.0), 499),
    "a typist who writes while the bot does": Profile((0.5, 4.0), (10, 70), (4.0, 20.0), 90),
    "somebody who pastes paragraphs": Profile((3.0, 9.0), (200, 2_000), (2.0, 9.0), 90),
    "somebody who reads what was pasted": Profile((5.0, 30.0), (200, 4_000), (2.0, 9.0), 499),
    "dictation": Profile((2.0, 12.0), (20, 120), (1.0, 9.0), 300),
}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", BOTS)
def test_two_bots_are_stopped_however_fast_they_are(name: str, seed: int) -> None:
    assert BOTS[name].talk(random.Random(seed), Conversation()) < BOTS[name].rounds


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", PEOPLE)
def test_people_are_never_silenced_however_fast_they_are(name: str, seed: int) -> None:
    assert PEOPLE[name].talk(random.Random(seed), Conversation()) == PEOPLE[name].rounds


@given(st.lists(st.tuples(st.floats(0, 100), st.integers(0, QUICK_CHARACTERS)), max_size=400))
def test_short_messages_are_never_too_quick(messages: list[tuple[float, int]]) -> None:
    talk = Conversation()
    for after, length in messages:
        assert talk.write(after=after, length=length) is LoopVerdict.TALK


def test_a_pause_now_and_then_lets_people_go_on_for_ever() -> None:
    talk = Conversation()
    for number in range(5_000):
        after = PAUSE_SECONDS if number % (MAX_ROUNDS - 1) == 0 else 1.0
        assert talk.write(after=after, length=1) is LoopVerdict.TALK


def test_a_bot_that_answers_at_once_is_silenced_with_one_notice() -> None:
    talk = Conversation()
    assert talk.until_silence() == 10
    assert talk.guard.notice(CHAT, ADA) == (
        "This looks like two bots talking to each other. I will not answer you here for 10 minutes."
        " If you are a person, send !help, and I go on at once."
    )
    assert {talk.write(after=0.5) for _ in range(50)} == {LoopVerdict.SILENCE}


def test_more_is_allowed_where_people_may_write_more() -> None:
    assert Conversation(messages_per_minute=60).until_silence() == 30


def test_where_people_may_write_little_a_few_quick_messages_are_no_sign() -> None:
    assert Conversation(messages_per_minute=2).until_silence() == 10


def test_a_silence_ends_and_the_next_is_twice_as_long_up_to_a_day() -> None:
    talk = Conversation()
    minutes = []
    for _ in range(10):
        assert talk.until_silence() >= 9
        words = talk.guard.notice(CHAT, ADA)
        minutes.append(int("".join(filter(str.isdigit, words))))
        assert talk.write(after=60.0 * minutes[-1] - 1) is LoopVerdict.SILENCE
        assert talk.write(after=2.0) is LoopVerdict.TALK
    assert minutes == [10, 20, 40, 80, 160, 320, 640, 1280, DAY_MINUTES, DAY_MINUTES]


def test_the_first_silence_ends_at_a_command_and_no_other_one_does() -> None:
    talk = Conversation()
    talk.guard.release(CHAT, ADA)
    talk.until_silence()
    assert talk.write(after=5.0) is LoopVerdict.SILENCE
    talk.guard.release(CHAT, ADA)
    assert talk.write(after=5.0) is LoopVerdict.TALK
    talk.until_silence()
    assert "!help" not in talk.guard.notice(CHAT, ADA)
    talk.guard.release(CHAT, ADA)
    assert talk.write(after=5.0) is LoopVerdict.SILENCE


def test_somebody_who_fires_off_many_messages_without_waiting_is_no_bot() -> None:
    talk = Conversation()
    assert talk.write(after=1.0) is LoopVerdict.TALK
    for _ in range(100):
        talk.clock.now += 0.1
        assert talk.guard.verdict(CHAT, ADA, 40) is LoopVerdict.TALK


def test_people_who_write_while_the_bot_answers_others_in_a_lively_group_are_no_bots() -> None:
    talk = Conversation()
    people = [f"person-{number}" for number in range(10)]
    for number in range(500):
        verdict = talk.write(
            after=0.5, author=people[number % 10], chat=ChatId.parse("group:g"), length=40
        )
        assert verdict is LoopVerdict.TALK


def test_a_bot_in_a_group_is_silenced_alone() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=0.1) is LoopVerdict.SILENCE
    assert talk.write(after=0.1, author="ben") is LoopVerdict.TALK
    assert talk.write(after=0.1, chat=ChatId.parse("group:other")) is LoopVerdict.TALK


def test_somebody_who_pastes_one_long_text_after_the_other_is_no_bot() -> None:
    talk = Conversation()
    for _ in range(100):
        assert talk.write(after=12.0, length=4_000) is LoopVerdict.TALK


def test_what_is_remembered_is_bounded() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=0.1) is LoopVerdict.SILENCE
    for number in range(MAX_KNOWN - 1):
        talk.write(after=0.0, author=str(number))
    assert talk.write(after=0.1) is LoopVerdict.SILENCE
    for number in range(MAX_KNOWN):
        talk.write(after=0.0, author=f"another {number}")
    assert talk.write(after=0.1) is LoopVerdict.TALK
