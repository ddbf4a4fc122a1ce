"""Parse received frames, `{"envelope": ..., "account": ...}`, as signal-cli writes them.

`parse_frame` takes decoded JSON of any shape and always returns a `Frame`. The core of a message
(author, chat, timestamp, text) must be right; otherwise the frame is broken. Any other value of a
wrong type or size counts as absent. Unknown keys and depth do not matter, because only known keys
are read.

On a person's own account (`Account.note_to_self`) the bot hears of the note to self only. It
arrives as a message that another device of the account sent to the account.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from bot.observability.metrics import FRAMES
from bot.signal.events import (
    Deletion,
    Edit,
    Evidence,
    Frame,
    FrameKind,
    GroupChanged,
    IdentityChanged,
    Ignored,
    Incoming,
    IncomingMessage,
    Person,
    PollVote,
    Reaction,
    Receipt,
    SentElsewhere,
)
from conversation_store.models import ChatId, ReceivedFile, ReceivedQuote


@dataclass(slots=True)
class Account:
    """The bot's own account.

    Attributes:
        number: as it is registered, E.164.
        aci: lower case; None until the Signal side has told it.
        note_to_self: the account is a person's own, and the bot lives in its note to self alone.
    """

    number: str
    aci: str | None = None
    note_to_self: bool = False

    @property
    def names(self) -> frozenset[str]:
        """Number and, once known, ACI: other people use either."""
        return frozenset(filter(None, (self.aci, self.number)))

    def is_me(self, *, aci: str | None, number: str | None) -> bool:
        """Whether an ACI, or for want of one a number, names this account."""
        if aci is not None and self.aci is not None:
            return aci == self.aci
        return number is not None and number == self.number


MAX_TEXT_BYTES: Final = 64 * 1024
"""Official apps accept as much as one text; the rest is cut."""
MAX_QUOTE: Final = 1_000
"""Characters of a quoted text."""
MAX_FILES: Final = 32
"""Files of one message; official apps send no more."""
MAX_FILE_NAME: Final = 255
MAX_NAME_CHARACTERS: Final = 64
"""Signal's apps accept 26 for each of two names; a longer name is a text."""
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

_LONG_TEXT: Final = "text/x-signal-plain"
_UNKNOWN_TYPE: Final = "application/octet-stream"
_CONTENT_TYPE: Final = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]*/[a-z0-9][a-z0-9!#$&^_.+-]*")
_ACI: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII)
_NUMBER: Final = re.compile(r"\+?[0-9]{1,32}", re.ASCII)
_GROUP_ID: Final = re.compile(r"[A-Za-z0-9+/=_-]{1,128}")
_FILE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
_PLACEHOLDER: Final = "\ufffc"
_OWN_MENTION: Final = re.compile(rf" ?{_PLACEHOLDER}$|(?:^|(?<=\s)){_PLACEHOLDER} ?|{_PLACEHOLDER}")
_JOINERS: Final = "\u200c\u200d"
"""Invisible themselves; they belong to emoji, and to names in Persian and in India."""
_PHONE_NUMBER: Final = re.compile(r"[+\d][\d\s()./-]{4,}")

_OTHER_PAYLOADS: Final = (
    ("editMessage", FrameKind.EDIT),
    ("typingMessage", FrameKind.TYPING),
    ("receiptMessage", FrameKind.RECEIPT),
    ("callMessage", FrameKind.CALL),
    ("storyMessage", FrameKind.STORY),
)
_WORDLESS: Final = (
    ("reaction", FrameKind.REACTION),
    ("remoteDelete", FrameKind.DELETE),
    ("adminDelete", FrameKind.DELETE),
    ("sticker", FrameKind.STICKER),
    ("pollCreate", FrameKind.POLL),
    ("pollVote", FrameKind.POLL),
    ("pollTerminate", FrameKind.POLL),
    ("pinMessage", FrameKind.PIN),
    ("unpinMessage", FrameKind.PIN),
    ("groupCallUpdate", FrameKind.CALL),
)

_Part = dict[str, Any]
"""A JSON object."""


class _Broken(Exception):
    """The core of the frame is not right."""


