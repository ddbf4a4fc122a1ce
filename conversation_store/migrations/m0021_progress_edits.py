"""How often the progress message of a turn was edited: Signal has a limit, also over restarts."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the count; of turns from before nothing is known."""
    execute("ALTER TABLE turns ADD COLUMN progress_edits INTEGER NOT NULL DEFAULT 0")
