"""Signal and signal-cli as the bot meets them: slow, forgetful, and sometimes in error.

A send has two ends. signal-cli takes the request, gives the message a timestamp and hands it to
Signal, which delivers it to the phones. Then signal-cli answers. Both may go wrong independently.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import Any, Final

from bot.signal.events import Person
from bot.signal.frames import Account
from conversation_store.models import ChatId
from tests.fakes import signal_side
from tests.fakes.json_rpc_server import Client, HangUp, Json, LostReply, Refusal
from tests.fakes.signal_people import SignalPeople
from tests.fakes.signal_requests import timestamp_in
from tests.fakes.signal_side import Sent, SignalSide
from tests.simulation.loop import OWNER, SimulatedLoop


class Fault(StrEnum):
    """Ways in which a send goes wrong."""

    NONE = "works"
    SLOW = "takes seconds before it begins"
    ERROR_BEFORE = "ends in an error before the delivery"
    ERROR_AFTER = "ends in an error after the delivery"
    LIMIT_BEFORE = "is limited before the delivery"
    LIMIT_AFTER = "is limited after the delivery"
    LOST_REPLY = "is delivered, and the reply gets lost"
    HANG_UP = "is delivered, and the connection breaks before the reply"
    REFUSED = "is refused, provably before any delivery"


BEFORE: Final = frozenset({Fault.ERROR_BEFORE, Fault.LIMIT_BEFORE, Fault.REFUSED})
"""Faults without a delivery."""

UNREPORTED: Final = frozenset({Fault.LOST_REPLY, Fault.HANG_UP})
WAIT_SECONDS: Final = 60.0
"""The bot waits so long for a reply."""


async def _has_come(timestamp: int) -> None:
    """Do not wait: the clock may have been turned back."""


signal_side.has_come = _has_come

ERRORS: Final = (
    (-32603, "[422] Bad response: 422 (NonSuccessfulResponseCodeException)"),
    (-32603, "Failed to send message: null (IOException)"),
    (-32603, "[SQLITE_BUSY] The database file is locked (database is locked)"),
    (-1, "Failed to send message"),
    (-3, "Connection closed!"),
    (-7, "an error of a later version"),
)


@dataclass(frozen=True, slots=True)
class Delivery:
    """What reaches the phones of a chat: a message, an edit, a deletion, a reaction, a poll's end.

    Attributes:
        timestamp: Signal's, of this delivery itself. Phones confirm it.
        kind: `message`, `deletion`, `reaction` or `poll end`.
        target: timestamp of the message that it changes, or 0.
        text: of a message, or the emoji of a reaction.
    """

    chat: ChatId
    timestamp: int
    kind: str
    target: int = 0
    text: str = ""
    options: tuple[str, ...] = ()
    files: int = 0


@dataclass(frozen=True, slots=True)
class Doubt:
    """A request of which the bot does not know whether it was carried out, or when.

    Attributes:
        since_ms: the bot knows that its timestamp is later than this, and earlier than `until_ms`.
        timestamp: of its delivery, or 0 if there was none.
    """

    chat: ChatId
    since_ms: int
    until_ms: int
    timestamp: int


class ManyClocks(SignalPeople):
    """People whose phones do not follow the clock of the bot's machine.

    Args:
        account: the bot's.
    """

    _loop: SimulatedLoop

    def __init__(self, account: Account) -> None:
        super().__init__(account)
        self.doubts: list[Doubt] = []
        self.refused: set[ChatId] = set()
        self._acting: float | None = None
        self._people_last = 0
        self._used: set[int] = set()

    def _note_doubt(
        self, fault: Fault, chat: ChatId, began: float, timestamp: int, *, is_named: bool = True
    ) -> None:
        """Note a request that began at this time of the clock, unless the reply tells it all."""
        if fault is Fault.REFUSED:
            self.refused.add(chat)
            return
        if fault in {Fault.NONE, Fault.SLOW} and is_named:
            return
        ended = self._loop.wall() + (WAIT_SECONDS if fault in UNREPORTED else 0.0)
        self.doubts.append(Doubt(chat, int(began * 1_000), int(ended * 1_000), timestamp))

    def take_clock(self, offset: float) -> None:
        """Take the next timestamp from the clock of a phone, which is wrong by so many seconds."""
        self._acting = offset

    def _new_timestamp(self) -> int:
        if self._acting is None:  # signal-cli takes its machine's clock, and no timestamp twice
            own = int(self._loop.wall() * 1_000)
            while own in self._used:
                own += 1
            self._used.add(own)
            return own
        offset, self._acting = self._acting, None
        now = int((self._loop.epoch + self._loop.time() + offset) * 1_000)
        self._people_last = max(now, self._people_last + 1)
        return self._people_last


class SimulatedSignal(SignalSide, ManyClocks):
    """signal-cli's daemon, with Signal and the phones behind it.

    Attributes:
        deliver: hands a delivery to the phones.
        faults: draws the fault of the next send.
        frames: called with each frame that a bot's connection gets.
        twice: draws whether a frame comes twice.
        unanswered: timestamps of deliveries that signal-cli does not confirm to the bot.
    """

    def __init__(
        self, loop: SimulatedLoop, path: Path, rng: Random, deliver: Callable[[Delivery], None]
    ) -> None:
        super().__init__(path)
        self._loop, self._rng = loop, rng
        self.deliver = deliver
        self.faults: Callable[[], Fault] = lambda: Fault.NONE
        self.twice: Callable[[], bool] = lambda: False
        self.written: Callable[[Json], None] = lambda _: None
        self.has_polls = True
        self.delay = (0.002, 0.05)
        self.unanswered: set[int] = set()
        self._running: set[asyncio.Task[object]] = set()
        self._process = 0

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    # signal-cli's process

    async def come_back(self) -> None:
        self._process += 1
        OWNER.set("signal-cli")
        await super().come_back()

    async def restart(self, seconds: float) -> None:
        """End signal-cli with the requests in its hands, and start it again later."""
        for task in sorted(self._running, key=hash):
            task.cancel()
        await self.go_away()
        await asyncio.sleep(seconds)
        await self.come_back()

    async def _call(self, client: Client, name: str, params: Json) -> object:
        """Handle a request to its end, also if its connection breaks."""
        if name == "version":
            return await super()._call(client, name, params)
        task = asyncio.ensure_future(self._slowly(client, name, params))
        self._running.add(task)
        task.add_done_callback(self._over)
        return await asyncio.shield(task)

    def _over(self, task: asyncio.Task[object]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()

    async def _slowly(self, client: Client, name: str, params: Json) -> object:
        await asyncio.sleep(self._rng.uniform(*self.delay))
        return await super()._call(client, name, params)

    def _deliver(self) -> None:
        while self._undelivered and self.subscribed and not self.fate:
            frame = self._undelivered.popleft()
            times = 1 + self.twice()
            self.written(frame)
            for client in self._rpc.clients:
                for subscription in client.subscriptions:
                    for _ in range(times):
                        client.write(self._notification(subscription, frame))

    # Sends

    async def _send(self, client: Client, params: Json) -> object:
        return await self._with_faults(super()._send, client, params)

    async def _send_poll(self, client: Client, params: Json) -> object:
        return await self._with_faults(super()._send_poll, client, params)

    async def _record(self, sent: Sent) -> None:
        await super()._record(sent)
        options = () if sent.poll is None else sent.poll.options
        self.deliver(
            Delivery(
                sent.chat, sent.timestamp, "message", sent.replaces or 0, sent.text, options,
                len(sent.attachments),
            )
        )  # fmt: skip

    async def _remote_delete(self, client: Client, params: Json) -> object:
        return await self._with_faults(self._change, client, params, "deletion")

    async def _send_reaction(self, client: Client, params: Json) -> object:
        return await self._with_faults(self._change, client, params, "reaction")

    async def _end_poll(self, client: Client, params: Json) -> object:
        return await self._with_faults(self._change, client, params, "poll end")

    async def _change(self, _client: Client, params: Json, kind: str) -> object:
        chat, timestamp = self._reachable_chat(params), self._new_timestamp()
        target = params["pollTimestamp"] if kind == "poll end" else timestamp_in(params)
        self.deliver(Delivery(chat, timestamp, kind, target, params.get("emoji", "")))
        await self._announce()
        return self._sent_result(timestamp)

    async def _with_faults(
        self, send: Callable[..., Awaitable[object]], client: Client, params: Json, *more: str
    ) -> object:
        fault, began = self.faults(), self._loop.wall()
        if fault is Fault.SLOW:
            await asyncio.sleep(self._rng.uniform(0.5, 6.0))
        timestamp = 0
        result: Any = None
        if fault not in BEFORE:
            result = await send(client, params, *more)
            self.unanswered.add(timestamp := result["timestamp"])
            await asyncio.sleep(self._rng.uniform(*self.delay))
        self._note_doubt(fault, self._reachable_chat(params), began, timestamp)
        if fault not in {Fault.NONE, Fault.SLOW}:
            raise self._end_of(fault, timestamp)
        if client in self._rpc.clients:
            self.unanswered.discard(timestamp)
        return result

    def _end_of(self, fault: Fault, timestamp: int) -> Exception:
        match fault:
            case Fault.LIMIT_BEFORE | Fault.LIMIT_AFTER:
                return _limited(timestamp)
            case Fault.REFUSED:
                return Refusal(-1, "Unregistered user")
            case Fault.LOST_REPLY:
                return LostReply()
            case Fault.HANG_UP:
                return HangUp()
            case _:
                return self._error(timestamp)

    def _error(self, timestamp: int) -> Refusal:
        code, message = self._rng.choice(ERRORS)
        if timestamp and code == -1 and self._rng.random() < 0.5:
            results = [{"recipientAddress": {}, "type": "NETWORK_FAILURE"}]
            response = {"timestamp": timestamp, "results": results}
            return Refusal(code, message, {"response": response})
        return Refusal(code, message)


def _limited(timestamp: int) -> Refusal:
    results = [{"type": "RATE_LIMIT_FAILURE", "retryAfterSeconds": 5}]
    response = {"timestamp": timestamp, "results": results} if timestamp else None
    return Refusal(-5, "Failed to send message due to rate limiting", {"response": response})


def people(number: int) -> list[Person]:
    """Return so many people."""
    return [
        Person(
            aci=f"0d1e2f30-0000-4000-8000-{index:012}",
            number=f"+1555010{index:04}",
            name=f"P{index}",
        )
        for index in range(1, number + 1)
    ]
