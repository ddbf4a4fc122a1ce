"""The keys of people that wait for an admin's word; kept over a restart.

They are few and change seldom, so they are one fact of the store.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Self

from pydantic import TypeAdapter

from bot.messaging.account import PeerIdentity
from bot.messaging.events import Person
from conversation_store.store import ConversationStore

WAITING_SECONDS: Final = 7 * 86_400.0
"""After a week without a word the next sign of the person makes a new note, with a new code."""

MAX_WAITING_KEYS: Final = 100
"""Above it the oldest one is forgotten."""

CODE_CHARACTERS: Final = 6
CODE_ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""No letter that looks like a digit."""

METADATA_NAME: Final = "waiting keys"


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A person's key that waits for somebody's word.

    Attributes:
        person: whose.
        safety_number: 60 digits, which stand for this very key.
        code: a short name for this person with this key.
        since: seconds since 1970.
        told_at: when the person was last told that the bot does not listen, seconds since 1970.
    """

    person: Person
    safety_number: str = field(repr=False)
    code: str = field(repr=False)
    since: float
    told_at: float | None = None

    @classmethod
    def new(cls, person: Person, safety_number: str, now: float) -> Self:
        """Return the key with a code of its own."""
        code = "".join(secrets.choice(CODE_ALPHABET) for _ in range(CODE_CHARACTERS))
        return cls(person, safety_number, code, now)

    def is_key_of(self, identity: PeerIdentity) -> bool:
        """Whether an identity has this very key."""
        return self.safety_number == identity.safety_number


_KEYS: Final = TypeAdapter(tuple[WaitingKey, ...])


class WaitingKeys:
    """At most one key for each person.

    Args:
        store: keeps them.
        clock: seconds since 1970.
    """

    def __init__(self, store: ConversationStore, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._keys: dict[str, WaitingKey] = {}

    async def resume(self) -> None:
        """Know the keys that waited before a restart."""
        stored = await self._store.get_metadata(METADATA_NAME)
        if stored is not None:
            self._keys = {key.person.aci: key for key in _KEYS.validate_json(stored)}

    def of(self, person: str) -> WaitingKey | None:
        """Return the key of a person, by ACI, that waits."""
        key = self._keys.get(person)
        if key is None or self._clock() - key.since >= WAITING_SECONDS:
            return None
        return key

    def with_safety_number(self, digits: str) -> WaitingKey | None:
        """Return the key that 60 digits stand for."""
        return next((key for key in self._current() if key.safety_number == digits), None)

    def with_code(self, code: str) -> WaitingKey | None:
        """Return the key that a code stands for, however it is written."""
        code = code.replace("-", "").strip().upper()
        return next((key for key in self._current() if key.code == code), None)

    async def put(self, key: WaitingKey) -> None:
        """Let a key wait, in the place of the same person's other one."""
        current = {one.person.aci: one for one in self._current()}
        if key.person.aci not in current and len(current) >= MAX_WAITING_KEYS:
            del current[next(iter(current))]
        self._keys = current | {key.person.aci: key}
        await self._save()

    async def remove(self, person: str) -> None:
        """Let the key of a person, by ACI, wait no more."""
        if self._keys.pop(person, None) is not None:
            await self._save()

    def _current(self) -> tuple[WaitingKey, ...]:
        return tuple(key for person in self._keys if (key := self.of(person)) is not None)

    async def _save(self) -> None:
        await self._store.set_metadata(
            METADATA_NAME, _KEYS.dump_json(tuple(self._keys.values())).decode()
        )
