"""The door decides about people and chats: codes for strangers, keys, groups, limits and loops.

A stranger's message is not kept, not logged and not shown to the model. While the code is valid,
the store keeps the stranger's ACI, and number and name if Signal tells them. The operator lets
people in by `signal-tee-bot pair approve` while the bot runs, or by `!pair` in the chat.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from typing import Final, Literal, NamedTuple

import structlog
from cachetools import LRUCache, TTLCache
from pydantic import TypeAdapter

from bot.chat.access import Access, LoopGuard
from bot.chat.groups import GroupPermissions, RetryUntil
from bot.chat.outbox import Notices
from bot.observability import logs
from bot.observability.logs import LogId
from bot.signal.account import PeerIdentity, TrustLevel, spaced
from bot.signal.errors import SignalError, SignalRejected, SignalUnavailable
from bot.signal.events import IncomingMessage, Person
from bot.signal.messenger import Messenger
from conversation_store.models import ChatId, ReceivedMessage, StoredReminder
from conversation_store.pairings import PairedPerson, PairingRequest, Pairings
from conversation_store.store import ConversationStore

log = structlog.get_logger()

ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without I, L, O, 0 and 1, which people confuse."""

CODE_CHARACTERS: Final = 6
CODE_MS: Final = 3_600_000
"""How long a code is valid, and how long its owner gets no further answer."""

MAX_CODES: Final = 100
"""Valid codes at once; further strangers get no answer."""

MAX_NAME: Final = 100
"""Characters of a name that are kept with a code."""

POLL_SECONDS: Final = 0.5

ASK: Final = (
    "Hello! I am a bot, and I do not know you yet. Please give this code to the operator of this"
    " bot:"
    "\n\n{code}\n\n"
    "It is valid for one hour. I will tell you when you are let in. I keep nothing of what you"
    " write until then."
)
WELCOME_ADMIN: Final = (
    "You can talk to me now, and you are an admin: I tell you when a safety number changes, and you"
    " can let others in. Send !help to see how."
)
WELCOME: Final = (
    "You can talk to me now. Write to me as you would to a person, or send !help to see what I can"
    " do."
)


def new_code() -> str:
    """Return a random code for a person to pass on."""
    return "".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS))


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Pairing:
    """Gives codes to strangers, and lets people in.

    Call `refresh` before the first message comes in, and after the start has queued what was left
    to send: it queues greetings itself.
    """

    pairings: Pairings
    access: Access
    notices: Notices
    now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
    _seen_version: int | None = field(default=None, init=False)
    _expiries: dict[str, int] = field(default_factory=dict, init=False)
    _full: bool = field(default=False, init=False)

    async def run(self) -> None:
        """Notice within `POLL_SECONDS` people let in by another process, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Load changes of other processes, and delete expired codes."""
        if await self.pairings.version() != self._seen_version:
            await self.refresh()
        now = self.now_ms()
        if any(expires_at <= now for expires_at in self._expiries.values()):
            await self.pairings.forget_expired(now)
            await self.refresh()

    async def refresh(self) -> None:
        """Load the people who were let in, and greet new ones."""
        # Read the version first, so that later changes are found the next time.
        self._seen_version = await self.pairings.version()
        people = await self.pairings.people()
        waiting = await self.pairings.waiting()
        self.access.paired = frozenset(person.person for person in people)
        self.access.paired_admins = frozenset(one.person for one in people if one.admin)
        self._expiries = {request.person: request.expires_at for request in waiting}
        for person in people:
            # Under another policy than `pairing`, the greeting would be wrong.
            if person.greeted or not self.access.pairing:
                continue
            chat = ChatId.direct(person.person)
            greeting = WELCOME_ADMIN if person.admin else WELCOME
            text = self.notices.languages.say(chat, greeting)
            note = await self.pairings.greet(
                person.person, chat=chat, text=text, now_ms=self.now_ms()
            )
            if note is not None:
                log.info("pairing.let_in")
                self.notices.queue(note)

    async def stranger(self, message: IncomingMessage) -> None:
        """Give a stranger a code in private, at most once an hour; otherwise stay silent.

        Returns when the answer is stored.
        """
        if not self.access.pairing or message.chat.is_group:
            return
        author, now = message.author, self.now_ms()
        if self._expiries.get(author.aci, 0) > now or not self._has_room():
            return
        self.notices.languages.notice(message.chat, message.text)
        request = PairingRequest(
            person=author.aci,
            code=new_code(),
            expires_at=now + CODE_MS,
            number=author.number,
            name=author.name and author.name[:MAX_NAME],
        )
        note = await self.pairings.ask(
            request,
            chat=message.chat,
            text=self.notices.languages.say(message.chat, ASK.format(code=request.code)),
            at_most=MAX_CODES,
            now_ms=now,
        )
        if note is not None:
            self._expiries[request.person] = request.expires_at
            log.info("pairing.code_given", waiting=len(self._expiries))
            self.notices.queue(note)

    async def approve(self, code: str) -> PairedPerson | None:
        """Admit and greet the owner of a code; return None if the code is not valid."""
        person = await self.pairings.approve(code, self.now_ms())
        if person is not None:
            await self.refresh()
        return person

    def _has_room(self) -> bool:
        full = len(self._expiries) >= MAX_CODES
        if full and not self._full:
            log.warning("pairing.too_many_strangers", limit=MAX_CODES)
        self._full = full
        return not full


