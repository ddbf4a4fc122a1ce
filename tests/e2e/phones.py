"""A Signal side whose phones confirm what they get, and which tells late that it took a message."""

import asyncio
from collections import defaultdict
from pathlib import Path

from bot.messaging.events import Account, Person
from conversation_store.models import ChatId
from tests.fakes.json_rpc_server import Client, Json
from tests.fakes.signal_side import BOT, Sent, SignalSide


class SignalWithPhones(SignalSide):
    """Delivers each message to the phones of its chat before it answers the bot.

    Attributes:
        tells_after_seconds: how long after a message has gone out its send is answered.
        away: ACIs of those whose phones confirm nothing just now.
    """

    def __init__(self, path: Path, *, account: Account = BOT) -> None:
        super().__init__(path, account=account)
        self.tells_after_seconds = 0.0
        self.away: frozenset[str] = frozenset()
        self._confirmed: set[int] = set()
        self._unconfirmed: defaultdict[str, list[int]] = defaultdict(list)

    async def confirm_everything(self) -> None:
        """Let all phones that are not away confirm what they got."""
        for aci in self._unconfirmed.keys() - self.away:
            for timestamp in self._unconfirmed.pop(aci):
                self._confirmed.add(timestamp)
                await self.deliver_receipt(timestamp, Person(aci))

    def heard(self) -> frozenset[int]:
        """Return the timestamps whose receipts some daemon was given."""
        waiting = (frame["envelope"].get("receiptMessage", {}) for frame in self._undelivered)
        unheard = {timestamp for one in waiting for timestamp in one.get("timestamps", ())}
        return frozenset(self._confirmed - unheard)

    def unread(self) -> frozenset[int]:
        """Return the timestamps of messages that no daemon was given yet."""
        waiting = (frame["envelope"].get("dataMessage") for frame in self._undelivered)
        return frozenset(message["timestamp"] for message in waiting if message)

    def visible(self) -> list[Sent]:
        """Return what people see in the end, without signs of progress and what was edited."""
        deleted = {timestamp for _, timestamp in self.deleted}
        edited = {sent.replaces for sent in self.sent}
        gone = deleted | edited
        return [
            sent
            for sent in self.sent
            if sent.timestamp not in gone and not sent.text.startswith("🔧")
        ]

    async def _record(self, sent: Sent) -> None:
        await super()._record(sent)
        await self._arrive(sent.chat, sent.timestamp)
        if self.tells_after_seconds:
            await asyncio.sleep(self.tells_after_seconds)

    async def _send_reaction(self, client: Client, params: Json) -> object:
        result = await super()._send_reaction(client, params)
        if isinstance(result, dict):
            await self._arrive(self.reactions[-1].chat, result["timestamp"])
        return result

    async def _remote_delete(self, client: Client, params: Json) -> object:
        result = await super()._remote_delete(client, params)
        if isinstance(result, dict):
            await self._arrive(self.deleted[-1][0], result["timestamp"])
        return result

    async def _arrive(self, chat: ChatId, timestamp: int) -> None:
        people = list(self.groups[chat.value].members) if chat.is_group else [chat.value]
        for aci in people:
            self._unconfirmed[aci].append(timestamp)
        await self.confirm_everything()
