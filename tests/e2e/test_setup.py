"""`signal-tee-bot setup`: from nothing to a first answer, at a terminal or for scripts."""

import re
import stat
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import pytest
from dotenv import dotenv_values

from bot.chat.door import WELCOME_ADMIN
from bot.cli.console import as_typed
from bot.cli.env import Draft
from tests.e2e.daemon_process import run_command
from tests.e2e.running_bot import World, world
from tests.e2e.terminal import Terminal, at_a_terminal
from tests.fakes.openai_server import models, status
from tests.fakes.registering import CODE, RegisteringSignalCli
from tests.fakes.signal_side import BOT

ROOT: Final = Path(__file__).parents[2]
KEY: Final = "sk-secret"
BEFORE: Final = """\
# mine
HEALTH__LISTEN=127.0.0.1:0
MCP__SERVERS__NOTES__COMMAND='python -m "my notes"'
MCP__SERVERS__NOTES__TOOLS=none
"""


@dataclass(frozen=True, slots=True)
class Place:
    """A folder to set the bot up in, between a model and a Signal without the account."""

    here: World
    signal: RegisteringSignalCli
    folder: Path

    @property
    def env(self) -> Path:
        return self.folder / ".env"

    def settings(self) -> dict[str, str | None]:
        return dotenv_values(self.env, interpolate=False)

    def options(self) -> list[str]:
        return [
            *("--model-url", self.here.model.base_url, "--model", "fake"),
            *("--number", "+1 (555) 010-0000", "--signal", self.signal.url),
        ]

    async def unattended(self, *more: str) -> tuple[int, str, str]:
        arguments = ["setup", "--yes", *self.options(), *more]
        return await run_command(arguments, {}, folder=self.folder)


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        folder = Path(name)
        async with world() as here, RegisteringSignalCli.open(folder / "socket") as signal:
            yield Place(here, signal, folder)


async def takes(terminal: Terminal, option: str) -> None:
    """Take an option of a list by its number."""
    await terminal.reads(option)
    found = re.findall(rf"(\d)\. {re.escape(option)}", terminal.shown)
    await terminal.answers("Number [", found[-1])


async def names_the_model(terminal: Terminal, at: Place) -> None:
    await takes(terminal, "OpenAI, or any server")
    await terminal.answers("Address,", at.here.model.base_url)
    await terminal.answers("API key", KEY)


@pytest.mark.long
async def test_from_nothing_to_a_first_answer_on_ones_own_phone() -> None:
    async with place() as at:
        at.env.write_text(BEFORE)
        async with at_a_terminal(
            "setup", "--signal", at.signal.url, url="", folder=at.folder
        ) as terminal:
            await terminal.answers("There is a .env already.", "yes")
            await names_the_model(terminal, at)
            await terminal.reads("It answers.")
            await takes(terminal, "The number of a spare phone")
            await terminal.reads("Waiting for the phone")
            at.signal.registrar.linked.set()
            await terminal.reads(f"Linked: {BOT.number}.")
            await terminal.reads("All of it is in .env")
            await terminal.reads(f"Write anything to {BOT.number}")
            await at.signal.until(lambda: at.signal.subscribed)
            await at.signal.say("hello")
            await terminal.answers("Ada +15550100001", "Yes please")
            await at.signal.wait_for(lambda sent: sent.text == WELCOME_ADMIN)
            await at.signal.say("Are you there?")
            await at.signal.wait_for(lambda sent: sent.text.endswith("Are you there?"))
            await terminal.answers("Press Enter here", "")
            await terminal.reads("To keep the bot running:")
            assert await terminal.exit_code() == 0
        assert KEY not in terminal.shown
        kept = at.settings()
        assert kept["LLM__BASE_URL"] == at.here.model.base_url
        assert (kept["LLM__MODEL"], kept["LLM__API_KEY"]) == ("test-model", KEY)
        assert kept["SIGNAL__PHONE_NUMBER"] == BOT.number
        assert len(kept["STORE__KEY"] or "") == 64
        assert stat.S_IMODE(at.env.stat().st_mode) == 0o600
        assert "# The bot's own number" in at.env.read_text()
        # The earlier file is kept, in the new one and as a copy.
        assert kept["MCP__SERVERS__NOTES__COMMAND"] == 'python -m "my notes"'
        assert [file.read_text() for file in at.folder.glob(".env.before-*")] == [BEFORE]
        assert not (at.folder / ".env.setup").exists()