WAITING_SECONDS: Final = 7 * 86_400.0
"""After a week without an answer, the person's next message causes a new note with a new code."""

MAX_WAITING_KEYS: Final = 100
"""When full, the oldest is removed."""

METADATA_NAME: Final = "waiting keys"

VERIFIED_SECONDS: Final = 3_600.0
"""How long a key counts as verified before the Signal side is asked again."""

MAX_PEOPLE: Final = 10_000
"""People whose keys, waiting messages or accepted requests are in memory."""

MAX_SENT_ANYWAY: Final = 3
"""Attempts to send to a person whose key is trusted but still refused, until the person writes."""

TOLD_AGAIN_SECONDS: Final = 86_400.0

NAME_CHARACTERS: Final = 60
"""Length of a person's self-chosen name in a note."""

HINT: Final = "an admin's !trust, or signal-cli trust, lets the person in"

RETRY_UNTIL: Final = RetryUntil(seconds=300.0)

NEW_KEY: Final = (
    "{who} has a new safety number. Usually the person has reinstalled Signal, but an attacker may"
    " also be intercepting the chat. I neither read nor send messages there until you trust the"
    " number; the messages wait.\n\nThe new safety number:\n{number}\n\n"
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
OPERATOR_KNOWS: Final = "\nI have let my operator know."
CANNOT_TELL: Final = (
    "I cannot find out right now whether your safety number is verified, so I did not take your"
    " message. Please send it again later."
)
VERIFIED_NOW: Final = (
    "Your safety number is verified: you can talk to me now. Please send again what you wrote."
)


@dataclass(frozen=True, slots=True)
class WaitingKey:
    """A person's key that waits for an admin; times are seconds since 1970.

    Attributes:
        safety_number: 60 digits, which stand for this very key.
        code: a short name for this person with this key.
        told_at: when the person was last told that the bot does not listen.
    """

    person: Person
    safety_number: str = field(repr=False)
    code: str = field(repr=False)
    since: float
    told_at: float | None = None


_KEYS: Final = TypeAdapter(tuple[WaitingKey, ...])


@dataclass(eq=False, repr=False, slots=True)
class Identities:
    """Decides about new keys of people by the operator's policy.

    Signal changes a person's key when Signal is reinstalled. An eavesdropper between two people
    also needs another key. `always` trusts every new key at once. `tofu` trusts the first key and
    lets an admin decide about each later one. `verified` answers only people whose safety number an
    admin has compared. Nothing is lost in the meantime: the person's messages wait on the Signal
    side, and the bot's messages wait in the outbox. Waiting keys are few and change seldom, so one
    entry of the store's metadata holds all of them.

    Methods that ask the Signal side run in the urgent queue of a chat, never in a delivery.
    """

    side: Messenger
    store: ConversationStore
    notices: Notices
    _: KW_ONLY
    policy: Literal["tofu", "always", "verified"]
    retry: RetryUntil = RETRY_UNTIL
    clock: Callable[[], float] = time.time
    _noting: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)
    _waiting: dict[str, WaitingKey] = field(default_factory=dict, init=False)
    _held_back: dict[str, int] = field(default_factory=dict, init=False)
    _verified: TTLCache[str, None] = field(init=False)
    _changes: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._verified = TTLCache(MAX_PEOPLE, VERIFIED_SECONDS, timer=self.clock)

    async def resume(self) -> None:
        """Load the keys that waited before a restart; call this before messages come in."""
        stored = await self.store.get_metadata(METADATA_NAME)
        if stored is not None:
            self._waiting = {key.person.aci: key for key in _KEYS.validate_json(stored)}

    async def changed(self, person: Person) -> None:
        """Act on a person's new key: trust it, or tell the admins, once for each key.

        Also called if a send to the person failed because of the key. Raises StoreError.
        """
        self._changes += 1
        self._verified.pop(person.aci, None)
        if len(self._held_back) < MAX_PEOPLE:
            self._held_back.setdefault(person.aci, 0)
        await self._look_at(person)

    def seen(self, person: str) -> None:
        """Send waiting messages to a person (by ACI) who has written, so has a trusted key."""
        if person in self._held_back:
            self._send_again(person)

    def is_verified(self, person: str) -> bool:
        """Whether a person, by ACI, may talk, decided without asking the Signal side."""
        return self.policy != "verified" or person in self._verified

    async def may_talk(self, person: Person) -> bool:
        """Whether a person may talk; if not, the bot says so at most once a day.

        If the Signal side does not answer in time, the person may not, and is told why.
        """
        if self.is_verified(person.aci):
            return True
        changes = self._changes
        identity = await self._identity(person.aci)
        if identity is None:
            await self.notices.send(ChatId.direct(person.aci), CANNOT_TELL)
            return False
        if identity.trust is not TrustLevel.VERIFIED:
            await self._refuse(person, identity)
            return False
        if changes == self._changes:
            self._verified[person.aci] = None
        return True

    async def trust(self, word: str) -> str | None:
        """Trust a waiting key by its code or its 60 digits, and return the person's name.

        Raises:
            SignalRejected: the person has another key by now, and the admins are told.
            SignalError: the Signal side did not trust it.
        """
        digits, code = "".join(word.split()), word.replace("-", "").strip().upper()
        for key in self._current():
            compared = key.safety_number == digits
            if compared or (key.code == code and self.policy != "verified"):
                await self._trust(key, digits if compared else None)
                return _called(key.person)
        return None

    async def _trust(self, key: WaitingKey, compared_digits: str | None) -> None:
        person = key.person
        identity = await self.side.peer_identity(person.aci)
        if identity is None or identity.safety_number != key.safety_number:
            await self._look_at(person)
            raise SignalRejected("The person has another key by now.")
        await self.side.trust(person.aci, safety_number=compared_digits)
        log.info("identity.trusted", kind="compared" if compared_digits else "unseen")
        if self._waiting.pop(person.aci, None) is not None:
            await self._save()
        self._send_again(person.aci)
        if key.told_at is not None:
            await self.notices.send(ChatId.direct(person.aci), VERIFIED_NOW)

    async def _look_at(self, person: Person) -> None:
        identity = await self._identity(person.aci)
        if identity is None:
            return
        if identity.trust is not TrustLevel.UNTRUSTED:
            # Trusted in the meantime. The Signal side may be wrong about it, so attempts are few.
            times = self._held_back.get(person.aci, 0)
            if times < MAX_SENT_ANYWAY:
                self._held_back[person.aci] = times + 1
                self.notices.send_again(ChatId.direct(person.aci))
        elif self.policy == "always":
            await self._trust_at_once(person, identity)
        else:
            async with self._noting:
                await self._keep(await self._noted(person, identity))

    async def _trust_at_once(self, person: Person, identity: PeerIdentity) -> None:
        try:
            await self.retry.call(partial(self.side.trust, person.aci, safety_number=None))
        except SignalError as error:
            log.warning("identity.trust_failed", reason=type(error).__name__)
            return
        log.info("identity.trusted", kind="always")
        number = spaced(identity.safety_number)
        await self.notices.to_admins(TRUSTED_AT_ONCE.format(who=_called(person), number=number))
        self._send_again(person.aci)

    def _send_again(self, person: str) -> None:
        self._held_back.pop(person, None)
        self.notices.send_again(ChatId.direct(person))

    async def _refuse(self, person: Person, identity: PeerIdentity) -> None:
        async with self._noting:
            key = await self._noted(person, identity)
            now = self.clock()
            if key.told_at is None or now - key.told_at >= TOLD_AGAIN_SECONDS:
                told = OPERATOR_KNOWS if self.notices.access.admins else ""
                await self.notices.send(ChatId.direct(person.aci), ONLY_VERIFIED + told)
                key = replace(key, told_at=now)
            await self._keep(key)

    async def _noted(self, person: Person, identity: PeerIdentity) -> WaitingKey:
        """Return the waiting key of a person; if it is new, tell the admins first.

        The admins are told before the key is kept, so a crash in between leads to a second note.
        """
        number = identity.safety_number
        for key in self._current():
            if key.person.aci == person.aci and key.safety_number == number:
                return key
        key = WaitingKey(person, number, new_code(), self.clock())
        untrusted = identity.trust is TrustLevel.UNTRUSTED
        log.warning("identity.untrusted" if untrusted else "identity.unverified", reason=HINT)
        news = NEW_KEY if untrusted else NOT_VERIFIED
        how = ASK_FOR_DIGITS if self.policy == "verified" else ASK_FOR_CODE
        note = (news + how).format(who=_called(person), number=spaced(number), code=key.code)
        await self.notices.to_admins(note)
        return key

    async def _identity(self, person: str) -> PeerIdentity | None:
        """Return a person's key; None if the Signal side does not tell it."""
        try:
            identity = await self.retry.call(partial(self.side.peer_identity, person))
        except SignalError as error:
            log.warning("identity.unknown", reason=type(error).__name__)
            return None
        if identity is None:
            log.warning("identity.unknown", reason="no_key")
        return identity

    # Waiting keys

    def _current(self) -> list[WaitingKey]:
        """Return the keys that still wait, at most one for each person, oldest first."""
        oldest = self.clock() - WAITING_SECONDS
        return [key for key in self._waiting.values() if key.since > oldest]

    async def _keep(self, key: WaitingKey) -> None:
        """Add a waiting key; it replaces the same person's earlier key."""
        others = [one for one in self._current() if one.person.aci != key.person.aci]
        self._waiting = {one.person.aci: one for one in (*others, key)[-MAX_WAITING_KEYS:]}
        await self._save()

    async def _save(self) -> None:
        keys = _KEYS.dump_json(tuple(self._waiting.values())).decode()
        await self.store.set_metadata(METADATA_NAME, keys)


