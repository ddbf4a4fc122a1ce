"""One parser for what both transports receive: `{"envelope": ..., "account": ...}`.

It takes decoded JSON of any shape and always returns a `Frame`. The core of a message (author,
chat, timestamp, text) must be right, or the frame is broken; anything else that has a wrong type
is treated as absent. Only the parts named in the models are ever looked at, so neither depth nor
unknown keys matter. The format is that of signal-cli's `receive` notification.
"""

import re
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
    ValidationError,
)
from pydantic.alias_generators import to_camel
from pydantic_core import CoreSchema, core_schema

from bot.messaging.events import (
    Account,
    ChatId,
    ChatKind,
    Frame,
    FrameKind,
    Ignored,
    IncomingFile,
    IncomingMessage,
    Person,
    Quoted,
    Reaction,
    Receipt,
)

TEXT_LIMIT_BYTES: Final = 64 * 1024
"""What official apps accept as one text; the rest is cut."""

RECEIPT_LIMIT: Final = 500
"""Timestamps in one receipt; one with more is not read."""

EMOJI_LIMIT: Final = 64
"""Characters of a reaction; the longest emoji have 10."""

_LONG_TEXT: Final = "text/x-signal-plain"
_PLACEHOLDER: Final = "\ufffc"
_NOBODY_IN_PARTICULAR: Final = "someone"
_OWN_MENTION: Final = re.compile(rf" ?{_PLACEHOLDER}$|(?:^|(?<=\s)){_PLACEHOLDER} ?|{_PLACEHOLDER}")
_PHONE_NUMBER: Final = re.compile(r"[+\d][\d\s()./-]{4,}")


