"""A process that looks like signal-cli's daemon, plays the people and holds the stopwatch.

It writes frames, takes the bot's answers, and measures the time between the two at the socket. A
raw protocol without tasks keeps its own load small.

    python -m benchmarks.signal_side /path/to/socket

The command `{"turns", "chats", "in_flight", "pause_seconds"}` makes people in so many chats write
that many messages, so many at once; a chat writes again only when it was answered. With
`"beside": "a text"` one more person says this text again and again until all others are answered;
how long that takes is not measured. The result tells the latencies and how long it all took.
"""

import asyncio
import json
import statistics
import sys
import time
from collections import deque
from typing import Any, Final, cast

from benchmarks.control import Json, obey
from benchmarks.model_side import ANSWER

NUMBER: Final = "+15550100000"
BOT_ACI: Final = "9d578c56-e167-564c-8fb4-cdda901237d9"
PROGRESS: Final = "🔧"
BESIDE: Final = 999_999
"""The number of the person who is not measured."""
BESIDE_SECONDS: Final = 0.5
"""Delay until this person's request has begun."""
TEXT: Final = "What do you think of the weather in Lisbon at this time of the year?"

FRAME: Final = (
    '{"jsonrpc":"2.0","method":"receive","params":{"subscription":0,"result":{"envelope":'
    '{"source":"%(number)s","sourceNumber":"%(number)s","sourceUuid":"%(aci)s","sourceName":"Ada",'
    '"sourceDevice":1,"timestamp":%(at)d,"serverReceivedTimestamp":%(at)d,'
    '"serverDeliveredTimestamp":%(at)d,"dataMessage":{"timestamp":%(at)d,"message":"%(text)s",'
    '"expiresInSeconds":0,"isExpirationUpdate":false,"viewOnce":false}},"account":"%(account)s"}}}\n'
)
SENT: Final = (
    '{"jsonrpc":"2.0","result":{"timestamp":%d,"results":[{"recipientAddress":{},'
    '"type":"SUCCESS"}]},"id":%d}\n'
)
RESULTS: Final[dict[str, object]] = {
    "version": {"version": "99.0.0"},
    "listDevices": [{"id": 1, "name": None}],
    "listAccounts": [{"number": NUMBER}],
    "listIdentities": [{"number": NUMBER, "uuid": BOT_ACI}],
    "subscribeReceive": 0,
    "unsubscribeReceive": {},
    "sendMessageRequestResponse": {},
}
SIGNS: Final = frozenset({"sendTyping", "sendReaction", "sendReceipt"})


class Load:
    """Some messages, so many of them in flight, and the time until each was answered.

    Args:
        turns: messages in all.
        chats: that they are spread over.
        in_flight: unanswered at once.
        pause_seconds: between an answer and the message that follows it.
        beside: the words of a further person until the others are answered; empty: no such person.
    """

    def __init__(
        self, turns: int, chats: int, in_flight: int, pause_seconds: float, beside: str = ""
    ) -> None:
        self.latencies: list[float] = []
        self.answered = asyncio.Event()
        self.in_flight = in_flight
        self.pause_seconds = pause_seconds
        self.beside = beside
        self.beside_ended = asyncio.Event()
        self._turns = turns
        self._left = turns
        self._quiet = deque(_aci(number) for number in range(chats))
        self._said_at: dict[str, float] = {}

    def next_chat(self) -> str | None:
        """Return the current writer, and start the watch; None when all messages are written."""
        if not self._left:
            return None
        self._left -= 1
        chat = self._quiet.popleft()
        self._said_at[chat] = time.perf_counter()
        return chat

    def answer(self, chat: str) -> None:
        """Stop a chat's watch; a second answer is an error."""
        self.latencies.append(time.perf_counter() - self._said_at.pop(chat))
        self._quiet.append(chat)
        if len(self.latencies) == self._turns:
            self.answered.set()


class SignalSide(asyncio.Protocol):
    """The daemon's side of the one connection, the bot's."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._load: Load | None = None
        self._last_timestamp = 0

    async def carry_out(self, command: Json) -> Json:
        """Put the bot under a load and return how it went, in ms and seconds."""
        load = self._load = Load(**command)
        began = time.perf_counter()
        if load.beside:
            self._say(_aci(BESIDE), load.beside)
            await asyncio.sleep(BESIDE_SECONDS)
        for _ in range(load.in_flight):
            self._say_next(load)
        await load.answered.wait()
        seconds = time.perf_counter() - began
        if load.beside:
            await load.beside_ended.wait()
        self._load = None
        return _summary(load.latencies, seconds)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The bot has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer each request that is complete."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._answer(json.loads(line))

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's name
        """Under load that is the end of the benchmark."""
        if self._load is not None:
            raise SystemExit("The bot went away under load.")

    def _answer(self, request: dict[str, Any]) -> None:
        method, request_id = request["method"], request["id"]
        if method in SIGNS:
            self._write(SENT % (self._timestamp(), request_id))
            return
        if method != "send":
            answer = {"jsonrpc": "2.0", "result": RESULTS[method], "id": request_id}
            self._write(json.dumps(answer) + "\n")
            return
        params = request["params"]
        if not params["message"].startswith(PROGRESS):
            self._take_answer(params["recipient"][0], params["message"])
        self._write(SENT % (self._timestamp(), request_id))

    def _take_answer(self, chat: str, text: str) -> None:
        load = self._load
        if not text.endswith(ANSWER) or load is None:
            raise SystemExit(f"The bot sent what nobody expects: {text}")
        if chat == _aci(BESIDE):
            if load.answered.is_set():
                load.beside_ended.set()
            else:
                self._say(chat, load.beside)
            return
        load.answer(chat)
        if load.pause_seconds:
            asyncio.get_running_loop().call_later(load.pause_seconds, self._say_next, load)
        else:
            self._say_next(load)

    def _say_next(self, load: Load) -> None:
        if (chat := load.next_chat()) is not None:
            self._say(chat, TEXT)

    def _say(self, chat: str, text: str) -> None:
        self._write(
            FRAME
            % {
                "number": f"+1555{chat[-7:]}",
                "aci": chat,
                "at": self._timestamp(),
                "text": json.dumps(text)[1:-1],
                "account": NUMBER,
            }
        )

    def _write(self, line: str) -> None:
        if self._transport is not None:
            self._transport.write(line.encode())

    def _timestamp(self) -> int:
        self._last_timestamp = max(self._last_timestamp + 1, time.time_ns() // 1_000_000)
        return self._last_timestamp


def _aci(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012d}"


def _summary(latencies: list[float], seconds: float) -> Json:
    hundredths = statistics.quantiles(latencies, n=100, method="inclusive")
    return {
        "p50_ms": hundredths[49] * 1000,
        "p90_ms": hundredths[89] * 1000,
        "p99_ms": hundredths[98] * 1000,
        "turns": len(latencies),
        "seconds": seconds,
    }


async def main() -> None:
    side = SignalSide()
    server = await asyncio.get_running_loop().create_unix_server(lambda: side, sys.argv[1])
    async with server:
        await obey(side.carry_out, ready={})


if __name__ == "__main__":
    asyncio.run(main())
