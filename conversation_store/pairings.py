"""People who were let in, and codes of strangers; also next to a running bot.

A code and its person are deleted when the code expires: nothing else of a stranger is stored.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from conversation_store import outbox
from conversation_store.connections import Operation, Row, Session, transact
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    open_shared,
    reads,
    writes,
    writes_and_scrubs,
)
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.schema import require_current

T = TypeVar("T")

VERSION: Final = "people_version"
"""Name of the metadata by which the bot notices changes of another process."""

PEOPLE: Final = "SELECT person, since, greeted, number, name, admin FROM people"


@dataclass(frozen=True, slots=True)
class PairingRequest:
    """A stranger who may be let in by a code until a time."""

    person: str
    code: str = field(repr=False)
    expires_at: int
    number: str | None = None
    name: str | None = None


@dataclass(frozen=True, slots=True)
class PairedPerson:
    """A person who was let in by a code; `greeted` once the bot has told them."""

    person: str
    since: int
    greeted: bool
    number: str | None = None
    name: str | None = None
    admin: bool = False


def _waiting(db: Session) -> tuple[PairingRequest, ...]:
    """Return the codes that are stored, the oldest first."""
    rows = db.run("SELECT person, code, expires_at, number, name FROM pairings ORDER BY expires_at")
    return tuple(PairingRequest(*row) for row in rows)


def _people(db: Session) -> tuple[PairedPerson, ...]:
    """Return the people who were let in, in order."""
    return tuple(map(_person, db.run(f"{PEOPLE} ORDER BY since, person")))


def _approve(db: Session, code: str, now_ms: int, *, admin: bool = False) -> PairedPerson | None:
    """Admit a person by a code; None for a code that is unknown or has expired.

    Spaces, hyphens and case of the code do not matter.
    """
    _forget_expired(db, now_ms)
    typed = code.replace("-", "").replace(" ", "").upper()
    sql = "DELETE FROM pairings WHERE code = ? RETURNING person, number, name, note"
    for person, number, name, note in db.run(sql, typed):
        db.run("DELETE FROM outbox WHERE id = ?", note)
        db.insert("people", person=person, number=number, name=name, since=now_ms, admin=admin)
        _note_change(db)
        return PairedPerson(person, now_ms, greeted=False, number=number, name=name, admin=admin)
    return None


def _forget_expired(db: Session, now_ms: int) -> None:
    """Delete expired codes with their people and their messages."""
    for (note,) in db.run("DELETE FROM pairings WHERE expires_at <= ? RETURNING note", now_ms):
        db.run("DELETE FROM outbox WHERE id = ?", note)


class Pairings(Aggregate):
    """Codes and people of an open store."""

    waiting = reads(of_aggregate(_waiting))
    people = reads(of_aggregate(_people))
    approve = writes(of_aggregate(_approve))
    forget_expired = writes_and_scrubs(of_aggregate(_forget_expired))

    @reads
    def version(self, db: Session) -> int:
        """Return a number that changes when people are let in, made admins or revoked."""
        return int(db.value("SELECT value FROM metadata WHERE name = ?", VERSION) or 0)

    @writes
    def ask(
        self,
        db: Session,
        request: PairingRequest,
        *,
        chat: ChatId,
        text: str,
        at_most: int,
        now_ms: int,
    ) -> OutgoingMessage | None:
        """Store the code of a stranger and the message with it.

        Returns:
            the message; None, and nothing is stored, if the stranger has a code already or was just
            let in, if there are `at_most` codes, or if the code exists by chance.
        """
        _forget_expired(db, now_ms)
        ((count, same, let_in),) = db.run(
            "SELECT count(*), total(person = ?1 OR code = ?2),"
            " EXISTS (SELECT 1 FROM people WHERE person = ?1) FROM pairings",
            *(request.person, request.code),
        )
        if count >= at_most or same or let_in:
            return None
        note = outbox.note(db, chat, text, now_ms)
        db.insert("pairings", **asdict(request), note=note.id)
        return note

    @writes
    def greet(
        self, db: Session, person: str, *, chat: ChatId, text: str, now_ms: int
    ) -> OutgoingMessage | None:
        """Store the message that greets a person; None if it was stored before."""
        sql = "UPDATE people SET greeted = 1 WHERE person = ? AND NOT greeted RETURNING person"
        return outbox.note(db, chat, text, now_ms) if db.run(sql, person) else None


class PairingBook:
    """Codes and people for the command line, next to a running bot. Changes are transactions."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def _run(self, operation: Operation[T]) -> T:
        result: T = transact(self._connection, [operation])[0]
        return result

    def waiting(self) -> tuple[PairingRequest, ...]:
        """Return the codes that have not expired, the oldest first."""
        self._run(partial(_forget_expired, now_ms=_now_ms()))
        return self._run(_waiting)

    def people(self) -> tuple[PairedPerson, ...]:
        """Return the people who were let in, in order."""
        return self._run(_people)

    def approve(self, code: str, *, admin: bool = False) -> PairedPerson | None:
        """Admit a person by a code; None for a code that is unknown or has expired."""
        return self._run(lambda db: _approve(db, code, _now_ms(), admin=admin))

    def promote(self, who: str) -> tuple[PairedPerson, ...]:
        """Make a person an admin if `who` means only one; return all it means. See `revoke`."""
        # A second greeting tells what an admin can do.
        return self._change_one(who, "UPDATE people SET admin = 1, greeted = 0 WHERE person = ?")

    def revoke(self, who: str) -> tuple[PairedPerson, ...]:
        """Revoke a person's access if `who` means only one; return all people that it means.

        Args:
            who: a number, an ACI, or the beginning of one, in any case.
        """
        return self._change_one(who, "DELETE FROM people WHERE person = ?")

    def _change_one(self, who: str, sql: str) -> tuple[PairedPerson, ...]:
        def change(db: Session) -> tuple[PairedPerson, ...]:
            rows = db.run(
                f"{PEOPLE} WHERE ?1 != ''"
                " AND (number = ?1 OR substr(person, 1, length(?1)) = lower(?1)) ORDER BY person",
                who,
            )
            meant = tuple(map(_person, rows))
            if len(meant) == 1:
                db.run(sql, meant[0].person)
                _note_change(db)
            return meant

        return self._run(change)


@contextmanager
def open_pairing_book(path: Path, key: str | None) -> Iterator[PairingBook]:
    """Open a store next to the process that runs on it. Blocks.

    Raises:
        StoreUnreadable: the key does not fit, or the store is of another version of the program.
        StoreFailed: the store is missing, or the disk refuses.
    """
    with open_shared(path, key, check=require_current) as connection:
        yield PairingBook(connection)


def _note_change(db: Session) -> None:
    db.run(
        "INSERT INTO metadata (name, value) VALUES (?, 1) ON CONFLICT DO UPDATE SET"
        " value = CAST(value AS INTEGER) + 1",
        VERSION,
    )


def _person(row: Row) -> PairedPerson:
    person, since, greeted, number, name, admin = row
    return PairedPerson(person, since, bool(greeted), number, name, bool(admin))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
