"""People's phones: what each shows, confirms and answers."""

from dataclasses import dataclass, field
from enum import StrEnum
from random import Random
from typing import Final

from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.simulation.signal_network import Delivery

PROGRESS: Final = "🔧"
QUESTION: Final = "❓"
REMINDER: Final = "⏰"
PLAN: Final = "1. Do mk"


class Receipts(StrEnum):
    """How a phone confirms deliveries."""

    PROMPT = "within a second"
    LATE = "after half a minute"
    TWICE = "twice"
    NEVER = "never"


@dataclass(eq=False)
class Bubble:
    """A message of the bot on a phone.

    Attributes:
        root: its first timestamp; edits name the last one, `last`.
        texts: its versions with the times of their arrival.
        deleted_at: when it was deleted for everyone.
        confirmed: the phone has sent a receipt of it.
    """

    root: int
    last: int
    texts: list[tuple[float, str]]
    options: tuple[str, ...] = ()
    files: int = 0
    deleted_at: float | None = None
    confirmed: bool = False

    @property
    def text(self) -> str:
        return self.texts[-1][1]

    @property
    def is_shown(self) -> bool:
        return self.deleted_at is None


@dataclass(eq=False)
class Phone:
    """The phone of a person.

    Attributes:
        bubbles: messages of the bot by chat, in the order of their arrival.
        reactions: the bot's emoji by chat and by the timestamp of the person's message.
        receipts: how it confirms from now on.
    """

    person: Person
    rng: Random
    bubbles: dict[ChatId, list[Bubble]] = field(default_factory=dict)
    reactions: dict[tuple[ChatId, int], str] = field(default_factory=dict)
    receipts: Receipts = Receipts.PROMPT
    offset: float = 0.0
    free_at: float = 0.0

    def take(self, delivery: Delivery, now: float) -> Bubble | None:
        """Show a delivery; return the new message, if it is one."""
        bubbles = self.bubbles.setdefault(delivery.chat, [])
        if delivery.kind == "reaction":
            self.reactions[delivery.chat, delivery.target] = delivery.text
        elif delivery.kind == "deletion":
            for bubble in bubbles:
                if delivery.target in (bubble.root, bubble.last):
                    bubble.deleted_at = now
        elif delivery.kind == "message" and delivery.target:
            for bubble in bubbles:
                # Phones ignore edits of a version that was replaced.
                if bubble.last == delivery.target and bubble.is_shown:
                    bubble.texts.append((now, delivery.text))
                    bubble.last = delivery.timestamp
        elif delivery.kind == "message":
            new = Bubble(
                delivery.timestamp, delivery.timestamp, [(now, delivery.text)],
                delivery.options, delivery.files,
            )  # fmt: skip
            bubbles.append(new)
            return new
        return None

    def shown(self, chat: ChatId) -> list[Bubble]:
        """Return the messages of a chat that are still there."""
        return [bubble for bubble in self.bubbles.get(chat, ()) if bubble.is_shown]

    def delay(self) -> float:
        """Return the seconds until the phone has a delivery."""
        return self.rng.uniform(0.05, 0.4)