def take_frame(
    frame: object, account: Account, confirm: Callable[[Evidence], None]
) -> Incoming | None:
    """Parse and count a frame, and return the event in it that is to be delivered.

    Args:
        frame: decoded JSON.
        account: the bot's own.
        confirm: takes receipts at once, because they must not wait behind messages.
    """
    parsed = parse_frame(frame, account)
    FRAMES.labels(parsed.kind).inc()
    if isinstance(parsed, Ignored):
        return None
    if isinstance(parsed, Evidence):
        confirm(parsed)
        return None
    return parsed


def parse_frame(frame: object, account: Account) -> Frame:
    """Return the event in a received frame, or the reason to ignore the frame.

    Args:
        frame: decoded JSON.
        account: the bot's own, to recognize its copies, its mentions, and quotes of its messages.
    """
    try:
        return _parse_received(_needed({"frame": frame}, "frame"), account)
    except _Broken:
        return Ignored(FrameKind.BROKEN)


def _parse_received(received: _Part, account: Account) -> Frame:
    envelope, exception = _core(received, "envelope"), _core(received, "exception")
    if received.get("error") is not None and envelope is None:
        return Ignored(FrameKind.ERROR)
    if not isinstance(received.get("account"), str):
        raise _Broken
    if received["account"] != account.number:
        return Ignored(FrameKind.OTHER_ACCOUNT)
    if account.note_to_self and envelope and exception is None and _has(envelope, "syncMessage"):
        return _parse_note(envelope, account)
    told = _parse_told(envelope, exception, account)
    if account.note_to_self and not isinstance(told, Ignored):
        return Ignored(FrameKind.OTHER_CHAT)
    return told


def _parse_note(envelope: _Part, account: Account) -> Frame:
    """Read the note to self; other messages of the account are not for the bot."""
    sent = _core(_needed(envelope, "syncMessage"), "sentMessage")
    if sent is None or not _is_from(envelope, account):
        return Ignored(FrameKind.SYNC)
    if _group_of(sent) is not None or not _names(account, sent, "destination"):
        return Ignored(FrameKind.OTHER_CHAT)
    if _has(sent, "editMessage"):
        return _parse_edit(envelope, sent, account)
    return _parse_data_message(envelope, sent, account)


def _parse_told(envelope: _Part | None, exception: _Part | None, account: Account) -> Frame:
    """Read messages of other people."""
    if exception is not None:
        return _parse_exception(envelope, exception, account)
    if envelope is None:
        raise _Broken
    if _has(envelope, "syncMessage"):
        return _parse_sent_elsewhere(envelope, account)
    if _is_from(envelope, account):
        return Ignored(FrameKind.OWN)
    if (data := _core(envelope, "dataMessage")) is not None:
        return _parse_data_message(envelope, data, account)
    kind = _first_present(envelope, _OTHER_PAYLOADS)
    if kind is FrameKind.EDIT:
        return _parse_edit(envelope, envelope, account)
    return _parse_receipt(envelope) if kind is FrameKind.RECEIPT else Ignored(kind)


def _parse_exception(envelope: _Part | None, exception: _Part, account: Account) -> Frame:
    if exception.get("type") != "UntrustedIdentityException":
        return Ignored(FrameKind.UNDECRYPTABLE)
    if envelope is None or _aci(envelope, "sourceUuid") is None or _is_from(envelope, account):
        return Ignored(FrameKind.UNTRUSTED_IDENTITY)
    return IdentityChanged(account=account.number, person=_author_of(envelope))


def _parse_sent_elsewhere(envelope: _Part, account: Account) -> Frame:
    """Read when the account's owner sent something from another device; not its text."""
    sent = _object(_object(envelope, "syncMessage") or {}, "sentMessage")
    if sent is None or not _is_from(envelope, account):
        return Ignored(FrameKind.SYNC)
    edit = _object(sent, "editMessage")
    timestamp = _time(sent if edit is None else _object(edit, "dataMessage") or {}, "timestamp")
    return Ignored(FrameKind.SYNC) if timestamp is None else SentElsewhere(timestamp)


