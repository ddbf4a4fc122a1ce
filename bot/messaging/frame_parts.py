"""The parts of a received frame that are ever looked at, as signal-cli's `receive` writes them.

A value that has to be right is declared plainly; `Lenient` ones count as absent where they are
wrong in type or size. Parts of which only the presence counts are objects of any kind.
"""

from typing import Annotated, Final, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    OnErrorOmit,
    StrictBool,
    StrictInt,
    StrictStr,
    StringConstraints,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

MAX_RECEIPT: Final = 500
"""Timestamps in one receipt; one with more is not read."""

MAX_LIST: Final = 2_000
"""Mentions or files of one message; a list of more is not read."""

MAX_OPTIONS: Final = 100
"""Options that a vote may name; polls of phones have 10."""

MAX_EMOJI: Final = 64
"""Characters of a reaction; the longest emoji have 10."""


class _NoneIfWrong:
    """Marks an optional part: a value of a wrong type or size counts as absent."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=None, on_error="default")


T = TypeVar("T")
Lenient = Annotated[T | None, _NoneIfWrong()]

Aci = Annotated[
    str,
    StringConstraints(
        strict=True, to_lower=True, pattern=r"(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    ),
]
Number = Annotated[str, StringConstraints(strict=True, pattern=r"^\+?[0-9]{1,32}$")]
Name = Annotated[str, StringConstraints(strict=True, max_length=512)]
Timestamp = Annotated[StrictInt, Field(gt=0, lt=2**63)]
Place = Annotated[StrictInt, Field(ge=0, lt=MAX_OPTIONS)]
Size = Annotated[StrictInt, Field(ge=0, lt=2**63)]
Seconds = Annotated[StrictInt, Field(ge=0)]
Emoji = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=MAX_EMOJI)]
GroupId = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/=_-]{1,128}$")]
FileId = Annotated[
    str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}$")
]


class Part(BaseModel):
    """A part of a frame; keys are in camel case there."""

    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class GroupInfo(Part):
    """Which group a message belongs to."""

    group_id: GroupId
    type: Lenient[StrictStr] = None


class Mention(Part):
    """A range of a text, in UTF-16 units, that names somebody."""

    start: Annotated[StrictInt, Field(ge=0)]
    length: Annotated[StrictInt, Field(ge=0)]
    uuid: Lenient[Aci] = None
    number: Lenient[Number] = None
    name: Lenient[Name] = None


class Attachment(Part):
    """A file."""

    id: Lenient[FileId] = None
    content_type: Lenient[StrictStr] = None
    filename: Lenient[StrictStr] = None
    size: Lenient[Size] = None
    is_voice_note: Lenient[StrictBool] = None


Attachments = Lenient[Annotated[list[OnErrorOmit[Attachment]], Field(max_length=MAX_LIST)]]
Mentions = Lenient[Annotated[list[OnErrorOmit[Mention]], Field(max_length=MAX_LIST)]]


class QuotedFile(Attachment):
    """A file of a quoted message, of which only a small picture came along."""

    thumbnail: Lenient[Attachment] = None


class QuotePart(Part):
    """What a message replies to."""

    id: Lenient[Timestamp] = None
    author: Lenient[Number] = None
    author_number: Lenient[Number] = None
    author_uuid: Lenient[Aci] = None
    text: Lenient[StrictStr] = None
    attachments: Lenient[Annotated[list[OnErrorOmit[QuotedFile]], Field(max_length=MAX_LIST)]] = (
        None
    )


class Preview(Part):
    """How a link looks."""

    image: Lenient[Attachment] = None


class DataMessage(Part):
    """Nearly everything that people send."""

    timestamp: Lenient[Timestamp] = None
    message: StrictStr | None = None
    group_info: GroupInfo | None = None
    mentions: Mentions = None
    quote: Lenient[QuotePart] = None
    attachments: Attachments = None
    previews: Lenient[Annotated[list[OnErrorOmit[Preview]], Field(max_length=MAX_LIST)]] = None
    expires_in_seconds: Lenient[Seconds] = None
    view_once: Lenient[StrictBool] = None
    is_expiration_update: object = None
    story_context: object = None
    reaction: object = None
    remote_delete: object = None
    admin_delete: object = None
    sticker: object = None
    poll_create: object = None
    poll_vote: object = None
    poll_terminate: object = None
    pin_message: object = None
    unpin_message: object = None
    group_call_update: object = None


class EditMessage(Part):
    """A message that takes the place of an earlier one."""

    target_sent_timestamp: Timestamp
    data_message: DataMessage


class ReactionPart(Part):
    """An emoji on a message."""

    emoji: Emoji
    target_author: Lenient[Number] = None
    target_author_number: Lenient[Number] = None
    target_author_uuid: Lenient[Aci] = None
    target_sent_timestamp: Timestamp
    is_remove: StrictBool


class PollVotePart(Part):
    """Somebody's vote in a poll, by the places of its options; none: it was taken back."""

    author: Lenient[Number] = None
    author_number: Lenient[Number] = None
    author_uuid: Lenient[Aci] = None
    target_sent_timestamp: Timestamp
    option_indexes: Annotated[list[Place], Field(max_length=MAX_OPTIONS)] = []


class RemoteDelete(Part):
    """An author's word that an own message goes."""

    timestamp: Timestamp


class AdminDelete(Part):
    """A group admin's word that somebody's message goes."""

    target_author_uuid: Aci
    target_sent_timestamp: Timestamp


class ReceiptMessage(Part):
    """What a phone says about messages that it got."""

    timestamps: Annotated[list[Timestamp], Field(min_length=1, max_length=MAX_RECEIPT)]
    is_delivery: object = None
    is_read: object = None
    is_viewed: object = None

    @property
    def proves_arrival(self) -> bool:
        """Whether it is of a known kind: each of them means that the message is there."""
        return True in (self.is_delivery, self.is_read, self.is_viewed)


class SentMessage(DataMessage):
    """What another device of the account has sent, and to whom; an edit has only its own part."""

    destination: Lenient[Number] = None
    destination_number: Lenient[Number] = None
    destination_uuid: Lenient[Aci] = None
    edit_message: EditMessage | None = None


class SyncMessage(Part):
    """What the account's devices tell each other."""

    sent_message: SentMessage | None = None


class Envelope(Part):
    """Who sent what."""

    source_number: Lenient[Number] = None
    source_uuid: Lenient[Aci] = None
    source_name: Lenient[Name] = None
    timestamp: Lenient[Timestamp] = None
    server_received_timestamp: Lenient[Timestamp] = None
    server_delivered_timestamp: Lenient[Timestamp] = None
    data_message: DataMessage | None = None
    edit_message: object = None
    typing_message: object = None
    receipt_message: object = None
    call_message: object = None
    story_message: object = None
    sync_message: object = None


class ExceptionInfo(Part):
    """Why signal-cli could not read what came."""

    type: Lenient[StrictStr] = None


class Received(Part):
    """A whole frame."""

    account: StrictStr | None = None
    envelope: Envelope | None = None
    exception: ExceptionInfo | None = None
    error: object = None
