"""Safety numbers: what happens when a person's key is new, by the operator's policy.

Signal changes a person's key when Signal is installed anew, and whoever sits between two people
can only do so with another key. `always` trusts every new key at once; `tofu` trusts the first
and lets an admin decide about each later one; `verified` lets only those talk whose safety number
an admin has compared. Meanwhile nothing is lost: what the person wrote waits on the Signal side,
what the bot has to say waits in the outbox.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Final, Literal

import structlog

from bot.dispatch.background.retry_until import RetryUntil
from bot.dispatch.incoming.waiting_keys import WaitingKey, WaitingKeys
from bot.dispatch.outgoing.notices import Notices
from bot.errors import SignalError, SignalRejected
from bot.messaging.account import PeerIdentity, TrustLevel
from bot.messaging.events import IdentityChanged, Person
from bot.messaging.messenger import Messenger
from bot.messaging.safety_number import spaced
from conversation_store.models import ChatId
from conversation_store.store import ConversationStore

log = structlog.get_logger()

VERIFIED_SECONDS: Final = 3_600.0
"""How long a key counts as verified before the Signal side is asked again."""

MAX_VERIFIED: Final = 10_000
"""People known to be verified at once; above it the oldest knowledge goes."""

MAX_HELD_BACK: Final = 10_000
"""People whose messages wait on the Signal side, known at once; of more nothing is remembered."""

MAX_SENT_ANYWAY: Final = 3
"""How often things are sent to a person whose key counts as trusted, and to whom sends fail for
their key nevertheless, before the person writes."""

TOLD_AGAIN_SECONDS: Final = 86_400.0

NAME_CHARACTERS: Final = 60
"""Of a name that somebody chose, in a note."""

HINT: Final = "an admin's !trust, or signal-cli trust, lets the person in"

RETRY_UNTIL: Final = RetryUntil(seconds=300.0)

NEW_KEY: Final = (
    "{who} has a new safety number. Most often that means that Signal was installed anew; it can"
    " mean that somebody sits between us. So I neither read nor send anything there until you say"
    " so: what was written waits.\n\nThe new safety number:\n{number}\n\n"
)
NOT_VERIFIED: Final = (
    "{who} writes to me, and nobody has compared the safety number yet. I listen only to people"
    " whose number is verified.\n\nThe safety number:\n{number}\n\n"
)
ASK_FOR_CODE: Final = (
    "If you know by another way that it was {who}, send me\n!trust {code}\nor, when you have"
    " compared the number, !trust and its 60 digits."
)
ASK_FOR_DIGITS: Final = (
    "Compare it with what the phone of {who} shows for this chat, then send me !trust and the 60"
    " digits. I take that only from admins whose own number is verified; where signal-cli runs,"
    " `signal-cli trust -v` does the same."
)
TRUSTED_AT_ONCE: Final = (
    "{who} has a new safety number. I trust it, as SIGNAL__TRUST=always says:\n{number}"
)
ONLY_VERIFIED: Final = (
    "I talk only to people whose safety number my operator has verified, and yours is not yet."
)
OPERATOR_KNOWS: Final = " I have let my operator know."
CANNOT_TELL: Final = (
    "I cannot find out right now whether your safety number is verified, so I did not take your"
    " message. Please send it again later."
)
VERIFIED_NOW: Final = (
    "Your safety number is verified: you can talk to me now. Please send again what you wrote."
)


class Identities:
    """Decides what becomes of new keys.

    What asks the Signal side is a job of a mailbox, never part of a delivery.

    Args:
        side: the Signal side.
        store: keeps who waits.
        notices: tells admins and people.
        policy: `tofu`, `always` or `verified`.
        on_trusted: told about a person, by ACI, to whom things can be sent again. It must not
            wait for the sending.
        retry: how long the Signal side is asked.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        side: Messenger,
        store: ConversationStore,
        notices: Notices,
        *,
        policy: Literal["tofu", "always", "verified"],
        on_trusted: Callable[[str], Awaitable[None]],
        retry: RetryUntil = RETRY_UNTIL,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._side = side
        self._notices = notices
        self._policy = policy
        self._on_trusted = on_trusted
        self._retry = retry
        self._clock = clock
        self._waiting = WaitingKeys(store, clock=clock)
        self._noting = asyncio.Lock()
        self._held_back: dict[str, int] = {}
        self._verified: dict[str, float] = {}
        self._changes = 0

    async def resume(self) -> None:
        """Know whose key waited before a restart; before anything comes in."""
        await self._waiting.resume()

    async def changed(self, event: IdentityChanged) -> None:
        """Act on a person's new key: trust it, or tell the admins, once for each key.

        Also for a person to whom something could not be sent because of it.

        Raises:
            StoreError: the process cannot go on.
        """
        self._changes += 1
        self._verified.pop(event.person.aci, None)
        if len(self._held_back) < MAX_HELD_BACK:
            self._held_back.setdefault(event.person.aci, 0)
        await self._look_at(event.person)

    async def seen(self, person: str) -> None:
        """A message came from a person, by ACI, so the key is trusted, whoever said so."""
        if person in self._held_back:
            await self._release(person)

    def is_verified(self, person: str) -> bool:
        """Whether a person, by ACI, may talk, as far as is known without asking."""
        return self._policy != "verified" or self._verified.get(person, 0.0) > self._clock()

    async def may_talk(self, person: Person) -> bool:
        """Whether what a person wrote is answered; if not, the person is told at most once a day.

        Where the Signal side does not tell within a bound, the answer is no, in words.
        """
        if self.is_verified(person.aci):
            return True
        changes = self._changes
        identity = await self._identity(person.aci)
        if identity is None:
            await self._notices.send(_private(person), CANNOT_TELL)
            return False
        if identity.trust is not TrustLevel.VERIFIED:
            await self._refuse(person, identity)
            return False
        if changes == self._changes:
            self._remember_verified(person.aci)
        return True

    async def trust(self, word: str) -> str | None:
        """Trust the key that a code, or 60 digits that somebody has compared, stand for.

        Returns:
            What the person is called; None where no key waits under that word.

        Raises:
            SignalRejected: the person has another key by now, about which the admins are told.
            SignalError: the Signal side does not do it.
        """
        digits = "".join(word.split())
        compared = self._waiting.with_safety_number(digits)
        key = compared or (None if self._policy == "verified" else self._waiting.with_code(word))
        if key is None:
            return None
        identity = await self._side.peer_identity(key.person.aci)
        if identity is None or not key.is_key_of(identity):
            await self._look_at(key.person)
            raise SignalRejected("The person has another key by now.")
        await self._side.trust(key.person.aci, safety_number=digits if compared else None)
        log.info("identity.trusted", kind="compared" if compared else "unseen")
        await self._waiting.remove(key.person.aci)
        await self._release(key.person.aci)
        if key.told_at is not None:
            await self._notices.send(_private(key.person), VERIFIED_NOW)
        return _called(key.person)

    async def _look_at(self, person: Person) -> None:
        identity = await self._identity(person.aci)
        if identity is None:
            return
        if identity.trust is not TrustLevel.UNTRUSTED:
            await self._send_anyway(person.aci)
        elif self._policy == "always":
            await self._trust_at_once(person, identity)
        else:
            async with self._noting:
                await self._waiting.put(await self._noted(person, identity))

    async def _trust_at_once(self, person: Person, identity: PeerIdentity) -> None:
        try:
            await self._retry.call(partial(self._side.trust, person.aci, safety_number=None))
        except SignalError as error:
            log.warning("identity.trust_failed", reason=type(error).__name__)
            return
        log.info("identity.trusted", kind="always")
        number = spaced(identity.safety_number)
        await self._notices.to_admins(TRUSTED_AT_ONCE.format(who=_called(person), number=number))
        await self._release(person.aci)

    async def _release(self, person: str) -> None:
        self._held_back.pop(person, None)
        await self._on_trusted(person)

    async def _send_anyway(self, person: str) -> None:
        """Send what waits for a person whose key was trusted meanwhile; a bounded number of times.

        That the next send does not fail for the same reason is the Signal side's word alone.
        """
        times = self._held_back.get(person, 0)
        if times < MAX_SENT_ANYWAY:
            self._held_back[person] = times + 1
            await self._on_trusted(person)

    async def _refuse(self, person: Person, identity: PeerIdentity) -> None:
        async with self._noting:
            key = await self._noted(person, identity)
            now = self._clock()
            if key.told_at is None or now - key.told_at >= TOLD_AGAIN_SECONDS:
                told = OPERATOR_KNOWS if self._notices.has_admins else ""
                await self._notices.send(_private(person), ONLY_VERIFIED + told)
                key = replace(key, told_at=now)
            await self._waiting.put(key)

    async def _noted(self, person: Person, identity: PeerIdentity) -> WaitingKey:
        """Return the waiting key of a person, about which the admins are told if it is new.

        The note comes before the key is kept: a crash between them makes a second note.
        """
        key = self._waiting.of(person.aci)
        if key is not None and key.is_key_of(identity):
            return key
        key = WaitingKey.new(person, identity.safety_number, self._clock())
        untrusted = identity.trust is TrustLevel.UNTRUSTED
        log.warning("identity.untrusted" if untrusted else "identity.unverified", reason=HINT)
        news = NEW_KEY if untrusted else NOT_VERIFIED
        how = ASK_FOR_DIGITS if self._policy == "verified" else ASK_FOR_CODE
        number = spaced(key.safety_number)
        note = (news + how).format(who=_called(person), number=number, code=key.code)
        await self._notices.to_admins(note)
        return key

    async def _identity(self, person: str) -> PeerIdentity | None:
        """Return a person's key; None where the Signal side does not tell it."""
        try:
            identity = await self._retry.call(partial(self._side.peer_identity, person))
        except SignalError as error:
            log.warning("identity.unknown", reason=type(error).__name__)
            return None
        if identity is None:
            log.warning("identity.unknown", reason="no_key")
        return identity

    def _remember_verified(self, person: str) -> None:
        self._verified.pop(person, None)
        if len(self._verified) >= MAX_VERIFIED:
            del self._verified[next(iter(self._verified))]
        self._verified[person] = self._clock() + VERIFIED_SECONDS


def _private(person: Person) -> ChatId:
    return ChatId.direct(person.aci)


def _called(person: Person) -> str:
    """Name somebody for an admin; names are chosen freely, so they do not stand alone."""
    known_by = person.number or person.aci[:8]
    return f"{person.name[:NAME_CHARACTERS]} ({known_by})" if person.name else known_by
