"""docs/SIGNAL.md does what it says: its settings, commands and answers are those of the program."""

import re
import shlex
from pathlib import Path
from typing import Final

import pytest

from bot.cli.main import main
from bot.commands.catalog import COMMANDS
from bot.config.loading import load_settings, setting_names
from bot.errors import SignalUnavailable
from bot.signal.registration import Reason, registration_error
from bot.signal.spawned import SOCKET_NAME, SOCKET_PATH_BYTES
from tests.fakes.registering import OFFLINE

DOCUMENT: Final = (Path(__file__).parents[2] / "docs" / "SIGNAL.md").read_text()
PROGRAM: Final = "signal-tee-bot"


def commands() -> list[list[str]]:
    """The document's calls of the program, without its name."""
    shells = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = (shlex.split(line, comments=True) for shell in shells for line in shell.splitlines())
    return [words[1:] for words in lines if words[:1] == [PROGRAM]]


def test_every_command_of_the_document_is_one_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(commands()) >= 8
    for arguments in commands():
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--help"])
        assert left.value.code == 0, arguments
        options = {word for word in arguments if word.startswith("--")}
        assert options <= set(re.findall(r"--[a-z]+", capsys.readouterr().out)), arguments


def test_commands_in_the_text_exist_too(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["--help"])
    known = set(re.findall(r"^ +(\w+) ", capsys.readouterr().out, re.MULTILINE))
    named = set(re.findall(rf"`{PROGRAM} (\w+)", DOCUMENT))
    assert {"check", "pair"} <= named <= known


def test_every_setting_of_the_document_exists() -> None:
    named = set(re.findall(r"\b([A-Z]+__[A-Z_]+[A-Z])\b", DOCUMENT))
    assert len(named) >= 15
    assert named <= setting_names()


def test_every_value_of_the_document_is_taken() -> None:
    values = dict(re.findall(r"`([A-Z]+__[A-Z_]+)=([^`]+)`", DOCUMENT))
    assert values == {"ACCESS__NOTE_TO_SELF": "true"}
    urls = ["spawn:", "unix:/path/to/socket", "tcp://host:8080", "http://host:8080"]
    for url in urls:
        assert url.replace("8080", "port") in DOCUMENT
        load_settings({"signal": {"url": url, "phone_number": "+4915112345678"}})
    for policy in ("pairing", "allowlist", "open"):
        assert f"- `{policy}`" in DOCUMENT
        load_settings({"signal": {"phone_number": "+4915112345678"}, "access": {"policy": policy}})
    for trust in ("tofu", "always", "verified"):
        assert f"- `{trust}`" in DOCUMENT
        load_settings({"signal": {"phone_number": "+4915112345678", "trust": trust}})


def test_every_command_in_the_chat_exists() -> None:
    named = set(re.findall(r"`!([a-z]+)", DOCUMENT))
    assert {"help", "pair", "verify"} <= named <= {command.name for command in COMMANDS}


def test_what_signal_may_answer_is_what_the_program_says() -> None:
    section = DOCUMENT.split("| it says | do |")[1].split("\n\n")[0]
    shown = re.findall(r"^\| ([A-Zs].*?) \|", section, re.MULTILINE)
    said = [
        *Reason,
        str(registration_error("Rate limit reached")),
        str(registration_error(OFFLINE)),
    ]
    assert len(shown) == 7
    for words in shown:
        assert any(sentence.startswith(words) for sentence in said), words
    assert isinstance(registration_error(OFFLINE), SignalUnavailable)


def test_where_the_socket_is_is_told_as_it_is() -> None:
    assert f"`{SOCKET_NAME}`" in DOCUMENT
    assert f"at most\n{SOCKET_PATH_BYTES} bytes" in DOCUMENT
