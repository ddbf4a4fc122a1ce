"""`check` and `demo` as their users run them."""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from bot.attestation.trust import REAL, Trust
from bot.cli.basic_findings import Finding, Severity
from bot.cli.check import findings
from bot.config.settings import Settings
from tests.contract.dialects.ollama import server as ollama_server
from tests.e2e.daemon_process import run_command
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import running_bot, world
from tests.e2e.terminal import at_a_terminal
from tests.fakes.dstack_agent import COMPOSE, SoftAgent, says, serving
from tests.fakes.openai_server import (
    Step,
    echo,
    models,
    raw_body,
    reading,
    script,
    status,
    tool_calls,
)
from tests.fakes.signal_side import ADA
from tests.fakes.web_server import answer, web_server

ROOT: Final = Path(__file__).parents[2]
GARBAGE: Final = raw_body(b"<html>no</html>", content_type="text/html")
OWNER: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
NO_TOOLS: Final[Mapping[str, object]] = {"enabled": False}

Expected = tuple[Severity, str] | None
"""The verdict on a part and some of the words, or no line at all."""


async def report(settings: Settings, trust: Trust = REAL) -> dict[str, Finding]:
    return {finding.part: finding async for finding in findings(settings, trust=trust)}


def assert_found(found: Mapping[str, Finding], expected: Mapping[str, Expected]) -> None:
    for part, verdict_and_words in expected.items():
        if verdict_and_words is None:
            assert part not in found
        else:
            verdict, words = verdict_and_words
            assert found[part].verdict == verdict, found[part]
            assert words in found[part].words


async def test_check_finds_everything_well() -> None:
    async with world() as here:
        here.model.models_handler = models("fake")
        found = await report(here.settings(store={"key": "k" * 32}))
        (request,) = here.model.requests
    assert not [finding for finding in found.values() if finding.verdict == "failed"]
    assert found["signal"].words == "signal-cli 0.99.0 answers."
    assert found["account"].verdict == "ok"
    assert found["model"].words == "fake is known there."
    assert found["calculate"].verdict == "ok"
    assert found["store"].words == "The first start makes it, encrypted at rest."
    assert found["attestation"].verdict == "warning"
    assert re.fullmatch(
        r"The model answers a question with \d\d tools, which take 3,\d{3} of 32,000 tokens\.",
        found["tools"].words,
    )
    assert request["messages"] == [{"role": "user", "content": "Say one word."}]
    assert "calculate" in {tool["function"]["name"] for tool in request["tools"]}


async def test_check_disturbs_no_running_bot_and_takes_no_message_away() -> None:
    async with world() as here:
        await here.signal.say("before")
        await report(here.settings())
        async with running_bot(here.settings()):
            assert (await here.answer()).text.endswith("before")
            assert (await report(here.settings()))["store"].words == "In use by the running bot."
            await here.signal.say("hello")
            assert (await here.answer()).text.endswith("hello")


async def test_check_names_problems_and_remedies() -> None:
    async with world() as here:
        await here.signal.go_away()
        here.model.models_handler = status(401, {"error": {"message": "bad key"}})
        found = await report(here.settings(tools=NO_TOOLS, store={"path": here.folder}))
    assert_found(
        found,
        {
            "store": ("failed", ""),
            "signal": ("failed", "SIGNAL__URL"),
            "llm": ("failed", "LLM__API_KEY"),
            "tools": ("warning", ""),
        },
    )


TEXT_ONLY: Final = {"architecture": {"input_modalities": ["text"]}}
WITH_IMAGES: Final = {"architecture": {"input_modalities": ["text", "image"]}}


