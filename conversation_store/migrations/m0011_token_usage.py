"""How many tokens people's questions took, a row for each day, person, chat and model."""

from conversation_store.connections import Execute


def apply(execute: Execute) -> None:
    """Make the table; nobody has used anything so far."""
    execute("""
        CREATE TABLE token_usage (
            person TEXT NOT NULL,
            day INTEGER NOT NULL,
            chat TEXT NOT NULL,
            model TEXT NOT NULL,
            prompt_tokens INTEGER NOT NULL,
            completion_tokens INTEGER NOT NULL,
            is_estimated INTEGER NOT NULL,
            PRIMARY KEY (person, day, chat, model)
        ) STRICT, WITHOUT ROWID
    """)
