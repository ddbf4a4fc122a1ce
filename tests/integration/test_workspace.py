"""A chat's workspace through its sandbox: its tools, and attacks from inside it."""

import asyncio
import json
import os
import re
import shutil
import signal
import socket
import stat
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.e2e.disks import memory_disk, mounted
from tests.fakes.hostile_in_folder import ROOT_OF_PROCESS
from tools.sandbox.errors import WorkError
from tools.sandbox.jail.watch import processes_of
from tools.sandbox.pool import SandboxPolicy
from tools.settings import WorkspaceSettings
from tools.workspace.inside.reading import MAX_FOUND_LINES, MAX_LISTED
from tools.workspace.removal import give_back
from tools.workspace.workspaces import MAX_OPEN, MAX_SENT_BYTES, Workspace, Workspaces

SECRET = "the key of the store"
CHAT = "direct:ada"
NOTHING_FOUND = "[Nothing was found.]"


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@asynccontextmanager
async def workspaces(tmp_path: Path, **settings: Any) -> AsyncIterator[Workspaces]:
    async with Workspaces(
        tmp_path / "workspaces",
        WorkspaceSettings(**settings),
        lambda chat: f"of-{chat}",
        SandboxPolicy(),
    ) as found:
        yield found


@asynccontextmanager
async def workspace(tmp_path: Path, **settings: Any) -> AsyncIterator[tuple[Workspace, Path]]:
    """Provide a workspace, and the folder of its files on the disk."""
    (tmp_path / "secret").write_text(SECRET)
    async with workspaces(tmp_path, **settings) as found:
        yield found.of(CHAT), tmp_path / "workspaces" / f"of-{CHAT}" / "files"


async def listed(workspace: Workspace, **arguments: object) -> str:
    """Return the listed paths, sorted and without the files' sizes and times."""
    text = await workspace.do("list_files", **arguments)
    paths = [re.sub(r" \([\d,]+ bytes?, [-\d]+ [:\d]+ UTC\)$", "", one) for one in text.split("\n")]
    return "\n".join(sorted(paths, key=lambda path: (path.startswith("["), path)))


async def refusal(workspace: Workspace, deed: str, **arguments: object) -> str:
    """Return the refusal of a call that must fail."""
    with pytest.raises(WorkError) as error:
        await workspace.do(deed, **arguments)
    return str(error.value)


async def test_files_are_written_read_changed_found_and_deleted(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, _):
        assert await listed(here) == "[Nothing is there.]"
        written = await here.do("write_file", file_path="notes/a.txt", content="one\ntwo\nthree\n")
        assert written == "Wrote notes/a.txt: 3 lines, 14 bytes."
        assert await listed(here, recursive=True) == "notes/\nnotes/a.txt"
        assert await here.do("read_file", file_path="notes/a.txt") == "1\tone\n2\ttwo\n3\tthree"
        part = await here.do("read_file", file_path="notes/a.txt", offset=2, limit=1)
        assert part == "2\ttwo\n[1 more line; go on at offset 3.]"
        changed = await here.do(
            "edit_file", file_path="notes/a.txt", old_text="two", new_text="2\nand a half"
        )
        assert changed == "Replaced in notes/a.txt:\n2\t2\n3\tand a half"
        assert await here.do("search_files", query="THREE") == "notes/a.txt:4: three"
        assert (
            await here.do("search_files", query="^a.d", regex=True) == "notes/a.txt:3: and a half"
        )
        assert await listed(here, pattern="*.txt") == "[Nothing is there.]"
        assert await listed(here, pattern="*.txt", recursive=True) == "notes/a.txt"
        assert await listed(here, pattern="**/*.md", recursive=True) == "[Nothing is there.]"
        for pattern in ("*.{md,txt}", "{a,b}.txt", "**/a.{t{x,y}t,md}", "notes/{a,b}.{md,txt}"):
            assert await listed(here, pattern=pattern, recursive=True) == "notes/a.txt"
            assert await here.do("search_files", query="three", pattern=pattern) != NOTHING_FOUND
        many = "{a,b}" * 40
        assert "64 choices" in await refusal(here, "list_files", pattern=many)
        info = await here.do("list_files", directory="notes")
        assert re.fullmatch(r"notes/a\.txt \(23 bytes, \d{4}-\d\d-\d\d \d\d:\d\d UTC\)", info)
        deleted = await here.do("delete_file", file_path="notes/a.txt")
        assert deleted == "Deleted notes/a.txt."
        assert await listed(here, directory="notes") == "[Nothing is there.]"