@pytest.mark.long
async def test_interrupted_setup_continues() -> None:
    async with place() as at:
        at.signal.registrar.registered = True
        arguments = ("setup", "--signal", at.signal.url, "--admin", "+15550100001")
        async with at_a_terminal(*arguments, url="", folder=at.folder) as terminal:
            await names_the_model(terminal, at)
            await terminal.reads("Is it the bot's?")
            terminal.presses_ctrl_c()
            await terminal.reads("run setup again to continue.")
            assert await terminal.exit_code() == 130
        assert not at.env.exists()
        assert stat.S_IMODE((at.folder / ".env.setup").stat().st_mode) == 0o600
        async with at_a_terminal(*arguments, url="", folder=at.folder) as terminal:
            await terminal.reads("Continuing an interrupted setup.")
            await terminal.reads("It answers.")
            await terminal.answers("Is it the bot's?", "y")
            await terminal.reads("To keep the bot running:")
            assert await terminal.exit_code() == 0
        assert at.settings()["LLM__API_KEY"] == KEY


@pytest.mark.long
async def test_a_number_is_registered_and_wrong_answers_are_asked_for_again() -> None:
    async with place() as at:
        at.here.model.models_handler = models("fake", "other")
        arguments = ("setup", "--signal", at.signal.url, "--admin", "+15550100001")
        async with at_a_terminal(*arguments, url="", folder=at.folder) as terminal:
            await takes(terminal, "OpenAI, or any server")
            await terminal.answers("Address,", "not an address")
            await terminal.reads("LLM__BASE_URL: must be an http:// or https:// address")
            await terminal.answers("Address,", "http://127.0.0.1:9/v1")
            await terminal.reads("http://127.0.0.1:9/v1: It refuses connections.")
            await terminal.answers("Address,", at.here.model.base_url[:-3])
            await terminal.reads(f"Its models are at {at.here.model.base_url}.")
            await terminal.answers("API key", KEY)
            await takes(terminal, "other")
            await takes(terminal, "A number of its own")
            await terminal.answers("The number, such as", "no number")
            await terminal.reads("must be a number in international form")
            await terminal.answers("The number, such as", "+1 (555) 010-0000")
            await terminal.answers("The code:", CODE)
            await terminal.reads("To keep the bot running:")
            assert await terminal.exit_code() == 0
        kept = at.settings()
        assert (kept["LLM__MODEL"], kept["ACCESS__ADMINS"]) == ("other", "+15550100001")


@pytest.mark.long
async def test_an_address_that_does_not_answer_is_named_and_asked_for_again() -> None:
    async with place() as at:
        at.signal.registrar.registered = True
        wrong = f"unix:{at.folder}/nosuch.sock"
        arguments = ("setup", "--signal", wrong, "--admin", "+15550100001")
        async with at_a_terminal(*arguments, url="", folder=at.folder) as terminal:
            await names_the_model(terminal, at)
            for address in (
                *("tcp://127.0.0.1:9", "http://127.0.0.1:9", "tcp://nosuch.invalid:7583"),
                *(at.here.model.base_url, at.here.model.base_url.replace("http", "tcp")[:-3]),
            ):
                await terminal.reads(f"{wrong}: ")
                await terminal.answers("The address of signal-cli", address)
                wrong = address
            await terminal.reads(f"{wrong}: ")
            terminal.presses_ctrl_c()
            assert await terminal.exit_code() == 130
        async with at_a_terminal(*arguments[:1], url="", folder=at.folder) as terminal:
            await terminal.answers("The address of signal-cli", "signal-cli")
            await terminal.reads("SIGNAL__URL")
            await terminal.answers("The address of signal-cli", at.signal.url)
            await terminal.answers("Is it the bot's?", "y")
            await terminal.reads("To keep the bot running:")
            assert await terminal.exit_code() == 0
        assert at.settings()["SIGNAL__URL"] == at.signal.url


