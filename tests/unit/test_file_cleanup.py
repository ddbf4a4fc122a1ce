"""Unused files are deleted one after the other, even if one deletion fails."""

import asyncio
from pathlib import Path

from structlog.testing import capture_logs

from bot.chat.upkeep import FileCleanup
from bot.signal.errors import SignalUnavailable
from conversation_store.models import ReceivedFile
from tests.contract.harnesses import in_background
from tests.fakes.partial_messenger import PartialMessenger
from tests.unit.stores import accept, deletion_of, received, store_at
from tools.sandbox.pool import SandboxPolicy
from tools.settings import WorkspaceSettings
from tools.workspace.workspaces import Workspaces


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


async def test_failed_deletion_does_not_delay_other_files() -> None:
    folder = Folder("b")
    file_cleanup = FileCleanup(folder)
    file_cleanup.add(files("a", "b", "c"))
    async with in_background(file_cleanup.run()):
        assert [await folder.deleted.get() for _ in range(2)] == ["a", "c"]
        file_cleanup.add(files("d"))
        assert await folder.deleted.get() == "d"


async def test_files_in_workspaces_are_deleted_once_that_is_possible(tmp_path: Path) -> None:
    folder = tmp_path / "workspaces"
    folder.touch()  # no workspace can be opened
    workspaces = Workspaces(folder, WorkspaceSettings(), lambda _: "chat", SandboxPolicy())
    async with store_at(tmp_path) as store, workspaces:
        message = await accept(store, received(1))
        await store.files.add(message.message, "inbox/a.pdf")
        await store.changes.forget(await accept(store, deletion_of(1, 2)))
        cleanup = FileCleanup(Folder(), store.files, workspaces, again_seconds=0.01)
        async with asyncio.timeout(30), in_background(cleanup.run()):
            with capture_logs() as logs:
                while not logs:  # noqa: ASYNC110 - as below
                    await asyncio.sleep(0)
            assert logs[0]["event"] == "file.not_deleted"
            folder.unlink()
            while await store.files.to_delete():  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0)
