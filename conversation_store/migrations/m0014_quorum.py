"""What a question is about, so that an answer counts before its turn goes on; each admin's yes."""

from conversation_store.connections import Execute

STATEMENTS = (
    "ALTER TABLE approvals ADD COLUMN covers TEXT",
    "ALTER TABLE approvals ADD COLUMN version TEXT",
    "ALTER TABLE approvals ADD COLUMN admins_needed INTEGER NOT NULL DEFAULT 0",
    "ALTER TABLE approvals ADD COLUMN edits TEXT",
    """
    CREATE TABLE approval_votes (
        approval INTEGER NOT NULL REFERENCES approvals (id) ON DELETE CASCADE,
        admin TEXT NOT NULL,
        PRIMARY KEY (approval, admin)
    ) STRICT, WITHOUT ROWID
    """,
)


def apply(execute: Execute) -> None:
    """Add the columns and the table; questions from before are answered by one person."""
    for statement in STATEMENTS:
        execute(statement)
