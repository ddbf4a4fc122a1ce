"""Where the words of reminders come from, and where they are, so that they go with their source."""

from conversation_store.connections import Execute

STATEMENTS = (
    # The turns that a reminder came from; like `remembered_from` without a reference to them.
    """
    CREATE TABLE reminders_from (
        turn_id INTEGER NOT NULL,
        reminder_id INTEGER NOT NULL REFERENCES reminders (id) ON DELETE CASCADE,
        PRIMARY KEY (turn_id, reminder_id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX reminders_from_reminder ON reminders_from (reminder_id)",
    # The turns that hold a reminder's words: they were told it, or answer its question. By their
    # message, as that waits for its turn to begin.
    """
    CREATE TABLE reminded (
        turn_id INTEGER NOT NULL REFERENCES inbox (id) ON DELETE CASCADE,
        reminder_id INTEGER NOT NULL REFERENCES reminders (id) ON DELETE CASCADE,
        is_run INTEGER NOT NULL,
        PRIMARY KEY (turn_id, reminder_id)
    ) STRICT, WITHOUT ROWID
    """,
    "CREATE INDEX reminded_reminder ON reminded (reminder_id)",
    # The call that cancelled a reminder, which a crash may repeat.
    "ALTER TABLE reminders ADD COLUMN cancelled_in INTEGER",
    "ALTER TABLE reminders ADD COLUMN cancelled_by TEXT",
    "ALTER TABLE outbox ADD COLUMN reminder_id INTEGER",
    "CREATE INDEX outbox_of_reminder ON outbox (reminder_id) WHERE reminder_id IS NOT NULL",
    """
    INSERT INTO reminders_from (turn_id, reminder_id)
    SELECT turn_id, id FROM reminders WHERE turn_id IS NOT NULL
    """,
    """
    INSERT INTO reminded (turn_id, reminder_id, is_run) SELECT inbox_id, reminders.id, 1
    FROM reminders JOIN inbox ON inbox.id = inbox_id
    """,
    """
    UPDATE outbox SET reminder_id = (SELECT reminders.id FROM reminders WHERE outbox_id = outbox.id)
    WHERE inbox_id IS NULL
    """,
)


def apply(execute: Execute) -> None:
    """Make the tables; of questions that were asked before, only the last run is known."""
    for statement in STATEMENTS:
        execute(statement)
