"""From what a transport reads to what the bot takes: receipts at once, everything else in order."""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from bot.messaging.envelope import parse_frame
from bot.messaging.events import Account, Evidence, Ignored, Incoming
from bot.messaging.messenger import Deliver
from bot.messaging.receipts import DeliveryReceipts
from bot.observability.metrics import FRAMES, SIGNAL_QUEUE

MAX_DELIVERY: Final = 256
"""What is handed over together at the most: what one commit of the store takes."""

log = structlog.get_logger()


class DeliveryQueue:
    """What was read from the Signal side and is to be delivered.

    Args:
        max_waiting: one more is refused; 0: there is no limit.

    Attributes:
        undelivered: how much is in it, or was taken out and is not done with.
    """

    def __init__(self, max_waiting: int = 0) -> None:
        self._waiting = asyncio.Queue[Incoming](max_waiting)
        self.undelivered = 0

    def __len__(self) -> int:
        return self._waiting.qsize()

    def put(self, event: Incoming) -> None:
        """Add what was read; asyncio.QueueFull where there is no room."""
        self._waiting.put_nowait(event)
        self.undelivered += 1
        SIGNAL_QUEUE.set(len(self))

    async def deliver_all(
        self, deliver: Deliver, *, taken: Callable[[], None] = lambda: None
    ) -> None:
        """Hand over what waits, as much as there is at a time, until cancelled.

        Args:
            deliver: takes it.
            taken: called when there is room again.
        """
        while True:
            delivery = [await self._waiting.get()]
            while len(delivery) < MAX_DELIVERY and not self._waiting.empty():
                delivery.append(self._waiting.get_nowait())
            taken()
            await deliver(delivery)
            for _ in delivery:
                self._waiting.task_done()
            self.undelivered -= len(delivery)
            SIGNAL_QUEUE.set(len(self))

    async def all_delivered(self, *, seconds: float) -> None:
        """Wait until nothing is undelivered, at most so long."""
        try:
            async with asyncio.timeout(seconds):
                await self._waiting.join()
        except TimeoutError:
            log.warning("signal.stop_timed_out", waiting=self.undelivered)


def read_frame(frame: object, account: Account, receipts: DeliveryReceipts) -> Incoming | None:
    """Count a decoded frame, and return what of it is to be delivered.

    A receipt is taken here and now: it must not wait behind messages.
    """
    read = parse_frame(frame, account)
    FRAMES.labels(read.kind).inc()
    if isinstance(read, Ignored):
        return None
    if isinstance(read, Evidence):
        receipts.take(read)
        return None
    return read
