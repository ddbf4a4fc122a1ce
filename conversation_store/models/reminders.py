"""What people are to be told, or asked again, at a time."""

from dataclasses import dataclass, field

from conversation_store.models.chats import ChatId


@dataclass(frozen=True, slots=True)
class StoredReminder:
    """A reminder, or a question that the bot asks itself.

    Attributes:
        id: its row.
        number: what its person calls it.
        person: ACI.
        account: number of the account that it was asked of.
        chat: where it is said.
        is_question: the bot asks itself its text, and says the answer.
        text: what is said or asked.
        local_at: ISO 8601 without an offset, the local time of its next date; None: it comes at a
            moment, wherever the person is then.
        repeat: the RRULE that its further dates follow, the next one included; None: it comes once.
        due_at: when it comes, or came.
        zone: the person's time zone; None as long as nobody has told it.
        is_delivered: it has come, and comes no more.
        person_name: in a group, where it is known.
        person_number: where it is known.
        timer_ms: how long messages of its chat stayed when it was made; None: they did not vanish.
        failures: how often in a row nothing came of the question.
    """

    id: int
    number: int
    person: str
    account: str
    chat: ChatId
    is_question: bool
    text: str = field(repr=False)
    local_at: str | None
    repeat: str | None
    due_at: int
    zone: str | None
    is_delivered: bool = False
    person_name: str | None = None
    person_number: str | None = None
    timer_ms: int | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class FurtherDate:
    """When a series goes on: the local time of its next date, its rule, and the moment."""

    local_at: str
    repeat: str
    due_at: int


@dataclass(frozen=True, slots=True)
class DueReminder:
    """Which reminder is due since when, and where."""

    id: int
    chat: ChatId
    due_at: int
