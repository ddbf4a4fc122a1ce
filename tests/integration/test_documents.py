"""README, CONTRIBUTING and docs are true: their commands, settings, files and links exist."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from bot.cli.main import main
from bot.commands.catalog import COMMANDS
from bot.config.loading import setting_names
from bot.config.settings import Settings

ROOT: Final = Path(__file__).parents[2]
PROGRAM: Final = "signal-tee-bot"
DOCS: Final = sorted(f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md"))
PAGES: Final = ("README.md", "CONTRIBUTING.md", *DOCS)
HERE: Final = f"https://github.com/{PROGRAM}/{PROGRAM}/blob/main/"
CHOSEN: Final = re.compile(r"(?<=__(?:SERVERS|FOLDERS)__)[A-Z]+|(?<=__MODELS__)[A-Z]+")
"""A name that an operator has given to a server, a model or a folder."""
GONE: Final = {"TOOLS__COMMANDS__NETWORK"}
"""Settings that a page names because they no longer exist."""
EXAMPLES: Final = {"tools/dice.py", "tools/word_counter.py", "tools/qr.py"}
"""Files that a page shows how to write."""


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def typed_lines(text: str) -> list[str]:
    """Return the shell commands of a page, without comments; join continued lines."""
    shells = re.findall(r"```sh\n(.*?) *```", text, re.DOTALL)
    lines = [line for shell in shells for line in re.sub(r"\\\n *", "", shell).splitlines()]
    return [re.sub(r"(^| +)#.*", "", line).strip() for line in lines]


def calls(text: str) -> Iterator[list[str]]:
    """Yield every call of the program, in blocks and in sentences, without its name."""
    call = rf"`(?:\.venv/bin/)?((?:{PROGRAM}|docker compose) [^`]+)`"
    for line in (*typed_lines(text), *re.findall(call, " ".join(text.split()))):
        words = shlex.split(line.removesuffix("…"))
        if words[:2] == ["docker", "compose"] and words[2:3] in (["run"], ["exec"]):
            words = words[words.index("bot") + 1 :]
            words = words if words[:1] == [PROGRAM] else [PROGRAM, *words]
        if len(words) > 1 and words[0].removeprefix(".venv/bin/") == PROGRAM:
            yield words[1:]


def headings(text: str) -> set[str]:
    """Return the headings of a page as GitHub links to them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_program_accepts_every_call_on_a_page(
    page: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in calls(text_of(page)):
        with pytest.raises(SystemExit) as left:
            main([*arguments, "--help"])
        assert left.value.code == 0, arguments
        options = {word for word in arguments if re.fullmatch(r"--[a-z-]+", word)}
        known = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
        assert options <= known | {"--version", "--help"}, arguments


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_of_a_page_exists(page: str) -> None:
    text = text_of(page)
    names = set(re.findall(r"\b([A-Z0-9]+__[A-Z0-9_]+[A-Z])\b", text))
    assert {CHOSEN.sub("NAME", name) for name in names} - GONE <= setting_names()
    sections = {name.lower() for name in re.findall(r"\b([A-Z]+)__\*", text)}
    assert sections <= Settings.model_fields.keys()


@pytest.mark.parametrize("page", PAGES)
def test_every_command_in_the_chat_exists(page: str) -> None:
    named = set(re.findall(r"`!([a-z]+)", text_of(page)))
    assert named <= {command.name for command in COMMANDS}


@pytest.mark.parametrize("page", [*PAGES, "deploy/CHECKLIST.md"])
def test_every_file_and_heading_named_on_a_page_exists(page: str) -> None:
    text = text_of(page)
    for name in re.findall(r"(?<![\w/-])(?:deploy|bot|tools)/[\w./*-]*\w", text):
        assert list(ROOT.glob(name)) or name in EXAMPLES, name
    for name in re.findall(r"\[([\w./#]+\.md[\w#-]*)\](?![(:])", text):
        assert f"\n[{name}]: " in text, name
    for link in re.findall(r"\]\(([^)\s]+)\)|^\[[^\]]+\]: (\S+)", text, re.MULTILINE):
        address = "".join(link)
        if address.startswith(HERE):
            file = ROOT / address.removeprefix(HERE).partition("#")[0]
        elif "://" in address:
            continue
        else:
            file = (ROOT / page).parent / address.partition("#")[0]
            file = file if address.partition("#")[0] else ROOT / page
        assert file.exists(), address
        heading = address.partition("#")[2]
        assert not heading or heading in headings(file.read_text()), address
