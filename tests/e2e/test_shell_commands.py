"""Commands in the whole bot: approved first, run once, sandboxed, ended with their turn."""

import asyncio
from pathlib import Path

import pytest

from bot.config.settings import Settings
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.disks import memory_disk, mounted
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_approvals import question
from tests.e2e.test_conversation import BEN
from tests.e2e.test_tools import offered
from tests.e2e.test_workspace import GROUP, folders
from tests.fakes.openai_server import echo, script, text, tool_calls
from tests.fakes.signal_side import ADA, SharedFile
from tests.integration.test_spawned import until


def note(words: str) -> SharedFile:
    return SharedFile("text/plain", words.encode(), "note.txt")


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
    async with story(steps, for_everyone) as here:
        asked = await question(here, "plot the sums per month", files=[CSV])
        assert asked.text.startswith("❓ Run this Python program?")
        assert 'csv.DictReader(open("inbox/sums.csv"))' in asked.text
        await here.signal.react("👍", asked.timestamp)
        answer = await here.answer()
        assert answer.text == "Here is the plot."
        [file] = answer.attachments
        assert (file.name, file.content_type) == ("plot.png", "image/png")
        assert file.data.startswith(b"\x89PNG")
    assert "exit code 0\nstdout:\nsums: [3, 4]" in here.told(1)


SUMS = """
import pandas, matplotlib.pyplot as plot
table = pandas.read_csv("inbox/sums.csv")
table.plot.bar(x="month", y="sum")
plot.savefig("sums.png")
print(table["sum"].sum())
"""


@pytest.mark.full
async def test_pandas_plots_where_it_is_installed() -> None:
    steps = script(
        tool_calls(("run_python", {"code": SUMS})),
        tool_calls(("send_file", {"file_path": "sums.png"})),
        text("Here is the plot."),
    )
    async with story(steps, for_everyone, approval="never") as here:
        answer = await here.answer_to("plot the sums per month", files=[CSV])
        assert answer.text == "Here is the plot.", here.told()
        [file] = answer.attachments
        assert len(file.data) > 2_000
    assert "stdout:\n7" in here.told(1)


async def test_a_program_is_started_without_a_shell_where_it_has_arguments() -> None:
    call = {"command": "printf", "arguments": "'%s|' '$HOME; exit 3' \"a b\""}
    steps = script(tool_calls(("run_command", call)), text("Done."))
    async with story(steps, for_everyone) as here:
        await here.signal.react("👍", (await question(here, "print")).timestamp)
        await here.answer()
    assert "exit code 0\nstdout:\n$HOME; exit 3|a b|" in here.told()


@pytest.mark.parametrize(
    "code",
    [
        "# coding: unicode_escape\n# \\nopen('ran', 'w')\ngröße = 3; print('ü', größe)",
        "\f\f# coding: utf-7\n# +AAo-open('ran', 'w')\ngröße = 3; print('ü', größe)",
        "# -*- coding: latin-1 -*-\r\ngröße = 3\r\nprint('ü', größe)",
        "# coding: nonsense\nif __name__ == '__main__':\n  größe = 3; print('ü', größe)",
    ],
)
async def test_program_runs_as_people_read_it_whatever_encoding_it_declares(code: str) -> None:
    steps = script(tool_calls(("run_python", {"code": code})), text("Done."))
    async with story(steps, for_everyone, approval="never") as here:
        await here.asked("print")
        assert not list(here.folder.rglob("ran"))
    assert "exit code 0\nstdout:\nü 3" in here.told()


