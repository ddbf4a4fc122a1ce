"""The message about a store that cannot be used."""

from conversation_store.errors import StoreError, WrongKey


def said(error: StoreError) -> str:
    """Return the error behind the name of its setting."""
    if isinstance(error, WrongKey):
        return f"STORE__KEY: {error}"
    return f"STORE__PATH: {error}"
