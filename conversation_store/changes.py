"""Edits, deletions and stops of messages."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from conversation_store import deletion, files, heard, messages, outbox, questions
from conversation_store.connections import Session
from conversation_store.models import AcceptedMessage, EditOutcome, Forgotten, ReceivedMessage
from conversation_store.operations import Aggregate, writes_and_scrubs, writes_and_scrubs_soon

REFUSALS: Final = frozenset({"rate_limited", "mailbox_full", messages.APPROVAL})
"""Outcomes of messages that were refused: an edit does not answer them."""


class ChangeStore(Aggregate):
    """Changes of messages that were stored."""

    @writes_and_scrubs_soon
    def merge_edit(
        self, db: Session, edit: AcceptedMessage, target: AcceptedMessage
    ) -> AcceptedMessage:
        """Give a message that waits the words of its edit, end the edit, and return the message.

        If its turn has begun, that begins again.
        """
        message = target.message.after(edit.message)
        deletion.forget(db, [messages.turn_of(db, target.id)])
        messages.change(db, target.id, message)
        messages.close(db, edit.id, messages.MERGED)
        return replace(target, message=message)

    @writes_and_scrubs_soon
    def take_back_answer(self, db: Session, edit: AcceptedMessage, answer: int) -> None:
        """Delete the turn to which a message gave an answer, for an edit of it; end the edit.

        The turn's own messages wait on, to begin again.
        """
        questions.revoke_given_by(db, [answer])
        deletion.forget(db, [messages.turn_of(db, answer)])
        messages.close(db, edit.id, messages.MERGED)

    @writes_and_scrubs
    def settle_edit(
        self, db: Session, edit: AcceptedMessage, *, answered_within_ms: int
    ) -> tuple[EditOutcome, AcceptedMessage]:
        """Find out what an edit is about when nothing of its chat waits before it.

        Args:
            answered_within_ms: older answers stay as they are.

        Returns:
            UNKNOWN: the edit waits on, to be answered as a message. TOO_LATE: it is closed.
            ANSWERED: the turn of the earlier answer is deleted, and the edit, which is returned
            with `replaces`, waits to be answered in its place.
        """
        root = db.value("SELECT replaces FROM inbox WHERE id = ?", edit.id)
        if root is not None:
            return EditOutcome.ANSWERED, replace(edit, replaces=root)
        earlier = [
            version
            for version in messages.versions(db, edit.message)
            if version.id < edit.id and version.outcome not in messages.NOT_EDITED
        ]
        if not earlier:
            return EditOutcome.UNKNOWN, edit
        # The message itself, unless it came after an edit of it.
        first = min(earlier, key=lambda version: version.id)
        questions.revoke_given_by(db, [first.id])
        answered_since = self._now_ms() - answered_within_ms
        if first.outcome != "deleted" and _reopen(db, first.turn_id, answered_since):
            replace_answer(db, edit.id, first.turn_id)
            return EditOutcome.ANSWERED, replace(edit, replaces=first.turn_id)
        messages.close(db, edit.id, "edit_too_late")
        return EditOutcome.TOO_LATE, edit

    @writes_and_scrubs
    def edit_overheard(self, db: Session, edit: ReceivedMessage) -> None:
        """Change words to others; nothing is kept of an edit of anything else.

        Turns keep the words that they were told.
        """
        rows = messages.version_ids(db, edit)
        heard.change_kept(db, edit.text, rows)
        heard.change_overheard(db, edit.text, rows)
        if rows:
            messages.insert_key(db, edit)

    @writes_and_scrubs
    def forget(self, db: Session, deletion_: AcceptedMessage) -> Forgotten:
        """Carry out a deletion: its message goes with all that was derived from it.

        The deletion's own row stays, so that a message that comes after it is refused. Other
        messages of a turn that is deleted wait on, without a turn.
        """
        return carry_out(db, deletion_)

    @writes_and_scrubs_soon
    def stop(self, db: Session, rows: Sequence[int]) -> None:
        """Close messages that a person no longer wants answered, and end their turns."""
        for row in rows:
            if messages.outcome(db, row) != "deleted":
                deletion.abandon(db, row)
                messages.close(db, row, "stopped")
                messages.close_joined(db, row)


def carry_out(db: Session, deletion_: AcceptedMessage) -> Forgotten:
    """Carry out a deletion; see `ChangeStore.forget`."""
    found = messages.versions(db, deletion_.message)
    closed, told = forget_messages(db, found, messages.quoting(db, deletion_.message))
    for version in found:
        messages.close(db, version.id, "deleted")
    messages.close(db, deletion_.id, "deleted")
    closed += [version.id for version in found if version.waiting]
    return Forgotten(tuple(closed), tuple(told))


def forget_messages(
    db: Session,
    found: Sequence[messages.Version],
    quoting: Sequence[tuple[int, int]] = (),
) -> tuple[list[int], list[int]]:
    """Delete the words of messages and everything derived from them; see `deletion.forget`.

    Args:
        found: the messages and their edits.
        quoting: messages that quote them, with their turns.
    """
    rows = [version.id for version in found]
    heard.forget(db, rows)
    files.doom(db, rows)
    messages.unquote(db, (row for row, _ in quoting))
    questions.revoke_given_by(db, rows)
    turns = {version.turn_id for version in found}
    return deletion.forget(db, turns, rows, (turn_id for _, turn_id in quoting))


def replace_answer(db: Session, row: int, root: int) -> None:
    """Note that the answer to a row replaces an earlier answer."""
    db.run("UPDATE inbox SET replaces = ? WHERE id = ?", root, row)


def _reopen(db: Session, root: int, answered_since: int) -> bool:
    """Delete what a message's answers came from; False if the last answer stays as it is."""
    last = outbox.last_answer(db, root)
    if last is None or last.outcome in REFUSALS or last.created_at < answered_since:
        return False
    rows = db.run("SELECT id FROM inbox WHERE id = ?1 OR replaces = ?1", root)
    deletion.forget(db, [row for (row,) in rows])
    return True
