"""Questions that are answered anew, and how the last one of a chat is found."""

from conversation_store.connections import Execute

STATEMENTS = (
    # Of a message that asks an earlier question anew: the turn of that question's last answer.
    "ALTER TABLE inbox ADD COLUMN retries INTEGER",
    "CREATE INDEX inbox_retrying ON inbox (retries) WHERE retries IS NOT NULL",
    """
    CREATE INDEX inbox_questions ON inbox (chat, id)
    WHERE outcome IN ('answered', 'failed', 'retried', 'bug', 'stopped')
    """,
)


def apply(execute: Execute) -> None:
    """Add the column and the indexes; nothing has been asked anew so far."""
    for statement in STATEMENTS:
        execute(statement)
