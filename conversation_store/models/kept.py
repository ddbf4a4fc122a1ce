"""Facts, instructions, reminders, people who were let in, and sizes of the store."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from conversation_store.models.outgoing import OutgoingMessage
from conversation_store.models.received import AcceptedMessage, ChatId


@dataclass(frozen=True, slots=True)
class Fact:
    """Something that the bot was asked to remember in a chat.

    Attributes:
        number: its name in the chat; never reused there.
        said_at: when the first message came that it is from.
        expires_at: when it disappears; None for never.
    """

    number: int
    text: str
    said_at: int
    expires_at: int | None = None


NotRemembered = Literal["off", "full", "kept_nowhere"]
"""Reason why a fact is not stored.

- off: the chat's memory is off.
- full: the chat has the maximum number of facts.
- kept_nowhere: nothing is kept after a turn, or the turn is gone.
"""


@dataclass(frozen=True, slots=True)
class Instructions:
    """How the bot is to be in a chat; `expires_at`: when the message with them disappears."""

    text: str
    expires_at: int | None = None


@dataclass(frozen=True, slots=True)
class NewReminder:
    """A reminder or a scheduled question to be stored.

    Attributes:
        text: said to the person, or asked by the bot itself (`is_question`).
        local_at: ISO 8601 without an offset; None: it comes at a moment.
        repeat: an RRULE; None: it comes once.
        due_at: when it comes first.
    """

    is_question: bool
    text: str = field(repr=False)
    local_at: str | None
    repeat: str | None
    due_at: int


@dataclass(frozen=True, slots=True)
class StoredReminder:
    """A reminder, or a question that the bot asks itself; see `NewReminder`.

    Attributes:
        number: the person's name for it.
        person: ACI.
        account: number of the account that was asked.
        repeat: the rule of its further dates, including the next one.
        due_at: when it comes, or came.
        is_delivered: it came for the last time.
        person_name: in a group, if it is known.
        timer_ms: the chat's timer for messages when the reminder was set.
        failures: how often in a row the question had no answer.
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
    """The next date of a series: local time, rule and moment."""

    local_at: str
    repeat: str
    due_at: int


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stranger who may be let in by a code until a time."""

    person: str
    code: str = field(repr=False)
    expires_at: int
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PairedPerson:
    """A person who was let in by a code; `greeted` once the bot has told them."""

    person: str
    since: int
    greeted: bool
    number: str | None = None
    name: str | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """Sizes of a store.

    Attributes:
        log_bytes: of the write-ahead log.
        free_bytes: empty pages of the file, which will be used again.
        waiting_messages: owe an answer, and do not wait for a person.
    """

    file_bytes: int
    log_bytes: int
    free_bytes: int
    disk_free_bytes: int
    waiting_messages: int
    waiting_sends: int
    waiting_signatures: int
    oldest_waiting_at: int | None


@dataclass(frozen=True, slots=True)
class Restored:
    """Effects of going back to a copy.

    Attributes:
        messages: messages of the copy that owed an answer; they are closed.
        sends: messages of the bot in the copy that are not sent any more.
        aside: the replaced store, if there was one.
    """

    messages: int
    sends: int
    aside: Path | None


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """Messages to send and messages to answer after a start, each in order."""

    outgoing: tuple[OutgoingMessage, ...]
    accepted: tuple[AcceptedMessage, ...]