def _called(person: Person) -> str:
    """Return a person's name for an admin, with the number, because names can be faked."""
    known_by = person.number or person.aci[:8]
    return f"{person.name[:NAME_CHARACTERS]} ({known_by})" if person.name else known_by


ACCEPT_SECONDS: Final = 10.0

MAX_IN_FLIGHT: Final = 4
"""Requests that are being accepted at once; more wait for their person's next message."""

TOO_FAST: Final = "You are writing faster than I can answer. Please wait a minute."


class Refusal(NamedTuple):
    """Reason to refuse a message, and the text for the person, if any."""

    outcome: str
    text: str | None = None


@dataclass(eq=False, repr=False, slots=True)
class MessageRequests:
    """Accepts each person's request once, in the background; a failure harms nothing."""

    messenger: Messenger
    tasks: asyncio.TaskGroup
    _known: LRUCache[str, None] = field(default_factory=lambda: LRUCache(MAX_PEOPLE), init=False)
    _in_flight: int = field(default=0, init=False)

    def accept(self, person: str) -> None:
        """Accept the request of a person, by ACI, if there may be one."""
        if person not in self._known and self._in_flight < MAX_IN_FLIGHT:
            self._known[person] = None
            self._in_flight += 1
            self.tasks.create_task(self._accept(person))

    async def _accept(self, person: str) -> None:
        try:
            async with asyncio.timeout(ACCEPT_SECONDS):
                await self.messenger.accept_request(person)
        except SignalUnavailable:
            self._known.pop(person, None)
        except (SignalError, TimeoutError) as error:
            log.info("message_request.not_accepted", reason=type(error).__name__)
        finally:
            self._in_flight -= 1


