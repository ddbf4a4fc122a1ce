"""Pairing: give strangers a code by which the operator lets them in.

A stranger's message is not kept, not logged and not shown to the model. While the code is valid,
the store keeps the stranger's ACI, and number and name if Signal tells them. The operator lets
people in by `signal-tee-bot pair approve` while the bot runs, or by `!pair` in the chat.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import structlog

from bot.chat.access import Access
from bot.chat.outbox import Notices
from bot.signal.events import IncomingMessage
from conversation_store.models import ChatId, PairedPerson, PairingRequest
from conversation_store.pairings import Pairings

log = structlog.get_logger()

ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without I, L, O, 0 and 1, which people confuse."""

CODE_CHARACTERS: Final = 6
CODE_MS: Final = 3_600_000
"""How long a code is valid, and how long its owner gets no further answer."""

MAX_CODES: Final = 100
"""Valid codes at once; further strangers get no answer."""

NAME_CHARACTERS: Final = 100

POLL_SECONDS: Final = 0.5

ASK: Final = (
    "Hello! I am a bot, and I do not know you yet. Please give this code to whoever runs this bot:"
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
    to send: it queues greetings of its own.
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
        # Read the version first: later changes are then found the next time.
        self._seen_version = await self.pairings.version()
        people = await self.pairings.people()
        waiting = await self.pairings.waiting()
        self.access.paired = frozenset(person.person for person in people)
        self.access.paired_admins = frozenset(one.person for one in people if one.admin)
        self._expiries = {request.person: request.expires_at for request in waiting}
        for person in people:
            # Under another policy than `pairing`, the greeting would be wrong.
            if self.access.pairing and not person.greeted:
                await self._greet(person)

    async def stranger(self, message: IncomingMessage) -> None:
        """Give a stranger a code in private, at most once an hour; otherwise stay silent.

        Returns when the answer is stored.
        """
        if not self.access.pairing or message.chat.is_group:
            return
        if self._has_code(message.author.aci) or not self._has_room():
            return
        author = message.author
        self.notices.languages.notice(message.chat, message.text)
        now = self.now_ms()
        request = PairingRequest(
            person=author.aci,
            code=new_code(),
            expires_at=now + CODE_MS,
            number=author.number,
            name=author.name and author.name[:NAME_CHARACTERS],
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
        """Let in the owner of a code and greet them; return None if the code is not valid."""
        person = await self.pairings.approve(code, self.now_ms())
        if person is not None:
            await self.refresh()
        return person

    async def _greet(self, person: PairedPerson) -> None:
        chat = ChatId.direct(person.person)
        note = await self.pairings.greet(
            person.person,
            chat=chat,
            text=self.notices.languages.say(chat, WELCOME_ADMIN if person.admin else WELCOME),
            now_ms=self.now_ms(),
        )
        if note is not None:
            log.info("pairing.let_in")
            self.notices.queue(note)

    def _has_code(self, person: str) -> bool:
        expires_at = self._expiries.get(person)
        return expires_at is not None and expires_at > self.now_ms()

    def _has_room(self) -> bool:
        full = len(self._expiries) >= MAX_CODES
        if full and not self._full:
            log.warning("pairing.too_many_strangers", limit=MAX_CODES)
        self._full = full
        return not full
