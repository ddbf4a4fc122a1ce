"""Who was let in, and the codes of those who are not yet; also beside the running bot.

A code and whom it is for are forgotten when it expires: of a stranger nothing else is kept.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from conversation_store import outgoing
from conversation_store.database import Database, Execute, Row, SharedDatabase, open_shared
from conversation_store.migrations import require_current
from conversation_store.models import ChatId, OutgoingMessage, PairedPerson, PairingRequest

PEOPLE: Final = "SELECT person, since, greeted, number, name, admin FROM people"


def ask(
    execute: Execute, request: PairingRequest, *, chat: ChatId, text: str, at_most: int, now_ms: int
) -> OutgoingMessage | None:
    """Keep the code of a stranger and the message that tells it.

    Returns:
        The message. None, and nothing is kept, where the stranger has a code already or was just
        let in, where there are as many codes as there may be, and where chance has made one twice.
    """
    forget_expired(execute, now_ms)
    ((count, same, let_in),) = execute(
        "SELECT count(*), total(person = ? OR code = ?),"
        " EXISTS (SELECT 1 FROM people WHERE person = ?) FROM pairings",
        (request.person, request.code, request.person),
    )
    if count >= at_most or same or let_in:
        return None
    note = outgoing.note(execute, chat=chat, text=text, now_ms=now_ms)
    execute(
        "INSERT INTO pairings (person, code, number, name, expires_at, note)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (
            request.person,
            request.code,
            request.number,
            request.name,
            request.expires_at,
            note.id,
        ),
    )
    return note


def waiting(execute: Execute) -> tuple[PairingRequest, ...]:
    """Return the codes that are not forgotten, the oldest first."""
    rows = list(
        execute("SELECT person, code, expires_at, number, name FROM pairings ORDER BY expires_at")
    )
    return tuple(PairingRequest(*row) for row in rows)


def approve(
    execute: Execute, code: str, now_ms: int, *, admin: bool = False
) -> PairedPerson | None:
    """Let somebody in and return whom; None for a code that is unknown or has expired.

    Args:
        execute: the transaction.
        code: as somebody typed it: case, spaces and hyphens do not matter.
        now_ms: the time that counts as now.
        admin: the person is to administer the bot.
    """
    forget_expired(execute, now_ms)
    sql = "DELETE FROM pairings WHERE code = ? RETURNING person, number, name, note"
    typed = code.replace("-", "").replace(" ", "").upper()
    for person, number, name, note in list(execute(sql, (typed,))):
        _forget_note(execute, note)
        execute(
            "INSERT INTO people (person, number, name, since, admin) VALUES (?, ?, ?, ?, ?)",
            (person, number, name, now_ms, admin),
        )
        return PairedPerson(person, now_ms, greeted=False, number=number, name=name, admin=admin)
    return None


def promote(execute: Execute, who: str) -> tuple[PairedPerson, ...]:
    """Make an admin of somebody who was let in, if that is one person; see `revoke`."""
    meant = _meant(execute, who)
    if len(meant) == 1:
        # What an admin can do is said by a greeting of its own.
        execute("UPDATE people SET admin = 1, greeted = 0 WHERE person = ?", (meant[0].person,))
    return meant


def people(execute: Execute) -> tuple[PairedPerson, ...]:
    """Return everybody who was let in, the first of them first."""
    rows = list(execute(f"{PEOPLE} ORDER BY since, person"))
    return tuple(_person(row) for row in rows)


def greet(
    execute: Execute, person: str, *, chat: ChatId, text: str, now_ms: int
) -> OutgoingMessage | None:
    """Keep the message that greets somebody; None where it was made before, or he is not in."""
    sql = "UPDATE people SET greeted = 1 WHERE person = ? AND NOT greeted RETURNING person"
    if not list(execute(sql, (person,))):
        return None
    return outgoing.note(execute, chat=chat, text=text, now_ms=now_ms)


def revoke(execute: Execute, who: str) -> tuple[PairedPerson, ...]:
    """Let somebody in no more, if that is one person; return everybody who is meant.

    Args:
        execute: the transaction.
        who: a number, an ACI, or the beginning of one; case does not matter.
    """
    meant = _meant(execute, who)
    if len(meant) == 1:
        execute("DELETE FROM people WHERE person = ?", (meant[0].person,))
    return meant


def _meant(execute: Execute, who: str) -> tuple[PairedPerson, ...]:
    rows = list(
        execute(
            f"{PEOPLE} WHERE ?1 != ''"
            " AND (number = ?1 OR substr(person, 1, length(?1)) = lower(?1)) ORDER BY person",
            (who,),
        )
    )
    return tuple(_person(row) for row in rows)


def forget_expired(execute: Execute, now_ms: int) -> None:
    """Forget codes that count no more, whom they were for, and the messages that told them."""
    sql = "DELETE FROM pairings WHERE expires_at <= ? RETURNING note"
    for (note,) in list(execute(sql, (now_ms,))):
        _forget_note(execute, note)


def _forget_note(execute: Execute, note: int) -> None:
    execute("DELETE FROM outbox WHERE id = ?", (note,))


def _person(row: Row) -> PairedPerson:
    person, since, greeted, number, name, admin = row
    return PairedPerson(person, since, bool(greeted), number, name, bool(admin))


class Pairings:
    """Codes and people of an open store; every write is on disk on return."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def version(self) -> int:
        """Return a number that changes with every write of somebody else, also of this process."""

        def select(execute: Execute) -> int:
            ((version,),) = execute("PRAGMA data_version")
            return int(version)

        return await self._database.read(select)

    async def waiting(self) -> tuple[PairingRequest, ...]:
        """Return the codes that are not forgotten, the oldest first."""
        return await self._database.read(waiting)

    async def people(self) -> tuple[PairedPerson, ...]:
        """Return everybody who was let in, the first of them first."""
        return await self._database.read(people)

    async def ask(
        self, request: PairingRequest, *, chat: ChatId, text: str, at_most: int, now_ms: int
    ) -> OutgoingMessage | None:
        """Keep the code of a stranger and the message that tells it; see `ask`."""
        return await self._database.write(
            lambda execute: ask(
                execute, request, chat=chat, text=text, at_most=at_most, now_ms=now_ms
            )
        )

    async def approve(self, code: str, now_ms: int) -> PairedPerson | None:
        """Let somebody in; see `approve`."""
        return await self._database.write(lambda execute: approve(execute, code, now_ms))

    async def greet(
        self, person: str, *, chat: ChatId, text: str, now_ms: int
    ) -> OutgoingMessage | None:
        """Keep the message that greets somebody, once; see `greet`."""
        return await self._database.write(
            lambda execute: greet(execute, person, chat=chat, text=text, now_ms=now_ms)
        )

    async def forget_expired(self, now_ms: int) -> None:
        """Forget codes that count no more, also from the write-ahead log; see `forget_expired`."""
        await self._database.write(lambda execute: forget_expired(execute, now_ms))
        await self._database.scrub()


