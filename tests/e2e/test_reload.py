"""SIGHUP reloads the settings, or stops the bot if its terminal is gone."""

import asyncio
import fcntl
import os
import pty
import signal
import sys
import termios
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from functools import partial

import pytest
import structlog
from structlog.testing import capture_logs

from bot import app
from bot.commands.questions import HOW_TO_PLAN
from bot.config.loading import CHOSEN, load_settings, setting_names
from bot.config.reload import LIVE, Reload
from bot.config.settings import AccessSettings
from bot.foundation import Start
from bot.observability import logs
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import World, world
from tests.e2e.stored import read_store
from tests.e2e.test_conversation import BEN, CALCULATE
from tests.e2e.traces import there
from tests.fakes.dstack_agent import abandoned_socket
from tests.fakes.openai_server import held, script, text, tool_calls
from tests.fakes.signal_side import ADA

END_SECONDS = 15.0


def write_settings(here: World, **settings: str) -> None:
    lines = (f"{name}='{value}'\n" for name, value in settings.items())
    (here.folder / ".env").write_text("".join(lines))


def fixed(here: World, *changing: str) -> dict[str, str]:
    """Return the environment without settings in `.env`; a process's own never changes."""
    return {name: value for name, value in environment(here).items() if name not in changing}


@asynccontextmanager
async def configured_bot(here: World, **settings: str) -> AsyncIterator[Daemon]:
    write_settings(here, **settings)
    async with daemon(fixed(here, *settings), folder=here.folder) as bot:
        await bot.event("app.started")
        yield bot


async def reload(bot: Daemon, *, times: int = 1) -> list[str]:
    bot.send_signal(signal.SIGHUP)
    taken: list[str] = (await bot.event("settings.reloaded", times=times))["setting"]
    return taken


# What changes -------------------------------------------------------------------------------------


async def test_new_access_counts_for_the_next_message_and_waiting_ones_are_answered() -> None:
    release = asyncio.Event()
    async with world(script(held(release, text("first")), text("second"), text("third"))) as here:
        allowed = {"ACCESS__POLICY": "allowlist", "ACCESS__ALLOWED": ADA.aci}
        async with configured_bot(here, **allowed) as bot:
            await here.signal.say("one")
            await here.model.wait_for_requests(1)
            await here.signal.say("!plan")  # later messages wait
            await here.signal.say("two")
            await there(here, "two")
            write_settings(here, **allowed | {"ACCESS__ALLOWED": BEN.aci})
            assert await reload(bot) == ["ACCESS__ALLOWED"]
            await here.signal.say("three")
            await here.signal.say("four", author=BEN)
            assert (await here.answer()).text == "second"
            release.set()
            answers = {(await here.answer()).text for _ in range(3)}
            assert answers == {"first", HOW_TO_PLAN, "third"}
        asked = [request["messages"][-1]["content"] for request in here.model.requests]
        assert [words.split("] ")[-1] for words in asked] == ["one", "four", "two"]


@pytest.mark.long
async def test_settings_change_between_two_turns_and_wrong_ones_change_nothing() -> None:
    before = {
        "LLM__API_KEY": "sk-the-old-one",
        "LLM__MODEL": "fake",
        "BOT__SYSTEM_PROMPT": "You are the first.",
        "TOOLS__MAX_TOOL_CALLS": "5",
        "LOG__LEVEL": "info",
    }
    after = {
        "LLM__API_KEY": "sk-the-new-one",
        "BOT__SYSTEM_PROMPT": "You are the second.",
        "TOOLS__MAX_TOOL_CALLS": "1",
        "LOG__LEVEL": "debug",
    }
    refused = [
        ("ACCESS__ALLOWED", "Ada", "must be numbers (+…) or ACI uuids, separated by commas"),
        ("LLM_MODEL", "x", "LLM_MODEL is no setting; did you mean LLM__MODEL?"),
        ("LOG__LEVEL", "loud", "must be 'debug', 'info', 'warning' or 'error'"),
    ]
    async with world(script(*(tool_calls(CALCULATE), text("done")) * 2)) as here:
        async with configured_bot(here, **before) as bot:
            for number, (name, value, reason) in enumerate(refused, start=1):
                write_settings(here, **{**before, **after, name: value})
                bot.send_signal(signal.SIGHUP)
                event = await bot.event("settings.refused", times=number)
                assert (event["reason"], value in str(event["setting"])) == (reason, False)
            await here.signal.say("one")
            await here.answer()
            write_settings(here, **{**after, "LLM__MODEL": "another"})
            assert sorted(await reload(bot)) == sorted(after)
            need = await bot.event("settings.need_restart")
            assert need["setting"] == "LLM__MODEL"
            assert need["reason"] == "it is read only at the start"
            await here.signal.say("two")
            await here.answer()
            assert await reload(bot, times=2) == []
        assert "sk-the" not in "".join(bot.stderr)
        _, first, _, second = here.model.requests
        assert first["messages"][0]["content"].startswith("You are the first.")
        assert second["messages"][0]["content"].startswith("You are the second.")
        assert [request.get("tool_choice") for request in (first, second)] == [None, "none"]
        assert second["model"] == "fake"
        keys = [request.headers.get("authorization") for request in here.model.received]
        assert (keys[0], keys[-1]) == ("Bearer sk-the-old-one", "Bearer sk-the-new-one")


