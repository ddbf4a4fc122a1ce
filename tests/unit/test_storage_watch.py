"""What happens while the disk takes nothing, and when it does again."""

import asyncio

from structlog.testing import capture_logs

from bot.chat.upkeep import hold_while_refused
from tests.fakes.partial_messenger import PartialMessenger


class Disk:
    """Takes what is to be stored, or says why not; knows what the watch knows."""

    def __init__(self) -> None:
        self._refusal: str | None = None
        self._known: str | None = None
        self._changed = asyncio.Condition()

    async def turn(self, refusal: str | None) -> None:
        """Refuse, or take what comes, and wait until the watch knows and waits for more."""
        async with self._changed:
            self._refusal = refusal
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._known == refusal)

    async def refusal_other_than(self, known: str | None) -> str | None:
        async with self._changed:
            self._known = known
            self._changed.notify_all()
            await self._changed.wait_for(lambda: self._refusal != known)
            return self._refusal


class Signal(PartialMessenger):
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    async def hold_receiving(self) -> None:
        self.told.append("hold")

    async def resume_receiving(self) -> None:
        self.told.append("resume")


async def test_messages_are_held_until_the_last_reported_reason_is_gone() -> None:
    disk, side = Disk(), Signal()
    with capture_logs() as logged:
        async with asyncio.TaskGroup() as tasks:
            watching = tasks.create_task(hold_while_refused(disk.refusal_other_than, side))
            await disk.turn("the disk is full")
            await disk.turn("the disk is read-only")
            assert side.told == ["hold"]
            await disk.turn(None)
            watching.cancel()
    assert side.told == ["hold", "resume"]
    assert [(one["event"], one.get("reason")) for one in logged] == [
        ("store.refuses", "the disk is full"),
        ("store.refuses", "the disk is read-only"),
        ("store.takes_again", None),
    ]
