"""Parse received frames, `{"envelope": ..., "account": ...}`, as signal-cli writes them.

`parse_frame` takes decoded JSON of any shape and always returns a `Frame`. The core of a message
(author, chat, timestamp, text) must be right; otherwise the frame is broken. Any other value of a
wrong type or size counts as absent. Unknown keys and depth do not matter, because only known keys
are read.

On a person's own account (`Account.note_to_self`) the bot reads only the note to self. Its messages
arrive as copies of messages that another device of the account has sent to the account itself.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Final

from bot.observability.metrics import FRAMES
from bot.signal.events import (
    Deletion,
    Edit,
    FrameKind,
    GroupChanged,
    IdentityChanged,
    Incoming,
    IncomingMessage,
    Person,
    PollVote,
    Reaction,
    Receipt,
)
from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote


@dataclass(slots=True)
class Account:
    """The bot's own account.

    Attributes:
        number: the registered number, E.164.
        aci: lower case; None until the Signal side has told it.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone.
        people: profile names by ACI, from earlier frames; signal-cli does not name all mentions.
    """

    number: str
    aci: str | None = None
    note_to_self: bool = False
    people: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> frozenset[str]:
        """Number and, once known, ACI: other people use either."""
        return frozenset(filter(None, (self.aci, self.number)))


MAX_TEXT_BYTES: Final = 64 * 1024
"""Official apps accept as much as one text; the rest is cut."""
MAX_QUOTE: Final = 1_000
"""Characters of a quoted text."""
MAX_FILES: Final = 32
"""Files of one message; official apps send no more."""
MAX_FILE_NAME: Final = 255
MAX_NAME_CHARACTERS: Final = 64
"""Signal's apps accept 26 for each of two names. Longer names are cut; beyond eight times this
length, they count as text."""
MAX_CONTENT_TYPE: Final = 100
MAX_EXPIRES: Final = 2**31
"""Seconds; longer timers are shortened to this."""
MAX_RECEIPT: Final = 500
"""Timestamps in one receipt; a longer receipt is not read."""
MAX_LIST: Final = 1_000
"""Mentions or files of one message; a longer list is not read. Groups have at most 1,001 people."""
MAX_OPTIONS: Final = 100
"""Options that a vote may name; polls of phones have 10."""
MAX_EMOJI: Final = 64
"""Characters of a reaction; the longest emoji have 10."""

MAX_CARDS: Final = 10
"""Contact cards of one message, and entries of each kind on one card."""
MAX_LINE: Final = 500
"""Characters of a line on a contact card, in a poll or of a payment."""
MAX_PEOPLE: Final = 2_000
"""Names in memory for mentions."""

_LONG_TEXT: Final = "text/x-signal-plain"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_CONTENT_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_ACI: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\+?[0-9]{1,32}", re.ASCII)
_GROUP_ID: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,128}")
_FILE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_KINDS: Final = {"image": "picture", "video": "video", "audio": "recording"}
"""Words for a quoted file by its MIME type; others are documents."""
_PLACEHOLDER: Final = "\ufffc"
_OWN_MENTION: Final = re.compile(rf" ?{_PLACEHOLDER}$|(?:^|(?<=\s)){_PLACEHOLDER} ?|{_PLACEHOLDER}")
_NO_MARKS: Final = str.maketrans("[]", "()")
_JOINERS: Final = "\u200c\u200d"
"""Invisible, but kept: emoji need them, and names in Persian and in Indian scripts."""
_PHONE_NUMBER: Final = re.compile(r"[+\d][\d\s()./-]{4,}")

_OTHER_PAYLOADS: Final = (
    ("typingMessage", FrameKind.TYPING),
    ("callMessage", FrameKind.CALL),
    ("storyMessage", FrameKind.STORY),
)

_Part = dict[str, Any]
"""A JSON object."""


Parsed = Incoming | Receipt | FrameKind
"""An event, a receipt, or the kind of a frame that tells the bot nothing."""


class _Broken(Exception):
    """The core of the frame is invalid."""


def take_frame(
    frame: object, account: Account, confirm: Callable[[Receipt], None]
) -> Incoming | None:
    """Parse and count a frame, and return the event in it that is to be delivered.

    Args:
        frame: decoded JSON.
        account: the bot's own.
        confirm: takes receipts at once, because they must not wait for messages.
    """
    parsed = parse_frame(frame, account)
    FRAMES.labels(parsed if isinstance(parsed, FrameKind) else parsed.kind).inc()
    if isinstance(parsed, Receipt):
        confirm(parsed)
    elif not isinstance(parsed, FrameKind):
        return parsed
    return None


def parse_frame(frame: object, account: Account) -> Parsed:
    """Return the event in a received frame, or the kind of a frame that tells the bot nothing.

    Args:
        frame: decoded JSON.
        account: the bot's own, to recognize its copies, its mentions, and quotes of its messages.
    """
    try:
        return _parse_received(_needed({"frame": frame}, "frame"), account)
    except _Broken:
        return FrameKind.BROKEN


def _parse_received(received: _Part, account: Account) -> Parsed:
    envelope, exception = _core(received, "envelope"), _core(received, "exception")
    if received.get("error") is not None and envelope is None:
        return FrameKind.ERROR
    if not isinstance(received.get("account"), str):
        raise _Broken
    if received["account"] != account.number:
        return FrameKind.OTHER_ACCOUNT
    if envelope is not None and exception is None and _has(envelope, "syncMessage"):
        return _parse_sync(envelope, account)
    if exception is not None:
        told = _parse_exception(envelope or {}, exception, account)
    else:
        told = _parse_told(_needed(received, "envelope"), account)
    if account.note_to_self and not isinstance(told, FrameKind):
        return FrameKind.OTHER_CHAT
    return told


def _parse_sync(envelope: _Part, account: Account) -> Parsed:
    """Read a message that the owner sent from another device: a note to self, or its timestamp."""
    sent = _object(_object(envelope, "syncMessage") or {}, "sentMessage")
    if sent is None or not _is_me(account, envelope, "source"):
        return FrameKind.SYNC
    edit = _object(sent, "editMessage")
    if not account.note_to_self:
        timestamp = _time(_object(edit, "dataMessage") or {} if edit else sent, "timestamp")
        return FrameKind.SYNC if timestamp is None else Receipt(None, (timestamp,))
    if _group_of(sent) is not None or not _is_me(account, sent, "destination"):
        return FrameKind.OTHER_CHAT
    parse = _parse_edit if _has(sent, "editMessage") else _parse_data_message
    return parse(envelope, sent, account)


def _parse_told(envelope: _Part, account: Account) -> Parsed:
    """Read messages of other people."""
    if _is_me(account, envelope, "source"):
        return FrameKind.OWN
    if (data := _core(envelope, "dataMessage")) is not None:
        return _parse_data_message(envelope, data, account)
    if _has(envelope, "editMessage"):
        return _parse_edit(envelope, envelope, account)
    if _has(envelope, "receiptMessage"):
        return _parse_receipt(envelope)
    kinds = (kind for key, kind in _OTHER_PAYLOADS if _has(envelope, key))
    return next(kinds, FrameKind.EMPTY)


def _parse_exception(envelope: _Part, exception: _Part, account: Account) -> Parsed:
    if exception.get("type") != "UntrustedIdentityException":
        return FrameKind.UNDECRYPTABLE
    if _aci(envelope, "sourceUuid") is None or _is_me(account, envelope, "source"):
        return FrameKind.UNTRUSTED_IDENTITY
    return IdentityChanged(account=account.number, person=_author_of(envelope))


def _parse_receipt(envelope: _Part) -> Parsed:
    """Read a receipt of a known kind; each of them means that the message is there."""
    receipt = _object(envelope, "receiptMessage") or {}
    listed = receipt.get("timestamps")
    times = listed if isinstance(listed, list) and len(listed) <= MAX_RECEIPT else []
    is_known = any(receipt.get(kind) is True for kind in ("isDelivery", "isRead", "isViewed"))
    person = _aci(envelope, "sourceUuid")
    if person is None or not is_known or not times or not all(map(_is_time, times)):
        return FrameKind.RECEIPT
    return Receipt(person, tuple(times))


def _parse_edit(envelope: _Part, holder: _Part, account: Account) -> Parsed:
    """Read an edit; its message may have no words, for example if only its picture is left."""
    edit = _needed(holder, "editMessage")
    data, target = _needed(edit, "dataMessage"), _needed_time(edit, "targetSentTimestamp")
    if _has(data, "storyContext"):
        return FrameKind.STORY
    return Edit(_message(envelope, data, account), target_timestamp=target)


def _parse_data_message(envelope: _Part, data: _Part, account: Account) -> Parsed:
    if _has(data, "storyContext"):
        return FrameKind.STORY
    message = _message(envelope, data, account)
    mentions_only = bool(data.get("message")) and message.addresses_bot
    if mentions_only or message.text or message.files:
        return message
    for key, kind, parse in _WORDLESS:
        if _has(data, key):
            return kind if parse is None else parse(message, _needed(data, key), account)
    if data.get("isExpirationUpdate") is True:
        return FrameKind.TIMER
    if message.chat.is_group and data["groupInfo"].get("type") != "DELIVER":
        return GroupChanged(message.account, message.chat, message.author)
    return FrameKind.EMPTY


def _message(envelope: _Part, data: _Part, account: Account) -> IncomingMessage:
    author = _author_of(envelope)
    if author.name is not None:
        _remember(account, author.aci, author.name)
    timestamp = _time(data, "timestamp") or _needed_time(envelope, "timestamp")
    words, mentions, quote = data.get("message"), _mentions(data), _object(data, "quote")
    if words is not None and not isinstance(words, str):
        raise _Broken
    mentioned = any(_is_me(account, mention) for mention in mentions)
    quoted = None if quote is None else _quoted(quote, account)
    files = _user_files(data)
    quoted_pictures = [replace(file, quoted=True) for file in _received(_quoted_pictures(data))]
    seconds = data["expiresInSeconds"] if _is_count(data.get("expiresInSeconds")) else 0
    return IncomingMessage(
        account.number,
        _group_of(data) or ChatId.direct(author.aci),
        author,
        timestamp,
        text=sanitize_text(words or _told_without_words(data), mentions, account),
        addresses_bot=mentioned or (quoted is not None and quoted.by_bot),
        files=(*_received(files[:MAX_FILES]), *quoted_pictures),
        unread=_received([*files[MAX_FILES:], *_unread(data)]),
        quote=quoted,
        expires_seconds=min(seconds, MAX_EXPIRES),
        view_once=data.get("viewOnce") is True,
        server_timestamp=_time(envelope, "serverReceivedTimestamp"),
    )


def _quoted(quote: _Part, account: Account) -> ReceivedQuote:
    file = next(iter(_user_files(quote)), None)
    kind = "" if file is None else _content_type(file).partition("/")[0]
    return ReceivedQuote(
        timestamp=_time(quote, "id"),
        author=_aci(quote, "authorUuid"),
        by_bot=_is_me(account, quote, "author"),
        text=sanitize_quote(_text(quote, "text"), _mentions(quote), account),
        file=kind and _KINDS.get(kind, "document"),
        file_name=None if file is None else sanitize_file_name(_text(file, "filename")),
        author_number=_number(quote, "authorNumber") or _number(quote, "author"),
    )


def _parse_reaction(message: IncomingMessage, reaction: _Part, account: Account) -> Parsed:
    emoji, removed = _text(reaction, "emoji"), reaction.get("isRemove")
    target = _needed_time(reaction, "targetSentTimestamp")
    if not emoji or len(emoji) > MAX_EMOJI or not isinstance(removed, bool):
        raise _Broken
    if emoji != emoji.encode(errors="replace").decode():  # half of a surrogate pair
        raise _Broken
    if not _is_me(account, reaction, "targetAuthor"):
        return FrameKind.REACTION
    return Reaction(*_head(message), emoji=emoji, target_timestamp=target, removed=removed)


def _parse_vote(message: IncomingMessage, vote: _Part, account: Account) -> Parsed:
    target, options = _needed_time(vote, "targetSentTimestamp"), vote.get("optionIndexes", [])
    if not isinstance(options, list) or len(options) > MAX_OPTIONS:
        raise _Broken
    if not all(_is_count(option) and option < MAX_OPTIONS for option in options):
        raise _Broken
    if not _is_me(account, vote, "author"):
        return FrameKind.POLL
    return PollVote(*_head(message), target_timestamp=target, options=tuple(options))


def _parse_deletion(message: IncomingMessage, deletion: _Part, _: Account) -> Parsed:
    target = _needed_time(deletion, "timestamp")
    return Deletion(*_head(message), target_author=message.author.aci, target_timestamp=target)


def _parse_admin_deletion(message: IncomingMessage, deletion: _Part, _: Account) -> Parsed:
    author = _aci(deletion, "targetAuthorUuid")
    target = _needed_time(deletion, "targetSentTimestamp")
    if author is None or not message.chat.is_group:  # only groups have admins
        raise _Broken
    return Deletion(*_head(message), target_author=author, target_timestamp=target)


_WORDLESS: Final = (
    ("reaction", FrameKind.REACTION, _parse_reaction),
    ("remoteDelete", FrameKind.DELETE, _parse_deletion),
    ("adminDelete", FrameKind.DELETE, _parse_admin_deletion),
    ("pollVote", FrameKind.POLL, _parse_vote),
    ("pollTerminate", FrameKind.POLL, None),
    ("pinMessage", FrameKind.PIN, None),
    ("unpinMessage", FrameKind.PIN, None),
    ("groupCallUpdate", FrameKind.CALL, None),
)
"""Keys of messages without words, with the kind to count or the parser of the event."""


def _told_without_words(data: _Part) -> str:
    """Return words for a sticker, contact cards, a poll or a payment; empty for anything else."""
    told: list[str] = []
    if (sticker := _object(data, "sticker")) is not None:
        told.append(f"[sticker] {_line(sticker, 'emoji')}")
    cards = _objects(data, "contacts")[:MAX_CARDS]
    told += (f"[contact card] {', '.join(_of_card(card))}" for card in cards)
    if (poll := _object(data, "pollCreate")) is not None:
        options = " / ".join(map(_one_line, _texts(poll, "options")))
        told.append(f"[poll] {_line(poll, 'question')} {options and f'({options})'}")
    if (payment := _object(data, "payment")) is not None:
        told.append(f"[payment] {_line(payment, 'note')}")
    return "\n".join(line.rstrip() for line in told)


def _of_card(card: _Part) -> Iterator[str]:
    """Yield the name of a contact card, then its company, numbers and addresses."""
    name = _object(card, "name") or {}
    parts = ("prefix", "given", "givenName", "middle", "family", "familyName", "suffix")
    whole = " ".join(filter(None, (_line(name, part) for part in parts)))
    named = (_line(name, "display"), _line(name, "displayName"), whole, _line(name, "nickname"))
    yield next(filter(None, named), "without a name")
    if company := _line(card, "organization"):
        yield company
    for kind in ("phone", "phones", "email", "emails"):
        for entry in _objects(card, kind)[:MAX_CARDS]:
            if value := _line(entry, "value"):
                yield value
    for entry in chain(*(_objects(card, kind)[:MAX_CARDS] for kind in ("address", "addresses"))):
        lines = ("street", "pobox", "neighborhood", "postcode", "city", "region", "country")
        if value := " ".join(filter(None, (_line(entry, line) for line in lines))):
            yield value


def _remember(account: Account, aci: str, name: str) -> None:
    account.people.pop(aci, None)
    account.people[aci] = name
    if len(account.people) > MAX_PEOPLE:
        del account.people[next(iter(account.people))]


def _head(message: IncomingMessage) -> tuple[str, ChatId, Person, int]:
    """Return account, chat, author and timestamp, the first fields of every event."""
    return message.account, message.chat, message.author, message.timestamp


def _author_of(envelope: _Part) -> Person:
    aci = _aci(envelope, "sourceUuid")
    if aci is None:
        raise _Broken
    name = sanitize_name(_text(envelope, "sourceName"))
    return Person(aci=aci, number=_number(envelope, "sourceNumber"), name=name)


def _group_of(data: _Part) -> ChatId | None:
    group = _core(data, "groupInfo")
    if group is None:
        return None
    group_id = _matching(_GROUP_ID, group.get("groupId"))
    if group_id is None:
        raise _Broken
    return ChatId.group(group_id)


def _is_me(account: Account, part: _Part, role: str = "") -> bool:
    """Whether a part names the account, for example as its author or destination.

    Compares the ACIs if both are known, otherwise the numbers.
    """
    aci, number = (f"{role}Uuid", f"{role}Number") if role else ("uuid", "number")
    named = _aci(part, aci)
    if named is not None and account.aci is not None:
        return named == account.aci
    return (_number(part, number) or _number(part, role)) == account.number


def _mentions(data: _Part) -> list[_Part]:
    return [
        mention
        for mention in _objects(data, "mentions")
        if _is_count(mention.get("start")) and _is_count(mention.get("length"))
    ]


# Values


def _has(part: _Part, key: str) -> bool:
    return part.get(key) is not None


def _object(part: _Part, key: str) -> _Part | None:
    value = part.get(key)
    return value if isinstance(value, dict) else None


def _core(part: _Part, key: str) -> _Part | None:
    """Return an object, or None if it is missing; an invalid one breaks the frame."""
    return _needed(part, key) if _has(part, key) else None


def _needed(part: _Part, key: str) -> _Part:
    if (found := _object(part, key)) is None:
        raise _Broken
    return found


def _objects(part: _Part, key: str) -> list[_Part]:
    values = part.get(key)
    if not isinstance(values, list) or len(values) > MAX_LIST:
        return []
    return [value for value in values if isinstance(value, dict)]


def _text(part: _Part, key: str) -> str | None:
    value = part.get(key)
    return value if isinstance(value, str) else None


def _matching(pattern: re.Pattern[str], value: object) -> str | None:
    return value if isinstance(value, str) and pattern.fullmatch(value) else None


def _aci(part: _Part, key: str) -> str | None:
    aci = _matching(_ACI, part.get(key))
    return aci.lower() if aci else None


def _number(part: _Part, key: str) -> str | None:
    return _matching(_NUMBER, part.get(key))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_time(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _time(part: _Part, key: str) -> int | None:
    value = part.get(key)
    return value if _is_time(value) else None


def _needed_time(part: _Part, key: str) -> int:
    if (timestamp := _time(part, key)) is None:
        raise _Broken
    return timestamp


# Files


def _received(files: Sequence[_Part]) -> tuple[ReceivedFile, ...]:
    return tuple(
        ReceivedFile(
            # A file without an id cannot be fetched, but people should hear that it came.
            id=_matching(_FILE_ID, file.get("id")) or f"unnamed-{number}",
            content_type=_content_type(file),
            name=sanitize_file_name(_text(file, "filename")),
            size=file["size"] if _is_time(file.get("size")) or file.get("size") == 0 else None,
            voice_note=_is_voice_note(file),
        )
        for number, file in enumerate(files)
    )


def _unread(data: _Part) -> list[_Part]:
    """Return files that no person attached: the file of a long text, and small pictures."""
    quoted = _objects(_object(data, "quote") or {}, "attachments")
    thumbnails = [one for file in quoted if (one := _object(file, "thumbnail")) is not None]
    pictures = (_object(preview, "image") for preview in _objects(data, "previews"))
    read = _quoted_pictures(data)
    return [
        *(file for file in _objects(data, "attachments") if _content_type(file) == _LONG_TEXT),
        *(one for one in thumbnails if one not in read),
        *filter(None, pictures),
    ]


def _quoted_pictures(data: _Part) -> list[_Part]:
    """Return the small copy of the picture that a message replies to, if there is one."""
    quoted = _objects(_object(data, "quote") or {}, "attachments")[:1]
    pictures = (file for file in quoted if _content_type(file).startswith("image/"))
    thumbnails = (_object(file, "thumbnail") for file in pictures)
    return [one for one in thumbnails if one is not None and _matching(_FILE_ID, one.get("id"))]


def _user_files(data: _Part) -> list[_Part]:
    files = _objects(data, "attachments")
    return [file for file in files if _content_type(file) != _LONG_TEXT]


def _content_type(file: _Part) -> str:
    """Return the MIME type without parameters, if it looks valid."""
    kind = (_text(file, "contentType") or "").partition(";")[0].strip().lower()
    known = len(kind) <= MAX_CONTENT_TYPE and _CONTENT_TYPE.fullmatch(kind)
    return kind if known else _UNKNOWN_TYPE


def _is_voice_note(file: _Part) -> bool:
    """Whether a file was recorded in Signal.

    Up to 0.14.7, signal-cli does not say so; it only leaves out the file's name.
    """
    if isinstance(said := file.get("isVoiceNote"), bool):
        return said
    return _text(file, "filename") is None and _content_type(file).startswith("audio/")


# Text, bounded and cleaned; names on one line


def _line(part: _Part, key: str) -> str:
    return _one_line(_text(part, key) or "")


def _one_line(text: str) -> str:
    """Return the beginning of a text as one line; brackets become parentheses.

    A bracket could close a mark such as `[poll]`, or imitate one.
    """
    line = " ".join(text[:MAX_LINE].translate(_NO_MARKS).split())
    return "".join(one for one in line if one.isprintable() or one in _JOINERS)


def _texts(part: _Part, key: str) -> list[str]:
    """Return the texts of a list; signal-cli's options may be objects with a text."""
    listed = part.get(key)
    values = listed[:MAX_OPTIONS] if isinstance(listed, list) else []
    found = (one.get("text") if isinstance(one, dict) else one for one in values)
    return [one for one in found if isinstance(one, str)]


