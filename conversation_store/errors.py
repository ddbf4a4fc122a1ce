"""What can go wrong with the store.

StoreError
├── StoreLocked      another process has it open for writing
├── StoreUnreadable  wrong key, no database, or made by a newer version
└── StoreFailed      the disk is full, read-only or broken
"""


class StoreError(Exception):
    """The store cannot do its work."""


class StoreLocked(StoreError):
    """Another process has the store open for writing."""


class StoreUnreadable(StoreError):
    """The file is no store that this version can read with this key."""


class StoreFailed(StoreError):
    """The disk is full, read-only or broken."""
