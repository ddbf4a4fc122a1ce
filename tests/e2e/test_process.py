"""The daemon as a process: its start, stop, failures, and its visible parts."""

import asyncio
import json
import signal
import socket
import sys
import time
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Final

import pytest

from bot import __version__, app
from bot.signal.events import Person
from bot.signal.json_rpc import MAX_LINE_BYTES
from conversation_store.models import ChatId
from conversation_store.store import open_store
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.running_bot import World, world
from tests.e2e.scraped import ANY_PORT, get, readiness
from tests.e2e.stored import read_store
from tests.e2e.test_conversation import BEN, CALCULATE
from tests.e2e.traffic import PEOPLE, Traffic, answers, are_said
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import chunk, held, script, sse, status, text, tool_calls
from tests.fakes.signal_side import BOT, Sent

AT_ONCE_SECONDS: Final = 2.0
COME_BACK_SECONDS: Final = 5.0
FORCED: Final = -signal.SIGTERM

API_KEY: Final = "sk-not-to-be-seen"
STORE_KEY: Final = "a key that nobody may see"


VALID: Final = {
    "SIGNAL__URL": "unix:/nowhere/signal.sock",
    "SIGNAL__PHONE_NUMBER": BOT.number,
    "HEALTH__LISTEN": "",
}


# Start and stop -----------------------------------------------------------------------------------


@pytest.mark.full
async def test_shutdown_under_load_finishes_running_turns_and_the_next_start_the_rest() -> None:
    async with world() as here:
        traffic = Traffic(here.signal, Random(3), lambda: None)
        here.model.handler = traffic.model
        settings = environment(here, ACCESS__GROUPS="always")
        await traffic.write_everywhere(lambda _: True)
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.until(lambda: len(here.signal.sent) >= 50)
            told = time.monotonic()
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
            assert time.monotonic() - told < app.BOUNDS.grace_seconds
        store = read_store(here.folder / "store.db")
        given = traffic.said[: len(traffic.said) - here.signal.undelivered]
        assert store.outcomes.keys() == {question.timestamp for question in given}
        assert store.marked.keys() == {sent.timestamp for sent in answers(here.signal.sent)}

        last_words = await traffic.last_words()
        async with daemon(settings, folder=here.folder):
            await here.signal.until(lambda: are_said(last_words, here.signal.sent))
        store = read_store(here.folder / "store.db")
        assert store.outcomes.keys() == {question.timestamp for question in traffic.said}


async def test_told_twice_it_ends_at_once_and_the_next_start_continues() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Here I am."))) as here:
        async with daemon(environment(here), folder=here.folder) as bot:
            await here.signal.say("hello")
            await here.model.wait_for_requests(1)
            bot.send_signal(signal.SIGTERM)
            await bot.event("app.stopping")
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code(seconds=AT_ONCE_SECONDS) == FORCED
            assert bot.events("app.forced")
        async with daemon(environment(here), folder=here.folder):
            assert (await here.answer()).text == "Here I am."


@pytest.mark.full
async def test_a_model_that_never_answers_does_not_keep_it_from_stopping() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Here I am."))) as here:
        async with daemon(environment(here), folder=here.folder) as bot:
            await here.signal.say("hello")
            await here.model.wait_for_requests(1)
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code(seconds=app.BOUNDS.grace_seconds + AT_ONCE_SECONDS) == 0
            assert bot.events("app.turns_interrupted")
        async with daemon(environment(here), folder=here.folder):
            assert (await here.answer()).text == "Here I am."


async def test_started_before_signal_it_connects_when_signal_appears() -> None:
    async with world() as here:
        await here.signal.go_away()
        async with daemon(environment(here), folder=here.folder) as bot:
            await bot.event("signal.reconnecting")
            await here.signal.say("hello")
            await here.signal.come_back()
            assert (await here.answer()).text.endswith("hello")


async def test_an_outage_of_signal_is_said_once_however_often_it_tries_again() -> None:
    async with world() as here:
        await here.signal.go_away()
        async with daemon(environment(here, LOG__LEVEL="debug"), folder=here.folder) as bot:
            await bot.event("signal.failed", times=3)
            await here.signal.come_back()
            await bot.event("signal.connected")
            tried = len(bot.events("signal.failed"))
            await here.signal.go_away()
            await bot.event("signal.failed", times=tried + 1)
            levels = [event["level"] for event in bot.events("signal.failed")][: tried + 1]
            assert levels == ["warning", *["debug"] * (tried - 1), "warning"]
            again = [event["level"] for event in bot.events("signal.reconnecting")]
            assert again[:3] == ["info", "debug", "debug"]