class _NoneIfWrong:
    """Marks an optional part: a value of a wrong type or size counts as absent."""

    def __get_pydantic_core_schema__(
        self, source: object, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.with_default_schema(handler(source), default=None, on_error="default")


T = TypeVar("T")
_Lenient = Annotated[T | None, _NoneIfWrong()]
_Aci = Annotated[
    str,
    StringConstraints(
        strict=True, to_lower=True, pattern=r"(?i)^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
    ),
]
_Number = Annotated[str, StringConstraints(strict=True, pattern=r"^\+?[0-9]{1,32}$")]
_Name = Annotated[str, StringConstraints(strict=True, max_length=512)]
_Timestamp = Annotated[StrictInt, Field(gt=0, lt=2**63)]
_Emoji = Annotated[str, StringConstraints(strict=True, min_length=1, max_length=EMOJI_LIMIT)]
_GroupId = Annotated[str, StringConstraints(strict=True, pattern=r"^[A-Za-z0-9+/=_-]{1,128}$")]


class _Part(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, extra="ignore", frozen=True)


class _GroupInfo(_Part):
    group_id: _GroupId
    type: _Lenient[StrictStr] = None


class _Mention(_Part):
    start: Annotated[StrictInt, Field(ge=0)]
    length: Annotated[StrictInt, Field(ge=0)]
    uuid: _Lenient[_Aci] = None
    number: _Lenient[_Number] = None
    name: _Lenient[_Name] = None


class _Quote(_Part):
    id: _Lenient[_Timestamp] = None
    author: _Lenient[_Number] = None
    author_number: _Lenient[_Number] = None
    author_uuid: _Lenient[_Aci] = None


class _Attachment(_Part):
    content_type: _Lenient[StrictStr] = None


class _DataMessage(_Part):
    timestamp: _Lenient[_Timestamp] = None
    message: StrictStr | None = None
    group_info: _GroupInfo | None = None
    mentions: _Lenient[list[OnErrorOmit[_Mention]]] = None
    quote: _Lenient[_Quote] = None
    attachments: _Lenient[list[OnErrorOmit[_Attachment]]] = None
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


class _ReactionPart(_Part):
    emoji: _Emoji
    target_author: _Lenient[_Number] = None
    target_author_number: _Lenient[_Number] = None
    target_author_uuid: _Lenient[_Aci] = None
    target_sent_timestamp: _Timestamp
    is_remove: StrictBool


class _ReceiptMessage(_Part):
    timestamps: Annotated[list[_Timestamp], Field(min_length=1, max_length=RECEIPT_LIMIT)]
    is_delivery: object = None
    is_read: object = None
    is_viewed: object = None

    @property
    def proves_arrival(self) -> bool:
        """Whether it is of a known kind: each of them means that the message is there."""
        return True in (self.is_delivery, self.is_read, self.is_viewed)


class _Envelope(_Part):
    source_number: _Lenient[_Number] = None
    source_uuid: _Lenient[_Aci] = None
    source_name: _Lenient[_Name] = None
    timestamp: _Lenient[_Timestamp] = None
    data_message: _DataMessage | None = None
    edit_message: object = None
    typing_message: object = None
    receipt_message: object = None
    call_message: object = None
    story_message: object = None
    sync_message: object = None


class _ExceptionInfo(_Part):
    type: _Lenient[StrictStr] = None


class _Received(_Part):
    account: StrictStr | None = None
    envelope: _Envelope | None = None
    exception: _ExceptionInfo | None = None
    error: object = None


_OTHER_PAYLOADS: Final = (
    ("edit_message", FrameKind.EDIT),
    ("typing_message", FrameKind.TYPING),
    ("receipt_message", FrameKind.RECEIPT),
    ("call_message", FrameKind.CALL),
    ("story_message", FrameKind.STORY),
)
_WORDLESS: Final = (
    ("reaction", FrameKind.REACTION),
    ("remote_delete", FrameKind.DELETE),
    ("admin_delete", FrameKind.DELETE),
    ("sticker", FrameKind.STICKER),
    ("poll_create", FrameKind.POLL),
    ("poll_vote", FrameKind.POLL),
    ("poll_terminate", FrameKind.POLL),
    ("pin_message", FrameKind.PIN),
    ("unpin_message", FrameKind.PIN),
    ("group_call_update", FrameKind.CALL),
)


def parse_frame(frame: object, account: Account) -> Frame:
    """Return the message, the reaction or the receipt in a received frame, or why there is none.

    Args:
        frame: decoded JSON, whatever it is.
        account: the bot's own account, to know its copies, its mentions, and what quotes or
            reacts to its messages.
    """
    try:
        received = _Received.model_validate(frame)
    except ValidationError:
        return Ignored(FrameKind.BROKEN)
    return _parse_received(received, account)


def _parse_received(received: _Received, account: Account) -> Frame:
    if received.error is not None and received.envelope is None:
        return Ignored(FrameKind.ERROR)
    if received.account is None:
        return Ignored(FrameKind.BROKEN)
    if received.account != account.number:
        return Ignored(FrameKind.OTHER_ACCOUNT)
    if received.exception is not None:
        return Ignored(_kind_of_exception(received.exception))
    if received.envelope is None:
        return Ignored(FrameKind.BROKEN)
    return _parse_envelope(received.envelope, account)


def _kind_of_exception(exception: _ExceptionInfo) -> FrameKind:
    if exception.type == "UntrustedIdentityException":
        return FrameKind.UNTRUSTED_IDENTITY
    return FrameKind.UNDECRYPTABLE


def _parse_envelope(envelope: _Envelope, account: Account) -> Frame:
    if envelope.sync_message is not None:
        return Ignored(FrameKind.SYNC)
    if account.is_me(aci=envelope.source_uuid, number=envelope.source_number):
        return Ignored(FrameKind.OWN)
    if envelope.data_message is not None:
        return _parse_data_message(envelope, envelope.data_message, account)
    kind = _first_present(envelope, _OTHER_PAYLOADS)
    if kind is FrameKind.RECEIPT:
        return _parse_receipt(envelope)
    return Ignored(kind)


def _parse_receipt(envelope: _Envelope) -> Frame:
    try:
        receipt = _ReceiptMessage.model_validate(envelope.receipt_message)
    except ValidationError:
        return Ignored(FrameKind.RECEIPT)
    if envelope.source_uuid is None or not receipt.proves_arrival:
        return Ignored(FrameKind.RECEIPT)
    return Receipt(person=envelope.source_uuid, timestamps=tuple(receipt.timestamps))


def _parse_data_message(envelope: _Envelope, data: _DataMessage, account: Account) -> Frame:
    if data.story_context is not None:
        return Ignored(FrameKind.STORY)
    text = _readable_text(data, account)
    addresses_bot = _addresses(data, account)
    attachments = _count_files(data)
    if not (text or attachments or (data.message and addresses_bot)):
        return _parse_wordless(envelope, data, account)
    author, timestamp = _author_of(envelope), data.timestamp or envelope.timestamp
    if author is None or timestamp is None:
        return Ignored(FrameKind.BROKEN)
    return IncomingMessage(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=timestamp,
        text=text,
        addresses_bot=addresses_bot,
        files=tuple(
            IncomingFile(f"unread-{number}", "application/octet-stream")
            for number in range(attachments)
        ),
        quote=_quoted(data, account),
    )


def _parse_wordless(envelope: _Envelope, data: _DataMessage, account: Account) -> Frame:
    kind = _kind_without_words(data)
    if kind is FrameKind.REACTION:
        return _parse_reaction(envelope, data, account)
    return Ignored(kind)


def _parse_reaction(envelope: _Envelope, data: _DataMessage, account: Account) -> Frame:
    try:
        reaction = _ReactionPart.model_validate(data.reaction)
    except ValidationError:
        return Ignored(FrameKind.BROKEN)
    if not _targets_bot(reaction, account):
        return Ignored(FrameKind.REACTION)
    author, timestamp = _author_of(envelope), data.timestamp or envelope.timestamp
    if author is None or timestamp is None:
        return Ignored(FrameKind.BROKEN)
    return Reaction(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=timestamp,
        emoji=reaction.emoji,
        target_timestamp=reaction.target_sent_timestamp,
        removed=reaction.is_remove,
    )


def _author_of(envelope: _Envelope) -> Person | None:
    if envelope.source_uuid is None:
        return None
    return Person(
        aci=envelope.source_uuid,
        number=envelope.source_number,
        name=_presentable(envelope.source_name),
    )


def _count_files(data: _DataMessage) -> int:
    return sum(1 for file in data.attachments or () if file.content_type != _LONG_TEXT)


def _kind_without_words(data: _DataMessage) -> FrameKind:
    kind = _first_present(data, _WORDLESS)
    if kind is not FrameKind.EMPTY:
        return kind
    if data.is_expiration_update is True:
        return FrameKind.TIMER
    if data.group_info is not None and data.group_info.type != "DELIVER":
        return FrameKind.GROUP_UPDATE
    return FrameKind.EMPTY


def _first_present(part: _Part, kinds: tuple[tuple[str, FrameKind], ...]) -> FrameKind:
    for name, kind in kinds:
        if getattr(part, name) is not None:
            return kind
    return FrameKind.EMPTY


def _chat_of(data: _DataMessage, author: Person) -> ChatId:
    if data.group_info is not None:
        return ChatId(ChatKind.GROUP, data.group_info.group_id)
    return ChatId(ChatKind.DIRECT, author.aci)


def _addresses(data: _DataMessage, account: Account) -> bool:
    if any(_mentions_bot(mention, account) for mention in data.mentions or ()):
        return True
    return data.quote is not None and _quotes_bot(data.quote, account)


def _quoted(data: _DataMessage, account: Account) -> Quoted | None:
    if data.quote is None:
        return None
    return Quoted(data.quote.id, data.quote.author_uuid, _quotes_bot(data.quote, account))


def _quotes_bot(quote: _Quote, account: Account) -> bool:
    return account.is_me(aci=quote.author_uuid, number=quote.author_number or quote.author)


def _targets_bot(reaction: _ReactionPart, account: Account) -> bool:
    number = reaction.target_author_number or reaction.target_author
    return account.is_me(aci=reaction.target_author_uuid, number=number)


def _mentions_bot(mention: _Mention, account: Account) -> bool:
    return account.is_me(aci=mention.uuid, number=mention.number)


def _readable_text(data: _DataMessage, account: Account) -> str:
    # One character is at least one byte, so nothing beyond this many can stay.
    text = (data.message or "")[:TEXT_LIMIT_BYTES]
    if data.mentions:
        text = _name_mentions(text, data.mentions, account)
    text = text.replace("\0", "")
    return text.encode(errors="replace")[:TEXT_LIMIT_BYTES].decode(errors="ignore")


def _name_mentions(text: str, mentions: list[_Mention], account: Account) -> str:
    """Replace each mentioned range by a name; offsets count UTF-16 units, as Signal's do."""
    units = text.encode("utf-16-le", "surrogatepass")
    pieces: list[bytes] = []
    done = 0
    for mention in sorted(mentions, key=lambda mention: mention.start):
        start, end = 2 * mention.start, 2 * (mention.start + mention.length)
        if start < done or end > len(units) or start == end:
            continue
        own = _mentions_bot(mention, account)
        name = _PLACEHOLDER if own else f"@{_presentable(mention.name) or _NOBODY_IN_PARTICULAR}"
        pieces += (units[done:start], name.encode("utf-16-le"))
        done = end
    pieces.append(units[done:])
    return _OWN_MENTION.sub("", b"".join(pieces).decode("utf-16-le", "replace"))


def _presentable(name: str | None) -> str | None:
    """Return a name as one line; None for one that is missing or a phone number."""
    if name is None:
        return None
    line = " ".join(name.replace("\0", "").replace(_PLACEHOLDER, "").split())
    return None if not line or _PHONE_NUMBER.fullmatch(line) else line
