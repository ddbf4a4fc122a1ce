"""Files that nobody will look at are deleted, one after the other, whatever becomes of one."""

import asyncio

from bot.dispatch.background.file_cleanup import FileCleanup
from bot.errors import SignalUnavailable
from conversation_store.models import ReceivedFile
from tests.contract.harnesses import in_background
from tests.fakes.partial_messenger import PartialMessenger


class Folder(PartialMessenger):
    """Files by their ids, some of which cannot be deleted."""

    def __init__(self, *stuck: str) -> None:
        self.kept = stuck
        self.deleted: asyncio.Queue[str] = asyncio.Queue()

    async def discard_file(self, file: ReceivedFile) -> None:
        if file.id in self.kept:
            raise SignalUnavailable("Nobody answers.")
        self.deleted.put_nowait(file.id)


def files(*ids: str) -> list[ReceivedFile]:
    return [ReceivedFile(one, "image/jpeg") for one in ids]


async def test_one_that_cannot_be_deleted_keeps_nobody_waiting() -> None:
    folder = Folder("b")
    file_cleanup = FileCleanup(folder)
    file_cleanup.add(files("a", "b", "c"))
    async with in_background(file_cleanup.run()):
        assert [await folder.deleted.get() for _ in range(2)] == ["a", "c"]
        file_cleanup.add(files("d"))
        assert await folder.deleted.get() == "d"
