"""Frames of messages and actions of people, as signal-cli delivers them."""

from collections.abc import Sequence
from typing import Final

from bot.signal.events import Person
from bot.signal.frames import Account
from tests.fakes.json_rpc_server import Json

MENTION: Final = "\ufffc"


def data_message(
    account: Account,
    timestamp: int,
    text: str | None,
    *,
    group: Json | None = None,
    mention: bool = False,
    quote: Json | None = None,
    files: Sequence[Json] = (),
    expires_seconds: int = 0,
    view_once: bool = False,
) -> Json:
    """Return a message's own part of a frame; the arguments are those of `SignalPeople.say`."""
    data: Json = {
        "timestamp": timestamp,
        "message": f"{MENTION} {text}" if mention else text,
        "expiresInSeconds": expires_seconds,
        "isExpirationUpdate": False,
        "viewOnce": view_once,
    }
    if mention:
        named = {"name": account.number, "number": account.number, "uuid": account.aci}
        data["mentions"] = [{**named, "start": 0, "length": 1}]
    if quote is not None:
        data["quote"] = quote
    if files:
        data["attachments"] = list(files)
    if group is not None:
        data["groupInfo"] = group
    return data


def frame_of(account: Account, source: Person, timestamp: int, **payload: Json) -> Json:
    envelope: Json = {
        "source": source.number or source.aci,
        "sourceNumber": source.number,
        "sourceUuid": source.aci,
        "sourceName": source.name,
        "sourceDevice": 1,
        "timestamp": timestamp,
        "serverReceivedTimestamp": timestamp,
        "serverDeliveredTimestamp": timestamp,
    }
    return {"envelope": envelope | payload, "account": account.number}


def text_frame(
    account: Account, author: Person, timestamp: int, text: str, *, mention: bool = False
) -> Json:
    return message_frame(account, author, data_message(account, timestamp, text, mention=mention))


def message_frame(account: Account, author: Person, data: Json) -> Json:
    return frame_of(account, author, data["timestamp"], dataMessage=data)


def edit_frame(account: Account, author: Person, target: int, data: Json) -> Json:
    """Return the frame of an edit: the target's timestamp, and the message as it reads now."""
    edit: Json = {"targetSentTimestamp": target, "dataMessage": data}
    return frame_of(account, author, data["timestamp"], editMessage=edit)


def deletion_frame(account: Account, author: Person, timestamp: int, target: int) -> Json:
    data = data_message(account, timestamp, None)
    return message_frame(account, author, data | {"remoteDelete": {"timestamp": target}})


def receipt_frame(account: Account, person: Person, timestamp: int, confirmed: int) -> Json:
    """Return the frame by which a phone confirms that a message of the bot arrived."""
    receipt: Json = {
        "when": timestamp,
        "isDelivery": True,
        "isRead": False,
        "isViewed": False,
        "timestamps": [confirmed],
    }
    return frame_of(account, person, timestamp, receiptMessage=receipt)


def note_frame(account: Account, data: Json, *, replaces: int | None = None) -> Json:
    """Return the frame of a note to self, from another device of the bot's account."""
    own = account.number
    note: Json = {"destination": own, "destinationNumber": own, "destinationUuid": account.aci}
    if replaces is None:
        note |= data
    else:
        note["editMessage"] = {"targetSentTimestamp": replaces, "dataMessage": data}
    owner = Person(account.aci or "", own, "Owner")
    return frame_of(account, owner, data["timestamp"], syncMessage={"sentMessage": note})


def identity_frame(account: Account, person: Person, timestamp: int) -> Json:
    """Return the frame that tells that a person's new key is not trusted."""
    exception = {
        "message": f"Untrusted identity: {person.aci}",
        "type": "UntrustedIdentityException",
    }
    return frame_of(account, person, timestamp) | {"exception": exception}


def target_of(author: Account | Person, timestamp: int) -> Json:
    return {
        "targetAuthor": author.number or author.aci,
        "targetAuthorNumber": author.number,
        "targetAuthorUuid": author.aci,
        "targetSentTimestamp": timestamp,
    }


def quote_of(author: Account | Person, timestamp: int, text: str) -> Json:
    return {
        "id": timestamp,
        "author": author.number or author.aci,
        "authorNumber": author.number,
        "authorUuid": author.aci,
        "text": text,
        "attachments": [],
    }
