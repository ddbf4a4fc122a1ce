"""What people have allowed in a chat until a date, so that nobody is asked each time.

What has expired counts for nothing, and is gone with the next grant.
"""

from collections.abc import Sequence

from conversation_store.connections import Execute
from conversation_store.models import ChatId, StoredGrant
from conversation_store.sections.section import Section, reads, writes


class GrantStore(Section):
    """Standing permissions, each for one chat."""

    @writes
    def give(
        self,
        execute: Execute,
        chat: ChatId,
        subjects: Sequence[str],
        version: str,
        *,
        by: str,
        days: int,
    ) -> None:
        """Allow something in a chat.

        Args:
            execute: runs a statement.
            chat: where.
            subjects: what is allowed, such as names of tools.
            version: of the tool; another one is not allowed.
            by: ACI of the person who allows it.
            days: from now on.
        """
        now = self._context.now_ms()
        execute("DELETE FROM grants WHERE expires_at <= ?", (now,))
        for subject in subjects:
            execute(
                "INSERT OR REPLACE INTO grants (chat, subject, version, given_by, expires_at)"
                " VALUES (?, ?, ?, ?, ?)",
                (chat, subject, version, by, now + days * 24 * 3_600_000),
            )

    @reads
    def cover(self, execute: Execute, chat: ChatId, subjects: Sequence[str], version: str) -> bool:
        """Return whether all of something is allowed in a chat now; nothing never is."""
        rows = execute(
            "SELECT subject FROM grants WHERE chat = ? AND version = ? AND expires_at > ?",
            (chat, version, self._context.now_ms()),
        )
        return bool(subjects) and set(subjects) <= {subject for (subject,) in rows}

    @reads
    def of_chat(self, execute: Execute, chat: ChatId) -> tuple[StoredGrant, ...]:
        """Return what is allowed in a chat now, in the order of the alphabet."""
        rows = execute(
            "SELECT id, subject, expires_at FROM grants WHERE chat = ? AND expires_at > ?"
            " ORDER BY subject",
            (chat, self._context.now_ms()),
        )
        return tuple(StoredGrant(*row) for row in rows)

    @writes
    def revoke(self, execute: Execute, chat: ChatId, grants: Sequence[int]) -> None:
        """Allow something no longer; what is not of this chat stays."""
        for grant in grants:
            execute("DELETE FROM grants WHERE chat = ? AND id = ?", (chat, grant))