async def test_without_a_signal_side_it_can_be_stopped() -> None:
    async with world() as here:
        await here.signal.go_away()
        async with daemon(environment(here), folder=here.folder) as bot:
            await bot.event("signal.reconnecting")
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code(seconds=AT_ONCE_SECONDS) == 0


# Mistakes of people --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("setting", "value", "problem"),
    [
        ("SIGNAL__PHONE_NUMBER", "", "SIGNAL__PHONE_NUMBER: is required; set it in .env"),
        ("SIGNAL__URL", "unix:relative/socket", "SIGNAL__URL: must be spawn:, unix:/path"),
        ("SIGNAL__URL", "tcp://signal:99999", "SIGNAL__URL: "),
        *(
            pytest.param(*row, marks=pytest.mark.full)
            for row in (
                ("LLM__API_KEY", "schlüssel", "LLM__API_KEY: must be"),
                ("LLM__API_KEY", "two\nlines", "LLM__API_KEY: must be"),
                ("LLM__BASE_URL", "http://model.example:99999/v1", "LLM__BASE_URL: "),
                ("LLM__BASE_URL", "http://two words/v1", "LLM__BASE_URL: must be an http:// or"),
                ("LLM__BASE_URL", "http://1.2.3.444/v1", "LLM__BASE_URL: must name a host"),
                ("LLM__TIMEOUT_SECOND", "5", "LLM__TIMEOUT_SECOND: no such setting; did you mean"),
                (
                    "ATTESTATION__MODEL_POLICY",
                    "sometimes",
                    "ATTESTATION__MODEL_POLICY: must be 'off',",
                ),
                (
                    "ATTESTATION__KEY_ORIGIN",
                    "mine",
                    "ATTESTATION__KEY_ORIGIN: must be 'generated-in-",
                ),
                (
                    "ATTESTATION__PCCS_URL",
                    "ftp://intel",
                    "ATTESTATION__PCCS_URL: must be an http:// or",
                ),
                ("ATTESTATION__NRAS_URL", "http://me", "ATTESTATION__NRAS_URL: no such setting"),
                ("ATTESTATION__E2EE", "perhaps", "ATTESTATION__E2EE: must be"),
                ("STORE__KEY_SOURCE", "cloud", "STORE__KEY_SOURCE: must be 'setting' or 'dstack'"),
            )
        ),
    ],
)
async def test_a_wrong_setting_is_named_in_one_line(
    setting: str, value: str, problem: str, tmp_path: Path
) -> None:
    settings = {**VALID, "STORE__PATH": str(tmp_path / "store.db"), setting: value}
    code, out, err = await run_command(["run"], settings, folder=tmp_path)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(problem)
    assert value == "" or value not in err


async def test_each_wrong_setting_has_its_line(tmp_path: Path) -> None:
    settings = {"SIGNAL__PHONE_NUMBER": "1", "LLM__CONTEXT_TOKENS": "few", "STORE__PTH": "x"}
    code, _, err = await run_command(["run"], settings, folder=tmp_path)
    assert code == 2
    named = {line.split(":")[0] for line in err.splitlines()}
    assert named == settings.keys()


async def test_a_second_daemon_leaves_the_store_alone() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as first:
        await first.event("app.started")
        code, _, err = await run_command(["run"], environment(here), folder=here.folder)
        assert (code, err.count("\n")) == (1, 1)
        assert err.startswith("STORE__PATH: another process uses this store; stop that one first")
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")


async def test_a_wrong_store_key_is_said_in_one_line() -> None:
    async with world() as here:
        settings = environment(here, STORE__KEY=STORE_KEY)
        async with daemon(settings, folder=here.folder) as bot:
            await here.signal.say("hello")
            await here.answer()
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        for key, said in (
            ("another key", "the key does not fit"),
            ("", "the store is encrypted, and no key is set"),
        ):
            wrong = {**settings, "STORE__KEY": key}
            code, _, err = await run_command(["run"], wrong, folder=here.folder)
            assert (code, err.count("\n")) == (1, 1)
            assert err.startswith(f"STORE__KEY: {said}")