async def test_without_a_signal_cli_it_asks_before_it_downloads_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with place() as at:
        at.signal.registrar.registered = True
        monkeypatch.setenv("PATH", str(at.folder))
        async with at_a_terminal(
            "setup", "--admin", "+15550100001", url="", folder=at.folder
        ) as terminal:
            await names_the_model(terminal, at)
            await terminal.answers("Shall it be downloaded now", "no")
            await terminal.reads("signal-tee-bot signal-cli install")
            await terminal.answers("The address of signal-cli", at.signal.url)
            await terminal.answers("Is it the bot's?", "y")
            await terminal.reads("To keep the bot running:")
            assert await terminal.exit_code() == 0
        assert not (at.folder / "signal-cli").exists()


# For scripts --------------------------------------------------------------------------------------


@pytest.mark.full
async def test_scripts_get_an_env_that_was_tried() -> None:
    async with place() as at:
        at.signal.registrar.registered = True
        (at.folder / "key").write_text(f"{KEY}\n")
        code, out, err = await at.unattended("--key-file", "key", "--admin", "+15550100001")
        assert (code, err) == (0, "")
        assert f"{BOT.number} is registered" in out
        assert KEY not in out
        kept = at.settings()
        assert (kept["LLM__API_KEY"], kept["ACCESS__ADMINS"]) == (KEY, "+15550100001")
        example = (ROOT / ".env.example").read_text()
        assert at.env.read_text().count("\n") == example.count("\n")

        code, _, err = await at.unattended()
        assert (code, err) == (
            2,
            "--force: is required to replace .env; the old file is kept next to it\n",
        )
        code, _, _ = await at.unattended("--force")
        assert code == 0
        assert at.settings()["STORE__KEY"] == kept["STORE__KEY"]


async def test_missing_options_are_named_for_scripts(tmp_path: Path) -> None:
    code, out, err = await run_command(["setup", "--yes"], {}, folder=tmp_path)
    named = [line.split(":")[0] for line in err.splitlines()]
    assert (code, out, named) == (2, "", ["--model-url", "--model", "--number"])
    assert not (tmp_path / ".env.setup").exists()


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ("key", "key"),
        ("version", "signal-cli 0.12.8 is too old: at least 0.13 is needed."),
        pytest.param("account", "not registered", marks=pytest.mark.full),
        pytest.param("model", "LLM__BASE_URL", marks=pytest.mark.full),
    ],
)
async def test_failed_trial_is_reported_and_no_env_is_written(broken: str, expected: str) -> None:
    async with place() as at:
        at.signal.registrar.registered = broken != "account"
        at.signal.version = "0.12.8" if broken == "version" else at.signal.version
        at.here.model.handler = {"key": status(401), "model": status(404)}.get(
            broken, at.here.model.handler
        )
        code, _, err = await at.unattended()
        assert (code, expected in err) == (1, True), err
        assert not at.env.exists()


@pytest.mark.parametrize("value", ["plain", "with 'quotes' and \\ and #", 'a "b" $c', ""])
def test_written_settings_are_read_again(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Draft({}).keep(BOT__SYSTEM_PROMPT=value)
    again = Draft.begun()
    assert again is not None
    assert again["BOT__SYSTEM_PROMPT"] == value


def test_commands_in_messages_work_as_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "signal-tee-bot"
    program.parent.mkdir()
    program.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr("sys.argv", [str(program)])
    said = "Now: signal-tee-bot run. The proof is in signal-tee-bot-proof.json."
    assert as_typed(said) == said.replace("signal-tee-bot run", "bin/signal-tee-bot run")
    monkeypatch.setenv("PATH", str(program.parent))
    assert as_typed(said) == said