@pytest.mark.parametrize(
    ("settings", "listed", "expected"),
    [
        (
            {
                "access": {"policy": "pairing", "admins": OWNER},
                "llm": {"vision": "on", "transcription_model": "whisper"},
                "tools": {"workspace": {"for": "everyone"}},
            },
            {},
            {
                "access": ("ok", "approve CODE, or an admin in Signal, lets them in."),
                "admins": None,
                "safety numbers": ("ok", "decide in the chat"),
                "images": ("ok", "Shown to the model."),
                "voice notes": ("ok", "whisper is known there."),
                "profile": None,
            },
        ),
        (
            {
                "access": {"policy": "pairing"},
                "signal": {"trust": "verified"},
                "llm": {"vision": "on", "transcription_model": "whisper-9"},
                "tools": {"workspace": {"for": "everyone"}},
                "bot": {"profile_picture": ROOT / "pyproject.toml"},
            },
            TEXT_ONLY,
            {
                "access": ("ok", "Strangers get a code; signal-tee-bot pair approve CODE lets"),
                "admins": ("warning", ""),
                "safety numbers": ("warning", "Everybody waits"),
                "images": ("warning", "LLM__VISION"),
                "voice notes": ("warning", "See LLM__TRANSCRIPTION_MODEL"),
                "profile": ("failed", "BOT__PROFILE_PICTURE: must be"),
            },
        ),
        (
            {
                "access": {"policy": "pairing", "admins": "+15550100001"},
                "signal": {"trust": "always"},
                "llm": {"vision": "off"},
            },
            WITH_IMAGES,
            {
                "access": ("warning", "Numbers work only for people who show"),
                "safety numbers": ("warning", "trusted at once"),
                "images": ("ok", "Not shown"),
                "voice notes": ("ok", "Not listened to"),
            },
        ),
        (
            {
                "access": {"policy": "allowlist", "groups": "off"},
                "tools": {"workspace": {"for": "everyone"}},
            },
            WITH_IMAGES,
            {
                "access": ("warning", "ACCESS__ALLOWED"),
                "admins": None,
                "safety numbers": ("warning", "A person who reinstalls Signal waits"),
                "images": ("ok", "Shown to the model."),
            },
        ),
        (
            {"access": {"policy": "open"}},
            TEXT_ONLY,
            {
                "access": ("warning", "Everybody is answered"),
                "images": ("ok", "Not shown to the model; people are told so."),
            },
        ),
        (
            {
                "access": {"note_to_self": True},
                "signal": {"url": "http://127.0.0.1:9"},
                "bot": {"profile_name": "Tee"},
            },
            {},
            {
                "access": ("ok", "Only the note to self"),
                "safety numbers": None,
                "images": ("ok", "The endpoint does not say"),
                "profile": ("warning", ""),
                "attachments": None,
            },
        ),
        (
            {"access": {"policy": "allowlist", "allowed": ADA.aci}},
            {},
            {"access": ("ok", ""), "attachments": ("warning", "Set SIGNAL__DATA_DIR.")},
        ),
        (
            {
                "access": {"policy": "allowlist", "allowed": ADA.number},
                "signal": {"data_dir": "/nowhere"},
            },
            {},
            {"access": ("warning", ""), "attachments": ("warning", "SIGNAL__DATA_DIR is none")},
        ),
    ],
)
async def test_check_explains_the_effects_of_settings_on_people(
    settings: dict[str, Mapping[str, object]],
    listed: dict[str, object],
    expected: dict[str, Expected],
) -> None:
    async with world() as here:
        here.model.models_handler = models("fake", "whisper", **listed)
        found = await report(here.settings(**({"tools": NO_TOOLS} | settings)))
    assert_found(found, expected)


async def test_check_reports_the_proofs_of_bot_and_model(tmp_path: Path) -> None:
    local = {"dialect": "ollama", "base_url": "http://127.0.0.1:9", "model": "x"}
    app = json.dumps(json.loads(COMPOSE) | {"pre_launch_script": "id"})
    async with proving_world() as proving:
        settings = proving.settings(
            "require",
            store={"key_source": "dstack"},
            llm={"models": {"local": local}, "fallback": "local"},
        )
        well = await report(settings, proving.trust)
        foreign = await report(settings)  # the real roots do not trust these quotes
        imported = proving.settings("off", attestation={"key_origin": "imported"})
        brought_in = await report(imported, proving.trust)
        async with serving(SoftAgent(proving.cloud.platform, app), tmp_path / "agent") as agent:
            changed = proving.settings("off", attestation={"dstack_socket": agent})
            left_open = await report(changed, proving.trust)
        proving.agent.fault = says(b"rubbish")
        wrong = await report(settings, proving.trust)
    assert well["store"].words == "The first start makes it, encrypted at rest."
    assert well["attestation"].verdict is well["model proof"].verdict == "ok"
    assert_found(well, {"fallback": ("warning", "local never stands in for another model")})
    assert foreign["attestation"].verdict == "failed"
    assert_found(foreign, {"model proof": ("failed", "ATTESTATION__MODEL_POLICY")})
    assert_found(brought_in, {"attestation": ("warning", "ATTESTATION__KEY_ORIGIN")})
    assert_found(left_open, {"attestation": ("failed", "pre_launch_script has another value")})
    assert wrong["attestation"].verdict == "failed"
    assert wrong["store"].words.startswith("STORE__KEY_SOURCE: ")


