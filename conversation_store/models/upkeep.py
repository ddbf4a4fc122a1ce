"""Who was let in, and how the store itself is."""

from dataclasses import dataclass, field
from pathlib import Path

from conversation_store.models.outgoing import OutgoingMessage
from conversation_store.models.received import AcceptedMessage


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stranger who may be let in by a code.

    Attributes:
        person: ACI.
        code: upper case letters and digits.
        number: where it is known.
        name: where it is known.
        expires_at: until when the code counts.
    """

    person: str
    code: str = field(repr=False)
    expires_at: int
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PairedPerson:
    """Somebody who was let in by a code.

    Attributes:
        person: ACI.
        since: when.
        greeted: was told so.
        number: where it was known.
        name: where it was known.
        admin: administers the bot.
    """

    person: str
    since: int
    greeted: bool
    number: str | None = None
    name: str | None = None
    admin: bool = False


@dataclass(frozen=True, slots=True)
class StoreSizes:
    """How large a store is, and how much waits in it.

    Attributes:
        file_bytes: of the database file.
        log_bytes: of the write-ahead log beside it.
        free_bytes: of the file, what holds nothing and will be used again.
        disk_free_bytes: what is left on its disk.
        waiting_messages: owe an answer, and wait for no person's.
        waiting_sends: messages of the bot that are not sent yet.
        waiting_signatures: of answers, that are not checked yet.
        oldest_waiting_at: when the oldest of the messages came; None where none waits.
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
    """What came of going back to a copy.

    Attributes:
        messages: waited for an answer when the copy was made; they wait no more.
        sends: messages of the bot that were on their way then; they are not sent.
        aside: where the store before is now; None where there was none.
    """

    messages: int
    sends: int
    aside: Path | None


@dataclass(frozen=True, slots=True)
class UnfinishedWork:
    """What a start finds: answers to send and messages to answer, both in their order."""

    outgoing: tuple[OutgoingMessage, ...]
    accepted: tuple[AcceptedMessage, ...]