def _parse_receipt(envelope: _Part) -> Frame:
    """Read a receipt of a known kind; each of them means that the message is there."""
    receipt = _object(envelope, "receiptMessage") or {}
    listed = receipt.get("timestamps")
    times = listed if isinstance(listed, list) and len(listed) <= MAX_RECEIPT else []
    is_known = any(receipt.get(kind) is True for kind in ("isDelivery", "isRead", "isViewed"))
    person = _aci(envelope, "sourceUuid")
    if person is None or not is_known or not times or not all(map(_is_time, times)):
        return Ignored(FrameKind.RECEIPT)
    return Receipt(person=person, timestamps=tuple(times))


def _parse_edit(envelope: _Part, holder: _Part, account: Account) -> Frame:
    """Read an edit; its message may have no words, for example if only its picture is left."""
    edit = _needed(holder, "editMessage")
    data, target = _needed(edit, "dataMessage"), _needed_time(edit, "targetSentTimestamp")
    if _has(data, "storyContext"):
        return Ignored(FrameKind.STORY)
    words = sanitize_text(_words(data), _mentions(data), account)
    return Edit(_message(envelope, data, words, account), target_timestamp=target)


def _parse_data_message(envelope: _Part, data: _Part, account: Account) -> Frame:
    if _has(data, "storyContext"):
        return Ignored(FrameKind.STORY)
    words = sanitize_text(_words(data), _mentions(data), account)
    mentions_only = bool(data.get("message")) and _addresses(data, account)
    if mentions_only or words or _user_files(data):
        return _message(envelope, data, words, account)
    return _parse_wordless(envelope, data, account)


def _parse_wordless(envelope: _Part, data: _Part, account: Account) -> Frame:
    group = _group_of(data)
    kind = _first_present(data, _WORDLESS)
    if kind is FrameKind.REACTION:
        return _parse_reaction(envelope, data, account)
    if kind is FrameKind.DELETE:
        return _parse_deletion(envelope, data, account)
    if _has(data, "pollVote"):
        return _parse_vote(envelope, data, account)
    if kind is not FrameKind.EMPTY or data.get("isExpirationUpdate") is True:
        return Ignored(FrameKind.TIMER if kind is FrameKind.EMPTY else kind)
    if group is not None and data["groupInfo"].get("type") != "DELIVER":
        return GroupChanged(account.number, chat=group, author=_author_of(envelope))
    return Ignored(kind)


def _message(envelope: _Part, data: _Part, words: str, account: Account) -> IncomingMessage:
    quote, files = _object(data, "quote"), _user_files(data)
    seconds = data["expiresInSeconds"] if _is_count(data.get("expiresInSeconds")) else 0
    return IncomingMessage(
        *_head(envelope, data, account),
        text=words,
        addresses_bot=_addresses(data, account),
        files=_received(files[:MAX_FILES]),
        unread=_received([*files[MAX_FILES:], *_unread(data)]),
        quote=None if quote is None else _quoted(quote, account),
        expires_seconds=min(seconds, MAX_EXPIRES),
        view_once=data.get("viewOnce") is True,
        server_timestamp=_time(envelope, "serverReceivedTimestamp"),
        delivered_timestamp=_time(envelope, "serverDeliveredTimestamp"),
    )


def _quoted(quote: _Part, account: Account) -> ReceivedQuote:
    return ReceivedQuote(
        timestamp=_time(quote, "id"),
        author=_aci(quote, "authorUuid"),
        by_bot=_names(account, quote, "author"),
        text=sanitize_quote(_text(quote, "text")),
        has_files=bool(_user_files(quote)),
        author_number=_number(quote, "authorNumber") or _number(quote, "author"),
    )


def _parse_reaction(envelope: _Part, data: _Part, account: Account) -> Frame:
    reaction = _needed(data, "reaction")
    emoji, removed = _text(reaction, "emoji"), reaction.get("isRemove")
    target = _needed_time(reaction, "targetSentTimestamp")
    is_emoji = emoji and len(emoji) <= MAX_EMOJI and _is_encodable(emoji)
    if not emoji or not is_emoji or not isinstance(removed, bool):
        raise _Broken
    if not _names(account, reaction, "targetAuthor"):
        return Ignored(FrameKind.REACTION)
    head = _head(envelope, data, account)
    return Reaction(*head, emoji=emoji, target_timestamp=target, removed=removed)


