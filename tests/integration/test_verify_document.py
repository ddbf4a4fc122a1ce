"""docs/VERIFY.md does what it says: its commands are run, and its lines are those of the table."""

import json
import os
import re
import shlex
import shutil
import sys
from argparse import Namespace
from itertools import pairwise
from pathlib import Path
from typing import Final

import pytest

from bot.attestation.bundle import Bundle
from bot.attestation.report import LABELS, PARTS
from bot.cli.verify import verify
from scripts.release import COMPOSE_FILE
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.pccs import pccs
from tests.fakes.soft_bundle import soft_bundle, soft_release
from tests.fakes.soft_tdx import SoftTdx
from tests.fakes.some_pins import SOME_PINS_TEXT
from tests.fixtures_attestation import CLOCK
from tests.processes import run_process

ROOT: Final = Path(__file__).parents[2]
DOCUMENT: Final = (ROOT / "docs" / "VERIFY.md").read_text()
PROGRAM: Final = "signal-tee-bot"
BUNDLE: Final = "signal-tee-bot-proof.json"


def commands() -> list[list[str]]:
    """The document's calls of the program, without its name."""
    shells = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    lines = (line for shell in shells for line in shell.replace("\\\n", " ").splitlines())
    words = (shlex.split(line, comments=True) for line in lines)
    return [arguments[1:] for arguments in words if arguments[:2] == [PROGRAM, "verify"]]


def rows() -> dict[str, str]:
    """Return the document's words for each line of the table, by the name of the check."""
    found = re.findall(r"^\| (.*?) ?\(`([a-z_]+)`\) \|", DOCUMENT, re.MULTILINE)
    assert len({name for _, name in found}) == len(found)
    return {name: words for words, name in found}


def challenge() -> str:
    """Return the words that the document tells its reader to send."""
    [words] = re.findall(r"^> !verify (.+)$", DOCUMENT, re.MULTILINE)
    return str(words)


def request(arguments: list[str], folder: Path, pccs_url: str) -> Namespace:
    """Return the parsed arguments of a command."""
    options = dict(pairwise(arguments))
    return Namespace(
        bundle=folder / arguments[1],
        challenge=options["--challenge"],
        safety_number=options.get("--safety-number"),
        release=folder / options["--release"] if "--release" in options else None,
        collateral=[folder / options["--collateral"]] if "--collateral" in options else [],
        keep_collateral=Path(options["--keep-collateral"])
        if "--keep-collateral" in options
        else None,
        pccs=pccs_url,
        json="--json" in arguments,
    )


class Laptop:
    """A folder with the files that the document speaks of, and a machine that they are about."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.platform = SoftTdx(now=CLOCK)
        self.agent = SoftAgent(self.platform)
        self.save(soft_bundle(self.platform, self.agent, challenge()))
        (folder / "release.json").write_text(json.dumps(soft_release(self.agent)))
        (folder / "collateral.json").write_text(self.platform.collateral)

    def save(self, bundle: Bundle) -> None:
        (self.folder / BUNDLE).write_bytes(bundle.to_json())

    async def run(self, arguments: list[str]) -> bool:
        async with pccs(self.platform.collateral) as service:
            return await verify(
                request(arguments, self.folder, service.url("")),
                trust=self.platform.trust,
                clock=lambda: CLOCK,
            )


@pytest.fixture
def laptop(tmp_path: Path) -> Laptop:
    return Laptop(tmp_path)


async def test_every_command_of_the_document_ends_well_for_a_good_bot(
    laptop: Laptop, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(commands()) == 3
    for arguments in commands():
        assert await laptop.run(arguments), capsys.readouterr().out
        printed = capsys.readouterr().out
        assert "Everything you asked for holds" in printed
        if "--release" in arguments:
            [shown] = re.findall(r"```text\n(.*?)```", DOCUMENT, re.DOTALL)
            assert set(shown.splitlines()) <= set(printed.splitlines())


# A release


def publishing() -> list[str]:
    """The document's commands for a release: with dstack's tool, and with a cloud's."""
    shells = re.findall(r"```sh\n(.*?)```", DOCUMENT, re.DOTALL)
    [command] = [shell for shell in shells if shell.startswith("python -m scripts.release ")]
    [option] = re.findall(r"`(--app-compose \S+)`", DOCUMENT)
    of_the_cloud = command.replace("release-1.2.0", "release-1.2.0-cloud").rstrip()
    return [command, f"{of_the_cloud} {option}\n"]


@pytest.fixture
def source(laptop: Laptop) -> Path:
    """Folder with the source's compose file and the publisher's other inputs."""
    folder = laptop.folder / "source"
    (folder / "deploy").mkdir(parents=True)
    shutil.copy(ROOT / COMPOSE_FILE, folder / COMPOSE_FILE)
    for name, digit in (("signal-tee-bot", "a"), ("signal-cli", "b")):
        (folder / f"{name}.image").write_text(f"example/{name}@sha256:{digit * 64}\n")
    registers = zip(("rtmr0", "rtmr1", "rtmr2"), laptop.agent.rtmrs()[:3], strict=True)
    measured = {"mrtd": laptop.agent.mr_td, **dict(registers)}
    (folder / "measured.json").write_text(
        json.dumps({name: value.hex() for name, value in measured.items()})
    )
    (folder / "model-pins.json").write_text(SOME_PINS_TEXT)
    (folder / "kms.id").write_text(json.loads(laptop.agent.key_provider_info)["id"])
    return folder


async def test_a_release_that_is_made_by_the_document_proves_a_bot_by_the_document(
    laptop: Laptop, source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    search = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
    }
    for command in publishing():
        _, *ended = await run_process("sh", "-c", command, folder=source, environment=search)
        assert ended == ["", 0]
        app_compose = json.loads((source / "release-1.2.0" / "app-compose.json").read_text())
        elsewhere = source / "app-compose-of-the-cloud.json"
        elsewhere.write_text(json.dumps(app_compose, sort_keys=True))
    [with_release] = [one for one in commands() if "--release" in one]
    for folder in ("release-1.2.0", "release-1.2.0-cloud"):
        agent = SoftAgent(laptop.platform, (source / folder / "app-compose.json").read_text())
        assert agent.compose_hash.hex() in (source / folder / "release.json").read_text()
        laptop.save(soft_bundle(laptop.platform, agent, challenge()))
        shutil.copy(source / folder / "release.json", laptop.folder)
        assert await laptop.run(with_release), capsys.readouterr().out
        assert "Everything you asked for holds" in capsys.readouterr().out


# The table


def test_every_line_is_explained_under_the_words_that_the_table_shows() -> None:
    assert rows() == LABELS
    plain = " ".join(DOCUMENT.split())
    for part in PARTS.values():
        assert f"*{part}*" in plain
