"""Frames as signal-cli delivers them, for what the people of the demo write and do."""

from typing import Final

from bot.demo.json_rpc_server import Json
from bot.messaging.events import Account, Person

MENTION: Final = "\ufffc"


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
    """Return the frame of a text message.

    Args:
        account: the bot that receives it.
        author: who wrote it.
        timestamp: of the message, in ms.
        text: what was written.
        group: the `groupInfo` where it was written; None for a private chat.
        mention: the text begins with a mention of the bot.
        quote: the message that it replies to.
    """
    data: Json = {"message": f"{MENTION} {text}" if mention else text}
    if mention:
        data["mentions"] = [_mention_of(account)]
    if quote is not None:
        data["quote"] = quote
    return _data_frame(account, author, timestamp, data, group)


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
    reaction: Json = {
        "emoji": emoji,
        "targetAuthor": account.number,
        "targetAuthorNumber": account.number,
        "targetAuthorUuid": account.aci,
        "targetSentTimestamp": target,
        "isRemove": removed,
    }
    data: Json = {"message": None, "reaction": reaction}
    return _data_frame(account, author, timestamp, data, group)


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
    envelope = _envelope(person, timestamp) | {"receiptMessage": receipt}
    return {"envelope": envelope, "account": account.number}


def quote_of(account: Account, timestamp: int, text: str) -> Json:
    """Return the quote of a message that the bot sent."""
    return {
        "id": timestamp,
        "author": account.number,
        "authorNumber": account.number,
        "authorUuid": account.aci,
        "text": text,
        "attachments": [],
    }


def group_info(group_id: str, name: str) -> Json:
    """Return what a group message says about its group."""
    return {"groupId": group_id, "groupName": name, "revision": 1, "type": "DELIVER"}


def _data_frame(
    account: Account, author: Person, timestamp: int, data: Json, group: Json | None
) -> Json:
    common: Json = {
        "timestamp": timestamp,
        "expiresInSeconds": 0,
        "isExpirationUpdate": False,
        "viewOnce": False,
    }
    where: Json = {} if group is None else {"groupInfo": group}
    envelope = _envelope(author, timestamp) | {"dataMessage": common | data | where}
    return {"envelope": envelope, "account": account.number}


def _envelope(author: Person, timestamp: int) -> Json:
    return {
        "source": author.number or author.aci,
        "sourceNumber": author.number,
        "sourceUuid": author.aci,
        "sourceName": author.name,
        "sourceDevice": 1,
        "timestamp": timestamp,
        "serverReceivedTimestamp": timestamp,
        "serverDeliveredTimestamp": timestamp,
    }


def _mention_of(account: Account) -> Json:
    return {
        "name": account.number,
        "number": account.number,
        "uuid": account.aci,
        "start": 0,
        "length": 1,
    }
