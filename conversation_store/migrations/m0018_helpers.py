"""Helpers of a turn: what each is shown, says and calls, as messages of the turn."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the open call that a message works off; those from before are of turns themselves.

    A message of a helper goes with its turn, so it needs no reference of its own.
    """
    execute("ALTER TABLE messages ADD COLUMN helper_of INTEGER")
