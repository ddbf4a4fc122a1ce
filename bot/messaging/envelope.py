"""One parser for what both transports receive: `{"envelope": ..., "account": ...}`.

It takes decoded JSON of any shape and always returns a `Frame`. The core of a message (author,
chat, timestamp, text) must be right, or the frame is broken; anything else that has a wrong type
is treated as absent. Only the parts named in `frame_parts` are ever looked at, so neither depth
nor unknown keys matter. The format is that of signal-cli's `receive` notification.

An account that is a person's own (`Account.note_to_self`) hears of its note to self alone, which
arrives as what another device of the account has sent to the account.
"""

import re
from collections.abc import Sequence
from typing import Final

from pydantic import ValidationError

from bot.messaging.events import (
    Account,
    Deletion,
    Edit,
    Frame,
    FrameKind,
    GroupChanged,
    IdentityChanged,
    Ignored,
    IncomingMessage,
    Person,
    PollVote,
    Reaction,
    Receipt,
    SentElsewhere,
)
from bot.messaging.frame_parts import (
    AdminDelete,
    Attachment,
    DataMessage,
    EditMessage,
    Envelope,
    Part,
    PollVotePart,
    QuotePart,
    ReactionPart,
    ReceiptMessage,
    Received,
    RemoteDelete,
    SentMessage,
    SyncMessage,
)
from bot.messaging.sanitize import (
    sanitize_file_name,
    sanitize_name,
    sanitize_quote,
    sanitize_text,
)
from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote

MAX_FILES: Final = 32
"""Files of one message that count; official apps send as many at the most."""

MAX_CONTENT_TYPE: Final = 100

MAX_EXPIRES: Final = 2**31
"""Seconds; a timer that says more says this."""

_LONG_TEXT: Final = "text/x-signal-plain"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_CONTENT_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")

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


class _Broken(Exception):
    """The core of the frame is not right."""


def parse_frame(frame: object, account: Account) -> Frame:
    """Return what a received frame tells the bot, or why it tells nothing.

    Args:
        frame: decoded JSON, whatever it is.
        account: the bot's own account, to know its copies, its mentions, and what quotes or
            reacts to its messages.
    """
    try:
        return _parse_received(Received.model_validate(frame), account)
    except (ValidationError, _Broken):
        return Ignored(FrameKind.BROKEN)


def _parse_received(received: Received, account: Account) -> Frame:
    if received.error is not None and received.envelope is None:
        return Ignored(FrameKind.ERROR)
    if received.account is None:
        raise _Broken
    if received.account != account.number:
        return Ignored(FrameKind.OTHER_ACCOUNT)
    if account.note_to_self:
        return _parse_own(received, account)
    return _parse_told(received, account)


def _parse_own(received: Received, account: Account) -> Frame:
    """Read the note to self; other messages of the account are not for the bot."""
    envelope = received.envelope
    if envelope is not None and envelope.sync_message is not None and received.exception is None:
        return _parse_sync(envelope, account)
    told = _parse_told(received, account)
    return told if isinstance(told, Ignored) else Ignored(FrameKind.OTHER_CHAT)


def _parse_sync(envelope: Envelope, account: Account) -> Frame:
    sent = SyncMessage.model_validate(envelope.sync_message).sent_message
    if sent is None or not _is_from(envelope, account):
        return Ignored(FrameKind.SYNC)
    if sent.group_info is not None or not _goes_to(sent, account):
        return Ignored(FrameKind.OTHER_CHAT)
    if sent.edit_message is not None:
        return _parse_edit(envelope, sent.edit_message, account)
    return _parse_data_message(envelope, sent, account)


def _parse_sent_elsewhere(envelope: Envelope, account: Account) -> Frame:
    """Read when the account's owner sent something from another device; not what it says."""
    try:
        sent = SyncMessage.model_validate(envelope.sync_message).sent_message
        if sent is not None and sent.edit_message is not None:
            sent_at = sent.edit_message.data_message.timestamp
        else:
            sent_at = None if sent is None else sent.timestamp
    except ValidationError:
        return Ignored(FrameKind.SYNC)
    if sent_at is None or not _is_from(envelope, account):
        return Ignored(FrameKind.SYNC)
    return SentElsewhere(sent_at)


def _parse_told(received: Received, account: Account) -> Frame:
    """Read what others have sent."""
    envelope = received.envelope
    if received.exception is not None:
        if received.exception.type != "UntrustedIdentityException":
            return Ignored(FrameKind.UNDECRYPTABLE)
        return _parse_new_identity(envelope, account)
    if envelope is None:
        raise _Broken
    if envelope.sync_message is not None:
        return _parse_sent_elsewhere(envelope, account)
    if _is_from(envelope, account):
        return Ignored(FrameKind.OWN)
    if envelope.data_message is not None:
        return _parse_data_message(envelope, envelope.data_message, account)
    return _parse_other_payload(envelope, account)


