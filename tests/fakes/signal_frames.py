"""Frames as signal-cli delivers them, for what people write and do."""

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
    """Return a message's own part of a frame.

    Args:
        account: the bot that receives it.
        timestamp: of the message, in ms.
        text: what was written; None without words.
        group: the `groupInfo` where it was written; None for a private chat.
        mention: the text begins with a mention of the bot.
        quote: the message that it replies to.
        files: what comes with it, each from `file_of`.
        expires_seconds: the chat's timer for disappearing messages.
        view_once: its file may be looked at once.
    """
    data: Json = {
        "timestamp": timestamp,
        "message": f"{MENTION} {text}" if mention else text,
        "expiresInSeconds": expires_seconds,
        "isExpirationUpdate": False,
        "viewOnce": view_once,
    }
    if mention:
        data["mentions"] = [{**_named(account), "start": 0, "length": 1}]
    if quote is not None:
        data["quote"] = quote
    if files:
        data["attachments"] = list(files)
    if group is not None:
        data["groupInfo"] = group
    return data


def message_frame(account: Account, author: Person, data: Json) -> Json:
    """Return the frame of a message, or of whatever else its own part tells."""
    return _frame(account, author, data["timestamp"], {"dataMessage": data})


def text_frame(
    account: Account,
    author: Person,
    timestamp: int,
    text: str,
    *,
    group: Json | None = None,
    mention: bool = False,
    quote: Json | None = None,
) -> Json:
    """Return the frame of a text message; the arguments are those of `data_message`."""
    data = data_message(account, timestamp, text, group=group, mention=mention, quote=quote)
    return message_frame(account, author, data)


def edit_frame(account: Account, author: Person, target: int, data: Json) -> Json:
    """Return the frame of an edit.

    Args:
        account: the bot that receives it.
        author: who edits.
        target: timestamp of the message, or of its edit before.
        data: the message as it reads now.
    """
    edit: Json = {"targetSentTimestamp": target, "dataMessage": data}
    return _frame(account, author, data["timestamp"], {"editMessage": edit})


def deletion_frame(
    account: Account,
    author: Person,
    timestamp: int,
    target: int,
    *,
    target_author: Person | None = None,
    group: Json | None = None,
) -> Json:
    """Return the frame of a message's deletion for everyone.

    Args:
        account: the bot that receives it.
        author: who deletes.
        timestamp: of the deletion, in ms.
        target: timestamp of the message.
        target_author: whose message it was, where an admin of the group deletes it.
        group: the `groupInfo` where it stands; None for a private chat.
    """
    data = data_message(account, timestamp, None, group=group)
    if target_author is None:
        data["remoteDelete"] = {"timestamp": target}
    else:
        data["adminDelete"] = _target(target_author.number, target_author.aci, target)
    return message_frame(account, author, data)


def reaction_frame(
    account: Account,
    author: Person,
    timestamp: int,
    emoji: str,
    target: int,
    *,
    group: Json | None = None,
    removed: bool = False,
) -> Json:
    """Return the frame of a reaction to a message that the bot sent.

    Args:
        account: the bot that receives it.
        author: who reacts.
        timestamp: of the reaction, in ms.
        emoji: what with.
        target: timestamp of the bot's message.
        group: the `groupInfo` where that message stands; None for a private chat.
        removed: the reaction is taken back.
    """
    data = data_message(account, timestamp, None, group=group)
    target_of_it = _target(account.number, account.aci, target)
    data["reaction"] = {"emoji": emoji, **target_of_it, "isRemove": removed}
    return message_frame(account, author, data)