async def test_a_health_port_in_use_is_said_in_one_line() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with world() as here:
            settings = environment(here, HEALTH__LISTEN=address)
            code, _, err = await run_command(["run"], settings, folder=here.folder)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith("HEALTH__LISTEN: ")
    assert err.endswith("cannot be listened on: Address already in use\n")


async def test_a_store_in_an_impossible_place_is_said_in_one_line(tmp_path: Path) -> None:
    settings = {**VALID, "STORE__PATH": str(tmp_path)}
    code, _, err = await run_command(["run"], settings, folder=tmp_path)
    assert (code, err.count("\n")) == (1, 1)
    assert err.startswith(f"STORE__PATH: {tmp_path} is a folder")


async def test_a_backup_to_an_impossible_place_is_said_in_one_line() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as bot:
        await bot.event("app.started")
        code, _, err = await run_command(
            ["backup", "missing/copy.db"], environment(here), folder=here.folder
        )
    assert (code, err) == (1, "backup: the copy cannot be written: No such file or directory\n")


@pytest.mark.full  # it takes the whole grace time
async def test_a_stop_while_the_disk_refuses_ends_in_order_and_the_next_start_answers() -> None:
    async with world(script(tool_calls(CALCULATE))) as here:
        async with daemon(environment(here), folder=here.folder) as bot:

            async def leave_no_room(_: Sent) -> None:
                bot.leave_no_room()

            here.signal.on_send = leave_no_room
            await here.signal.say("What is 127*43?")
            await bot.event("store.refuses")
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code(seconds=2 * app.BOUNDS.grace_seconds) == 0
        assert not bot.events("turn.bug")
        assert all(line.startswith("{") for line in bot.stderr)
        here.signal.on_send = None
        here.model.handler = text("It is 5461.")
        async with daemon(environment(here), folder=here.folder):
            await here.signal.wait_for(lambda sent: sent.text == "It is 5461.")


@pytest.mark.parametrize("argument", ["--version", "--help"])
async def test_version_and_help_need_no_settings(argument: str, tmp_path: Path) -> None:
    code, out, err = await run_command([argument], {}, folder=tmp_path)
    assert (code, err) == (0, "")
    assert __version__ in out or "usage: signal-tee-bot" in out


@pytest.mark.parametrize("arguments", ["--version", "--help", "check --help", "completion bash"])
async def test_version_help_and_completion_import_nothing_heavy(arguments: str) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-X", "importtime", "-m", "bot", *arguments.split(),
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    _, err = await process.communicate()
    imported = {line.rsplit("|", 1)[-1].strip() for line in err.decode().splitlines()}
    assert "bot.cli.main" in imported
    assert imported.isdisjoint({"pydantic", "httpx2", "aiohttp", "apsw", "structlog", "bot.app"})


# What others see ----------------------------------------------------------------------------------


async def test_readiness_follows_the_signal_side_and_metrics_count_turns() -> None:
    async with world() as here:
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            await here.signal.say("hello")
            await here.answer()
            assert await _well(port) == {"signal": True, "llm": True, "store": True}
            asked = _listings(here)
            assert all((await _well(port)).values())
            assert _listings(here) == asked  # who wants to know twice does not ask twice

            await here.signal.go_away()
            await bot.event("signal.reconnecting")
            assert await _well(port) == {"signal": False, "llm": True, "store": True}
            assert (await get(port, "/healthz"))[0] == 200

            await here.signal.come_back()
            async with asyncio.timeout(COME_BACK_SECONDS):
                await bot.event("signal.connected", times=2)
            assert all((await _well(port)).values())
            _, exposition = await get(port, "/metrics")
    assert b'\nsignal_tee_bot_turns_total{outcome="answered"} 1.0\n' in exposition


async def test_a_model_that_is_down_makes_it_unready() -> None:
    async with world() as here:
        await here.model.stop()
        settings = environment(here, HEALTH__LISTEN=ANY_PORT)
        async with daemon(settings, folder=here.folder) as bot:
            port = await bot.port()
            await bot.event("signal.connected")
            assert await _well(port) == {"signal": True, "llm": False, "store": True}
            await here.model.start()
            assert all((await _well(port)).values())