@dataclass(frozen=True, slots=True)
class Door:
    """Decides who may talk, and where the bot may."""

    access: Access
    identities: Identities
    groups: GroupPermissions
    loops: LoopGuard

    def hears(self, person: Person) -> bool:
        """Whether a person may talk, decided without asking the Signal side."""
        return self.access.may_talk(person) and self.identities.is_verified(person.aci)

    def refusal(
        self, message: ReceivedMessage, *, is_command: bool, is_exempt: bool
    ) -> Refusal | None:
        """Count a message; return the reason to refuse it, or None. `is_exempt`: no rate limit."""
        excess = self.access.spend(message.author)
        if not self.access.is_admin(author_of(message)):
            if is_command:
                self.loops.release(message.chat, message.author)
            notice = self.loops.refusal(message.chat, message.author)
            if notice is not None:
                if notice:
                    log.warning("intake.loop", **names_of(message))
                return Refusal("loop", notice or None)
        if is_exempt or not excess:
            return None
        return Refusal("rate_limited", TOO_FAST if excess == 1 else None)

    async def silence(self, message: ReceivedMessage) -> str | None:
        """Return the outcome to store if a message gets no answer, or None."""
        if message.chat.is_group and not await self.groups.may_write(message.chat):
            return "may_not_write"
        may_talk = await self.identities.may_talk(author_of(message))
        return None if may_talk else "unverified"

    async def welcomes(self, reminder: StoredReminder) -> bool:
        """Whether a reminder's person may talk now, and in a group is still a member."""
        person = Person(reminder.person, reminder.person_number)
        if not self.access.may_talk(person):
            return False
        if reminder.chat.is_group:
            is_there = await self.groups.has_member(reminder.chat, person)
            if not is_there or not await self.groups.may_write(reminder.chat):
                return False
        return await self.identities.may_talk(person)


def author_of(message: ReceivedMessage) -> Person:
    """Return the author of a message."""
    return Person(message.author, message.author_number, message.author_name)


def names_of(message: ReceivedMessage) -> dict[str, LogId | None]:
    """Return the ids of a message's chat and author for the log."""
    return {"chat": logs.chat_id(message.chat), "person": logs.person_id(message.author)}
