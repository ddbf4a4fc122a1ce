"""`signal-tee-bot ready` next to the whole bot, as in a container's health check."""

import tempfile
from pathlib import Path

from bot.signal.trouble import AccountTrouble
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.running_bot import world
from tests.e2e.scraped import ANY_PORT, bot_with_health
from tests.fakes.registering import RegisteringSignalCli


async def test_ready_tells_by_its_exit_code_whether_the_bot_is_well() -> None:
    async with world() as here:
        async with bot_with_health(here.settings(health={"listen": ANY_PORT})) as port:
            settings = environment(here, HEALTH__LISTEN=f"127.0.0.1:{port}")
            code, out, _ = await run_command(["ready"], settings, folder=here.folder)
            assert (code, out.splitlines()[1]) == (0, "ok       signal           Connected.")
            await here.signal.go_away()
            code, out, _ = await run_command(["ready"], settings, folder=here.folder)
            assert (code, out.splitlines()[1][:23]) == (1, "failed   signal        ")
        code, _, err = await run_command(["ready"], settings, folder=here.folder)
        assert (code, err.count("\n")) == (1, 1)


async def test_an_account_that_is_not_registered_is_one_line_in_the_log_and_in_ready() -> None:
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        folder = Path(name)
        async with world() as here, RegisteringSignalCli.open(folder / "socket") as signal:
            settings = environment(here, SIGNAL__URL=signal.url, HEALTH__LISTEN=ANY_PORT)
            async with daemon(settings, folder=folder) as bot:
                port = await bot.port()
                said = await bot.event("signal.account_trouble")
                assert said["level"] == "error"
                assert said["reason"] == AccountTrouble.ABSENT
                listen = {**settings, "HEALTH__LISTEN": f"127.0.0.1:{port}"}
                code, out, _ = await run_command(["ready"], listen, folder=folder)
                assert (code, f"signal           {AccountTrouble.ABSENT}" in out) == (1, True)
                assert not bot.events("signal.subscription_refused")
                assert not bot.events("signal.own_identity_unknown")