@pytest.mark.full
async def test_a_backup_under_traffic_is_a_store_that_opens() -> None:
    async with world() as here:
        traffic = Traffic(here.signal, Random(4), lambda: None)
        here.model.handler = traffic.model
        settings = environment(here, STORE__KEY=STORE_KEY)
        async with daemon(settings, folder=here.folder):
            await traffic.write_everywhere(lambda _: True)
            await here.signal.until(lambda: len(here.signal.sent) >= 20)
            code, _, err = await run_command(["backup", "copy.db"], settings, folder=here.folder)
            sent = len(here.signal.sent)
            await here.signal.until(lambda: len(here.signal.sent) > sent)
        assert (code, err) == (0, "")
        async with open_store(here.folder / "copy.db", key=STORE_KEY) as copy:
            people = [ChatId.direct(person.aci) for person in PEOPLE]
            histories = [
                (await copy.turns.history(chat, max_bytes=100_000)).turns for chat in people
            ]
        assert any(histories)


@pytest.mark.full
async def test_the_log_tells_nothing_about_people_at_any_level() -> None:
    person = Person(aci=BEN.aci, number="+4915200000002", name="Adelheid")
    steps = script(
        tool_calls(CALCULATE, ("frobnicate", {"why": "sesame"}), content="sesame"),
        text("It is 5461, sesame."),
        status(503, {"error": {"message": "sesame"}}),
        status(401, {"error": {"message": "sesame", "code": "sesame"}}),
        sse(chunk({"content": "sesame"}), done=False, cut=True),
        text("sesame " * 1000),
    )
    no = Refusal(-1, "sesame +4915200000002")
    refusals = iter([Refusal(-32603, "sesame"), no])  # of an answer, and of the same again

    async def refuse(sent: Sent) -> None:
        if sent.text.startswith("🔧"):
            raise no
        for refusal in () if sent.chat.is_group else refusals:
            raise refusal

    async with world(steps) as here:
        settings = environment(
            here,
            LOG__LEVEL="debug",
            LLM__API_KEY=API_KEY,
            STORE__KEY=STORE_KEY,
        )
        here.signal.on_send = refuse
        async with daemon(settings, folder=here.folder) as bot:
            for number in range(4):
                await here.signal.say(f"sesame {number} 127*43", author=person)
                await here.signal.say("!sesame", author=person)  # keeps messages from joining
            await here.signal.push({"envelope": "sesame"})
            await here.signal.push_line(b'{"sesame": ')
            await here.signal.say("!models", author=person, group="c2VzYW1l", mention=True)
            await here.signal.wait_for(lambda sent: sent.text.count("sesame") > 100)
            await here.signal.wait_for(lambda sent: "fake" in sent.text)
            await here.signal.drop_connections()
            await bot.event("signal.connected", times=2)
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        lines = [json.loads(line) for line in bot.stderr]
        events = [line["event"] for line in lines]
        # Without the time, whose digits may be those of an answer by chance.
        log = "\n".join(str(line | {"timestamp": ""}) for line in lines)
    assert set(events) >= {
        "llm.retry", "outbox.gave_up", "outbox.will_retry", "progress.not_shown", "turn.failed",
    }  # fmt: skip
    for secret in (
        "sesame", "5461", "127*43", "frobnicate", "Adelheid", "c2VzYW1l", "Traceback",
        person.aci, str(person.number), str(BOT.aci), BOT.number, API_KEY, STORE_KEY,
    ):  # fmt: skip
        assert secret not in log


# Faults -------------------------------------------------------------------------------------------


async def test_garbage_of_any_size_from_signal_is_skipped() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as bot:
        await bot.event("signal.connected")
        for line in (b"{", b"\xff\xfe", b"[]", b"null", b"x" * (MAX_LINE_BYTES + 1)):
            await here.signal.push_line(line)
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")
        assert "Traceback" not in "\n".join(bot.stderr)


async def test_while_the_model_is_down_commands_are_answered_and_then_everything() -> None:
    async with world() as here, daemon(environment(here), folder=here.folder) as bot:
        await here.model.stop()
        await here.signal.say("hello")
        await bot.event("llm.retry")
        await here.signal.say("!help", author=BEN)
        assert "!help: show this list" in (await here.answer()).text
        await here.model.start()
        assert (await here.answer()).text.endswith("hello")
    assert len(here.answers()) == 2


async def _well(port: int) -> dict[str, bool]:
    """Return which parts are well by `/readyz`."""
    return {name: ok for name, (ok, _) in (await readiness(port)).items()}


def _listings(here: World) -> int:
    """Return how often the model's endpoint was asked what it has."""
    return sum(request.path == "/v1/models" for request in here.model.received)