def sanitize_text(text: str | None, mentions: Sequence[_Part], account: Account) -> str:
    """Return at most `MAX_TEXT_BYTES` of a text, with names in place of mentions.

    The bot's own mentions are removed.
    """
    # A character takes at least one byte, so the rest would be cut below.
    text = (text or "")[:MAX_TEXT_BYTES]
    if mentions:
        text = _name_mentions(text, mentions, account)
    return _encodable(text)[:MAX_TEXT_BYTES].decode(errors="ignore")


def sanitize_quote(text: str | None, mentions: Sequence[_Part], account: Account) -> str:
    """Return the beginning of a quoted text; names replace its mentions, except the bot's own."""
    words = (text or "")[: 2 * MAX_QUOTE]
    if mentions:
        words = _name_mentions(words, mentions, account)
    return _encodable(words.replace(_PLACEHOLDER, "")[:MAX_QUOTE]).decode().strip()


def sanitize_name(name: str | None) -> str | None:
    """Return the beginning of a person's name as one line without invisible characters.

    Return None for a missing name, for a text in place of a name, for an ACI and a phone number.
    """
    if name is None or len(name) > 8 * MAX_NAME_CHARACTERS:
        return None
    line = " ".join(name[:MAX_NAME_CHARACTERS].replace(_PLACEHOLDER, "").split())
    if not line.isprintable():
        line = "".join(one for one in line if one.isprintable() or one in _JOINERS)
    line = line.strip(f" {_JOINERS}")
    is_id = _ACI.search(line) or _PHONE_NUMBER.fullmatch(line)
    return None if not line or is_id else line