@pytest.mark.long
async def test_check_prints_a_line_for_each_part_and_nothing_else(tmp_path: Path) -> None:
    pages = {"/locked": answer(b"", status=401), "/page": answer(b"<p>No MCP here.")}
    rude = f"{sys.executable} -m tests.fakes.mcp_rude"
    odd = f"{sys.executable} -m tests.fakes.mcp_odd"
    async with web_server(pages) as web:
        settings = {
            "SIGNAL__PHONE_NUMBER": "+4915100000000",
            "SIGNAL__URL": f"unix:{tmp_path / 'nowhere'}",
            "LLM__BASE_URL": "http://127.0.0.1:9/v1",
            "MCP__SERVERS__NOTES__COMMAND": "no-such-program",
            "MCP__SERVERS__ARCHIVE__URL": "http://127.0.0.1:9/mcp",
            "MCP__SERVERS__LOCKED__URL": web.url("/locked"),
            "MCP__SERVERS__PAGE__URL": web.url("/page"),
            "MCP__SERVERS__EMPTY__COMMAND": f"{rude} no_tools",
            "MCP__SERVERS__EMPTY__ENV__PYTHONPATH": str(ROOT),
            "MCP__SERVERS__ODD__COMMAND": odd,
            "MCP__SERVERS__ODD__ENV__PYTHONPATH": str(ROOT),
            "MCP__SERVERS__ODD__TOOLS": "echo, crash, nonsense",
            "MCP__SERVERS__HALL__COMMAND": f"{rude} dies",
            "MCP__SERVERS__HALL__ENV__PYTHONPATH": str(ROOT),
            "MCP__SERVERS__POST__COMMAND": "npx -y some-server",
            "MCP__SERVERS__POST__ENV__PATH": "/nowhere",
        }
        code, out, err = await run_command(["check"], settings, folder=tmp_path)
    assert (code, err) == (1, "")
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert {verdict for verdict, _, _ in lines} == {"ok", "warning", "failed"}
    said = {part: words for _, part, words in lines}
    assert len(said) == len(lines)
    assert not any(part.startswith("odd_") for part in said)
    assert not re.search(r"![a-z]", out)  # an operator has no chat at hand
    for server, words in {
        "notes": "The MCP server's command was not found. See MCP__SERVERS__NOTES__COMMAND.",
        "archive": "The MCP server could not be reached. See MCP__SERVERS__ARCHIVE__URL.",
        "page": " See MCP__SERVERS__PAGE__URL.",
        "locked": "(HTTP 401). See MCP__SERVERS__LOCKED__URL.",
        "empty": "The MCP server offers no tools. See MCP__SERVERS__EMPTY__COMMAND.",
        "odd": "asking before each call: odd_crash. It has no tool nonsense; it has ",
        "hall": 'The last line of its error output: "I have no idea why." See MCP__SERVERS__HALL',
        "post": "npx was not found on the bot's PATH. It is part of Node.js. See MCP__SERVERS__POS",
    }.items():
        assert words in said[server]


@pytest.mark.parametrize(
    ("step", "verdict", "words"),
    [
        (echo, "ok", "fake is not listed there, but answers."),
        (status(404, {"error": "no such model"}), "failed", "refused. See LLM__MODEL"),
        (status(401), "failed", "refused. See LLM__MODEL"),
        (GARBAGE, "warning", "did not answer. See LLM__MODEL"),
    ],
    ids=["answers", "unknown", "not allowed", "garbage"],
)
async def test_check_asks_a_model_that_is_not_listed_for_one_word(
    step: Step, verdict: Severity, words: str
) -> None:
    async with world(step) as here:
        here.model.models_handler = models("another")
        found = await report(here.settings(tools=NO_TOOLS))
        asked = [request["messages"] for request in here.model.requests]
    assert_found(found, {"model": (verdict, words)})
    assert asked[0] == [{"role": "user", "content": "Say one word."}]


TAKES_NO_TOOLS: Final = status(
    400, {"error": {"message": "tools is not supported with this model"}}
)


@pytest.mark.parametrize(
    ("step", "size", "verdict", "words"),
    [
        (reading(4_096), {"max_model_len": 4_096}, "warning", "context is 1,365, so these are lef"),
        (reading(1_500), {}, "warning", "context is 500, so"),  # the refusal names the size
        (status(400, {"error": {"message": "odd"}}), {}, "failed", "answers no question with"),
        (script(TAKES_NO_TOOLS, echo), {}, "ok", ""),  # they are described to the model
    ],
)
async def test_check_says_which_tools_fit_the_model(
    step: Step, size: dict[str, object], verdict: Severity, words: str
) -> None:
    async with world(step) as here:
        here.model.models_handler = models("fake", **size)
        found = await report(here.settings())
        last = here.model.requests[-1]["messages"][0]["content"]
    assert_found(found, {"tools": (verdict, words)})
    assert "calculate" not in found["tools"].words
    assert ("- calculate: " in last) == (verdict == "ok")


async def test_check_asks_every_further_model_and_names_its_settings() -> None:
    async with world() as here, ollama_server() as other:
        here.model.models_handler = models("fake")
        elsewhere = {"dialect": "ollama", "base_url": other.base_url, "model": "test-model"}
        further = {
            "local": elsewhere,
            "gone": {**elsewhere, "base_url": "http://127.0.0.1:9"},
            "unknown": {**elsewhere, "model": "other-model"},
        }
        llm = {"models": further, "fallback": "local"}
        found = await report(here.settings(llm=llm, tools=NO_TOOLS))
    known = f"test-model is known at 127.0.0.1:{other.port}."
    assert_found(
        found,
        {
            "model local": ("ok", known),
            "model gone": ("failed", "See LLM__MODELS__GONE__BASE_URL."),
            "model unknown": ("failed", "See LLM__MODELS__UNKNOWN__MODEL"),
            "fallback": None,
        },
    )


