"""What an edit of a message changes: what waits, what was overheard, or what was answered."""

from dataclasses import replace
from typing import Final

from conversation_store import catch_up, inbox, outgoing, overheard, turns
from conversation_store.connections import Execute
from conversation_store.models import AcceptedMessage, EditOutcome, ReceivedMessage

REFUSALS: Final = frozenset({"rate_limited", "mailbox_full", "approval"})
"""Outcomes of messages that were not answered for what they say."""


def merge(execute: Execute, edit: AcceptedMessage, target: AcceptedMessage) -> AcceptedMessage:
    """Let a message that waits read as its edit says, and end the edit."""
    message = target.message.after(edit.message)
    turns.forget(execute, inbox.turn_of(execute, target.id))
    inbox.change(execute, target.id, message)
    inbox.close(execute, edit.id, inbox.MERGED)
    return replace(target, message=message)


def settle(
    execute: Execute, edit: AcceptedMessage, answered_since: int
) -> tuple[EditOutcome, AcceptedMessage]:
    """Find out what an edit is about and change that; see `ConversationStore.settle_edit`."""
    root = inbox.replaced_by(execute, edit.id)
    if root is not None:
        return EditOutcome.ANSWERED, replace(edit, replaces=root)
    earlier = [
        version
        for version in inbox.versions(execute, edit.message)
        if version.id < edit.id and version.outcome not in inbox.NOT_EDITED
    ]
    if not earlier:
        return EditOutcome.UNKNOWN, edit
    # The message itself, unless it came after an edit of it.
    first = min(earlier, key=lambda version: version.id)
    if first.outcome != "deleted" and _reopen(execute, first.turn_id, answered_since):
        inbox.replace_answer(execute, edit.id, first.turn_id)
        return EditOutcome.ANSWERED, replace(edit, replaces=first.turn_id)
    inbox.close(execute, edit.id, "edit_too_late")
    return EditOutcome.TOO_LATE, edit


def change_overheard(execute: Execute, edit: ReceivedMessage) -> bool:
    """Let what was said to others read as its edit says; False where it is not known.

    Of the edit its key alone is kept, for an edit or a deletion of it.
    """
    author, timestamp = inbox.target(execute, edit)
    catch_up.change(execute, edit, author, timestamp)
    if not overheard.change(execute, edit, author, timestamp):
        return False
    key = inbox.insert(execute, replace(edit, text="", files=(), quote=None))
    if key is not None:
        inbox.close(execute, key.id, inbox.OVERHEARD)
    return True


def _reopen(execute: Execute, root: int, answered_since: int) -> bool:
    """Forget what a message's last answer came from; False where it may stand as it is."""
    last = outgoing.last_answer(execute, root)
    if last is None:
        return False
    answered, outcome, at = last
    if outcome in REFUSALS or at < answered_since:
        return False
    turns.forget(execute, answered)
    return True
