"""Small things that the bot has to remember about itself, by name."""

from conversation_store.connections import Execute


def find(execute: Execute, name: str) -> str | None:
    """Return what is known by a name."""
    rows = list(execute("SELECT value FROM facts WHERE name = ?", (name,)))
    return next((value for (value,) in rows), None)


def below(execute: Execute, prefix: str) -> dict[str, str]:
    """Return what is known by names that begin so, by these names."""
    sql = "SELECT name, value FROM facts WHERE substr(name, 1, ?) = ?"
    return dict(list(execute(sql, (len(prefix), prefix))))


def put(execute: Execute, name: str, value: str) -> None:
    """Remember a value by a name, instead of the one before."""
    execute(
        "INSERT INTO facts (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (name, value),
    )
