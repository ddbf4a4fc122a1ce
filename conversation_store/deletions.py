"""What a person takes back goes, with all that was derived from it."""

from conversation_store import catch_up, inbox, outgoing, overheard, remembered, reminders, turns
from conversation_store.connections import Execute
from conversation_store.models import AcceptedMessage


def perform(execute: Execute, deletion: AcceptedMessage) -> tuple[int, ...]:
    """Forget what a deletion is about; return the rows that waited and do no longer.

    The deletion's own row stays, so that a message that comes after it is refused.
    """
    closed = []
    for version in inbox.versions(execute, deletion.message):
        for turn_id in inbox.with_retries(execute, version.turn_id):
            closed += reminders.waiting_runs(execute, turn_id)
            _forget_turn(execute, turn_id)
            # A question that is gone cannot be answered anew.
            if turn_id != version.turn_id and inbox.is_waiting(execute, turn_id):
                inbox.close(execute, turn_id, "deleted")
                closed.append(turn_id)
        inbox.close(execute, version.id, "deleted")
        if version.waiting:
            closed.append(version.id)
    author, timestamp = inbox.target(execute, deletion.message)
    turns.forget_with_answers(
        execute, catch_up.forget(execute, deletion.message.chat, author, timestamp)
    )
    told = overheard.forget(execute, deletion.message, author, timestamp)
    if told is not None:
        if turns.forget_at_end(execute, told):
            turns.forget_told(execute, remembered.forget_from(execute, told))
        else:
            _forget_turn(execute, told)
    inbox.close(execute, deletion.id, "deleted")
    return tuple(closed)


def _forget_turn(execute: Execute, turn_id: int) -> None:
    turns.forget(execute, turn_id)
    outgoing.drop_unsent(execute, turn_id)
