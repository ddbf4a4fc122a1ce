"""The parts of the bot that commands may use."""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Final

from bot.language.languages import Languages
from bot.llm.models import Models
from bot.signal.events import Person
from bot.signal.messenger import Messenger
from conversation_store.models import PairedPerson
from conversation_store.store import ConversationStore
from tools.registry import Registry
from tools.sandbox.policy import SandboxPolicy
from tools.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    # Loading the verification takes long, and most bots have nothing to prove.
    from bot.attestation.proof import Proof

PROOFS_PER_MINUTE: Final = 5
MINUTE_SECONDS: Final = 60.0
TOO_MANY: Final = "I make up to {number} proofs a minute for you. Ask again in {seconds} s."


@dataclass(frozen=True, slots=True)
class People:
    """Facts and decisions about people.

    Attributes:
        is_admin: whether a person administers the bot.
        tokens_per_day: the limit of a person; 0: unlimited.
        until_next_day: the time until the next day, as `5 h 20 min`.
        let_in: lets the owner of a pairing code talk to the bot, or returns None for an unknown
            code; None if codes do not count.
        trust: trusts the key of a code or safety number, and returns its owner, or None if no such
            key waits; raises SignalError.
    """

    is_admin: Callable[[Person], bool]
    tokens_per_day: Callable[[Person], int]
    until_next_day: Callable[[], str]
    let_in: Callable[[str], Awaitable[PairedPerson | None]] | None
    trust: Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class ChatTurns:
    """The turns of a command's chat.

    Attributes:
        running: the number of turns in progress in all chats.
        stop: stops the chat's messages before an inbox id, and returns their number.
        clear: forgets the chat's conversation, and returns the number of its turns.
    """

    running: int
    stop: Callable[[int], Awaitable[int]]
    clear: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools, their sandboxes and the files of chats, if chats have any."""

    registry: Registry
    sandboxes: SandboxPolicy
    workspaces: Workspaces | None


@dataclass(slots=True)
class Prover:
    """Makes proofs of the bot, at most `PROOFS_PER_MINUTE` for each person.

    Attributes:
        make: returns a proof for a challenge; raises AttestationError or SignalError.
        clock: monotonic seconds.
    """

    make: Callable[[str], Awaitable["Proof"]]
    clock: Callable[[], float] = time.monotonic
    _made: dict[str, list[float]] = field(default_factory=dict, init=False)

    def refusal(self, person: Person) -> str:
        """Count a proof and return "", or return the refusal for a person with too many."""
        now = self.clock()
        recent = {
            aci: [at for at in times if now - at < MINUTE_SECONDS]
            for aci, times in self._made.items()
        }
        self._made = {aci: times for aci, times in recent.items() if times}
        times = self._made.setdefault(person.aci, [])
        if len(times) < PROOFS_PER_MINUTE:
            times.append(now)
            return ""
        seconds = math.ceil(times[0] + MINUTE_SECONDS - now)
        return TOO_MANY.format(number=PROOFS_PER_MINUTE, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts that commands may use.

    Attributes:
        prover: None outside a trusted execution environment.
        uses_memory: whether the operator wants facts to be remembered.
        move_reminders: stores a person's time zone by the name of a place, moves the reminders
            along and returns the zone; raises InvalidArguments for an unknown place.
        clock: seconds since 1970.
        started_at: monotonic seconds.
    """

    store: ConversationStore
    messenger: Messenger
    models: Models
    languages: Languages
    people: People
    tools: Tools
    prover: Prover | None
    uses_memory: bool
    move_reminders: Callable[[str, str, datetime], Awaitable[str]]
    clock: Callable[[], float]
    started_at: float = field(default_factory=time.monotonic)
