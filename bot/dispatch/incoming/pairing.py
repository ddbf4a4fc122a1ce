"""Strangers get a code, and whoever runs the bot lets them in by it.

A stranger's message is not kept, not logged and not shown to the model. What is kept, for as long
as the code counts, is who asked: ACI, and number and name where Signal tells them. People are let
in by `signal-tee-bot pair approve` beside the running bot, or by an admin's `!pair` in the chat.
"""

import asyncio
import secrets
import time
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from bot.dispatch.incoming.access import Access
from bot.language.languages import Languages
from bot.messaging.events import IncomingMessage
from conversation_store.models import (
    ChatId,
    OutgoingMessage,
    PairedPerson,
    PairingRequest,
)
from conversation_store.pairings import Pairings

log = structlog.get_logger()

ALPHABET: Final = "ABCDEFGHJKMNPQRSTUVWXYZ23456789"
"""Without I, L and O, 0 and 1: they are taken for each other."""

CODE_CHARACTERS: Final = 6
CODE_MS: Final = 3_600_000
"""How long a code counts, and how long its owner hears nothing more."""

MAX_CODES: Final = 100
"""Codes that count at once; more strangers than that get no answer, however many somebody sends."""

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


class NoteQueue(Protocol):
    """Sends what is stored already. Implemented by `bot.dispatch.outgoing.notices.Notices`."""

    def queue(self, note: OutgoingMessage) -> None:
        """Send a message behind what its chat has waiting."""
        ...


class Pairing:
    """Gives codes to strangers, and lets people in.

    Call `refresh` before the first message comes in, and after the start has queued what was left
    to send: it queues greetings of its own.

    Args:
        pairings: keeps codes and people.
        access: is told who was let in.
        notes: sends codes and greetings.
        languages: in which the bot itself speaks.
        now_ms: the time of day, in ms since 1970.
    """

    def __init__(
        self,
        *,
        pairings: Pairings,
        access: Access,
        notes: NoteQueue,
        languages: Languages,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
    ) -> None:
        self._pairings = pairings
        self._access = access
        self._notes = notes
        self._languages = languages
        self._now_ms = now_ms
        self._seen_version: int | None = None
        self._expiries: dict[str, int] = {}
        self._full = False

    async def run(self) -> None:
        """Notice within `POLL_SECONDS` who was let in elsewhere, until cancelled."""
        while True:
            await self.look()
            await asyncio.sleep(POLL_SECONDS)

    async def look(self) -> None:
        """Take over what was changed elsewhere, and forget what has expired."""
        if await self._pairings.version() != self._seen_version:
            await self.refresh()
        now = self._now_ms()
        if any(expires_at <= now for expires_at in self._expiries.values()):
            await self._pairings.forget_expired(now)
            await self.refresh()

    async def refresh(self) -> None:
        """Take over from the store who was let in, and greet who was not greeted yet."""
        # The version first: what changes while the rest is read is found the next time.
        self._seen_version = await self._pairings.version()
        people = await self._pairings.people()
        waiting = await self._pairings.waiting()
        self._access.paired = frozenset(person.person for person in people)
        self._access.paired_admins = frozenset(one.person for one in people if one.admin)
        self._expiries = {request.person: request.expires_at for request in waiting}
        for person in people:
            # Under another policy than `pairing` it would not be true, until that is back.
            if self._access.pairing and not person.greeted:
                await self._greet(person)

    async def stranger(self, message: IncomingMessage) -> None:
        """Answer somebody who may not talk: a code in private, at most once an hour, else nothing.

        Returns when the answer is stored.
        """
        if not self._access.pairing or message.chat.is_group:
            return
        if self._has_code(message.author.aci) or not self._has_room():
            return
        author = message.author
        self._languages.notice(message.chat, message.text)
        now = self._now_ms()
        request = PairingRequest(
            person=author.aci,
            code="".join(secrets.choice(ALPHABET) for _ in range(CODE_CHARACTERS)),
            expires_at=now + CODE_MS,
            number=author.number,
            name=author.name and author.name[:NAME_CHARACTERS],
        )
        note = await self._pairings.ask(
            request,
            chat=message.chat,
            text=self._languages.say(message.chat, ASK.format(code=request.code)),
            at_most=MAX_CODES,
            now_ms=now,
        )
        if note is not None:
            self._expiries[request.person] = request.expires_at
            log.info("pairing.code_given", waiting=len(self._expiries))
            self._notes.queue(note)

    async def approve(self, code: str) -> PairedPerson | None:
        """Let in whom a code was given to, and greet him; None for one that counts no more."""
        person = await self._pairings.approve(code, self._now_ms())
        if person is not None:
            await self.refresh()
        return person

    async def _greet(self, person: PairedPerson) -> None:
        chat = ChatId.direct(person.person)
        note = await self._pairings.greet(
            person.person,
            chat=chat,
            text=self._languages.say(chat, WELCOME_ADMIN if person.admin else WELCOME),
            now_ms=self._now_ms(),
        )
        if note is not None:
            log.info("pairing.let_in")
            self._notes.queue(note)

    def _has_code(self, person: str) -> bool:
        expires_at = self._expiries.get(person)
        return expires_at is not None and expires_at > self._now_ms()

    def _has_room(self) -> bool:
        full = len(self._expiries) >= MAX_CODES
        if full and not self._full:
            log.warning("pairing.too_many_strangers", limit=MAX_CODES)
        self._full = full
        return not full