# The demo -----------------------------------------------------------------------------------------


async def test_demo_answers_every_text_whatever_the_operator_has_set(tmp_path: Path) -> None:
    operators = {
        "ACCESS__MESSAGES_PER_MINUTE": "1",
        "ACCESS__TOKENS_PER_DAY": "1",
        "ACCESS__POLICY": "pairing",
        "ATTESTATION__DSTACK_SOCKET": str(tmp_path / "no-dstack.sock"),
        "ATTESTATION__E2EE": "true",
        "ATTESTATION__MODEL_POLICY": "require",
        "BOT__PROFILE_PICTURE": "/nowhere.png",
        "LLM__TRANSCRIPTION_MODEL": "whisper",
        "SIGNAL__DATA_DIR": "/nowhere",
        "SIGNAL__TRUST": "verified",
        "STORE__KEY_SOURCE": "dstack",
    }
    texts = ("--say", "What is 127*43?", "!verify", "--say", "3+3")
    code, out, err = await run_command(["demo", *texts], operators, folder=tmp_path)
    assert (code, err) == (0, "")
    said = ("What is 127*43?", "🔧 Using", "5461", "so there is", "= 6")
    positions = [out.index(text) for text in said]
    assert positions == sorted(positions)
    assert "is no AI" in out
    assert files_in(tmp_path) == []


async def test_demo_names_the_configured_endpoint() -> None:
    async with world() as here:
        settings = {"LLM__BASE_URL": here.model.base_url, "ACCESS__NOTE_TO_SELF": "true"}
        code, out, _ = await run_command(["demo", "--say", "hello"], settings, folder=here.folder)
    assert code == 0
    assert here.model.base_url in out
    assert "answer to:" in out


async def test_demo_shows_a_reaction_of_the_model() -> None:
    async with world(tool_calls(("react", {"emoji": "🦊"}))) as here:
        settings = {"LLM__BASE_URL": here.model.base_url, "BOT__ACK_REACTION": "👀"}
        code, out, _ = await run_command(["demo", "--say", "thanks"], settings, folder=here.folder)
    assert code == 0
    assert "🦊" in out
    assert "👀" not in out


async def test_demo_at_a_terminal_shows_bubbles_and_takes_pasted_lines(tmp_path: Path) -> None:
    async with at_a_terminal("demo", url="", folder=tmp_path) as terminal:
        await terminal.reads("Write a message.")
        terminal.types("What is 127*43?\r")
        for shown in ("What is 127*43?", "You ·", "5461", "Bot ·"):
            await terminal.reads(shown)
        terminal.types("/help\r")
        await terminal.reads("Alt-Enter begins a new line")
        terminal.types("\x1b[200~two\nlines\x1b[201~\r")
        for shown in ("two", "lines", "You ·"):
            await terminal.reads(shown)
        (tmp_path / "a list.txt").write_text("apples: 127*43")
        for typed, shown in (
            ("/wrong\r", "There is no /wrong here"),
            ("/attach nowhere.txt\r", "There is no file nowhere.txt"),
            ("/attach\r", "Name a file"),
            ("/attach 'a list.txt' What is it?\r", "The bot's own commands"),
            ("half a line", "half a line"),
            ("\x03", ""),
            ("What is 3*21?\r", "3*21 = 63"),
        ):
            terminal.types(typed)
            await terminal.reads(shown)
            if shown != "half a line":
                await terminal.reads("Write a message.")
        terminal.types("\x03")
        assert await terminal.exit_code() == 0


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize(
    "ending", [signal.SIGTERM, pytest.param(signal.SIGHUP, marks=pytest.mark.full)]
)
async def test_a_demo_that_is_ended_from_outside_leaves_nothing_behind(
    ending: signal.Signals, tmp_path: Path
) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "demo"),
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "TMPDIR": str(tmp_path)},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert demo.stdin is not None
    assert demo.stdout is not None
    demo.stdin.write(b"2+2\n")
    await demo.stdout.readuntil(b"2+2 = 4.")
    assert files_in(tmp_path) != []
    demo.send_signal(ending)
    assert await demo.wait() == 1
    assert files_in(tmp_path) == []


@pytest.mark.parametrize("arguments", [("demo", "--say"), ()])
async def test_wrong_arguments_give_exit_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    code, _, err = await run_command(arguments, {}, folder=tmp_path)
    assert (code, "usage:" in err) == (2, True)