async def test_an_edit_without_a_unique_match_is_refused(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, _):
        await here.do("write_file", file_path="a", content="x x")
        edit = {"file_path": "a", "new_text": "y"}
        assert "was found 2 times" in await refusal(here, "edit_file", old_text="x", **edit)
        assert "was not found" in await refusal(here, "edit_file", old_text="z", **edit)
        assert "is empty" in await refusal(here, "edit_file", old_text="", **edit)
        assert await here.do("read_file", file_path="a") == "1\tx x"
        await here.do("edit_file", old_text="x", replace_all=True, **edit)
        assert await here.do("read_file", file_path="a") == "1\ty y"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"\xef\xbb\xbfone\r\ntwo\r\n", b"\xef\xbb\xbfone\r\n2\r\nand\r\n"),
        ("one\ntwo\n".encode("utf-16"), "one\n2\nand\n".encode("utf-16")),
        (b"caf\xe9\ntwo\n", b"caf\xe9\n2\nand\n"),
    ],
)
async def test_an_edit_keeps_encoding_and_line_ends(
    tmp_path: Path, before: bytes, after: bytes
) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        (files / "a").write_bytes(before)
        await here.do("edit_file", file_path="a", old_text="two\n", new_text="2\nand\n")
        assert (files / "a").read_bytes() == after