def vote_frame(
    account: Account,
    author: Person,
    timestamp: int,
    options: Sequence[int],
    target: int,
    *,
    group: Json | None = None,
) -> Json:
    """Return the frame of a vote in a poll of the bot.

    Args:
        account: the bot that receives it.
        author: who votes.
        timestamp: of the vote, in ms.
        options: places of the options.
        target: timestamp of the poll.
        group: the `groupInfo` where the poll stands; None for a private chat.
    """
    data = data_message(account, timestamp, None, group=group)
    data["pollVote"] = {
        "author": account.number,
        "authorNumber": account.number,
        "authorUuid": account.aci,
        "targetSentTimestamp": target,
        "optionIndexes": [*options],
        "voteCount": 1,
    }
    return message_frame(account, author, data)


def timer_frame(account: Account, author: Person, timestamp: int, seconds: int) -> Json:
    """Return the frame that sets a private chat's timer for disappearing messages."""
    data = data_message(account, timestamp, None, expires_seconds=seconds)
    return message_frame(account, author, data | {"isExpirationUpdate": True})


def group_update_frame(account: Account, author: Person, timestamp: int, group: Json) -> Json:
    """Return the frame that tells that something about a group has changed."""
    data = data_message(account, timestamp, None, group=group | {"type": "UPDATE"})
    return message_frame(account, author, data)


def note_frame(account: Account, data: Json, *, replaces: int | None = None) -> Json:
    """Return the frame of a note to self, from another device of the bot's account.

    Args:
        account: the bot, and the person who writes.
        data: the note; without words it may be a deletion.
        replaces: timestamp of the note that it edits.
    """
    own = account.number
    note: Json = {"destination": own, "destinationNumber": own, "destinationUuid": account.aci}
    if replaces is None:
        note |= data
    else:
        note["editMessage"] = {"targetSentTimestamp": replaces, "dataMessage": data}
    owner = Person(account.aci or "", own, "Owner")
    return _frame(account, owner, data["timestamp"], {"syncMessage": {"sentMessage": note}})


def identity_frame(account: Account, person: Person, timestamp: int) -> Json:
    """Return the frame that tells that a person's new key is not trusted."""
    exception = {
        "message": f"Untrusted identity: {person.aci}",
        "type": "UntrustedIdentityException",
    }
    return _frame(account, person, timestamp, {}) | {"exception": exception}


def receipt_frame(account: Account, person: Person, timestamp: int, confirmed: int) -> Json:
    """Return the frame by which a phone confirms that a message of the bot arrived.

    Args:
        account: the bot that receives it.
        person: whose phone it is.
        timestamp: of the receipt, in ms.
        confirmed: timestamp of the bot's message.
    """
    receipt: Json = {
        "when": timestamp,
        "isDelivery": True,
        "isRead": False,
        "isViewed": False,
        "timestamps": [confirmed],
    }
    return _frame(account, person, timestamp, {"receiptMessage": receipt})


def quote_of(author: Account | Person, timestamp: int, text: str) -> Json:
    """Return the quote of somebody's message, or of one of the bot's own."""
    return {
        "id": timestamp,
        "author": author.number or author.aci,
        "authorNumber": author.number,
        "authorUuid": author.aci,
        "text": text,
        "attachments": [],
    }


def file_of(
    file_id: str, content_type: str, size: int, *, name: str | None, voice_note: bool
) -> Json:
    """Return what a frame tells about a file that comes with its message."""
    return {
        "contentType": content_type,
        "filename": name,
        "id": file_id,
        "size": size,
        "width": None,
        "height": None,
        "caption": None,
        "uploadTimestamp": None,
        "isVoiceNote": voice_note,
    }


def group_info(group_id: str, name: str) -> Json:
    """Return what a group message says about its group."""
    return {"groupId": group_id, "groupName": name, "revision": 1, "type": "DELIVER"}


def _frame(account: Account, source: Person, timestamp: int, payload: Json) -> Json:
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


def _target(number: str | None, aci: str | None, timestamp: int) -> Json:
    return {
        "targetAuthor": number or aci,
        "targetAuthorNumber": number,
        "targetAuthorUuid": aci,
        "targetSentTimestamp": timestamp,
    }


def _named(account: Account) -> Json:
    return {"name": account.number, "number": account.number, "uuid": account.aci}