def _parse_vote(envelope: _Part, data: _Part, account: Account) -> Frame:
    vote = _needed(data, "pollVote")
    target, options = _needed_time(vote, "targetSentTimestamp"), vote.get("optionIndexes", [])
    if not isinstance(options, list) or len(options) > MAX_OPTIONS:
        raise _Broken
    if not all(_is_count(option) and option < MAX_OPTIONS for option in options):
        raise _Broken
    if not _names(account, vote, "author"):
        return Ignored(FrameKind.POLL)
    head = _head(envelope, data, account)
    return PollVote(*head, target_timestamp=target, options=tuple(options))


def _parse_deletion(envelope: _Part, data: _Part, account: Account) -> Frame:
    head = _head(envelope, data, account)
    if _has(data, "remoteDelete"):
        author: str | None = _author_of(envelope).aci
        timestamp = _needed_time(_needed(data, "remoteDelete"), "timestamp")
    else:
        deleted = _needed(data, "adminDelete")
        author = _aci(deleted, "targetAuthorUuid")
        timestamp = _needed_time(deleted, "targetSentTimestamp")
        if not _has(data, "groupInfo"):  # only groups have admins
            raise _Broken
    if author is None:
        raise _Broken
    return Deletion(*head, target_author=author, target_timestamp=timestamp)


def _head(envelope: _Part, data: _Part, account: Account) -> tuple[str, ChatId, Person, int]:
    """Return account, chat, author and timestamp, with which every event begins."""
    author = _author_of(envelope)
    timestamp = _time(data, "timestamp") or _time(envelope, "timestamp")
    if timestamp is None:
        raise _Broken
    return account.number, _group_of(data) or ChatId.direct(author.aci), author, timestamp


def _author_of(envelope: _Part) -> Person:
    aci = _aci(envelope, "sourceUuid")
    if aci is None:
        raise _Broken
    name = sanitize_name(_name(envelope, "sourceName"))
    return Person(aci=aci, number=_number(envelope, "sourceNumber"), name=name)


def _group_of(data: _Part) -> ChatId | None:
    group = _core(data, "groupInfo")
    if group is None:
        return None
    group_id = _matching(_GROUP_ID, group.get("groupId"))
    if group_id is None:
        raise _Broken
    return ChatId.group(group_id)


def _is_from(envelope: _Part, account: Account) -> bool:
    return account.is_me(aci=_aci(envelope, "sourceUuid"), number=_number(envelope, "sourceNumber"))


def _names(account: Account, part: _Part, role: str) -> bool:
    """Whether a part names the account as its author or destination."""
    number = _number(part, f"{role}Number") or _number(part, role)
    return account.is_me(aci=_aci(part, f"{role}Uuid"), number=number)


def _words(data: _Part) -> str | None:
    words = data.get("message")
    if words is not None and not isinstance(words, str):
        raise _Broken
    return words


def _addresses(data: _Part, account: Account) -> bool:
    if any(_is_mentioned(mention, account) for mention in _mentions(data)):
        return True
    quote = _object(data, "quote")
    return quote is not None and _names(account, quote, "author")


def _mentions(data: _Part) -> list[_Part]:
    return [
        mention
        for mention in _objects(data, "mentions")
        if _is_count(mention.get("start")) and _is_count(mention.get("length"))
    ]


def _is_mentioned(mention: _Part, account: Account) -> bool:
    return account.is_me(aci=_aci(mention, "uuid"), number=_number(mention, "number"))


# Values


def _has(part: _Part, key: str) -> bool:
    return part.get(key) is not None


def _first_present(part: _Part, kinds: Sequence[tuple[str, FrameKind]]) -> FrameKind:
    return next((kind for name, kind in kinds if _has(part, name)), FrameKind.EMPTY)


def _object(part: _Part, key: str) -> _Part | None:
    value = part.get(key)
    return value if isinstance(value, dict) else None


