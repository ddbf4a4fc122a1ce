"""Commands in the whole bot: asked about first, run once, walled off, ended with their turn."""

import asyncio
from pathlib import Path

import pytest

from bot.config.settings import Settings
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_approvals import question
from tests.e2e.test_tools import offered, told
from tests.e2e.test_workspace import folders
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import SharedFile
from tests.integration.test_spawned import until

CSV = SharedFile("text/csv", b"month,sum\nJanuary,3\nFebruary,4\n", "sums.csv")
PLOT = """
import csv, struct, zlib
sums = [int(row["sum"]) for row in csv.DictReader(open("inbox/sums.csv"))]
rows = b"".join(b"\\0" + bytes([255] * n + [0] * (8 - n)) for n in sums)
def chunk(kind, data):
    crc = struct.pack(">I", zlib.crc32(kind + data))
    return struct.pack(">I", len(data)) + kind + data + crc
header = struct.pack(">IIBBBBB", 8, len(sums), 8, 0, 0, 0, 0)
with open("plot.png", "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", header))
    file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
print("sums:", sums)
"""
ONCE = "echo ran >> log; sleep 60"


def for_everyone(here: World, **commands: object) -> Settings:
    return here.settings(tools={"workspace": {"for": "everyone"}, "commands": commands})


def log_of(here: World) -> Path | None:
    """Return the file that ONCE writes, once it is there."""
    return next((path for path in here.folder.rglob("files/log")), None)


async def test_a_table_comes_in_and_a_picture_of_it_goes_out() -> None:
    steps = script(
        tool_calls(("run_python", {"code": PLOT})),
        tool_calls(("send_file", {"file_path": "plot.png"})),
        text("Here is the plot."),
    )
    async with world(steps) as here, running_bot(for_everyone(here)):
        await here.signal.say("plot the sums per month", files=[CSV])
        asked = await question(here)
        assert asked.text.startswith("❓ Run this Python program in the workspace of this chat?")
        assert 'csv.DictReader(open(\\"inbox/sums.csv\\"))' in asked.text
        await here.signal.react("👍", asked.timestamp)
        answer = await here.answer()
        assert answer.text == "Here is the plot."
        [file] = answer.attachments
        assert (file.name, file.content_type) == ("plot.png", "image/png")
        assert file.data.startswith(b"\x89PNG")
    assert "exit code 0\nstdout:\nsums: [3, 4]" in told(here, 1)


async def test_without_a_yes_nothing_runs() -> None:
    steps = script(tool_calls(("run_command", {"command": "touch ran"})), text("As you wish."))
    async with world(steps) as here, running_bot(for_everyone(here)):
        await here.signal.say("do it")
        await here.signal.react("👎", (await question(here)).timestamp)
        assert (await here.answer()).text == "As you wish."
        assert not list(here.folder.rglob("ran"))
    assert "the person said no" in told(here)


async def test_a_program_is_started_without_a_shell_where_it_has_arguments() -> None:
    call = {"command": "printf", "arguments": "'%s|' '$HOME; exit 3' \"a b\""}
    steps = script(tool_calls(("run_command", call)), text("Done."))
    async with world(steps) as here, running_bot(for_everyone(here)):
        await here.signal.say("print")
        await here.signal.react("👍", (await question(here)).timestamp)
        await here.answer()
    assert "exit code 0\nstdout:\n$HOME; exit 3|a b|" in told(here)


async def test_commands_can_be_switched_off() -> None:
    async with world() as here, running_bot(for_everyone(here, enabled=False)):
        await here.signal.say("hello")
        await here.answer()
    assert "write_file" in offered(here.model.requests[-1])
    assert "run_command" not in offered(here.model.requests[-1])


async def test_what_takes_too_long_is_ended_and_what_it_wrote_is_read() -> None:
    call = {"command": "echo begun; sleep 60", "timeout_seconds": 1}
    steps = script(tool_calls(("run_command", call)), text("Too slow."))
    async with world(steps) as here, running_bot(for_everyone(here)):
        await here.signal.say("wait")
        await here.signal.react("👍", (await question(here)).timestamp)
        await here.answer()
    assert "It was ended after 1 seconds." in told(here)
    assert "stdout:\nbegun" in told(here)


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("head -c 9000000 /dev/zero > large", "exit code 153"),
        ("for i in 1 2 3 4; do head -c 900000 /dev/zero > $i; done; sleep 5", "may hold 1 MB"),
        ("mkdir d; cd d; seq 1 300 | xargs touch; sleep 5", "too many files"),
    ],
)
async def test_a_workspace_that_a_command_has_filled_takes_nothing_more_until_it_is_cleared(
    command: str, said: str
) -> None:
    write = ("write_file", {"file_path": "more.txt", "content": "x" * 60_000})
    steps = script(
        tool_calls(("run_command", {"command": command})),
        tool_calls(write),
        text("It is full."),
        tool_calls(write),
        text("Written."),
    )
    small = {"workspace": {"for": "everyone", "quota_mb": 1, "max_files": 200}}
    async with world(steps) as here, running_bot(here.settings(tools=small)):
        await here.signal.say("fill it")
        await here.signal.react("👍", (await question(here)).timestamp)
        await here.answer()
        assert said in told(here, 1)
        assert "Wrote more.txt" not in told(here)
        await here.signal.say("!clear files")
        await here.answer()
        await here.signal.say("write it")
        await here.answer()
    assert "Wrote more.txt" in told(here)


async def test_stop_ends_a_command_with_all_that_it_has_started() -> None:
    steps = script(tool_calls(("run_command", {"command": f"{ONCE} & wait"})))
    async with world(steps) as here, running_bot(for_everyone(here)):
        await here.signal.say("do it")
        await here.signal.react("👍", (await question(here)).timestamp)
        await until(lambda: log_of(here))
        await here.signal.say("!stop")
        await here.answer()
        await asyncio.to_thread(nothing_works_in, folders(here)[0] / "files")


def nothing_works_in(folder: Path) -> None:
    for process in Path("/proc").glob("[0-9]*"):
        try:
            mounts = (process / "mountinfo").read_text()
        except OSError:
            continue
        assert str(folder) not in mounts


async def test_a_command_of_a_killed_bot_ends_with_it_and_is_not_run_again() -> None:
    steps = script(
        tool_calls(("run_command", {"command": ONCE})), text("I do not know what came of it.")
    )
    async with world(steps) as here:
        settings = environment(here, TOOLS__WORKSPACE__FOR="everyone")
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("do it")
            await here.signal.react("👍", (await question(here)).timestamp)
            await until(lambda: log_of(here))
            await bot.killed()
        await here.signal.wait_until_alone()
        async with daemon(settings, folder=here.folder):
            assert (await here.answer()).text == "I do not know what came of it."
        log = log_of(here)
        assert log is not None
        assert log.read_text() == "ran\n"
        await asyncio.to_thread(nothing_works_in, log.parent)
    assert "It was begun before a restart" in told(here)
