"""A signal-cli that the bot installs: `signal-tee-bot signal-cli`, `setup` and `spawn:`."""

import io
import os
import stat
import tarfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bot.cli.console import Console
from bot.cli.signal_cli import install_signal_cli, update_signal_cli
from bot.config.settings import Settings
from bot.errors import BotError
from bot.signal.installation import chosen_in, home_of, program_in
from bot.signal.releases import RELEASES, Release, age_days, newest_for
from bot.signal.spawned import found_program, socket_path
from tests.e2e.daemon_process import daemon, environment, run_command
from tests.e2e.disks import CannotMount, memory_disk
from tests.e2e.running_bot import World, world
from tests.fakes.release_page import ReleasePage, archive_of, damaged
from tests.fakes.signal_cli_program import install, starts, texts_sent
from tests.integration.test_spawned import alive, until

OLD: Final = "0.14.1"
NEW: Final = "0.14.2"


@asynccontextmanager
async def place() -> AsyncIterator[tuple[World, ReleasePage]]:
    async with world() as here, ReleasePage.open() as page:
        yield here, page


def spawning(here: World) -> Settings:
    return here.settings(signal={"url": "spawn:"})


async def installed(here: World, page: ReleasePage, release: Release) -> str:
    screen = io.StringIO()
    await install_signal_cli(
        spawning(here), Console(screen=screen), source=page.url, releases=(release,)
    )
    return screen.getvalue()


@pytest.mark.parametrize("top", ["", f"signal-cli-{NEW}/bin/"], ids=["native", "java"])
async def test_an_installed_signal_cli_goes_before_the_one_on_the_path(top: str) -> None:
    async with place() as (here, page):
        archive = archive_of(NEW, here.folder / "new", top=top)
        said = await installed(here, page, page.publish(archive, NEW))
        assert f"Installed: signal-cli {NEW}" in said
        program = program_in(home_of(here.folder / "store.db"))
        assert program is not None
        assert found_program(home_of(here.folder / "store.db")) == str(program)
        assert stat.S_IMODE(program.stat().st_mode) == 0o700
        programs = install(here.folder / "path")
        settings = environment(here, SIGNAL__URL="spawn:", PATH=f"{programs}:{os.environ['PATH']}")
        async with daemon(settings, folder=here.folder):
            await until(lambda: texts_sent(here.folder / "new"))
        assert not starts(programs)
        again = await installed(here, page, page.publish(archive, NEW))
        assert "is installed" in again


def cut(page: ReleasePage, release: Release) -> Release:
    page.cut_after = 300
    return release


def in_circles(page: ReleasePage, release: Release) -> Release:
    page.in_circles = True
    return release


def gone(page: ReleasePage, release: Release) -> Release:
    page.archives.clear()
    return release


def swapped(page: ReleasePage, release: Release) -> Release:
    name = release.builds[0].name
    page.archives[name] = page.archives[name][:-1] + b"!"
    return release


def resized(_: ReleasePage, release: Release) -> Release:
    return replace(release, builds=(replace(release.builds[0], size=1),))


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (cut, "The download broke off after 300 bytes"),
        (in_circles, "redirects in circles"),
        (gone, "status 404"),
        (swapped, "its SHA-256 is"),
        (lambda _, release: damaged(release), "Nothing was installed"),
        (resized, "Nothing was installed"),
    ],
    ids=["cut", "in circles", "gone", "another file", "another hash", "another size"],
)
async def test_only_the_archive_of_the_table_is_installed(
    spoil: Callable[[ReleasePage, Release], Release], said: str
) -> None:
    async with place() as (here, page):
        release = page.publish(archive_of(NEW, here.folder / "new"), NEW)
        with pytest.raises(BotError, match=said):
            await installed(here, page, spoil(page, release))
        home = home_of(here.folder / "store.db")
        assert not list(home.iterdir())
        assert not starts(here.folder / "new")


async def test_a_download_without_a_server_says_why_in_words() -> None:
    async with place() as (here, page):
        release = page.publish(archive_of(NEW, here.folder / "new"), NEW)
        await page.stop()
        with pytest.raises(
            BotError, match=r"cannot be downloaded. It refuses connections\..*--from"
        ):
            await installed(here, page, release)


async def test_an_archive_cannot_write_outside_of_its_folder() -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.addfile(tarfile.TarInfo("../../../evil"))
    async with place() as (here, page):
        with pytest.raises(BotError, match="outside of its own folder"):
            await installed(here, page, page.publish(packed.getvalue(), NEW))
        assert not list(here.folder.rglob("evil"))


