"""The registration lock of the bot's number: `SIGNAL__REGISTRATION_LOCK`."""

import re
from functools import partial
from typing import Final

import pytest
from structlog.testing import capture_logs

from bot.config.settings import Settings
from bot.errors import SettingsError
from tests.e2e.daemon_process import environment, run_command
from tests.e2e.running_bot import World, killed_bot, running_bot, world
from tests.e2e.terminal import at_a_terminal
from tests.e2e.test_account_life import is_logged, often
from tests.e2e.test_reminders import Wall
from tests.fakes.registering import CODE, RegisteringSignalCli
from tests.fakes.signal_side import BOT
from tests.integration.test_spawned import until

__all__ = ["often"]

KEY: Final = "k" * 32


def locking(here: World, *, lock: bool = True, key: str | None = KEY) -> Settings:
    return here.settings(signal={"registration_lock": lock}, store={"key": key})


async def locked(here: World, times: int) -> str:
    """Wait until Signal has the PIN so many times; return it."""
    await here.signal.until(lambda: len(here.signal.pins) >= times)
    (pin,) = set(here.signal.pins)
    assert pin is not None
    assert re.fullmatch(r"\d{20}", pin)
    return pin


async def test_a_lock_is_set_once_and_renewed_before_it_lapses_also_after_a_kill() -> None:
    wall = Wall()
    async with world() as here:
        with capture_logs() as log:
            async with killed_bot(locking(here), clock=wall):
                pin = await locked(here, 1)
                await until(partial(is_logged, log, "registration_lock.set", 1))
                wall.pass_by(days=2)
                await here.asked("hello")
                assert len(here.signal.pins) == 1
                wall.pass_by(days=1, hours=1)
                assert await locked(here, 2) == pin
            async with killed_bot(locking(here), clock=wall):
                wall.pass_by(days=4)
                assert await locked(here, 3) == pin
        assert pin not in str(log)
        settings = environment(here, STORE__KEY=KEY)
        command = ("signal-cli", "pin")
        assert await run_command(command, settings, folder=here.folder) == (0, f"{pin}\n", "")
        async with running_bot(locking(here, lock=False), clock=wall):
            await here.signal.until(lambda: here.signal.pins[-1] is None)
        async with running_bot(
            locking(here), clock=wall
        ):  # a new lock, although little time passed
            await here.signal.until(lambda: here.signal.pins[-1] is not None)
        with capture_logs() as log:
            async with running_bot(locking(here, lock=False), clock=wall):
                await until(partial(is_logged, log, "registration_lock.removed", 1))
        assert here.signal.pins[-1] is None
        code, _, err = await run_command(command, settings, folder=here.folder)
        assert (code, "There is no PIN" in err) == (1, True)


async def test_a_linked_device_sets_no_lock_and_says_so_once() -> None:
    async with world() as here:
        here.signal.is_linked = True
        with capture_logs() as log:
            async with running_bot(locking(here)):
                await until(partial(is_logged, log, "registration_lock.refused", 1))
                await here.asked("hello")
        assert is_logged(log, "registration_lock.refused", 1)
        assert here.signal.pins == []


async def test_the_pin_of_a_lock_survives_a_refused_renewal() -> None:
    wall = Wall()
    async with world() as here:
        with capture_logs() as log:
            async with running_bot(locking(here), clock=wall):
                pin = await locked(here, 1)
                await until(partial(is_logged, log, "registration_lock.set", 1))
                here.signal.is_linked = True
                wall.pass_by(days=4)
                await until(lambda: any(one["event"] == "registration_lock.refused" for one in log))
        settings = environment(here, STORE__KEY=KEY)
        code, shown, _ = await run_command(("signal-cli", "pin"), settings, folder=here.folder)
        assert (code, shown) == (0, f"{pin}\n")


async def test_a_lock_needs_an_encrypted_store() -> None:
    async with world() as here:
        with pytest.raises(SettingsError, match="SIGNAL__REGISTRATION_LOCK: needs STORE__KEY"):
            locking(here, key=None).locks_registration(in_tee=False)
        unset = here.settings(store={"key": KEY})
        assert unset.locks_registration(in_tee=True)
        assert not unset.locks_registration(in_tee=False)
        assert not here.settings().locks_registration(in_tee=True)


async def test_register_uses_the_pin_of_the_bot_s_own_lock() -> None:
    async with world() as here:
        async with running_bot(locking(here)):
            pin = await locked(here, 1)
        async with RegisteringSignalCli.open(here.folder / "registering") as side:
            side.registrar.pin = pin
            side.registrar.wants_pin = True
            (here.folder / ".env").write_text(f"STORE__KEY={KEY}\n")
            async with at_a_terminal(
                "register", BOT.number, url=side.url, folder=here.folder
            ) as terminal:
                await terminal.answers("The code:", CODE)
                await terminal.reads(f"Registered: {BOT.number}.")
                assert await terminal.exit_code() == 0
            assert "The PIN:" not in terminal.shown
            assert pin not in terminal.shown
