"""Files of messages in workspaces, so that the bot deletes them together with the message.

A file whose message is gone stays in the table until the bot has deleted the file, so that a crash
loses no deletion.
"""

import json
from collections.abc import Iterable

from conversation_store import deletion, messages
from conversation_store.connections import Session
from conversation_store.database import Aggregate, reads, writes, writes_later
from conversation_store.models import ChatId, ReceivedMessage


class FileStore(Aggregate):
    """Files that came with messages and were put into a workspace."""

    @writes
    def add(self, db: Session, message: ReceivedMessage, name: str) -> bool:
        """Note a file in the workspace of a message's chat; False if the message is gone.

        Args:
            name: path inside the workspace.
        """
        rows = db.run(
            "INSERT OR REPLACE INTO workspace_files (chat, name, message_id)"
            " SELECT chat, ?, id FROM inbox WHERE id = ? AND outcome IS NOT 'deleted' RETURNING 1",
            *(name, messages.id_of(db, message)),
        )
        return bool(rows)

    @writes_later
    def note_reader(self, db: Session, turn_id: int) -> None:
        """Note that a turn may read all files that messages put into the workspace of its chat.

        The turn is deleted together with any of these messages.
        """
        for message_id, expires_at in db.run(
            "SELECT DISTINCT message_id, inbox.expires_at FROM turns"
            " JOIN workspace_files USING (chat) JOIN inbox ON inbox.id = message_id"
            " WHERE turns.id = ?",
            turn_id,
        ):
            source = messages.turn_of(db, message_id)
            deletion.add(db, turn_id, source, deletion.TURN, expires_at)

    @reads
    def to_delete(self, db: Session) -> tuple[tuple[ChatId, str], ...]:
        """Return chat and name of the files whose messages are gone."""
        rows = db.run("SELECT chat, name FROM workspace_files WHERE message_id IS NULL")
        return tuple((ChatId.parse(chat), name) for chat, name in rows)

    @writes
    def deleted(self, db: Session, chat: ChatId, name: str) -> None:
        """Note that a file was deleted."""
        sql = "DELETE FROM workspace_files WHERE chat = ? AND name = ? AND message_id IS NULL"
        db.run(sql, chat, name)


def doom(db: Session, rows: Iterable[int]) -> None:
    """Mark the files of messages for deletion, by the rows of the messages."""
    db.run(
        "UPDATE workspace_files SET message_id = NULL"
        " WHERE message_id IN (SELECT value FROM json_each(?))",
        json.dumps(list(rows)),
    )


def expire(db: Session, now_ms: int) -> None:
    """Mark files for deletion if their messages have disappeared."""
    db.run(
        "UPDATE workspace_files SET message_id = NULL"
        " WHERE (SELECT expires_at FROM inbox WHERE inbox.id = message_id) <= ?",
        now_ms,
    )
