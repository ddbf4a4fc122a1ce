"""Errors of the store, all of them a `StoreError`.

Every operation may raise StoreFailed: the disk refuses, or the database is broken. Docstrings name
only the other errors.
"""


class StoreError(Exception):
    """The store cannot do its work."""


class StoreLocked(StoreError):
    """Another process has the store open for writing."""


class StoreUnreadable(StoreError):
    """This version cannot read the file with this key."""


class WrongKey(StoreUnreadable):
    """The key does not fit, or the file is not a database: both look the same."""

    def __init__(self) -> None:
        super().__init__("the key does not fit, or the file is no database")


class StoreFailed(StoreError):
    """The disk is broken, or not there."""


class StoreRefused(StoreFailed):
    """The disk refuses writes now: it is full or read-only, or another process holds the file."""


def is_of_store(error: Exception) -> bool:
    """Whether the store failed, perhaps in one of several concurrent tasks."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(StoreError) is not None
    return isinstance(error, StoreError)
