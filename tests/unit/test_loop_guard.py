"""Who is taken for a bot, and who never is."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from bot.dispatch.loop_guard import MAX_KNOWN, LoopGuard, Verdict

CHAT = "direct:ada"
ADA = "ada"
DAY_MINUTES = 24 * 60


@dataclass(slots=True)
class Clock:
    now: float = 1_000.0

    def __call__(self) -> float:
        return self.now


class Conversation:
    """The bot answers everything that it may; somebody writes so long after each answer."""

    def __init__(self, *, messages_per_minute: int = 20) -> None:
        self.clock = Clock()
        self.guard = LoopGuard(messages_per_minute=messages_per_minute, clock=self.clock)

    def write(
        self, *, after: float, length: int = 40, author: str = ADA, chat: str = CHAT
    ) -> Verdict:
        self.clock.now += after
        verdict = self.guard.verdict(chat, author, length)
        if verdict is Verdict.TALK:
            self.guard.answered(chat, author)
        return verdict

    def until_silence(self, *, after: float = 0.5, length: int = 40) -> int:
        """Let a bot write until it is silenced; return how many of its messages were answered."""
        for answered in range(10_000):
            if self.write(after=after, length=length) is Verdict.FIRST_SILENCE:
                return answered
        raise AssertionError("never silenced")


def test_a_bot_that_answers_at_once_is_silenced_with_one_notice() -> None:
    talk = Conversation()
    assert talk.until_silence() == 10
    assert talk.guard.notice(CHAT, ADA) == (
        "This looks like two bots talking to each other. I will not answer you here for 10 minutes."
    )
    assert {talk.write(after=0.5) for _ in range(50)} == {Verdict.SILENCE}


def test_more_is_allowed_where_people_may_write_more() -> None:
    assert Conversation(messages_per_minute=60).until_silence() == 30


def test_where_people_may_write_little_a_few_quick_messages_are_no_sign() -> None:
    assert Conversation(messages_per_minute=2).until_silence() == 10


def test_two_bots_with_slow_models_are_found_by_the_length_of_what_they_write() -> None:
    assert Conversation().until_silence(after=5.0, length=400) == 30


def test_a_silence_ends_and_the_next_is_twice_as_long_up_to_a_day() -> None:
    talk = Conversation()
    minutes = []
    for _ in range(10):
        assert talk.until_silence() >= 9
        words = talk.guard.notice(CHAT, ADA)
        minutes.append(int("".join(filter(str.isdigit, words))))
        assert talk.write(after=60.0 * minutes[-1] - 1) is Verdict.SILENCE
        assert talk.write(after=2.0) is Verdict.TALK
    assert minutes == [10, 20, 40, 80, 160, 320, 640, 1280, DAY_MINUTES, DAY_MINUTES]


QUICK = st.lists(st.floats(0, 1.9), max_size=9)


@given(st.lists(st.tuples(QUICK, st.floats(4.0, 3_600.0)), max_size=60))
def test_a_person_who_takes_time_now_and_then_is_never_silenced(
    chat: list[tuple[list[float], float]],
) -> None:
    talk = Conversation()
    for quick, slow in chat:
        for after in (*quick, slow):
            assert talk.write(after=after) is Verdict.TALK


def test_somebody_who_fires_off_many_messages_without_waiting_is_no_bot() -> None:
    talk = Conversation()
    assert talk.write(after=1.0) is Verdict.TALK
    for _ in range(100):
        talk.clock.now += 0.1
        assert talk.guard.verdict(CHAT, ADA, 40) is Verdict.TALK


def test_people_who_write_while_the_bot_answers_others_in_a_lively_group_are_no_bots() -> None:
    talk = Conversation()
    people = [f"person-{number}" for number in range(10)]
    for number in range(500):
        verdict = talk.write(after=0.5, author=people[number % 10], chat="group:g", length=40)
        assert verdict is Verdict.TALK


def test_a_bot_in_a_group_is_silenced_alone() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=0.1) is Verdict.SILENCE
    assert talk.write(after=0.1, author="ben") is Verdict.TALK
    assert talk.write(after=0.1, chat="group:other") is Verdict.TALK


def test_somebody_who_pastes_one_long_text_after_the_other_is_no_bot() -> None:
    talk = Conversation()
    for _ in range(100):
        assert talk.write(after=12.0, length=4_000) is Verdict.TALK


def test_what_is_remembered_is_bounded() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=0.1) is Verdict.SILENCE
    for number in range(MAX_KNOWN - 1):
        talk.write(after=0.0, author=str(number))
    assert talk.write(after=0.1) is Verdict.SILENCE
    talk.write(after=0.0, author="one more")
    assert talk.write(after=0.1) is Verdict.TALK
