"""A machine that cannot wall off a sandbox, as people meet it."""

import sys
from typing import Final

from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import world
from tests.fakes.openai_server import script, text
from tests.fakes.signal_side import ADA, SharedFile

WITHOUT_SECCOMP: Final = (sys.executable, "-m", "tests.fakes.lacking_machine", "seccomp")
REASON: Final = (
    "This needs a sandbox, and this machine cannot wall one off: it lacks seccomp"
    " (SANDBOX=required)."
)
NOTE: Final = SharedFile("text/plain", b"It costs 12 euros.", name="note.txt")


async def test_where_walls_are_required_and_missing_files_are_refused_and_tools_absent() -> None:
    async with world(script(text("Hello."))) as here:
        settings = environment(here, ACCESS__ADMINS=ADA.aci, SANDBOX="required")
        async with daemon(settings, folder=here.folder, through=WITHOUT_SECCOMP) as bot:
            await here.signal.say("hello", files=[NOTE])
            answer = (await here.answer()).text
            await here.signal.say("!tools")
            tools = (await here.answer()).text
            await here.signal.say("!status")
            status = (await here.answer()).text
            missing = bot.events("sandbox.wall_missing")
    assert answer == f"About “note.txt”: {REASON}\n\nHello."
    assert f"• calculate: not available. {REASON}" in tools
    assert f"• web_fetch: not available. {REASON}" in tools
    assert "• current_time: " in tools
    assert "\nSandboxes: without seccomp, which this machine lacks" in status
    assert [event["kind"] for event in missing] == ["seccomp"]
