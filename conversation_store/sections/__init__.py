"""The operations on an open store, by what they are about; every write is on disk on return."""