async def test_a_full_disk_leaves_nothing_and_says_so() -> None:
    async with place() as (here, page):
        release = page.publish(archive_of(NEW, here.folder / "new"), NEW)
        try:
            with memory_disk(here.folder / "disk", 64 * 1024) as disk:
                settings = here.settings(store={"path": disk.folder / "store.db"})
                disk.fill()
                with pytest.raises(BotError, match=r"disk/signal-cli: No space left on device"):
                    await install_signal_cli(
                        settings,
                        Console(screen=io.StringIO()),
                        source=page.url,
                        releases=(release,),
                    )
                assert program_in(home_of(settings.store.path)) is None
        except CannotMount as reason:
            pytest.skip(str(reason))


async def test_an_update_takes_effect_while_the_bot_runs_and_loses_no_answer() -> None:
    async with place() as (here, page):
        old = page.publish(archive_of(OLD, here.folder / "old"), OLD)
        await installed(here, page, old)
        screen = io.StringIO()
        async with daemon(environment(here, SIGNAL__URL="spawn:"), folder=here.folder):
            await until(lambda: texts_sent(here.folder / "old"))
            new = page.publish(archive_of(NEW, here.folder / "new"), NEW)
            await update_signal_cli(
                spawning(here), Console(screen=screen), source=page.url, releases=(new, old)
            )
            await until(lambda: texts_sent(here.folder / "new"))
        assert f"signal-cli {NEW} answers." in screen.getvalue()
        assert not any(alive(start["pid"]) for start in starts(here.folder / "old"))
        assert len(texts_sent(here.folder / "old")) == len(texts_sent(here.folder / "new")) == 1


@pytest.mark.parametrize(
    ("flaw", "is_running"), [("--broken", True), ("--broken", False), ("--deaf", False)]
)
async def test_a_version_that_does_not_come_up_gives_way_to_the_one_before(
    flaw: str, is_running: bool
) -> None:
    async with place() as (here, page):
        old = page.publish(archive_of(OLD, here.folder / "old"), OLD)
        await installed(here, page, old)
        new = page.publish(archive_of(NEW, here.folder / "new", flaw), NEW)
        settings = spawning(here)

        async def update() -> None:
            with pytest.raises(BotError, match=rf"{NEW} does not come up: .* {OLD} again"):
                await update_signal_cli(
                    settings,
                    Console(screen=io.StringIO()),
                    source=page.url,
                    releases=(new, old),
                    up_seconds=4.0,
                )

        if is_running:
            async with daemon(environment(here, SIGNAL__URL="spawn:"), folder=here.folder):
                await until(lambda: texts_sent(here.folder / "old"))
                await update()
                await until(lambda: len(starts(here.folder / "old")) > 1)
        else:
            await update()
        assert starts(here.folder / "new")
        home = home_of(settings.store.path)
        assert chosen_in(home) == OLD
        assert sorted(path.name for path in home.iterdir()) == [OLD, "current"]
        assert not socket_path(settings.store.path).exists() or is_running


async def test_a_file_from_elsewhere_is_checked_as_a_download_is(tmp_path: Path) -> None:
    file = tmp_path / "archive.tar.gz"
    file.write_bytes(b"not signal-cli")
    settings = {"STORE__PATH": str(tmp_path / "store.db"), "SIGNAL__URL": "spawn:"}
    code, _, said = await run_command(
        ("signal-cli", "install", "--from", str(file)), settings, folder=tmp_path
    )
    assert code == 1
    assert "Nothing was installed" in said
    async with place() as (here, page):
        release = page.publish(archive_of(NEW, here.folder / "new"), NEW)
        file.write_bytes(page.archives[release.builds[0].name])
        await install_signal_cli(
            spawning(here), Console(screen=io.StringIO()), source=str(file), releases=(release,)
        )
        assert chosen_in(home_of(here.folder / "store.db")) == NEW


def test_the_table_has_the_newest_first_and_a_build_for_each_machine() -> None:
    dates = [release.date for release in RELEASES]
    assert dates == sorted(dates, reverse=True)
    release, native = newest_for("x86_64", None)
    assert (native.name, native.needs_java) == (
        f"signal-cli-{release.version}-Linux-native.tar.gz",
        False,
    )
    release, java = newest_for("aarch64", 25)
    assert (java.name, java.needs_java) == (f"signal-cli-{release.version}.tar.gz", True)
    with pytest.raises(BotError, match="needs Java 25 here, and this machine has Java 21"):
        newest_for("aarch64", 21)


def test_the_age_of_a_version_is_that_of_its_release() -> None:
    today = RELEASES[-1].date
    assert age_days(f"signal-cli {RELEASES[-1].version}", today) == 0
    assert age_days("signal-cli 0.13.19", today.replace(year=2030)) > 1_000  # type: ignore[operator]
    assert age_days("signal-cli 99.1.2", today) is None