class PairingBook:
    """The same beside the running bot, for the command line. Made by `open_pairing_book`. Blocks.

    Each call is a transaction of its own; the bot finds out by `PRAGMA data_version`.
    """

    def __init__(self, database: SharedDatabase) -> None:
        self._database = database

    def waiting(self) -> tuple[PairingRequest, ...]:
        """Return the codes that count, the oldest first."""

        def select(execute: Execute) -> tuple[PairingRequest, ...]:
            forget_expired(execute, _now_ms())
            return waiting(execute)

        return self._database.transact(select)

    def people(self) -> tuple[PairedPerson, ...]:
        """Return everybody who was let in, the first of them first."""
        return self._database.transact(people)

    def approve(self, code: str, *, admin: bool = False) -> PairedPerson | None:
        """Let somebody in; see `approve`."""
        return self._database.transact(
            lambda execute: approve(execute, code, _now_ms(), admin=admin)
        )

    def promote(self, who: str) -> tuple[PairedPerson, ...]:
        """Make an admin of somebody who was let in; see `promote`."""
        return self._database.transact(lambda execute: promote(execute, who))

    def revoke(self, who: str) -> tuple[PairedPerson, ...]:
        """Let somebody in no more; see `revoke`."""
        return self._database.transact(lambda execute: revoke(execute, who))


@contextmanager
def open_pairing_book(path: Path, key: str | None) -> Iterator[PairingBook]:
    """Open a store beside the process that runs on it.

    Raises:
        StoreUnreadable: the key does not fit, or the store is of another version of the program.
        StoreFailed: there is no store, or the disk does not let it.
    """
    with open_shared(path, key, check=require_current) as database:
        yield PairingBook(database)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
