"""Words from a frame made fit to be read and kept: bounded, on one line where they are names."""

import re
from collections.abc import Sequence
from typing import Final

from bot.messaging.events import Account
from bot.messaging.frame_parts import Mention

MAX_TEXT_BYTES: Final = 64 * 1024
"""What official apps accept as one text; the rest is cut."""

MAX_QUOTE: Final = 1_000
"""Characters of a quoted text that count; the sender's phone may have shortened it already."""

MAX_FILE_NAME: Final = 255

_MAX_UNITS_BYTES: Final = 2 * MAX_TEXT_BYTES
"""No text of `MAX_TEXT_BYTES` takes more as UTF-16."""

_PLACEHOLDER: Final = "\ufffc"
MAX_NAME_CHARACTERS: Final = 64
"""Signal's apps take 26 for each of two names; more is not a name but words put into one."""
_NOBODY_IN_PARTICULAR: Final = "someone"
_OWN_MENTION: Final = re.compile(rf" ?{_PLACEHOLDER}$|(?:^|(?<=\s)){_PLACEHOLDER} ?|{_PLACEHOLDER}")
_JOINERS: Final = "\u200c\u200d"
"""Invisible themselves; they belong to emoji, and to names in Persian and in India."""
_PHONE_NUMBER: Final = re.compile(r"[+\d][\d\s()./-]{4,}")


def sanitize_text(text: str | None, mentions: Sequence[Mention], account: Account) -> str:
    """Return what somebody wrote, at most `MAX_TEXT_BYTES` of it.

    Mentions are replaced by names, the bot's own are removed.
    """
    # One character is at least one byte, so nothing beyond this many can stay.
    text = (text or "")[:MAX_TEXT_BYTES]
    if mentions:
        text = _name_mentions(text, mentions, account)
    return _encodable(text)[:MAX_TEXT_BYTES].decode(errors="ignore")


def sanitize_quote(text: str | None) -> str:
    """Return the beginning of a quoted text; whom it mentions is not told."""
    words = (text or "").replace(_PLACEHOLDER, "")
    return _encodable(words[:MAX_QUOTE]).decode().strip()


def sanitize_name(name: str | None) -> str | None:
    """Return a person's name as one line without anything invisible; of a long one its beginning.

    None for one that is missing or a phone number.
    """
    if name is None:
        return None
    line = " ".join(name[:MAX_NAME_CHARACTERS].replace(_PLACEHOLDER, "").split())
    if not line.isprintable():
        line = "".join(one for one in line if one.isprintable() or one in _JOINERS)
    line = line.strip(f" {_JOINERS}")
    return None if not line or _PHONE_NUMBER.fullmatch(line) else line


def sanitize_file_name(name: str | None) -> str | None:
    """Return a file's name as one line without anything invisible; None for one that is missing."""
    line = " ".join((name or "")[: 2 * MAX_FILE_NAME].split())
    visible = "".join(character for character in line if character.isprintable())
    return visible[:MAX_FILE_NAME].strip() or None


def _encodable(text: str) -> bytes:
    return text.replace("\0", "").encode(errors="replace")


def _name_mentions(text: str, mentions: Sequence[Mention], account: Account) -> str:
    """Replace each mentioned range by a name; offsets count UTF-16 units, as Signal's do."""
    units = text.encode("utf-16-le", "surrogatepass")
    pieces: list[bytes] = []
    done = size = 0
    for mention in sorted(mentions, key=lambda mention: mention.start):
        start, end = 2 * mention.start, 2 * (mention.start + mention.length)
        if start < done or end > len(units) or start == end:
            continue
        own = account.is_me(aci=mention.uuid, number=mention.number)
        name = _PLACEHOLDER if own else f"@{sanitize_name(mention.name) or _NOBODY_IN_PARTICULAR}"
        added = (units[done:start], name.encode("utf-16-le"))
        pieces += added
        done = end
        size += sum(map(len, added))
        if size > _MAX_UNITS_BYTES:
            break  # nothing beyond can stay, and a name may be much longer than its mention
    pieces.append(units[done:])
    return _OWN_MENTION.sub("", b"".join(pieces).decode("utf-16-le", "replace"))
