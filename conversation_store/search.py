"""Search in what people said to the bot, in its answers, and in words kept for catch-up.

In the words kept for catch-up, people find nothing older than their own first message, because they
may have joined only then. Words are found only while their turn or message is kept. A turn that is
told of words has read them, so `sources` lists their turn.
"""

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from conversation_store import deletion
from conversation_store.connections import Row, Session
from conversation_store.database import Aggregate, reads_aside, writes
from conversation_store.models import ChatId
from conversation_store.words import indexed, partly, whole, words_of

VOICE_NOTE: Final = "[voice note] "
"""Stands before the words of a voice note in what the model reads."""
_SPOKEN: Final = re.compile(rf"{re.escape(VOICE_NOTE)}(.+)")

ADD_SQL: Final = """
    INSERT INTO said (turn_id, chat, by_bot, author_name, text, sent_at)
    SELECT ?1, chat, 0, body ->> '$.author_name', trim(body ->> '$.text' || ?2),
        coalesce(nullif(body ->> '$.sent_at', 0), received_at)
    FROM (SELECT * FROM inbox WHERE id = ?1 UNION ALL SELECT * FROM inbox WHERE turn_id = ?1)
    WHERE id IS NOT ?3 AND state = 'waiting' AND kind IN ('message', 'edit')
"""
AGAIN_SQL: Final = """
    INSERT INTO said (turn_id, chat, by_bot, author_name, text, sent_at)
    SELECT ?, chat, 0, author_name, text, sent_at FROM said WHERE turn_id = ? AND NOT by_bot
    ORDER BY id
"""

MAX_INDEXED: Final = 200
"""Rows in one commit."""
BEHIND_SQL: Final = f"""
    SELECT id, text FROM said
    WHERE id > (SELECT CAST(value AS INTEGER) FROM metadata WHERE name = 'indexed_said')
    ORDER BY id LIMIT {MAX_INDEXED}
"""
IS_BEHIND_SQL: Final = """
    SELECT (SELECT max(id) FROM said) > CAST(value AS INTEGER)
    FROM metadata WHERE name = 'indexed_said'
"""

FIND_SQL: Final = """
    SELECT said_words.rowid, turn_id, by_bot, author_name, text, sent_at
    FROM said_words JOIN said ON said.id = said_words.rowid / 2
    WHERE said_words MATCH ?1 AND said_words.rowid % 2 = 0 AND said.chat = ?2 AND turn_id != ?3
        AND sent_at >= ?4 AND sent_at < ?5
    ORDER BY said_words.rowid DESC LIMIT ?6
"""
FIND_KEPT_SQL: Final = """
    SELECT said_words.rowid, id, 0, author_name, text, kept_words.sent_at
    FROM said_words JOIN kept_words ON id = said_words.rowid / 2 JOIN inbox USING (id)
    WHERE said_words MATCH ?1 AND said_words.rowid % 2 AND kept_words.chat = ?2
        AND turn_id IS NOT ?3 AND ltrim(text) NOT LIKE '!%'
        AND kept_words.sent_at >= ?4 AND kept_words.sent_at < ?5
        AND received_at >= (SELECT min(received_at) FROM inbox first WHERE first.chat = ?2
            AND kind = 'message' AND author = (SELECT author FROM inbox WHERE id = ?3))
        AND NOT EXISTS (SELECT 1 FROM said WHERE said.turn_id = coalesce(inbox.turn_id, inbox.id))
    ORDER BY said_words.rowid DESC LIMIT ?6
"""


class FoundMessage(NamedTuple):
    """A message that a search has found; `author_name` is empty for a person without a name."""

    by_bot: bool
    author_name: str
    text: str
    sent_at: int


class SearchStore(Aggregate):
    """Finds past messages of a chat."""

    async def find(
        self, chat: ChatId, query: str, limit: int, *, reader: int, since: int, until: int
    ) -> tuple[FoundMessage, ...]:
        """Return messages of a chat: first those with all words of a search, each newest first.

        Args:
            reader: the turn or the command that is told; its own messages are not found.
            since: earliest time (ms).
            until: time before which a message must be (ms).
        """
        if not (words := words_of(query)):
            return ()
        await self.index()
        rows = await self._find(chat, words, limit, reader, since, until)
        return await self._tell(rows, reader) if rows else ()

    async def index(self) -> None:
        """Index the words that were stored since the last call."""
        while await self._is_behind():
            await self._index()

    @reads_aside
    def _is_behind(self, db: Session) -> bool:
        return bool(db.value(IS_BEHIND_SQL))

    @writes
    def _index(self, db: Session) -> None:
        number = 0
        for number, text in db.run(BEHIND_SQL):
            db.run("INSERT INTO said_words (rowid, words) VALUES (?, ?)", 2 * number, indexed(text))
        if number:
            db.run("UPDATE metadata SET value = ? WHERE name = 'indexed_said'", str(number))

    @reads_aside
    def _find(
        self, db: Session, chat: ChatId, words: list[str], limit: int, reader: int, *times: int
    ) -> list[Row]:
        found: dict[int, Row] = {}
        phrases = [phrase for word in words for phrase in partly(word)]
        for wanted in (" AND ".join(map(whole, words)), " OR ".join(phrases)):
            rows = [
                row
                for sql in (FIND_SQL, FIND_KEPT_SQL)
                for row in db.run(sql, wanted, chat, reader, *times, limit)
            ]
            rows.sort(key=lambda row: -row[5])
            found |= {row[0]: row for row in rows if row[0] not in found}
            if len(found) >= limit:
                break
        return [*found.values()][:limit]

    @writes
    def _tell(self, db: Session, rows: Sequence[Row], reader: int) -> tuple[FoundMessage, ...]:
        """Return the messages that are still kept, and note that the reader knows them."""
        told = []
        for row, source, by_bot, name, text, sent_at in rows:
            number, is_kept_word = divmod(row, 2)
            table, via = ("kept_words", "catch_up") if is_kept_word else ("said", "turn")
            if db.run(f"SELECT 1 FROM {table} WHERE id = ? AND text = ?", number, text):
                expires_at = db.value(
                    "SELECT min(expires_at) FROM (SELECT expires_at FROM inbox WHERE id = ?1"
                    " UNION ALL SELECT expires_at FROM turns WHERE id = ?1)",
                    source,
                )
                deletion.add(db, reader, source, via, expires_at)
                told.append(FoundMessage(bool(by_bot), name or "", text, sent_at))
        return tuple(told)


def add(db: Session, turn_id: int, content: str, retried: int | None) -> None:
    """Make the messages of people that a turn answers searchable, before they are closed.

    Args:
        content: what the model read, for the words of voice notes.
        retried: the turn whose question it answers again.
    """
    if retried is not None:
        db.run(AGAIN_SQL, turn_id, retried)
    spoken = "\n".join(("", *_SPOKEN.findall(content)))
    db.run(ADD_SQL, turn_id, spoken.rstrip(), None if retried is None else turn_id)


def add_answer(db: Session, turn_id: int, chat: str, text: str, now_ms: int) -> None:
    """Make an answer searchable."""
    db.insert("said", turn_id=turn_id, chat=chat, by_bot=1, text=text, sent_at=now_ms)
