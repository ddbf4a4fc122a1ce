"""What is said of a store that cannot be used."""

from conversation_store.errors import StoreError, WrongKey


def said(error: StoreError) -> str:
    """Return what is wrong, behind the name of the setting that it is about."""
    if isinstance(error, WrongKey):
        return f"STORE__KEY: {error}"
    return f"STORE__PATH: {error}"
