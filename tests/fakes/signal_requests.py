"""Parses the params of a request for the look-alike of signal-cli.

Like the original it takes a parameter of several values in the singular or the plural, as one
value or as an array, and refuses unusable values with -1.
"""

import base64
import re
from dataclasses import dataclass
from typing import Final

from bot.signal.account import Profile
from bot.signal.messenger import Poll
from conversation_store.models import Attachment, Quote, StyleRange, TextStyle
from tests.fakes.json_rpc_server import Json, Refusal

DATA_URI: Final = re.compile(r"data:([^;,]+);filename=([^;,]+);base64,(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Recipients:
    """Recipients of a request: a group, people by ACI, or the account itself."""

    group: str | None
    people: list[str]
    note_to_self: bool


def recipients_of(params: Json) -> Recipients:
    groups, people = several(params, "groupId"), several(params, "recipient")
    note_to_self = params.get("noteToSelf", False)
    if not (groups or people or note_to_self):
        raise Refusal(-1, "No recipients given")
    return Recipients(next(iter(groups), None), people, note_to_self)


def attachments_of(params: Json) -> tuple[Attachment, ...]:
    try:
        return tuple(map(attachment_in, several(params, "attachment")))
    except ValueError:
        raise Refusal(-1, "Failed to add attachment") from None


def attachment_in(data_uri: str) -> Attachment:
    """Return the file of `data:<type>;filename=<name>;base64,<data>`; ValueError if malformed."""
    match = DATA_URI.fullmatch(data_uri)
    if match is None:
        raise ValueError("no data URI with a file name")
    content_type, name, data = match.groups()
    return Attachment(name, content_type, base64.b64decode(data, validate=True))


def styles_of(params: Json) -> tuple[StyleRange, ...]:
    try:
        return tuple(map(_style_in, several(params, "textStyle")))
    except ValueError:
        raise Refusal(-1, "Invalid style syntax") from None


def _style_in(text: str) -> StyleRange:
    start, length, style = text.split(":")
    return StyleRange(int(start), int(length), TextStyle(style))


def quote_in(params: Json) -> Quote | None:
    if "quoteTimestamp" not in params:
        return None
    if "quoteAuthor" not in params:
        raise Refusal(-1, "Quote author parameter is missing")
    return Quote(params["quoteTimestamp"], params["quoteAuthor"], params.get("quoteMessage", ""))


def poll_of(params: Json) -> Poll:
    return Poll(
        required(params, "question"),
        tuple(several(params, "option")),
        multiple=not params.get("noMulti", False),
    )


def profile_of(params: Json) -> Profile:
    avatar = params.get("avatar")
    try:
        picture = None if avatar is None else attachment_in(avatar).data
    except ValueError:
        raise Refusal(-3, "Avatar not found") from None
    return Profile(name=params.get("givenName"), about=params.get("about"), picture=picture)


def timestamp_in(params: Json) -> int:
    value = params.get("targetTimestamp")
    if not isinstance(value, int):
        raise Refusal(-1, "No target timestamp given")
    return value


def required(params: Json, name: str) -> str:
    values = several(params, name)
    if len(values) != 1:
        raise Refusal(-1, f"{name} is missing")
    return values[0]


def several(params: Json, name: str) -> list[str]:
    value = params.get(name, params.get(f"{name}s"))
    if value is None:
        return []
    return value if isinstance(value, list) else [value]
