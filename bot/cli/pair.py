"""`signal-tee-bot pair`: show, add and remove people who may talk, also while the bot runs."""

import asyncio
import time
from argparse import Namespace
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from bot.chat.door import CODE_MS
from bot.cli.store_errors import explained
from bot.config.loading import load_settings
from bot.config.settings import AccessSettings, phone_number
from bot.errors import BotError
from bot.store import store_key
from conversation_store.pairings import PairedPerson, PairingBook, PairingRequest, open_pairing_book

UNKNOWN_CODE: Final = (
    "There is no such code. It may have expired: codes are valid for one hour."
    " `signal-tee-bot pair list` shows those that wait."
)

NAME_CHARACTERS: Final = 40
MINUTE_MS: Final = 60_000


def run(arguments: Namespace) -> None:
    """Show or change who may talk."""
    settings = load_settings()
    key = asyncio.run(store_key(settings))
    with explained(settings), open_pairing_book(settings.store.path, key) as book:
        if arguments.action == "list":
            print(listing(book, settings.access))
        elif arguments.action == "approve":
            print(approve(book, arguments.code, settings.access, admin=arguments.admin))
        else:
            print(revoke(book, as_stored(arguments.who), settings.access))


def listing(book: PairingBook, access: AccessSettings) -> str:
    """List the people who wait, with their codes, and the people who were let in."""
    waiting = [_waiting_line(request) for request in book.waiting()]
    people = [_person_line(person) for person in book.people()]
    lines = [
        "Waiting to be let in:" if waiting else "Nobody waits to be let in.",
        *waiting,
        "Let in:" if people else "Nobody was let in by a code.",
        *people,
        *_unused(access),
    ]
    return "\n".join(lines)


def approve(book: PairingBook, code: str, access: AccessSettings, *, admin: bool = False) -> str:
    """Admit the person with this code, and return a sentence about them.

    Args:
        code: for an admin also the number or ACI of a person who was let in, or its beginning.
    """
    person = book.approve(code, admin=admin)
    if person is None and admin:
        person = _one_of(book.promote(as_stored(code)), nobody=UNKNOWN_CODE)
    if person is None:
        raise BotError(UNKNOWN_CODE)
    said = "Admin" if admin else "Let in"
    return "\n".join((f"{said}: {who_is(person)}", *_unused(access)))


def as_stored(who: str) -> str:
    """Return a number as the store has it, however a phone shows it; anything else as it is."""
    with suppress(ValueError):
        return phone_number(who)
    return who


def revoke(book: PairingBook, who: str, access: AccessSettings) -> str:
    """Revoke the access of a person (number, ACI, or its beginning), and say who that was."""
    nobody = (
        "Nobody who was let in has this number, or an ACI that begins like this."
        " `signal-tee-bot pair list` shows who was."
    )
    person = _one_of(book.revoke(who), nobody=nobody)
    said = f"Access removed: {who_is(person)}"
    if access.policy == "open" or {person.person, person.number} & (access.allowed | access.admins):
        said += "\nThe settings let this person talk all the same: see ACCESS__ in .env."
    return said


def _one_of(meant: Sequence[PairedPerson], *, nobody: str) -> PairedPerson:
    if not meant:
        raise BotError(nobody)
    if len(meant) > 1:
        several = "Several people are meant, so nothing was changed. Give the ACI of one:"
        raise BotError("\n".join((several, *map(_person_line, meant))))
    return meant[0]


def _unused(access: AccessSettings) -> Iterable[str]:
    if access.policy != "pairing":
        yield f"Codes count only with ACCESS__POLICY=pairing; it is {access.policy}."


def _waiting_line(request: PairingRequest) -> str:
    age_ms = CODE_MS - (request.expires_at - time.time_ns() // 1_000_000)
    return f"  {request.code}  {who_is(request)}, {_minutes(age_ms)} ago"


def _person_line(person: PairedPerson) -> str:
    since = datetime.fromtimestamp(person.since / 1_000, UTC)
    admin = ", admin" if person.admin else ""
    return f"  {who_is(person)}, since {since:%Y-%m-%d %H:%M} UTC{admin}"


def who_is(person: PairingRequest | PairedPerson) -> str:
    """Return name, number and ACI as far as known; a name may hold anything, so it is cut."""
    name = "".join(filter(str.isprintable, person.name or ""))[:NAME_CHARACTERS].strip()
    return " ".join(filter(None, (name or "(no name)", person.number, person.person)))


def _minutes(duration_ms: int) -> str:
    minutes = duration_ms // MINUTE_MS
    return "1 minute" if minutes == 1 else f"{minutes} minutes"