EVERYTHING = {
    "LOG__LEVEL": "debug",
    "ACCESS__POLICY": "allowlist",
    "ACCESS__ALLOWED": BEN.aci,
    "ACCESS__ADMINS": ADA.aci,
    "ACCESS__GROUPS": "always",
    "ACCESS__MESSAGES_PER_MINUTE": "61",
    "ACCESS__TOKENS_PER_DAY": "600000",
    "STORE__RETENTION_DAYS": "62",
    "TOOLS__MAX_TOOL_CALLS": "3",
    "TOOLS__TIMEOUT_SECONDS": "4",
    "TOOLS__CALLS_PER_MINUTE": "65",
    "TOOLS__CALLS_PER_MINUTE_TOTAL": "660",
    "LLM__API_KEY": "sk-the-new-one",
    "BOT__SYSTEM_PROMPT": "You are the second.",
    "BOT__ACK_REACTION": "🌵",
    "BOT__READ_RECEIPTS": "false",
}
"""Every setting that can change, with a value other than before."""


@asynccontextmanager
async def built_bot(
    here: World, monkeypatch: pytest.MonkeyPatch, **settings: str
) -> AsyncIterator[app.Bot]:
    """Build a bot in this process whose `.env` says these settings, without running it."""
    monkeypatch.chdir(here.folder)
    for name, value in fixed(here, *EVERYTHING).items():
        monkeypatch.setenv(name, value)
    write_settings(here, **settings)
    async with app.build(Start(load_settings())) as bot:
        yield bot


@pytest.fixture
def unconfigured_log() -> Iterator[None]:
    """Leave the log of this process as it is without a bot."""
    yield
    structlog.reset_defaults()


@pytest.mark.usefixtures("unconfigured_log")
async def test_each_reloaded_setting_reaches_every_part_that_uses_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert EVERYTHING.keys() == LIVE
    async with world() as here:
        async with built_bot(here, monkeypatch) as bot:
            write_settings(here, **EVERYTHING)
            await bot.base.reload()
            access, loop = bot.chats.door.access, bot.chats.conversation.loop
            assert access.settings == AccessSettings(
                policy="allowlist",
                allowed=frozenset({BEN.aci}),
                admins=frozenset({ADA.aci}),
                groups="always",
                messages_per_minute=61,
                tokens_per_day=600_000,
            )
            assert access.admins == {ADA.aci}
            assert bot.base.store.retention_days == 62
            assert bot.chats.conversation.prompt.max_rounds == 3
            assert loop.executor.timeout_seconds == 4
            limits = loop.executor.limits
            assert (limits.per_person, limits.per_bot) == (65, 660)
            assert (bot.presence.ack_reaction, bot.presence.read_receipts) == ("🌵", False)


# What does not ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("unconfigured_log")
async def test_the_log_withholds_the_reason_of_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    async with world() as here:
        reload_now = Reload(here.settings(), makes_proofs=False)
        for name in setting_names():
            for value in ("?", "-1", "01511 2345678", "/nowhere", "http://", "x" * 5_000):
                with monkeypatch.context() as set_once, capture_logs() as logged:
                    set_once.setenv(name.replace(CHOSEN, "NOTES"), value)
                    await reload_now()
                for line in logged:
                    assert logs.WITHHELD not in logs.withhold_values(None, "", dict(line)).values()


