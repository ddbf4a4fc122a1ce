"""What can go wrong with the store.

StoreError
├── StoreLocked      another process has it open for writing
├── StoreUnreadable  made by a newer version, or damaged
│   └── WrongKey     another key, or no database
└── StoreFailed      the disk is broken, or not there
    └── StoreRefused it is full, read-only or busy, which may pass
"""


class StoreError(Exception):
    """The store cannot do its work."""


class StoreLocked(StoreError):
    """Another process has the store open for writing."""


class StoreUnreadable(StoreError):
    """The file is no store that this version can read with this key."""


class WrongKey(StoreUnreadable):
    """The key does not fit, or the file is no database: one looks like the other."""

    def __init__(self) -> None:
        super().__init__("the key does not fit, or the file is no database")


class StoreFailed(StoreError):
    """The disk is broken, or not there."""


class StoreRefused(StoreFailed):
    """The disk takes nothing now: it is full or read-only, or somebody else holds the store."""