def _parse_new_identity(envelope: Envelope | None, account: Account) -> Frame:
    if envelope is None or envelope.source_uuid is None or _is_from(envelope, account):
        return Ignored(FrameKind.UNTRUSTED_IDENTITY)
    return IdentityChanged(account=account.number, person=_author_of(envelope))


def _parse_other_payload(envelope: Envelope, account: Account) -> Frame:
    kind = _first_present(envelope, _OTHER_PAYLOADS)
    if kind is FrameKind.EDIT:
        return _parse_edit(envelope, EditMessage.model_validate(envelope.edit_message), account)
    if kind is FrameKind.RECEIPT:
        return _parse_receipt(envelope)
    return Ignored(kind)


def _parse_receipt(envelope: Envelope) -> Frame:
    try:
        receipt = ReceiptMessage.model_validate(envelope.receipt_message)
    except ValidationError:
        return Ignored(FrameKind.RECEIPT)
    if envelope.source_uuid is None or not receipt.proves_arrival:
        return Ignored(FrameKind.RECEIPT)
    return Receipt(person=envelope.source_uuid, timestamps=tuple(receipt.timestamps))


def _parse_edit(envelope: Envelope, edit: EditMessage, account: Account) -> Frame:
    """Read an edit; the message may be without words now, as when only its picture is left."""
    if edit.data_message.story_context is not None:
        return Ignored(FrameKind.STORY)
    data = edit.data_message
    message = _message(envelope, data, _words(data, account), account)
    return Edit(message=message, target_timestamp=edit.target_sent_timestamp)


def _parse_data_message(envelope: Envelope, data: DataMessage, account: Account) -> Frame:
    if data.story_context is not None:
        return Ignored(FrameKind.STORY)
    mentions_only = bool(data.message) and _addresses(data, account)
    words = _words(data, account)
    if mentions_only or words or _user_files(data.attachments):
        return _message(envelope, data, words, account)
    return _parse_wordless(envelope, data, account)


def _message(
    envelope: Envelope, data: DataMessage, words: str, account: Account
) -> IncomingMessage:
    author = _author_of(envelope)
    return IncomingMessage(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=_timestamp_of(envelope, data),
        text=words,
        addresses_bot=_addresses(data, account),
        files=_files(_user_files(data.attachments)[:MAX_FILES]),
        unread=_files(_unread(data)),
        quote=None if data.quote is None else _quoted(data.quote, account),
        expires_seconds=min(data.expires_in_seconds or 0, MAX_EXPIRES),
        view_once=data.view_once is True,
        server_timestamp=envelope.server_received_timestamp,
        delivered_timestamp=envelope.server_delivered_timestamp,
    )


def _parse_wordless(envelope: Envelope, data: DataMessage, account: Account) -> Frame:
    kind = _kind_without_words(data)
    if kind is FrameKind.REACTION:
        return _parse_reaction(envelope, data, account)
    if kind is FrameKind.DELETE:
        return _parse_deletion(envelope, data, account)
    if data.poll_vote is not None:
        return _parse_vote(envelope, data, account)
    if kind is FrameKind.GROUP_UPDATE:
        author = _author_of(envelope)
        return GroupChanged(account.number, chat=_chat_of(data, author), author=author)
    return Ignored(kind)


def _kind_without_words(data: DataMessage) -> FrameKind:
    kind = _first_present(data, _WORDLESS)
    if kind is not FrameKind.EMPTY:
        return kind
    if data.is_expiration_update is True:
        return FrameKind.TIMER
    if data.group_info is not None and data.group_info.type != "DELIVER":
        return FrameKind.GROUP_UPDATE
    return FrameKind.EMPTY


def _first_present(part: Part, kinds: tuple[tuple[str, FrameKind], ...]) -> FrameKind:
    for name, kind in kinds:
        if getattr(part, name) is not None:
            return kind
    return FrameKind.EMPTY


def _parse_reaction(envelope: Envelope, data: DataMessage, account: Account) -> Frame:
    reaction = ReactionPart.model_validate(data.reaction)
    number = reaction.target_author_number or reaction.target_author
    if not account.is_me(aci=reaction.target_author_uuid, number=number):
        return Ignored(FrameKind.REACTION)
    author = _author_of(envelope)
    return Reaction(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=_timestamp_of(envelope, data),
        emoji=reaction.emoji,
        target_timestamp=reaction.target_sent_timestamp,
        removed=reaction.is_remove,
    )