def sanitize_file_name(name: str | None) -> str | None:
    """Return a file's name as one line without invisible characters; None if it is missing."""
    line = " ".join((name or "")[: 2 * MAX_FILE_NAME].split())
    visible = "".join(character for character in line if character.isprintable())
    return visible[:MAX_FILE_NAME].strip() or None


def _encodable(text: str) -> bytes:
    return text.replace("\0", "").encode(errors="replace")


def _name_mentions(text: str, mentions: Sequence[_Part], account: Account) -> str:
    """Replace each mentioned range by a name; offsets count UTF-16 units, as Signal's do."""
    units = text.encode("utf-16-le", "surrogatepass")
    pieces: list[bytes] = []
    done = size = 0
    for mention in sorted(mentions, key=lambda mention: mention["start"]):
        start, end = 2 * mention["start"], 2 * (mention["start"] + mention["length"])
        if start < done or end > len(units) or start == end:
            continue
        known = account.people.get(_aci(mention, "uuid") or "")
        name = f"@{sanitize_name(_text(mention, 'name')) or known or 'someone'}"
        name = _PLACEHOLDER if _is_me(account, mention) else name
        added = (units[done:start], name.encode("utf-16-le"))
        pieces += added
        done = end
        size += sum(map(len, added))
        if size > 2 * MAX_TEXT_BYTES:
            break  # the rest would be cut anyway, and a name may be much longer than its mention
    pieces.append(units[done:])
    return _OWN_MENTION.sub("", b"".join(pieces).decode("utf-16-le", "replace"))
