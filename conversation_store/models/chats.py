"""Where people talk."""

from typing import Final, Self

_DIRECT: Final = "direct:"
_GROUP: Final = "group:"


class ChatId(str):
    """One conversation: a private chat with a person (by ACI) or a group (by its internal id).

    It is the text of its kind and its id, so it is a key and a column without being converted.
    """

    __slots__ = ()

    @classmethod
    def direct(cls, aci: str) -> Self:
        """Return the private chat with a person."""
        return cls(_DIRECT + aci)

    @classmethod
    def group(cls, group_id: str) -> Self:
        """Return the chat of a group."""
        return cls(_GROUP + group_id)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the chat that a text names; ValueError when it names none."""
        if not text.startswith((_DIRECT, _GROUP)):
            raise ValueError("This names no chat.")
        return cls(text)

    @property
    def value(self) -> str:
        """The person's ACI, or the group's id."""
        return self.partition(":")[2]

    @property
    def is_group(self) -> bool:
        """Whether several people read along."""
        return self.startswith(_GROUP)