async def test_a_command_finds_nothing_of_the_bots_own_and_nothing_of_another_chat() -> None:
    async with story(echo, for_everyone) as here:
        (here.folder / ".env").write_text("LLM__API_KEY=hedgehog")
        look = (
            "word=hedge; echo $word''hog | grep -rlas -f - "  # for its own words do not count
            f". {here.folder} /proc/*/environ /proc/*/cmdline /run;"
            f" ls -A {here.folder} {here.folder}/*; cat {here.folder}/.env; echo looked"
        )
        call = tool_calls(("run_command", {"command": look}))
        here.model.handler = script(text("Kept."), call, text("No."))
        await here.asked("keep the hedgehog", files=[note("hedgehog")], author=BEN)
        assert len(folders(here)) == 1
        await here.signal.react("👍", (await question(here, "look for it")).timestamp)
        await here.answer()
    found = here.told().partition("stderr")[0]
    assert found.rstrip().endswith("stdout:\nlooked")
    assert "hedgehog" not in here.told()


async def test_commands_can_be_switched_off() -> None:
    async with story(echo, for_everyone, enabled=False) as here:
        await here.asked("hello")
    assert "write_file" in offered(here.model.requests[-1])
    assert "run_command" not in offered(here.model.requests[-1])


async def test_slow_command_is_ended_and_its_output_is_read() -> None:
    call = {"command": "echo begun; sleep 60", "timeout_seconds": 1}
    steps = script(tool_calls(("run_command", call)), text("Too slow."))
    async with story(steps, for_everyone) as here:
        await here.signal.react("👍", (await question(here, "wait")).timestamp)
        await here.answer()
    assert "It was ended after 1 seconds." in here.told()
    assert "stdout:\nbegun" in here.told()


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("head -c 9000000 /dev/zero > large", "exit code 153"),
        ("for i in 1 2 3 4; do head -c 900000 /dev/zero > $i; done; sleep 5", "may hold 1 MB"),
        ("mkdir d; cd d; seq 1 300 | xargs touch; sleep 5", "too many files"),
    ],
)
async def test_workspace_filled_by_a_command_takes_files_again_once_cleared(
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
    async with story(steps, tools=small, bot={"summaries": False}) as here:
        await here.signal.react("👍", (await question(here, "fill it")).timestamp)
        await here.answer()
        assert said in here.told(1)
        assert "Wrote more.txt" not in here.told()
        await here.asked("!clear files")
        await here.asked("write it")
    assert "Wrote more.txt" in here.told()


FILL = 'cat a; echo next > b || echo refused; python3 -c \'open("c", "w").write("x" * 9999)\''


@pytest.mark.parametrize(
    ("state", "of_a_write", "of_a_command", "of_the_person"),
    [
        ("full", "The disk is full; nothing was written.", "No space left", "a (5 bytes)"),
        (
            "read-only",
            "The disk may only be read; nothing was written.",
            "Read-only file system",
            "a (5 bytes)",
        ),
    ],
)
async def test_unwritable_disk_refuses_calls_in_sentences_and_answers_go_on(
    tmp_path: Path, state: str, of_a_write: str, of_a_command: str, of_the_person: str
) -> None:
    write = ("write_file", {"file_path": "a", "content": "whole"})
    steps = script(
        tool_calls(write),
        text("Written."),
        tool_calls(("write_file", {"file_path": "new", "content": "x" * 50_000})),
        tool_calls(("run_command", {"command": FILL})),
        text("It cannot be written."),
    )
    with mounted(memory_disk(tmp_path / "disk", 2**20)) as disk:
        workspace = {"for": "everyone", "path": str(disk.folder / "workspaces")}
        async with world(steps) as here:
            tools = {"workspace": workspace, "commands": {"approval": "never"}}
            async with running_bot(here.settings(tools=tools)):
                await here.asked("write")
                disk.fill() if state == "full" else disk.forbid_writing()
                answer = await here.asked("write more", files=[note("words")])
                assert answer.endswith("It cannot be written.")
                assert f"I could not put it into the workspace. {of_a_write}" in answer
                assert of_a_write in here.told(-2)
                assert "stdout:\nwhole" in here.told()
                assert of_a_command in here.told()
                files = await here.asked("!files")
                assert of_the_person in files
                assert "new" not in files


async def test_stop_ends_a_command_with_all_that_it_has_started() -> None:
    steps = script(tool_calls(("run_command", {"command": f"{ONCE} & wait"})))
    async with story(steps, for_everyone) as here:
        await here.signal.react("👍", (await question(here, "do it")).timestamp)
        await until(lambda: log_of(here))
        await here.asked("!stop")
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
            await here.signal.react("👍", (await question(here, "do it")).timestamp)
            await until(lambda: log_of(here))
            await bot.killed()
        await here.signal.wait_until_alone()
        async with daemon(settings, folder=here.folder):
            assert (await here.answer()).text == "I do not know what came of it."
        log = log_of(here)
        assert log is not None
        assert log.read_text() == "ran\n"
        await asyncio.to_thread(nothing_works_in, log.parent)
    assert "It was begun before a restart" in here.told()


LIST = ("run_command", {"command": "ls"})
REMOVE = ("run_command", {"command": "rm -f x"})


async def test_always_survives_a_restart_until_it_is_taken_back() -> None:
    steps = script(
        tool_calls(LIST), text("One."), tool_calls(LIST), text("Two."), tool_calls(LIST), text("3.")
    )
    async with world(steps) as here:
        async with running_bot(for_everyone(here)):
            asked = await question(here, "list")
            always = "♾️ or “always” allows run_command, run_python in this chat for 30 days"
            assert always in asked.text
            assert await here.reacted("♾️", asked.timestamp) == "One."
        async with running_bot(for_everyone(here)):
            assert await here.asked("list") == "Two."
            listed = await here.asked("!grants")
            assert listed.startswith("1. run_command (⏱ 20")
            assert "\n2. run_python (⏱ 20" in listed
            assert "no such number" in await here.asked("!grants revoke 3")
            assert await here.asked("!grants revoke 1") == "From now on I ask again: run_command."
            assert await here.asked("!grants revoke all") == "From now on I ask again: run_python."
            assert "ask each time" in await here.asked("!grants")
            await here.signal.react("👍", (await question(here, "list")).timestamp)
            assert (await here.answer()).text == "3."


async def test_always_covers_every_command_in_the_same_chat_alone() -> None:
    python = ("run_python", {"code": "print(1)"})
    steps = script(
        tool_calls(LIST),
        text("One."),
        tool_calls(REMOVE),
        tool_calls(python),
        text("Two."),
        tool_calls(LIST),
        text("Three."),
    )
    async with story(steps, for_everyone) as here:
        assert await here.asked("always", quote=(await question(here, "list")).timestamp) == "One."
        assert await here.asked("delete, and print") == "Two."
        await here.signal.say("list", author=BEN)
        assert await here.reacted("👍", (await question(here)).timestamp, author=BEN) == "Three."


async def test_always_does_not_cover_commands_after_strangers_words() -> None:
    listing: tuple[str, dict[str, str]] = ("list_files", {})
    steps = script(
        *(tool_calls(LIST), text("One.")), *(tool_calls(listing), tool_calls(LIST), text("Two."))
    )
    async with story(steps, for_everyone) as here:
        await here.signal.react("♾️", (await question(here, "list")).timestamp)
        assert (await here.answer()).text == "One."
        asked = await here.answer_to("read, then list")
        assert asked.text.startswith("❓")
        assert "♾️" not in asked.text
        assert await here.reacted("👍", asked.timestamp) == "Two."


async def test_always_does_not_cover_commands_of_helpers() -> None:
    task = ("delegate", {"task": "Count them.", "tools": ["run_command"]})
    async with story(script(tool_calls(LIST), text("One.")), for_everyone) as here:
        await here.signal.react("♾️", (await question(here, "list")).timestamp)
        assert (await here.answer()).text == "One."
        here.model.handler = script(tool_calls(task), tool_calls(LIST), text("None."), text("Two."))
        asked = await here.answer_to("let somebody count")
        assert asked.text.startswith("❓")
        assert "♾️" not in asked.text
        assert await here.reacted("👍", asked.timestamp) == "Two."


@pytest.mark.parametrize(
    ("call", "hints"),
    [
        (LIST, ""),
        (("run_command", {"command": "cat alarm.txt; echo storm"}), ""),
        (("run_command", {"command": "ls\nsudo rm -rf ."}), "sudo asks for the rights of another"),
        (("run_command", {"command": "rm", "arguments": "-f x"}), "rm deletes files"),
        (("run_python", {"code": "import shutil; shutil.rmtree('x')"}), "rmtree deletes files"),
    ],
)
async def test_question_warns_of_words_in_commands(
    call: tuple[str, dict[str, str]], hints: str
) -> None:
    async with story(script(tool_calls(call), text("No.")), for_everyone) as here:
        asked = await question(here, "do it")
        assert await here.reacted("👎", asked.timestamp) == "No."
    assert ("\n⚠️ " in asked.text) is bool(hints)
    assert hints in asked.text


async def test_a_command_that_closes_folders_keeps_no_other_from_running() -> None:
    close = "mkdir -p a/b && echo kept > a/b/c && chmod 000 a/b a . && sleep 0.5 && echo closed"
    steps = script(
        tool_calls(("run_command", {"command": close})),
        tool_calls(("run_command", {"command": "cat a/b/c"})),
        tool_calls(("read_file", {"file_path": "a/b/c"})),
        text("Kept."),
    )
    async with story(steps, for_everyone, approval="never") as here:
        assert await here.asked("close it, and read it") == "Kept."
    assert "exit code 0\nstdout:\nclosed" in here.told(1)
    assert "exit code 0\nstdout:\nkept" in here.told(2)
    assert "1\tkept" in here.told(3)


async def test_always_in_a_group_is_given_by_admins_and_ends_with_their_role() -> None:
    steps = script(tool_calls(LIST), text("One."), tool_calls(LIST), text("Two."))
    everyone = {"workspace": {"for": "everyone"}}
    async with world(steps) as here:
        async with running_bot(here.settings(tools=everyone, access={"admins": ADA.number})):
            asked = await question(here, "list", group=GROUP, mention=True, author=BEN)
            await here.signal.react("♾️", asked.timestamp, group=GROUP, author=BEN)
            assert await here.reacted("♾️", asked.timestamp, group=GROUP) == "One."
            assert await here.asked("list", group=GROUP, mention=True, author=BEN) == "Two."
        here.model.handler = script(tool_calls(LIST), text("Three."))
        async with running_bot(here.settings(tools=everyone, access={"admins": BEN.aci})):
            asked = await question(here, "list", group=GROUP, mention=True, author=BEN)
            assert await here.reacted("👍", asked.timestamp, group=GROUP, author=BEN) == "Three."


@pytest.mark.parametrize("call", [REMOVE, ("run_python", {"code": "print(1)"})])
async def test_operator_may_let_commands_run_without_a_question(
    call: tuple[str, dict[str, str]],
) -> None:
    async with story(
        script(tool_calls(call), text("Done.")), for_everyone, approval="never"
    ) as here:
        assert await here.asked("do it") == "Done."
    assert "exit code" in here.told()


@pytest.mark.full
async def test_command_without_a_question_never_runs_again_after_a_kill() -> None:
    steps = script(tool_calls(("run_command", {"command": ONCE})), text("I do not know."))
    async with world(steps) as here:
        settings = environment(
            here, TOOLS__WORKSPACE__FOR="everyone", TOOLS__COMMANDS__APPROVAL="never"
        )
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("do it")
            await until(lambda: log_of(here))
            await bot.killed()
        await here.signal.wait_until_alone()
        async with daemon(settings, folder=here.folder):
            assert (await here.answer()).text == "I do not know."
        log = log_of(here)
        assert log is not None
        assert log.read_text() == "ran\n"