@pytest.mark.usefixtures("unconfigured_log")
@pytest.mark.parametrize(
    ("name", "before", "after"),
    [
        # Tools are neither opened nor closed while the bot runs.
        ("TOOLS__MAX_TOOL_CALLS", "0", "5"),
        ("TOOLS__MAX_TOOL_CALLS", "5", "0"),
        # Proofs say that conversations are deleted.
        ("STORE__RETENTION_DAYS", "30", "0"),
    ],
)
async def test_values_that_change_more_than_a_number_need_a_restart(
    name: str, before: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with world() as here:
        with abandoned_socket(here.folder / "no-dstack.sock") as agent:
            async with built_bot(here, monkeypatch, **{name: before}) as bot:
                write_settings(here, **{name: after})
                agent.rename(here.folder / "gone for a moment")
                with capture_logs() as logged:
                    await bot.base.reload()
                (here.folder / "gone for a moment").rename(agent)
    assert [(one["event"], one["setting"]) for one in logged] == [
        ("settings.reloaded", []),
        ("settings.need_restart", name),
    ]


async def test_ten_hangups_in_a_row_and_those_at_start_and_stop_do_no_harm() -> None:
    async with world(text("hello")) as here:
        write_settings(here, ACCESS__POLICY="open")
        settings = fixed(here, "ACCESS__POLICY") | {"TOOLS__WEB_SEARCH__PROVIDER": "brave"}
        async with daemon(settings, folder=here.folder) as bot:
            await bot.event("tool.unavailable")  # which is long before it takes messages
            bot.send_signal(signal.SIGHUP)
            await bot.event("settings.reloaded")
            assert bot.events("app.started")
            for _ in range(10):
                bot.send_signal(signal.SIGHUP)
            await bot.event("settings.reloaded", times=2)
            await here.signal.say("hello?")
            assert (await here.answer()).text == "hello"
            bot.send_signal(signal.SIGTERM)
            await bot.event("app.stopping")
            bot.send_signal(signal.SIGHUP)
            assert await bot.exit_code() == 0
        assert read_store(here.folder / "store.db").outcomes


# Terminals ----------------------------------------------------------------------------------------


DIRECTLY = 'exec "$0" -m bot run'
BELOW_MAKE = 'trap : HUP; "$0" -m bot run; true'


@pytest.mark.parametrize(
    ("command", "is_told_alone"),
    [
        pytest.param(DIRECTLY, False, id="who is told by the kernel"),
        pytest.param(BELOW_MAKE, False, id="whom nobody tells, as below make"),
        pytest.param(DIRECTLY, True, marks=pytest.mark.full, id="who is told while it is there"),
    ],
)
async def test_a_bot_that_was_started_in_a_terminal_ends_with_it_in_order(
    command: str, is_told_alone: bool
) -> None:
    async with world(text("hello")) as here:
        ours, bots_end = pty.openpty()
        terminal = os.fdopen(ours, "rb", buffering=0)
        leader = await asyncio.create_subprocess_exec(
            "sh", "-c", command, sys.executable,
            stdin=bots_end, stdout=bots_end, stderr=asyncio.subprocess.PIPE,
            env={"PATH": os.environ["PATH"], **environment(here)},
            cwd=here.folder,
            start_new_session=True,
            preexec_fn=partial(fcntl.ioctl, bots_end, termios.TIOCSCTTY, 0),
        )  # fmt: skip
        os.close(bots_end)
        try:
            await here.signal.say("hello?")
            assert (await here.answer()).text == "hello"
            if is_told_alone:
                leader.send_signal(signal.SIGHUP)
            else:
                terminal.close()
            assert leader.stderr is not None
            async with asyncio.timeout(END_SECONDS):
                log = await leader.stderr.read()  # until its writer is gone
            assert b"app.stopped" in log
        finally:
            with suppress(ProcessLookupError):
                os.killpg(leader.pid, signal.SIGKILL)
            await leader.wait()
            terminal.close()