async def test_a_letter_that_an_encoding_lacks_changes_nothing(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        (files / "a").write_bytes(b"caf\xe9")
        said = await refusal(here, "edit_file", file_path="a", old_text="c", new_text="שלום")
        assert said.startswith("The file is written in cp1252")
        assert (files / "a").read_bytes() == b"caf\xe9"


async def test_received_file_gets_a_free_name(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, _):
        assert await here.receive("data.csv", b"a,b") == "inbox/data.csv"
        assert await here.receive("data.csv", b"c,d") == "inbox/data-2.csv"
        assert await here.fetch("inbox/data-2.csv") == b"c,d"
        assert await here.receive("large", bytes(MAX_SENT_BYTES)) == "inbox/large"
        assert len(await here.fetch("inbox/large")) == MAX_SENT_BYTES


PATHS_OUT = [
    "../secret",
    "../../secret",
    "../../../../../../../etc/passwd",
    "/etc/passwd",
    f"{ROOT_OF_PROCESS}/etc/passwd",
    "/proc/self/environ",
    "/proc/1/environ",
    "/dev/zero",
    "link to a file",
    "link to a folder/secret",
    "link upwards/secret",
    "link to the root/etc/passwd",
    "loop",
    "fifo",
    "socket",
    "folder",
    "missing",
    "inside/../../../secret",
    "",
    ".",
    "..",
    "/",
    "a\0b",
    "x" * 300,
    "y/" * 490,
    "\ud800",
]


LISTING: Mapping[str, Mapping[str, object]] = {
    "list_files": {},
    "search_files": {"query": "key"},
}
CHANGING: Mapping[str, Mapping[str, object]] = {
    "write_file": {"content": "evil"},
    "edit_file": {"old_text": "the", "new_text": "evil"},
    "delete_file": {},
}


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


async def said_of(workspace: Workspace, deed: str, **arguments: object) -> str:
    """Return the result or the refusal of a call."""
    try:
        return await workspace.do(deed, **arguments)
    except WorkError as error:
        return str(error)


def traps(files: Path) -> None:
    """Put into a workspace what a command could leave there."""
    (files / "inside").mkdir()
    (files / "folder").mkdir()
    (files / "link to a file").symlink_to(files.parents[2] / "secret")
    (files / "link to a folder").symlink_to(files.parents[2])
    (files / "link upwards").symlink_to("../../../..")
    (files / "link to the root").symlink_to("/")
    (files / "loop").symlink_to("loop")
    os.mkfifo(files / "fifo")
    with socket.socket(socket.AF_UNIX) as unbound:
        here = os.open(files, os.O_RDONLY)
        unbound.bind(f"/proc/self/fd/{here}/socket")
        os.close(here)


async def test_no_path_leads_out_or_blocks(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        traps(files)
        for path in PATHS_OUT:
            for deed in ("read_file", "fetch"):
                said = await refusal(here, deed, file_path=path)
                assert said.endswith(".")
                assert SECRET not in said
            for deed, arguments in LISTING.items():
                found = await said_of(here, deed, directory=path, **arguments)
                assert SECRET not in found
                assert "root:" not in found


async def test_nothing_outside_is_changed(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        for path in PATHS_OUT:
            traps(files)
            for deed, arguments in CHANGING.items():
                assert (await said_of(here, deed, file_path=path, **arguments)).strip()
            for name in os.listdir(files):  # noqa: PTH208 - names
                remove(files / name)
    assert (tmp_path / "secret").read_text() == SECRET
    assert names_in(tmp_path) == ["secret", "workspaces"]


async def test_a_file_that_is_swapped_for_a_link_while_it_is_read_leads_nowhere(
    tmp_path: Path,
) -> None:
    async with workspace(tmp_path) as (here, files):
        await here.do("write_file", file_path="a", content="harmless")
        stop = asyncio.Event()

        def swap() -> None:
            (files / "evil").symlink_to(tmp_path / "secret")
            (files / "good").write_text("harmless")
            while not stop.is_set():
                for other in ("evil", "good"):
                    os.replace(files / other, files / "a")  # noqa: PTH105 - fast
                    if other == "evil":
                        (files / "evil").symlink_to(tmp_path / "secret")
                    else:
                        (files / "good").write_text("harmless")

        swapping = asyncio.get_running_loop().run_in_executor(None, swap)
        try:
            for _ in range(500):
                try:
                    read = await here.do("read_file", file_path="a")
                except WorkError:
                    continue
                assert read in {"1\tharmless", "[The file is empty.]"}
        finally:
            stop.set()
            await swapping


async def test_names_are_shown_with_nothing_hidden_in_them(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        (files / "a\nb\u202egpj.exe").touch()
        assert await listed(here) == "a⟨U+000A⟩b⟨U+202E⟩gpj.exe"


async def test_binary_files_are_refused_as_text(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await here.receive("a.zip", b"PK\x03\x04\0\0")
        assert "is no text (6 bytes)" in await refusal(here, "read_file", file_path="inbox/a.zip")
        assert await here.do("search_files", query="PK") == "[Nothing was found.]"
        with (files / "sparse").open("wb") as sparse:
            sparse.truncate(2**40)
        assert "is no text" in await refusal(here, "read_file", file_path="sparse")
        assert "at most" in await refusal(here, "fetch", file_path="sparse")


async def test_lists_lines_and_places_are_bounded(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        for number in range(MAX_LISTED + 7):
            (files / f"{number:04}").touch()
        (files / "long").write_text("x" * 1_000_000 + "\n" + "find me\n" * 1_000)
        assert (await listed(here)).endswith("\n[8 more]")
        found = await here.do("search_files", query="find me")
        assert len(found.splitlines()) == MAX_FOUND_LINES + 1
        line = (await here.do("read_file", file_path="long", limit=1)).splitlines()[0]
        assert line.endswith("… [998,000 characters left out]")


@pytest.mark.full
async def test_an_expression_that_takes_for_ever_ends_and_the_next_call_works(
    tmp_path: Path,
) -> None:
    async with workspace(tmp_path) as (here, _):
        await here.do("write_file", file_path="a", content="a" * 60)
        said = await refusal(here, "search_files", query="(a+)+$b", regex=True)
        assert said.startswith("This took over ")
        assert "no regular expression" in await refusal(here, "search_files", query="(", regex=True)
        assert await here.do("search_files", query="aaa") == f"a:1: {'a' * 60}"


NOTEBOOK = {
    "cells": [
        {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["# Title\n", "words"]},
        {
            "cell_type": "code",
            "id": "b",
            "metadata": {"kept": 1},
            "execution_count": 3,
            "outputs": [{"output_type": "stream", "name": "stdout", "text": "old"}],
            "source": "print(1)",
        },
    ],
    "metadata": {"kernelspec": {"name": "python3"}},
    "nbformat": 4,
    "nbformat_minor": 5,
}


async def test_cells_of_a_notebook_are_read_and_changed_one_at_a_time(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await here.do("write_file", file_path="a.ipynb", content=json.dumps(NOTEBOOK))

        async def edit(cell: int, mode: str, source: str = "", kind: str = "code") -> str:
            arguments = {"cell": cell, "mode": mode, "source": source, "cell_type": kind}
            return await here.do("edit_notebook", file_path="a.ipynb", **arguments)

        read = await here.do("read_file", file_path="a.ipynb")
        assert read.splitlines()[:2] == ["1\t[cell 0, markdown]", "2\t# Title"]
        assert "5\t[cell 1, code]\n6\tprint(1)" in read
        assert await edit(1, "replace", "x = 2\nprint(x)") == "Replaced cell 1 of a.ipynb."
        assert await edit(2, "insert", "the end", "markdown") == "Inserted cell 2 of a.ipynb."
        assert await edit(0, "delete") == "Deleted cell 0 of a.ipynb."
        with pytest.raises(WorkError, match="There is no cell 2: the notebook has 2"):
            await edit(2, "replace")
        changed = json.loads((files / "a.ipynb").read_text())
        code, words = changed["cells"]
        assert code == {
            "cell_type": "code", "id": "b", "metadata": {"kept": 1}, "execution_count": None,
            "outputs": [], "source": ["x = 2\n", "print(x)"],
        }  # fmt: skip
        assert (words["cell_type"], words["source"], len(words["id"])) == (
            "markdown",
            ["the end"],
            8,
        )
        assert changed["metadata"] == NOTEBOOK["metadata"]


@pytest.mark.parametrize("content", ["{}", "[]", "no JSON", '{"nbformat": 4}', "[" * 9_000, "1"])
async def test_broken_notebooks_are_refused(tmp_path: Path, content: str) -> None:
    async with workspace(tmp_path) as (here, _):
        await here.do("write_file", file_path="a.ipynb", content=content)
        cell = {"cell": 0, "mode": "replace", "source": "", "cell_type": "code"}
        assert "no notebook" in await refusal(here, "edit_notebook", file_path="a.ipynb", **cell)
        assert (await here.do("read_file", file_path="a.ipynb")).startswith(f"1\t{content[:5]}")


async def test_a_full_workspace_takes_nothing_and_says_so(tmp_path: Path) -> None:
    async with workspace(tmp_path, quota_mb=1, max_files=4) as (here, _):
        await here.do("write_file", file_path="a", content="x" * 600_000)
        said = await refusal(here, "write_file", file_path="b", content="x" * 600_000)
        assert said.startswith("The workspace is full: ")
        await here.do("write_file", file_path="a", content="y" * 600_000)  # in place of the other
        for name in ("b", "c", "d"):
            await here.do("write_file", file_path=name, content="")
        said = await refusal(here, "write_file", file_path="e", content="")
        assert said.startswith("The workspace has 4 files and folders")
        assert await listed(here) == "a\nb\nc\nd"


async def test_on_a_full_disk_nothing_is_half_written(tmp_path: Path) -> None:
    with mounted(memory_disk(tmp_path / "disk", 2**20)) as disk:
        async with workspaces(disk.folder) as found:
            here = found.of(CHAT)
            await here.do("write_file", file_path="a", content="whole")
            disk.fill()
            said = await refusal(here, "write_file", file_path="a", content="x" * 50_000)
            assert said == "The disk is full; nothing was written."
            assert await here.do("read_file", file_path="a") == "1\twhole"
            assert await listed(here) == "a"
            disk.make_room()
            await here.do("write_file", file_path="a", content="new")


async def test_read_only_disk_still_serves_files_and_refuses_changes(
    tmp_path: Path,
) -> None:
    with mounted(memory_disk(tmp_path / "disk", 2**20)) as disk:
        async with workspaces(disk.folder) as found:
            for content in ("first", "whole"):
                await found.of(CHAT).do("write_file", file_path="a", content=content)
        disk.forbid_writing()
        async with workspaces(disk.folder) as found:
            here = found.of(CHAT)
            assert await here.do("read_file", file_path="a") == "1\twhole"
            assert await here.do("search_files", query="who") == "a:1: whole"
            for deed, arguments in CHANGING.items():
                changed = {**arguments, "old_text": "who"} if "old_text" in arguments else arguments
                said = await refusal(here, deed, file_path="a", **changed)
                assert said == "The disk may only be read; nothing was written."
            with pytest.raises(WorkError, match="disk may only be read"):
                await here.receive("b", b"data")
            with pytest.raises(WorkError, match="Some files could not be deleted"):
                await found.clear(CHAT)
            assert await found.forget_unused(-1) == 0
            with pytest.raises(WorkError, match="No workspace can be made: Read-only file system"):
                found.of("another chat")
            assert await found.of(CHAT).do("read_file", file_path="a") == "1\twhole"


async def test_every_chat_has_a_folder_of_its_own_that_others_cannot_enter(tmp_path: Path) -> None:
    async with workspaces(tmp_path) as found:
        for number in range(MAX_OPEN + 2):
            chat = found.of(f"chat-{number}")
            await chat.do("write_file", file_path="a", content=str(number))
        for number in range(MAX_OPEN + 2):
            chat = found.of(f"chat-{number}")
            assert await chat.do("read_file", file_path="a") == f"1\t{number}"
        for folder in (tmp_path / "workspaces", *(tmp_path / "workspaces").iterdir()):
            assert folder.stat().st_mode & 0o077 == 0


async def test_no_call_is_cut_off_while_more_chats_use_files(tmp_path: Path) -> None:
    async with workspaces(tmp_path) as found:
        first = found.of("first")
        await first.do("write_file", file_path="a", content="here")
        processes = [one for one in processes_of(os.getpid()) if one != os.getpid()]
        for one in processes:
            os.kill(one, signal.SIGSTOP)
        running = asyncio.create_task(first.do("read_file", file_path="a"))
        for number in range(MAX_OPEN + 2):
            await found.of(f"chat-{number}").do("list_files")
        for one in processes:
            os.kill(one, signal.SIGCONT)
        assert await running == "1\there"
        for number in range(MAX_OPEN + 2):
            await found.of(f"chat-{number}").do("list_files")
        assert await first.do("read_file", file_path="a") == "1\there"


async def test_files_are_gone_when_they_are_cleared_or_unused_for_long(tmp_path: Path) -> None:
    async with workspaces(tmp_path) as found:
        for chat in ("cleared", "unused", "used"):
            await found.of(chat).do("write_file", file_path="a", content="words")
        await found.clear("cleared")
        assert await listed(found.of("cleared")) == "[Nothing is there.]"
        await found.clear("cleared")
        os.utime(tmp_path / "workspaces" / "of-unused", (0, 0))
        assert await found.forget_unused(60) == 1
        assert await listed(found.of("used")) == "a"
        assert names_in(tmp_path / "workspaces") == ["of-used"]


@pytest.mark.full
@given(st.text(max_size=40), st.text(max_size=200))
@settings(max_examples=50, deadline=None)
def test_written_files_are_read_back_unchanged(name: str, content: str) -> None:
    """Any name becomes a file or a refusal, and a written file keeps its content."""
    asyncio.run(_written_and_read(name, content))


async def _written_and_read(name: str, content: str) -> None:
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        async with workspace(Path(folder)) as (here, _):
            try:
                said = await here.do("write_file", file_path=name, content=content)
            except WorkError:
                return
            assert said.startswith("Wrote ")
            data = await here.fetch(name) if content else b""
            assert data == content.encode(errors="replace")


@asynccontextmanager
async def with_shared(tmp_path: Path, *, writable: bool) -> AsyncIterator[tuple[Workspace, Path]]:
    """Provide a workspace that sees a folder of the machine, and that folder."""
    shared = tmp_path / "pictures"
    (shared / "below").mkdir(parents=True)
    (shared / "a.txt").write_text("find me")
    (shared / "below" / "b.txt").write_text("me too")
    (shared / "link").symlink_to(tmp_path / "secret")
    (tmp_path / "secret").write_text(SECRET)
    folder = f"{shared}:rw" if writable else f"{shared}"
    async with workspaces(tmp_path, folders={"pictures": folder}) as found:
        yield found.of(CHAT, sees_shared=True), shared


async def test_a_folder_of_the_machine_is_read_below_shared(tmp_path: Path) -> None:
    async with with_shared(tmp_path, writable=False) as (here, shared):
        assert await listed(here, directory="shared") == "shared/pictures/"
        found = await listed(here, directory="./shared//pictures", recursive=True)
        assert found.splitlines() == [
            *("shared/pictures/a.txt", "shared/pictures/below/"),
            *("shared/pictures/below/b.txt", "shared/pictures/link"),
        ]
        assert await here.do("read_file", file_path="shared/pictures/a.txt") == "1\tfind me"
        found = await here.do("search_files", query="ME", directory="shared/pictures/below")
        assert found == "shared/pictures/below/b.txt:1: me too"
        assert await here.fetch("shared/pictures/a.txt") == b"find me"
        for deed, arguments in {
            "write_file": {"content": "x"},
            "edit_file": {"old_text": "find", "new_text": "x"},
            "delete_file": {},
        }.items():
            said = await refusal(here, deed, file_path="shared/pictures/a.txt", **arguments)
            assert said == "shared/pictures may only be read."
        for path in ("shared/pictures/link", "shared/pictures/../../secret", "shared/none/a"):
            assert SECRET not in await refusal(here, "read_file", file_path=path)
        assert names_in(shared) == ["a.txt", "below", "link"]
        await here.do("write_file", file_path="a.txt", content="in the workspace")
        assert await here.do("search_files", query="me") == "[Nothing was found.]"


async def test_in_a_folder_that_may_be_changed_files_are_changed_whole(tmp_path: Path) -> None:
    async with with_shared(tmp_path, writable=True) as (here, shared):
        await here.do("write_file", file_path="shared/pictures/new/c.txt", content="written")
        await here.do("edit_file", file_path="shared/pictures/a.txt", old_text="me", new_text="you")
        gone = await here.do("delete_file", file_path="shared/pictures/below")
        assert gone == "Deleted below."
        assert names_in(shared) == ["a.txt", "link", "new"]
        assert (shared / "a.txt").read_text() == "find you"
        assert (tmp_path / "secret").read_text() == SECRET


async def test_people_without_shared_folders_may_name_a_folder_shared(
    tmp_path: Path,
) -> None:
    async with workspaces(tmp_path, folders={"pictures": f"{tmp_path}"}) as found:
        here = found.of(CHAT)
        await here.do("write_file", file_path="shared/pictures/a", content="own")
        assert await listed(here, recursive=True) == (
            "shared/\nshared/pictures/\nshared/pictures/a"
        )


CLOSED: dict[str, tuple[str, dict[str, object]]] = {
    "list": ("list_files", {"recursive": True}),
    "find": ("list_files", {"pattern": "*.txt", "recursive": True}),
    "search": ("search_files", {"query": "two"}),
    "read": ("read_file", {"file_path": "a/b/two.txt"}),
    "fetch": ("fetch", {"file_path": "a/b/two.txt"}),
    "write": ("write_file", {"file_path": "a/b/two.txt", "content": "3"}),
    "write beside": ("write_file", {"file_path": "three.txt", "content": "3"}),
    "edit": ("edit_file", {"file_path": "a/b/two.txt", "old_text": "two", "new_text": "2"}),
    "delete": ("delete_file", {"file_path": "a"}),
    "delete inside": ("delete_file", {"file_path": "a/b/two.txt"}),
    "receive": ("receive", {"name": "a.txt", "data": "YQ=="}),
    "look": ("overview", {}),
}


@pytest.mark.parametrize("closed", [".", "a", "a/b", "a/b/two.txt"])
@pytest.mark.parametrize("mode", [0, 0o600, 0o500], ids=oct)
async def test_files_closed_by_a_command_are_opened_again_when_needed(
    tmp_path: Path, mode: int, closed: str
) -> None:
    async with workspace(tmp_path) as (here, files):
        for case, (deed, arguments) in CLOSED.items():
            await here.do("write_file", file_path="a/b/two.txt", content="one\ntwo\n")
            (files / closed).chmod(mode)
            said = await here.do(deed, **arguments)
            assert "may not be opened" not in said, case
            if case in {"list", "find"}:
                assert "a/b/two.txt" in said
            if case == "search":  # a search skips closed files
                assert ("a/b/two.txt:2: two" in said) is ((mode, closed) != (0, "a/b/two.txt"))
            assert await here.usage() is not None, case


async def test_a_workspace_that_was_closed_by_a_kill_is_opened_by_the_next_start(
    tmp_path: Path,
) -> None:
    async with workspace(tmp_path) as (here, files):
        await here.do("write_file", file_path="a/b.txt", content="kept")
        (files / "a").chmod(0)
        files.chmod(0)
    async with workspace(tmp_path) as (here, _):
        used = await here.usage()
        assert used is not None
        assert used[1] == 2
        assert await here.do("read_file", file_path="a/b.txt") == "1\tkept"


async def test_opening_closed_files_changes_no_rights_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text(SECRET)
    async with workspace(tmp_path) as (here, files):
        await here.do("write_file", file_path="closed/a.txt", content="x")
        (files / "link").symlink_to(outside)
        (files / "closed" / "link").symlink_to(outside / "secret")
        os.mkfifo(files / "pipe", 0)
        for path in (outside / "secret", outside, files / "closed"):
            path.chmod(0)
        found = await listed(here, recursive=True)
        assert "closed/a.txt" in found
        modes = [stat.S_IMODE(path.lstat().st_mode) for path in (outside, files / "pipe")]
        outside.chmod(0o700)
        assert [*modes, stat.S_IMODE((outside / "secret").stat().st_mode)] == [0, 0, 0]


async def test_links_that_are_swapped_in_lead_no_change_of_rights_outside(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir(0o500)
    meddler = f"""
import os
while True:
    for _ in range(100):
        os.mkdir("swapped", 0)
        os.rmdir("swapped")
        os.symlink({str(outside)!r}, "swapped")
        os.unlink("swapped")
"""
    async with workspace(tmp_path) as (here, files):
        await here.usage()
        process = await asyncio.create_subprocess_exec(sys.executable, "-c", meddler, cwd=files)
        try:
            for _ in range(200):
                await asyncio.to_thread(give_back, files)
        finally:
            process.kill()
            await process.wait()
    assert stat.S_IMODE(outside.stat().st_mode) == 0o500


def fill_deeply(folder: Path, depth: int) -> None:
    """Make folders in each other, deeper than a path can say."""
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("deep", dir_fd=here)
        below = os.open("deep", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(here)


async def test_folder_is_deleted_however_deep_and_closed_and_no_link_is_followed(
    tmp_path: Path,
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("kept")
    async with workspace(tmp_path) as (here, files):
        await here.do("write_file", file_path="a/b/c.txt", content="x")
        (files / "a" / "link").symlink_to(outside)
        os.mkfifo(files / "a" / "pipe")
        fill_deeply(files / "a", 200)
        (files / "a" / "b").chmod(0)
        assert await here.do("delete_file", file_path="a/") == "Deleted a/."
        assert names_in(files) == []
        assert names_in(files.parent) == ["files"]
    assert names_in(outside) == ["kept"]


async def test_leftovers_of_killed_processes_go_with_the_next_change(tmp_path: Path) -> None:
    async with workspace(tmp_path) as (here, files):
        await listed(here)
        (files.parent / "draft").write_text("half of it")
        await here.do("write_file", file_path="a", content="whole")
        assert (files / "a").read_text() == "whole"
        (files.parent / "deleted" / "large").mkdir(parents=True)
        await here.do("delete_file", file_path="a")
        assert names_in(files.parent) == ["files"]


async def test_leftovers_of_a_command_are_cleared(tmp_path: Path) -> None:
    async with workspaces(tmp_path) as found:
        await found.of(CHAT).do("write_file", file_path="a", content="b")
        files = tmp_path / "workspaces" / f"of-{CHAT}" / "files"
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "kept").write_text("kept")
        (files / "link").symlink_to(outside)
        os.mkfifo(files / "pipe")
        (files / "closed").mkdir()
        (files / "closed" / "inside").write_text("x")
        (files / "closed").chmod(0)
        fill_deeply(files, 3_000)
        assert await found.of(CHAT).usage() is None
        await found.clear(CHAT)
        assert not files.parent.exists()
        assert names_in(outside) == ["kept"]
