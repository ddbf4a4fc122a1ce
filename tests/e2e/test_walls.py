"""A machine without walls for sandboxes, as people see it."""

import sys
from typing import Final

from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import world
from tests.fakes.openai_server import script, text, tool_calls
from tests.fakes.signal_side import ADA, SharedFile

WITHOUT_SECCOMP: Final = (sys.executable, "-m", "tests.fakes.lacking_machine", "seccomp")
REASON: Final = (
    "This needs a sandbox, and this machine cannot wall one off: it lacks seccomp"
    " (SANDBOX=required)."
)
NO_FOLDER: Final = (
    "This machine cannot wall off a folder: it allows neither Landlock (Linux 5.19 or later) nor"
    " user namespaces."
)
NOTE: Final = SharedFile("text/plain", b"It costs 12 euros.", name="note.txt")


async def test_missing_required_walls_refuse_files_and_withhold_tools() -> None:
    async with world(script(text("Hello."))) as here:
        settings = environment(here, ACCESS__ADMINS=ADA.aci, SANDBOX="required")
        async with daemon(settings, folder=here.folder, through=WITHOUT_SECCOMP) as bot:
            answer = await here.asked("hello", files=[NOTE])
            tools = await here.asked("!tools")
            while "• workspace: not available. " not in tools:  # a long list is two messages
                tools += (await here.answer()).text
            status = await here.asked("!status")
            missing = bot.events("sandbox.wall_missing")
    assert answer == f"About “note.txt”: {REASON}\n\nHello."
    assert f"• calculate: not available. {REASON}" in tools
    assert f"• web_fetch: not available. {REASON}" in tools
    assert "(date_time" in tools
    assert "\nSandboxes: without seccomp, which this machine lacks" in status
    assert [event["kind"] for event in missing] == ["seccomp"]


async def test_file_and_command_tools_need_namespaces_or_landlock() -> None:
    without = (sys.executable, "-m", "tests.fakes.lacking_machine", "bubblewrap,Landlock")
    steps = script(
        tool_calls(("run_command", {"command": "touch ran"})),
        tool_calls(("write_file", {"file_path": "a", "content": "b"})),
        text("Neither is possible."),
    )
    async with world(steps) as here:
        settings = environment(
            here, ACCESS__ADMINS=ADA.aci, TOOLS__COMMANDS__APPROVAL="never", SANDBOX="available"
        )
        async with daemon(settings, folder=here.folder, through=without):
            assert await here.asked("do it") == "Neither is possible."
    for number in (1, 2):
        assert NO_FOLDER in here.told(number)
    assert not list(here.folder.rglob("files/*"))
