"""Notifications to systemd, also if it does not listen."""

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from bot.observability.systemd import STATUS_CHARACTERS, service_manager
from tests.fakes.notify_socket import notify_socket

SOON_SECONDS: Final = 30.0
SHORT_MICROSECONDS: Final = "30000"
MANY: Final = 2_000
"""More datagrams than a socket holds."""


async def test_start_reload_and_end_are_reported_in_order(tmp_path: Path) -> None:
    async with notify_socket(tmp_path / "notify") as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address})
        before = time.monotonic_ns() // 1000
        manager.ready()
        manager.reloading()
        manager.ready()
        manager.stopping()
        await systemd.line("STOPPING=1")
        ready, reloading, since, again, stopping = systemd.lines
        assert (ready, reloading, again, stopping) == (
            "READY=1", "RELOADING=1", "READY=1", "STOPPING=1",
        )  # fmt: skip
        name, _, microseconds = since.partition("=")
        assert name == "MONOTONIC_USEC"
        assert before <= int(microseconds) <= time.monotonic_ns() // 1000


async def test_a_status_is_one_line_of_bounded_length(tmp_path: Path) -> None:
    async with notify_socket(tmp_path / "notify") as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address})
        manager.status("Connected to Signal;\nREADY=1\r\n\x0b 3 answers \ud800 in progress. 👀")
        manager.status("long " * 10_000)
        await systemd.until(lambda: len(systemd.said) == 2)
        short, long = systemd.lines
        assert short == "STATUS=Connected to Signal; READY=1 3 answers ? in progress. 👀"
        assert len(long) == len("STATUS=") + STATUS_CHARACTERS


async def test_lines_that_a_full_socket_refuses_go_with_the_next_ones(tmp_path: Path) -> None:
    async with notify_socket(tmp_path / "notify", deaf=True) as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address})
        for _ in range(MANY):
            manager.status("Not connected.")
        manager.reloading()
        manager.ready()
        manager.status("Connected.")
        systemd.take()
        heard = len(systemd.said)
        assert heard < MANY
        assert "READY=1" not in systemd.lines

        manager.status("Connected to Signal.")
        systemd.take()
        (said,) = systemd.said[heard:]
        assert set(said) == {"READY=1", "STATUS=Connected to Signal."}
        manager.status("Connected to Signal.")
        systemd.take()
        assert systemd.said[-1] == ["STATUS=Connected to Signal."]


# Watchdog -----------------------------------------------------------------------------------------


@asynccontextmanager
async def watched(environment: dict[str, str], is_alive: Callable[[], bool]) -> AsyncIterator[None]:
    async with asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(service_manager(environment).watch(is_alive))
        yield
        watching.cancel()


async def test_the_watchdog_is_fed_three_times_within_its_time_out(tmp_path: Path) -> None:
    async with notify_socket(tmp_path / "notify") as systemd:
        variables = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": "3000000"}
        started = time.monotonic()
        async with watched({**variables, "WATCHDOG_PID": str(os.getpid())}, lambda: True):
            await systemd.line("WATCHDOG=1", times=2)
        assert 0.9 < time.monotonic() - started < 3.0


async def test_watchdog_is_fed_only_while_the_bot_is_alive(tmp_path: Path) -> None:
    asked = 0

    def is_alive() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    async with notify_socket(tmp_path / "notify") as systemd:
        variables = {"NOTIFY_SOCKET": systemd.address, "WATCHDOG_USEC": SHORT_MICROSECONDS}
        with capture_logs() as logged:
            async with watched(variables, is_alive):
                await systemd.line("WATCHDOG=1")
        assert asked > 5
        assert [one["event"] for one in logged] == ["systemd.watchdog_unfed"]


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "-1"},
        {"WATCHDOG_USEC": SHORT_MICROSECONDS, "WATCHDOG_PID": "1"},
    ],
)
async def test_without_a_watchdog_of_ours_there_is_nothing_to_do(
    variables: dict[str, str], tmp_path: Path
) -> None:
    async with notify_socket(tmp_path / "notify", deaf=True) as systemd:
        manager = service_manager({"NOTIFY_SOCKET": systemd.address, **variables})
        async with asyncio.timeout(SOON_SECONDS):
            await manager.watch(lambda: True)
        systemd.take()
        assert systemd.said == []


def test_service_variables_are_removed_so_that_no_child_inherits_them() -> None:
    environment = {
        "NOTIFY_SOCKET": "/run/systemd/notify",
        "WATCHDOG_USEC": SHORT_MICROSECONDS,
        "WATCHDOG_PID": str(os.getpid()),
        "PATH": "/usr/bin",
    }
    service_manager(environment)
    assert environment == {"PATH": "/usr/bin"}
