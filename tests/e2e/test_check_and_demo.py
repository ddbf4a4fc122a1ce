"""`check` and `demo` as their users run them."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bot.attestation.trust import REAL, Trust
from bot.cli.basic_findings import Finding, Severity
from bot.cli.check import findings
from bot.config.loading import setting_names
from bot.config.settings import Settings
from tests.contract.dialects.ollama import server as ollama_server
from tests.e2e.proving_world import proving_world
from tests.e2e.running_bot import running_bot, world
from tests.e2e.terminal import at_a_terminal
from tests.e2e.test_silences import world as silent_world
from tests.fakes.dstack_agent import COMPOSE, SoftAgent, says, serving
from tests.fakes.openai_server import Step, echo, models, raw_body, reading, script, status
from tests.fakes.signal_rest_api import SignalRestApi
from tests.fakes.signal_side import ADA
from tests.fakes.web_server import answer, web_server

ROOT = Path(__file__).parents[2]
GARBAGE = raw_body(b"<html>no</html>", content_type="text/html")


async def report(settings: Settings, trust: Trust = REAL) -> dict[str, Finding]:
    return {finding.part: finding async for finding in findings(settings, trust=trust)}


async def test_check_finds_everything_well() -> None:
    async with world() as here:
        here.model.models_handler = models("fake")
        found = await report(here.settings(store={"key": "k" * 32}))
    failed = [finding for finding in found.values() if finding.verdict == "failed"]
    assert failed == []
    assert found["signal"].words == "signal-cli 0.13.19 answers."
    assert found["account"].verdict == "ok"
    assert found["model"].words == "fake is known there."
    assert found["calculate"].verdict == "ok"
    assert found["store"].words == "The first start makes it, encrypted at rest."
    assert found["attestation"].verdict == "warning"


async def test_check_takes_no_message_away_from_the_bot() -> None:
    async with world() as here:
        await here.signal.say("hello")
        await report(here.settings())
        async with running_bot(here.settings()):
            assert (await here.answer()).text.endswith("hello")


async def test_check_looks_at_a_running_bot_without_disturbing_it() -> None:
    async with world() as here, running_bot(here.settings()):
        assert (await report(here.settings()))["store"].words == "In use by the running bot."
        await here.signal.say("hello")
        assert (await here.answer()).text.endswith("hello")


@pytest.mark.full
@pytest.mark.parametrize("over", ["socket", "REST"])
async def test_check_says_that_the_signal_side_is_stuck(over: str) -> None:
    async with silent_world() as (here, side), SignalRestApi.listen() as api:
        side.silent = True
        api.signal_cli_alive.clear()
        signal_side = {"url": api.url} if over == "REST" else {}
        found = await report(here.settings(signal=signal_side))
        assert found["signal"].verdict == "failed"
        assert "stuck. Restart it." in found["signal"].words


async def test_check_names_problems_and_remedies() -> None:
    async with world() as here:
        await here.signal.go_away()
        here.model.models_handler = status(401, {"error": {"message": "bad key"}})
        settings = here.settings(
            access={"policy": "allowlist"}, tools={"enabled": False}, store={"path": here.folder}
        )
        found = await report(settings)
    assert "ACCESS__ALLOWED" in found["access"].words
    assert found["access"].verdict == "warning"
    assert found["store"].verdict == "failed"
    assert "SIGNAL__URL" in found["signal"].words
    assert "LLM__API_KEY" in found["llm"].words
    assert found["tools"].verdict == "warning"


async def test_check_reports_the_proofs_of_bot_and_model() -> None:
    async with proving_world() as proving:
        settings = proving.settings("require", store={"key_source": "dstack"})
        well = await report(settings, proving.trust)
        foreign = await report(settings)  # quotes and certificates that nobody else believes
        imported = proving.settings("off", attestation={"key_origin": "imported"})
        brought_in = await report(imported, proving.trust)
        proving.agent.fault = says(b"rubbish")
        wrong = await report(settings, proving.trust)
    assert well["store"].words == "The first start makes it, encrypted at rest."
    assert well["attestation"].verdict is well["model proof"].verdict == "ok"
    assert foreign["attestation"].verdict is foreign["model proof"].verdict == "failed"
    assert "ATTESTATION__MODEL_POLICY" in foreign["model proof"].words
    assert brought_in["attestation"].verdict == "warning"
    assert "ATTESTATION__KEY_ORIGIN" in brought_in["attestation"].words
    assert wrong["attestation"].verdict == "failed"
    assert wrong["store"].words.startswith("STORE__KEY_SOURCE: ")


async def test_check_names_settings_left_to_the_operator(tmp_path: Path) -> None:
    app = json.loads(COMPOSE)
    app["pre_launch_script"] = "id"
    async with proving_world() as proving:
        agent = SoftAgent(proving.cloud.platform, json.dumps(app))
        async with serving(agent, tmp_path / "agent.sock") as socket:
            settings = proving.settings("off", attestation={"dstack_socket": socket})
            found = (await report(settings, proving.trust))["attestation"]
    assert found.verdict == "failed"
    assert "pre_launch_script has another value" in found.words


async def test_check_prints_a_line_for_each_part_and_nothing_else(tmp_path: Path) -> None:
    pages = {"/locked": answer(b"", status=401), "/page": answer(b"<p>No MCP here.")}
    async with web_server(pages) as web:
        done = await asyncio.to_thread(
            run_cli,
            "check",
            folder=tmp_path,
            SIGNAL__PHONE_NUMBER="+4915100000000",
            SIGNAL__URL=f"unix:{tmp_path / 'nowhere'}",
            LLM__BASE_URL="http://127.0.0.1:9/v1",
            MCP__SERVERS__NOTES__COMMAND="no-such-program",
            MCP__SERVERS__ARCHIVE__URL="http://127.0.0.1:9/mcp",
            MCP__SERVERS__LOCKED__URL=web.url("/locked"),
            MCP__SERVERS__PAGE__URL=web.url("/page"),
            MCP__SERVERS__EMPTY__COMMAND=f"{sys.executable} -m tests.fakes.mcp_rude no_tools",
            MCP__SERVERS__EMPTY__ENV__PYTHONPATH=str(ROOT),
            # Their names are how names of built-in tools begin.
            MCP__SERVERS__WEB__COMMAND=f"{sys.executable} -m tests.fakes.mcp_rude dies",
            MCP__SERVERS__WEB__ENV__PYTHONPATH=str(ROOT),
            MCP__SERVERS__GET__COMMAND="npx -y some-server",
            MCP__SERVERS__GET__ENV__PATH="/nowhere",
        )
    assert done.returncode == 1
    assert done.stderr == ""
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert {verdict for verdict, _, _ in lines} == {"ok", "warning", "failed"}
    said = {part: words for _, part, words in lines}
    assert len(said) == len(lines)
    assert said["notes"] == (
        "The MCP server's command was not found. See MCP__SERVERS__NOTES__COMMAND."
    )
    assert said["archive"] == (
        "The MCP server could not be reached. See MCP__SERVERS__ARCHIVE__URL."
    )
    assert said["page"].endswith(" See MCP__SERVERS__PAGE__URL.")
    assert said["locked"].endswith("(HTTP 401). See MCP__SERVERS__LOCKED__URL.")
    assert said["empty"] == "The MCP server offers no tools. See MCP__SERVERS__EMPTY__COMMAND."
    assert said["web"] == (
        'The MCP server ended the connection. The last line of its error output: "I have no idea'
        ' why." See MCP__SERVERS__WEB__COMMAND.'
    )
    assert said["get"] == (
        "npx was not found on the bot's PATH. It is part of Node.js."
        " See MCP__SERVERS__GET__COMMAND."
    )


async def test_check_has_one_line_for_an_mcp_server_and_on_request_one_for_each_tool() -> None:
    command = f"{sys.executable} -m tests.fakes.mcp_odd"
    odd = {"command": command, "env": {"PYTHONPATH": str(ROOT)}, "tools": "echo, crash, nonsense"}
    async with world() as here:
        settings = here.settings(mcp={"servers": {"odd": odd}})
        short = await report(settings)
    assert short["odd"].verdict == "warning"
    assert short["odd"].words.startswith(
        "Ready. Tools: 2; asking before each call: odd_crash. It has no tool nonsense; it has "
    )
    assert not any(part.startswith("odd_") for part in short)


async def test_check_knows_an_account_that_is_not_registered_and_a_model_that_is_unknown() -> None:
    async with world(status(404)) as here:
        here.model.models_handler = models("other")
        found = await report(here.settings(signal={"phone_number": "+4915100000099"}))
    assert found["account"].verdict == "failed"
    assert "LLM__MODEL" in found["model"].words


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in setting_names()}


def run_cli(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bot", *arguments],
        cwd=folder,
        env=clean_environment() | environment,
        capture_output=True,
        text=True,
        timeout=30,
        stdin=subprocess.DEVNULL,
        check=False,
    )


def test_the_demo_sends_one_message_and_prints_the_transcript(tmp_path: Path) -> None:
    done = run_cli("demo", "--say", "What is 127*43?", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    positions = [done.stdout.index(text) for text in ("What is 127*43?", "🔧 Using", "5461")]
    assert positions == sorted(positions)
    assert "is no AI" in done.stdout
    assert list(tmp_path.iterdir()) == []


async def test_demo_at_a_terminal_shows_bubbles_and_takes_pasted_lines(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with at_a_terminal("demo", url="", folder=tmp_path) as terminal:
            await terminal.reads("Write a message.")
            terminal.types("What is 127*43?\r")
            await terminal.reads("What is 127*43?")
            await terminal.reads("You ·")
            await terminal.reads("5461")
            await terminal.reads("Bot ·")
            terminal.types("/help\r")
            await terminal.reads("Alt-Enter begins a new line")
            terminal.types("\x1b[200~two\nlines\x1b[201~\r")
            await terminal.reads("two")
            await terminal.reads("lines")
            await terminal.reads("You ·")
            terminal.types("\x04")
            assert await terminal.exit_code() == 0


@pytest.mark.full
def test_demo_sends_the_texts_of_every_say(tmp_path: Path) -> None:
    done = run_cli("demo", "--say", "1+1", "2+2", "--say", "3+3", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [total for total in ("= 2", "= 4", "= 6") if total not in done.stdout] == []


@pytest.mark.full
def test_demo_ignores_settings_about_proofs(
    tmp_path: Path,
) -> None:
    operators = {
        "ATTESTATION__MODEL_POLICY": "require",
        "ATTESTATION__E2EE": "true",
        "ATTESTATION__DSTACK_SOCKET": str(tmp_path / "no-dstack.sock"),
        "STORE__KEY_SOURCE": "dstack",
    }
    done = run_cli("demo", "--say", "1+1", "!verify", folder=tmp_path, **operators)
    assert (done.returncode, done.stderr) == (0, "")
    assert "= 2" in done.stdout
    assert "so there is" in done.stdout


@pytest.mark.full
@pytest.mark.parametrize(
    "operators",
    [
        {"ACCESS__NOTE_TO_SELF": "true"},
        {"ACCESS__POLICY": "pairing", "SIGNAL__TRUST": "verified"},
        {"BOT__PROFILE_PICTURE": "/nowhere.png", "SIGNAL__DATA_DIR": "/nowhere"},
        {"LLM__TRANSCRIPTION_MODEL": "whisper", "ATTESTATION__MODEL_POLICY": "require"},
    ],
    ids=["note to self", "strangers", "files", "voice notes"],
)
def test_demo_ignores_settings_about_guests(operators: dict[str, str], tmp_path: Path) -> None:
    done = run_cli("demo", "--say", "1+1", folder=tmp_path, **operators)
    assert (done.returncode, done.stderr) == (0, "")
    assert "= 2" in done.stdout


def test_demo_ignores_the_token_budget(tmp_path: Path) -> None:
    said = ["1+1", "2+2", "3+3"]
    done = run_cli("demo", "--say", *said, folder=tmp_path, ACCESS__TOKENS_PER_DAY="1")
    assert done.returncode == 0, done.stderr
    assert "= 6" in done.stdout


@pytest.mark.full
def test_the_demo_answers_however_fast_one_writes(tmp_path: Path) -> None:
    said = ["Remember that Ada has 2 cats", "What do you remember?", "!tools"]
    done = run_cli("demo", "--say", *said, folder=tmp_path, ACCESS__MESSAGES_PER_MINUTE="1")
    assert done.returncode == 0, done.stderr
    assert "): Ada has 2 cats" in done.stdout
    assert "(calculate" in done.stdout


def files_in(folder: Path) -> list[Path]:
    return list(folder.iterdir())


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP])
async def test_a_demo_that_is_ended_from_outside_leaves_nothing_behind(
    ending: signal.Signals, tmp_path: Path
) -> None:
    demo = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bot", "demo"),
        cwd=tmp_path,
        env=clean_environment() | {"TMPDIR": str(tmp_path)},
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


async def test_demo_names_the_configured_endpoint() -> None:
    async with world() as here:
        done = await asyncio.to_thread(
            run_cli, "demo", "--say", "hello", folder=here.folder, LLM__BASE_URL=here.model.base_url
        )
        assert done.returncode == 0, done.stderr
        assert here.model.base_url in done.stdout
        assert "answer to:" in done.stdout


@pytest.mark.parametrize("arguments", [("demo", "--say"), ("nonsense",), ()])
def test_wrong_arguments_are_said_with_exit_2(arguments: tuple[str, ...], tmp_path: Path) -> None:
    done = run_cli(*arguments, folder=tmp_path)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_a_reader_that_has_seen_enough_of_check_gets_no_traceback(tmp_path: Path) -> None:
    environment = {"SIGNAL__PHONE_NUMBER": "+4915100000000", "SIGNAL__URL": "unix:/nowhere"}
    command = f"{sys.executable} -m bot check | head -1"
    done = subprocess.run(
        ["/bin/sh", "-c", command],
        cwd=tmp_path,
        env=environment | {"PATH": os.environ["PATH"], "LLM__BASE_URL": "http://127.0.0.1:9/v1"},
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.stdout.startswith("ok       version")
    assert done.stderr == ""


@pytest.mark.parametrize(("who", "verdict"), [(ADA.aci, "ok"), (ADA.number, "warning")])
async def test_check_warns_that_people_may_hide_their_number(who: str, verdict: Severity) -> None:
    async with world() as here:
        found = await report(here.settings(access={"policy": "allowlist", "allowed": who}))
    assert found["access"].verdict is verdict


OWNER = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
OTHER = "0d1e2f30-0000-4000-8000-00000000000c"


@pytest.mark.parametrize(
    ("settings", "verdict", "words"),
    [
        ({}, "ok", "Strangers get a code; signal-tee-bot pair approve CODE lets them in."),
        ({"admins": OWNER}, "ok", "approve CODE or an admin's !pair CODE lets them in."),
        ({"admins": "+15550100001"}, "warning", "A number fits only people who show theirs"),
        ({"policy": "allowlist"}, "warning", "Nobody is answered"),
        ({"policy": "open"}, "warning", "Everybody is answered"),
        ({"note_to_self": True}, "ok", "Only the note to self"),
    ],
)
async def test_check_names_the_access_policy(
    settings: dict[str, object], verdict: Severity, words: str
) -> None:
    async with world() as here:
        found = await report(here.settings(access={"policy": "pairing", **settings}))
    assert found["access"].verdict is verdict
    assert words in found["access"].words


@pytest.mark.parametrize(
    ("access", "workspace", "warns"),
    [
        ({}, "admins", False),
        ({}, "everyone", True),
        ({"admins": OWNER}, "everyone", False),
        ({"groups": "off"}, "everyone", False),
    ],
)
async def test_check_warns_if_no_admin_can_allow_commands_in_groups(
    access: dict[str, object], workspace: str, warns: bool
) -> None:
    async with world() as here:
        tools = {"workspace": {"for": workspace}}
        found = await report(here.settings(access=access, tools=tools))
    assert ("admins" in found) is warns
    if warns:
        assert found["admins"].verdict == "warning"


@pytest.mark.parametrize(
    ("trust", "admins", "verdict", "words"),
    [
        ("tofu", OWNER, "ok", "!trust"),
        ("tofu", "", "warning", "Who installs Signal anew waits"),
        ("verified", OWNER, "ok", "!trust"),
        ("verified", "", "warning", "Everybody waits"),
        ("always", OWNER, "warning", "trusted at once"),
    ],
)
async def test_check_explains_new_safety_numbers(
    trust: str, admins: str, verdict: Severity, words: str
) -> None:
    async with world() as here:
        found = await report(here.settings(signal={"trust": trust}, access={"admins": admins}))
        alone = await report(here.settings(signal={"trust": trust}, access={"note_to_self": True}))
    assert found["safety numbers"].verdict is verdict
    assert words in found["safety numbers"].words
    assert "safety numbers" not in alone


async def test_check_says_whether_files_of_people_can_be_deleted_after_use() -> None:
    async with world() as here:
        folder = here.folder / "signal-cli"
        unknown = await report(here.settings())
        absent = await report(here.settings(signal={"data_dir": folder}))
        (folder / "attachments").mkdir(parents=True)
        known = await report(here.settings(signal={"data_dir": folder}))
        over_rest = await report(here.settings(signal={"url": "http://127.0.0.1:9"}))
    assert unknown["attachments"].words.endswith("Set SIGNAL__DATA_DIR.")
    assert "SIGNAL__DATA_DIR is none" in absent["attachments"].words
    assert unknown["attachments"].verdict is absent["attachments"].verdict == "warning"
    assert known["attachments"].verdict == "ok"
    assert "attachments" not in over_rest


@pytest.mark.parametrize(
    ("vision", "listed", "verdict", "words"),
    [
        ("auto", ["text", "image"], "ok", "Shown to the model."),
        ("auto", ["text"], "ok", "Not shown to the model; people are told so."),
        ("auto", None, "ok", "The endpoint does not say"),
        ("on", None, "ok", "Shown to the model."),
        ("on", ["text"], "warning", "LLM__VISION"),
        ("off", ["text", "image"], "ok", "Not shown"),
    ],
)
async def test_check_says_whether_the_model_is_shown_images(
    vision: str, listed: list[str] | None, verdict: Severity, words: str
) -> None:
    async with world() as here:
        more = {} if listed is None else {"architecture": {"input_modalities": listed}}
        here.model.models_handler = models("fake", **more)
        found = await report(here.settings(llm={"vision": vision}))
    assert found["images"].verdict is verdict
    assert words in found["images"].words


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
        found = (await report(here.settings()))["model"]
        asked = [request["messages"] for request in here.model.requests]
    assert found.verdict is verdict
    assert words in found.words
    assert asked[0] == [{"role": "user", "content": "Say one word."}]


async def test_check_asks_a_listed_model_one_question_with_tools() -> None:
    async with world() as here:
        here.model.models_handler = models("fake")
        found = (await report(here.settings()))["tools"]
        (request,) = here.model.requests
    assert found.verdict == "ok"
    assert re.fullmatch(
        r"The model answers a question with 2\d tools, which take 2,\d{3} of 32,000 tokens\.",
        found.words,
    )
    assert request["messages"] == [{"role": "user", "content": "Say one word."}]
    assert "calculate" in {tool["function"]["name"] for tool in request["tools"]}


async def test_check_names_the_tools_that_a_small_context_has_no_room_for() -> None:
    async with world(reading(4_096)) as here:
        here.model.models_handler = models("fake", max_model_len=4_096)
        found = (await report(here.settings()))["tools"]
        assert found.verdict == "warning"
        assert "a third of the model's context is 1,365, so these are left out: " in found.words
        assert "edit_notebook" in found.words
        assert "calculate" not in found.words
        here.model.models_handler = models("fake")  # the refusal names the size
        here.model.handler = reading(1_500)
        found = (await report(here.settings()))["tools"]
        assert found.verdict == "warning"
        assert "context is 500, so" in found.words


async def test_check_says_that_a_model_answers_no_question_with_tools() -> None:
    async with world(status(400, {"error": {"message": "odd"}})) as here:
        here.model.models_handler = models("fake")
        found = (await report(here.settings()))["tools"]
    assert found.verdict == "failed"
    assert found.words.startswith("The model answers no question with tools. ")


async def test_check_describes_the_tools_to_an_endpoint_that_takes_none() -> None:
    refusal = status(400, {"error": {"message": "tools is not supported with this model"}})
    async with world(script(refusal, echo)) as here:
        here.model.models_handler = models("fake")
        found = (await report(here.settings()))["tools"]
        assert found.verdict == "ok"
        assert "- calculate: " in here.model.requests[-1]["messages"][0]["content"]


@pytest.mark.parametrize(
    ("model", "verdict", "words"),
    [
        (None, "ok", "Not listened to"),
        ("whisper", "ok", "whisper is known there."),
        ("whisper-9", "warning", "See LLM__TRANSCRIPTION_MODEL"),
    ],
)
async def test_check_names_the_model_for_voice_notes(
    model: str | None, verdict: Severity, words: str
) -> None:
    async with world() as here:
        here.model.models_handler = models("fake", "whisper")
        found = await report(here.settings(llm={"transcription_model": model}))
    assert found["voice notes"].verdict is verdict
    assert words in found["voice notes"].words


async def test_check_names_problems_of_the_profile() -> None:
    picture = ROOT / "pyproject.toml"
    async with world() as here:
        unset = await report(here.settings())
        wrong = await report(here.settings(bot={"profile_picture": picture}))
        name = here.settings(bot={"profile_name": "Tee"}, signal={"url": "http://127.0.0.1:9"})
        half = await report(name)
    assert "profile" not in unset
    assert wrong["profile"].verdict == "failed"
    assert wrong["profile"].words.startswith("BOT__PROFILE_PICTURE: must be")
    assert half["profile"].verdict == "warning"


async def test_check_asks_every_further_model_and_names_its_settings() -> None:
    async with world() as here, ollama_server() as other:
        here.model.models_handler = models("fake")
        elsewhere = {"dialect": "ollama", "base_url": other.base_url, "model": "test-model"}
        further = {
            "local": elsewhere,
            "gone": {**elsewhere, "base_url": "http://127.0.0.1:9"},
            "unknown": {**elsewhere, "model": "other-model"},
        }
        found = await report(here.settings(llm={"models": further, "fallback": "local"}))
    assert found["model local"].words == f"test-model is known at 127.0.0.1:{other.port}."
    assert found["model gone"].verdict == "failed"
    assert "See LLM__MODELS__GONE__BASE_URL." in found["model gone"].words
    assert found["model unknown"].verdict == "failed"
    assert "See LLM__MODELS__UNKNOWN__MODEL" in found["model unknown"].words
    assert "fallback" not in found


async def test_check_names_fallbacks_without_proof() -> None:
    async with proving_world() as proving:
        local = {"dialect": "ollama", "base_url": "http://127.0.0.1:9", "model": "x"}
        settings = proving.settings(
            "require", llm={"models": {"local": local}, "fallback": "local"}
        )
        found = await report(settings, proving.trust)
    assert found["fallback"].verdict == "warning"
    assert "local never stands in for another model" in found["fallback"].words
