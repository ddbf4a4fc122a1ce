"""Sandboxes that work in a folder: they read and write there, and nowhere else."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from tests.fakes.hostile_in_folder import ENDS_IT, INSIDE, INSIDE_ALONE, UPWARDS

WORKER = "tests.fakes.hostile_in_folder"
MACHINES = pytest.mark.parametrize("lacks", ["", "namespaces", "Landlock"])


def folder_in(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / INSIDE).write_text("words")
    (folder / "link").symlink_to("/etc/passwd")
    (tmp_path / "beside.txt").write_text("of others")
    return folder


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def outcomes(folder: Path, lacks: str, *deeds: str) -> list[str]:
    """Return how deeds end on a machine that lacks a wall."""
    command = ["-m", "tests.fakes.sandbox_caller", "available", f"{WORKER}@{folder}", *deeds]
    if lacks:
        command = ["-m", "tests.fakes.lacking_machine", lacks, sys.executable, *command]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=asyncio.subprocess.PIPE
    )
    output, _ = await process.communicate()
    answer: dict[str, list[str]] = json.loads(output)
    return answer["outcomes"]


@MACHINES
async def test_worker_reads_and_writes_its_folder(tmp_path: Path, lacks: str) -> None:
    folder = folder_in(tmp_path)
    assert await outcomes(folder, lacks, "work") == ["done"]
    assert names_in(folder) == [INSIDE, "link"]


@MACHINES
async def test_nothing_leads_out_of_the_folder(tmp_path: Path, lacks: str) -> None:
    folder = folder_in(tmp_path)
    for deed, outcome in zip(
        INSIDE_ALONE, await outcomes(folder, lacks, *INSIDE_ALONE), strict=True
    ):
        assert outcome == "SandboxBug: ", deed
    await outcomes(folder, lacks, *UPWARDS)
    assert names_in(tmp_path) == ["beside.txt", "folder"]
    assert (folder / "large").stat().st_size <= 1_000_000


async def test_calls_of_no_honest_worker_end_it(tmp_path: Path) -> None:
    folder = folder_in(tmp_path)
    for deed, outcome in zip(ENDS_IT, await outcomes(folder, "", *ENDS_IT), strict=True):
        assert "tried to break out" in outcome, deed
    assert names_in(folder) == [INSIDE, "link"]


@pytest.mark.parametrize("lacks", ["seccomp", "Landlock,namespaces"])
async def test_without_walls_around_it_nothing_works_in_a_folder(
    tmp_path: Path, lacks: str
) -> None:
    [outcome] = await outcomes(folder_in(tmp_path), lacks, "work")
    assert outcome.startswith("ToolUnavailable: This machine cannot wall off a folder: it ")
