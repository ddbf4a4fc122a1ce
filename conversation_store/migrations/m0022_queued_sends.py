"""When a message was queued by the clock of the machine, which signal-cli counts by as well.

The clock of the store may be ahead of it for a while, or have been: see `StoreUpkeep.set_back`.
"""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Add the time; of messages from before only the store's is known."""
    execute("ALTER TABLE outbox ADD COLUMN queued_at INTEGER")