def _core(part: _Part, key: str) -> _Part | None:
    """Return an object that is there and right, or not there."""
    if (found := _object(part, key)) is None and _has(part, key):
        raise _Broken
    return found


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


def _name(part: _Part, key: str) -> str | None:
    name = _text(part, key)
    if name is None or len(name) > 8 * MAX_NAME_CHARACTERS or not _is_encodable(name):
        return None
    return name


def _is_encodable(text: str) -> bool:
    """Whether a short text has no halves of surrogate pairs, which no encoding can carry."""
    return text == text.encode(errors="replace").decode()


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
            # A file without an id cannot be fetched; that it came is told all the same.
            id=_matching(_FILE_ID, file.get("id")) or f"unnamed-{number}",
            content_type=_content_type(file),
            name=sanitize_file_name(_text(file, "filename")),
            size=file["size"] if _is_time(file.get("size")) or file.get("size") == 0 else None,
            voice_note=_is_voice_note(file),
        )
        for number, file in enumerate(files)
    )


def _unread(data: _Part) -> list[_Part]:
    """Return files that no person attached: that of a long text, and small pictures."""
    quoted = _objects(_object(data, "quote") or {}, "attachments")
    thumbnails = (_object(file, "thumbnail") for file in quoted)
    pictures = (_object(preview, "image") for preview in _objects(data, "previews"))
    return [
        *(file for file in _objects(data, "attachments") if _content_type(file) == _LONG_TEXT),
        *filter(None, (*thumbnails, *pictures)),
    ]


def _user_files(data: _Part) -> list[_Part]:
    files = _objects(data, "attachments")
    return [file for file in files if _content_type(file) != _LONG_TEXT]


def _content_type(file: _Part) -> str:
    """Return the type without parameters, if it reads like one."""
    kind = (_text(file, "contentType") or "").partition(";")[0].strip().lower()
    known = len(kind) <= MAX_CONTENT_TYPE and _CONTENT_TYPE.fullmatch(kind)
    return kind if known else _UNKNOWN_TYPE


def _is_voice_note(file: _Part) -> bool:
    """Whether it was recorded in Signal; signal-cli up to 0.14.7 does not say, but names none."""
    if isinstance(said := file.get("isVoiceNote"), bool):
        return said
    return _text(file, "filename") is None and _content_type(file).startswith("audio/")


# Words, bounded and fit to be kept; names on one line


def sanitize_text(text: str | None, mentions: Sequence[_Part], account: Account) -> str:
    """Return at most `MAX_TEXT_BYTES` of a text, with names in place of mentions.

    The bot's own mentions are removed.
    """
    # A character takes at least one byte, so the rest would be cut below.
    text = (text or "")[:MAX_TEXT_BYTES]
    if mentions:
        text = _name_mentions(text, mentions, account)
    return _encodable(text)[:MAX_TEXT_BYTES].decode(errors="ignore")


def sanitize_quote(text: str | None) -> str:
    """Return the beginning of a quoted text, without its mentions."""
    words = (text or "").replace(_PLACEHOLDER, "")
    return _encodable(words[:MAX_QUOTE]).decode().strip()


def sanitize_name(name: str | None) -> str | None:
    """Return the beginning of a person's name as one line without invisible characters.

    Return None for a missing name and for a phone number.
    """
    if name is None:
        return None
    line = " ".join(name[:MAX_NAME_CHARACTERS].replace(_PLACEHOLDER, "").split())
    if not line.isprintable():
        line = "".join(one for one in line if one.isprintable() or one in _JOINERS)
    line = line.strip(f" {_JOINERS}")
    return None if not line or _PHONE_NUMBER.fullmatch(line) else line


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
        name = f"@{sanitize_name(_name(mention, 'name')) or 'someone'}"
        name = _PLACEHOLDER if _is_mentioned(mention, account) else name
        added = (units[done:start], name.encode("utf-16-le"))
        pieces += added
        done = end
        size += sum(map(len, added))
        if size > 2 * MAX_TEXT_BYTES:
            break  # nothing beyond can stay, and a name may be much longer than its mention
    pieces.append(units[done:])
    return _OWN_MENTION.sub("", b"".join(pieces).decode("utf-16-le", "replace"))
