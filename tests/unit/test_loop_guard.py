"""The limit on consecutive turns, which stops two bots that answer each other."""

from bot.chat.access import (
    MAX_PARTNERS,
    MAX_TURNS,
    PAUSE_SECONDS,
    SILENCE_SECONDS,
    LoopGuard,
)
from conversation_store.models import ChatId
from tests.fakes.clock import Clock

CHAT = ChatId.parse("direct:ada")
GROUP = ChatId.parse("group:g")
ADA = "ada"


class Conversation:
    """The bot answers every message that it may."""

    def __init__(self) -> None:
        self.clock = Clock()
        self.guard = LoopGuard(clock=self.clock)

    def write(self, *, after: float = 0.5, author: str = ADA, chat: ChatId = CHAT) -> str | None:
        self.clock.now += after
        refusal = self.guard.refusal(chat, author)
        if refusal is None:
            self.guard.answered(chat, author)
        return refusal

    def until_silence(self, *, after: float = 0.5) -> tuple[int, str]:
        """Write until the bot falls silent; return the number of answers, and its notice."""
        for answered in range(10 * MAX_TURNS):
            if notice := self.write(after=after):
                return answered, notice
        raise AssertionError("never silenced")


def test_bot_falls_silent_after_too_many_turns_without_a_pause() -> None:
    for seconds in (0.1, 5.0, PAUSE_SECONDS - 1):
        talk = Conversation()
        answered, notice = talk.until_silence(after=seconds)
        assert answered == MAX_TURNS
        assert notice == (
            "This looks like two bots talking to each other. I will not answer you here for 10"
            " minutes. If you are a person, send !help, and I go on at once."
        )
        assert {talk.write() for _ in range(50)} == {""}


def test_pause_starts_the_count_again() -> None:
    talk = Conversation()
    for number in range(5 * MAX_TURNS):
        after = PAUSE_SECONDS if number % (MAX_TURNS - 1) == 0 else 1.0
        assert talk.write(after=after) is None


def test_silence_ends_after_ten_minutes() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write(after=SILENCE_SECONDS - 1) == ""
    assert talk.write(after=2.0) is None


def test_command_ends_the_silence() -> None:
    talk = Conversation()
    for _ in range(2):
        talk.until_silence()
        assert talk.write(after=5.0) == ""
        talk.guard.release(CHAT, ADA)
        assert talk.write(after=5.0) is None


def test_messages_before_an_answer_do_not_count() -> None:
    talk = Conversation()
    talk.write()
    for _ in range(10 * MAX_TURNS):
        assert talk.guard.refusal(CHAT, ADA) is None


def test_guard_counts_each_member_of_a_group_alone() -> None:
    talk = Conversation()
    for number in range(5 * MAX_TURNS):
        assert talk.write(author=f"person-{number % 10}", chat=GROUP) is None


def test_silence_holds_for_one_person_in_one_chat() -> None:
    talk = Conversation()
    talk.until_silence()
    assert talk.write() == ""
    assert talk.write(author="ben") is None
    assert talk.write(chat=GROUP) is None


def test_guard_forgets_the_longest_silent_person_when_full() -> None:
    talk = Conversation()
    talk.until_silence()
    for number in range(MAX_PARTNERS - 1):
        talk.write(after=0.0, author=str(number))
    assert talk.write() == ""
    for number in range(MAX_PARTNERS):
        talk.write(after=0.0, author=f"another {number}")
    assert talk.write() is None
