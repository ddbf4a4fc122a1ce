"""The bot's own Signal account, as the Signal side knows it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class OwnIdentity:
    """Who the bot is to Signal.

    Attributes:
        aci: the account's uuid, lower case.
        identity_key: the public identity key, 33 bytes (0x05 and the Curve25519 point).
        linked_devices: devices of the account beside the primary one; they share its key.
    """

    aci: str
    identity_key: bytes = field(repr=False)
    linked_devices: int


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that goes with a message.

    Attributes:
        name: as the phone shows it; ASCII letters, digits, dots and hyphens.
        content_type: a MIME type without parameters.
        data: the file.
    """

    name: str
    content_type: str
    data: bytes = field(repr=False)
