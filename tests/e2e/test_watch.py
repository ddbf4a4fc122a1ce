"""`signal-tee-bot watch`: a second account asks a bot for its proof, again and again."""

import asyncio
import json
import os
from argparse import Namespace
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import pytest

from bot.attestation.bundle import Statement
from bot.attestation.report import FILE_NAME
from bot.cli import watch as module
from bot.cli.exit_codes import CHANGED, FAILED, OK
from bot.cli.watch import watch
from bot.errors import SettingsError
from bot.signal.events import Person
from bot.signal.frames import Account
from tests.fakes.dstack_agent import SoftAgent
from tests.fakes.signal_people import SharedFile
from tests.fakes.signal_side import Sent, SignalSide
from tests.fakes.soft_bundle import (
    CHALLENGE,
    OTHER_SAFETY_NUMBER,
    SAFETY_NUMBER,
    STATEMENT,
    soft_bundle,
    soft_release,
)
from tests.fakes.soft_tdx import SoftTdx
from tests.fixtures_attestation import CLOCK
from tests.integration.test_spawned import alive

PLATFORM: Final = SoftTdx(now=CLOCK)
AGENT: Final = SoftAgent(PLATFORM)
WATCHER: Final = Account("+4915199999999", "0f0e0d0c-0000-4000-8000-000000000002")
BOT: Final = Person(aci=STATEMENT.aci, number="+4915100000001", name="the bot")


@dataclass
class ProvingBot:
    """The bot as the second account sees it.

    Attributes:
        statement: of its proofs.
        challenge: answers another challenge than the one it got.
    """

    side: SignalSide
    folder: Path
    statement: Statement = STATEMENT
    challenge: str | None = None

    async def answer(self, sent: Sent) -> None:
        assert sent.chat.value == BOT.number
        command, _, challenge = sent.text.partition(" ")
        assert command == "!verify"
        bundle = soft_bundle(PLATFORM, AGENT, self.challenge or challenge, statement=self.statement)
        await self.side.say("Wait, please.", author=BOT)
        file = SharedFile("application/json", bundle.to_json(), FILE_NAME)
        await self.side.say("Here it is.", author=BOT, files=[file])

    def request(self, **changes: Any) -> Namespace:
        return Namespace(
            **{
                "number": BOT.number,
                "account": WATCHER.number,
                "signal": f"unix:{self.side.path}",
                "every": None,
                "state": self.folder / "state.json",
                "bundle": None,
                "challenge": None,
                "safety_number": None,
                "release": self.folder / "release.json",
                "collateral": [self.folder / "collateral.json"],
                "pccs": "http://127.0.0.1:1",
                **changes,
            }
        )

    async def watched(self, **changes: Any) -> int:
        return await watch(self.request(**changes), trust=PLATFORM.trust, clock=lambda: CLOCK)


@asynccontextmanager
async def proving_bot(folder: Path) -> AsyncIterator[ProvingBot]:
    (folder / "release.json").write_text(json.dumps(soft_release(AGENT)))
    (folder / "collateral.json").write_text(PLATFORM.collateral)
    async with SignalSide.listen(folder / "signal.sock", account=WATCHER) as side:
        bot = ProvingBot(side, folder)
        side.on_send = bot.answer
        await side.say("hello", author=BOT)
        side.peers[BOT.aci].safety_number = SAFETY_NUMBER.replace(" ", "")
        yield bot


async def test_each_change_is_reported_once_with_an_exit_code_for_cron(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proving_bot(tmp_path) as bot:
        assert await bot.watched() == OK
        assert "the first proof is kept" in capsys.readouterr().out
        assert await bot.watched() == OK
        assert "Proven: as before." in capsys.readouterr().out
        state = json.loads((tmp_path / "state.json").read_text())
        state |= {"instance_id": "00ff", "commit": "0000000"}
        (tmp_path / "state.json").write_text(json.dumps(state))
        assert await bot.watched() == CHANGED
        said = capsys.readouterr().out
        assert "Changed: its machine: 00ff before, " in said
        assert "Changed: its source: 0000000 before, 0123abcd now" in said
        assert await bot.watched() == OK


async def test_an_old_proof_or_another_account_is_not_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with proving_bot(tmp_path) as bot:
        bot.challenge = "an old challenge"
        assert await bot.watched() == FAILED
        assert "Not proven." in capsys.readouterr().out
        bot.challenge = None
        bot.side.peers[BOT.aci].safety_number = OTHER_SAFETY_NUMBER.replace(" ", "")
        assert await bot.watched() == FAILED
        assert not (tmp_path / "state.json").exists()


async def test_a_bot_that_sends_no_proof_is_not_proven(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    async with proving_bot(tmp_path) as bot:
        bot.side.on_send = None
        assert await bot.watched() == FAILED
        assert "The bot sent no proof within 0.5 seconds." in capsys.readouterr().out


async def test_with_an_interval_it_asks_until_it_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(module.UNITS, "m", 0.05)
    async with proving_bot(tmp_path) as bot:
        watching = asyncio.create_task(bot.watched(every="1m"))
        await bot.side.until(lambda: len(bot.side.sent) >= 3)
        watching.cancel()
        assert len({sent.text for sent in bot.side.sent}) == len(bot.side.sent)


async def test_it_starts_and_ends_a_signal_cli_of_its_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("STORE__PATH", str(tmp_path / "store.db"))
    async with proving_bot(tmp_path) as bot:
        # Listens through a link to the socket of the fake.
        program = tmp_path / "signal-cli"
        program.write_text(
            f"#!/bin/sh\necho $$ > {tmp_path}/pid\n"
            f'for one; do [ "$last" = --socket ] && ln -s {bot.side.path} "$one"; last=$one; done\n'
            "exec tail -f /dev/null\n"
        )
        program.chmod(0o700)
        assert await bot.watched(signal="spawn:") == OK
        assert "Proven: the first proof is kept." in capsys.readouterr().out
        assert not alive(int((tmp_path / "pid").read_text()))
        program.write_text("#!/bin/sh\nexit 7\n")
        assert await bot.watched(signal="spawn:") == FAILED
        assert "exit code 7" in capsys.readouterr().out


async def test_given_bundles_are_compared_without_an_account(tmp_path: Path) -> None:
    async with proving_bot(tmp_path) as bot:
        file = tmp_path / "proof.json"
        file.write_bytes(soft_bundle(PLATFORM, AGENT).to_json())
        given = {"number": None, "account": None, "bundle": file, "challenge": CHALLENGE}
        assert await bot.watched(**given, safety_number=SAFETY_NUMBER) == OK
        changed = replace(STATEMENT, code=replace(STATEMENT.code, version="9.9.9"))
        file.write_bytes(soft_bundle(PLATFORM, AGENT, statement=changed).to_json())
        code = await bot.watched(**given, safety_number=SAFETY_NUMBER, release=None)
        assert code == CHANGED
        assert not bot.side.sent


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"every": "1 week"}, "--every: must be"),
        ({"number": None}, "NUMBER and --account: are required"),
        ({"bundle": Path("proof.json")}, "--challenge: is required"),
    ],
)
async def test_senseless_arguments_are_named(
    tmp_path: Path, changes: dict[str, Any], said: str
) -> None:
    async with proving_bot(tmp_path) as bot:
        with pytest.raises(SettingsError, match=said):
            await bot.watched(**changes)
