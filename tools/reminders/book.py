"""Where reminders are kept, as the tools see it."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol


class Entry(Protocol):
    """A reminder or a scheduled question that is kept."""

    @property
    def id(self) -> int:
        """Its row."""
        ...

    @property
    def number(self) -> int:
        """What its person calls it; no other one of that person ever has it."""
        ...

    @property
    def is_question(self) -> bool:
        """Whether the bot asks itself its text."""
        ...

    @property
    def text(self) -> str:
        """What is said or asked."""
        ...

    @property
    def local_at(self) -> str | None:
        """The local time of its next date; None where it is a moment, wherever the person is."""
        ...

    @property
    def repeat(self) -> str | None:
        """The rule that its further dates follow."""
        ...

    @property
    def due_at(self) -> int:
        """When it comes next, or came, in ms since 1970."""
        ...

    @property
    def is_delivered(self) -> bool:
        """Whether it has come, and is neither done nor repeated."""
        ...


class Change(NamedTuple):
    """When an entry comes by another time zone.

    Attributes:
        id: its row.
        local_at: the local time that this was found for.
        due_at: when it comes, in ms since 1970.
    """

    id: int
    local_at: str
    due_at: int


class Book(Protocol):
    """The reminders of everybody. Implemented by `conversation_store.sections.reminders`."""

    async def zone_of(self, person: str) -> str | None:
        """Return a person's time zone; None as long as nobody has told it."""
        ...

    async def local_ones(self, person: str) -> Sequence[Entry]:
        """Return what a person has that comes at a local time, wherever it belongs."""
        ...

    async def set_zone(self, person: str, zone: str, changes: Sequence[Change]) -> None:
        """Remember a person's time zone, and when entries come by it."""
        ...

    async def add(
        self,
        *,
        person: str,
        chat: str,
        turn: int | None,
        call: str,
        is_question: bool,
        text: str,
        local_at: str | None,
        repeat: str | None,
        due_at: int,
        at_most: int,
    ) -> Entry | None:
        """Add an entry; a call that has added one gets that one again.

        Returns:
            the entry; None where the person has `at_most` already.
        """
        ...

    async def tell(self, person: str, chat: str, *, turn: int | None) -> Sequence[Entry]:
        """Return to a turn what a person has that may be told in a chat, by when it comes.

        In a group only what belongs there; in private everything. The turn goes with it.
        """
        ...

    async def cancel(
        self, person: str, chat: str, number: int, *, turn: int | None, call: str
    ) -> Entry | None:
        """Forget one of them, and return it; None where there is none that may be told there.

        A call that has cancelled one gets that one again.
        """
        ...