def _parse_vote(envelope: Envelope, data: DataMessage, account: Account) -> Frame:
    vote = PollVotePart.model_validate(data.poll_vote)
    if not account.is_me(aci=vote.author_uuid, number=vote.author_number or vote.author):
        return Ignored(FrameKind.POLL)
    author = _author_of(envelope)
    return PollVote(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=_timestamp_of(envelope, data),
        target_timestamp=vote.target_sent_timestamp,
        options=tuple(vote.option_indexes),
    )


def _parse_deletion(envelope: Envelope, data: DataMessage, account: Account) -> Frame:
    author = _author_of(envelope)
    target_author, target_timestamp = _deleted(data, author)
    return Deletion(
        account=account.number,
        chat=_chat_of(data, author),
        author=author,
        timestamp=_timestamp_of(envelope, data),
        target_author=target_author,
        target_timestamp=target_timestamp,
    )


def _deleted(data: DataMessage, author: Person) -> tuple[str, int]:
    """Return whose message is deleted, and which; admins are there in groups alone."""
    if data.remote_delete is not None:
        return author.aci, RemoteDelete.model_validate(data.remote_delete).timestamp
    if data.group_info is None:
        raise _Broken
    deleted = AdminDelete.model_validate(data.admin_delete)
    return deleted.target_author_uuid, deleted.target_sent_timestamp


def _is_from(envelope: Envelope, account: Account) -> bool:
    return account.is_me(aci=envelope.source_uuid, number=envelope.source_number)


def _goes_to(sent: SentMessage, account: Account) -> bool:
    number = sent.destination_number or sent.destination
    return account.is_me(aci=sent.destination_uuid, number=number)


def _author_of(envelope: Envelope) -> Person:
    if envelope.source_uuid is None:
        raise _Broken
    return Person(
        aci=envelope.source_uuid,
        number=envelope.source_number,
        name=sanitize_name(envelope.source_name),
    )


def _timestamp_of(envelope: Envelope, data: DataMessage) -> int:
    timestamp = data.timestamp or envelope.timestamp
    if timestamp is None:
        raise _Broken
    return timestamp


def _chat_of(data: DataMessage, author: Person) -> ChatId:
    if data.group_info is not None:
        return ChatId.group(data.group_info.group_id)
    return ChatId.direct(author.aci)


def _words(data: DataMessage, account: Account) -> str:
    return sanitize_text(data.message, data.mentions or (), account)


def _addresses(data: DataMessage, account: Account) -> bool:
    mentions = data.mentions or ()
    if any(account.is_me(aci=mention.uuid, number=mention.number) for mention in mentions):
        return True
    return data.quote is not None and _quotes_bot(data.quote, account)


def _quoted(quote: QuotePart, account: Account) -> ReceivedQuote:
    return ReceivedQuote(
        timestamp=quote.id,
        author=quote.author_uuid,
        by_bot=_quotes_bot(quote, account),
        text=sanitize_quote(quote.text),
        has_files=bool(_user_files(quote.attachments)),
        author_number=quote.author_number or quote.author,
    )


def _quotes_bot(quote: QuotePart, account: Account) -> bool:
    return account.is_me(aci=quote.author_uuid, number=quote.author_number or quote.author)


def _files(attachments: Sequence[Attachment]) -> tuple[ReceivedFile, ...]:
    return tuple(
        ReceivedFile(
            # One that cannot be named cannot be had; that it came is to be told all the same.
            id=file.id or f"unnamed-{number}",
            content_type=_content_type(file),
            name=sanitize_file_name(file.filename),
            size=file.size,
            voice_note=_is_voice_note(file),
        )
        for number, file in enumerate(attachments)
    )


def _unread(data: DataMessage) -> list[Attachment]:
    quoted = data.quote.attachments or () if data.quote is not None else ()
    pictures = (*(file.thumbnail for file in quoted), *(one.image for one in data.previews or ()))
    return [
        *_user_files(data.attachments)[MAX_FILES:],
        *(file for file in data.attachments or () if _content_type(file) == _LONG_TEXT),
        *(picture for picture in pictures if picture is not None),
    ]


def _user_files(attachments: Sequence[Attachment] | None) -> list[Attachment]:
    """Return the files that somebody attached; a long text comes as one that nobody did."""
    return [file for file in attachments or () if _content_type(file) != _LONG_TEXT]


def _content_type(file: Attachment) -> str:
    """Return the type without parameters, where it reads like one."""
    kind = (file.content_type or "").partition(";")[0].strip().lower()
    known = len(kind) <= MAX_CONTENT_TYPE and _CONTENT_TYPE.fullmatch(kind)
    return kind if known else _UNKNOWN_TYPE


def _is_voice_note(file: Attachment) -> bool:
    """Whether it was recorded in Signal; signal-cli up to 0.14.7 does not say, but names none."""
    if file.is_voice_note is not None:
        return file.is_voice_note
    return file.filename is None and _content_type(file).startswith("audio/")
