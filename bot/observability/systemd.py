"""Tells systemd how the bot is, by the datagrams of sd_notify(3).

Nothing here waits or raises. What the socket has no room for goes with the next datagram. Without
systemd, nothing is sent.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Final

import structlog

STATUS_CHARACTERS: Final = 200
FEEDS_PER_TIME_OUT: Final = 3
"""So that one late or lost sign of life does not end the bot."""

log = structlog.get_logger()


class ServiceManager:
    """systemd, as its service sees it. Made by `service_manager`.

    Args:
        address: of its socket, a path or `@` and an abstract name; None without systemd.
        watchdog_seconds: systemd ends a service that is silent for this long; None: it does not.
    """

    def __init__(self, address: str | None, watchdog_seconds: float | None) -> None:
        self._address = _socket_address(address) if address else None
        self._watchdog_seconds = watchdog_seconds
        self._untold: dict[str, str] = {}

    def ready(self) -> None:
        """Say that the start, or a reload, is complete."""
        self._tell(state="READY=1")

    def reloading(self) -> None:
        """Say that the settings are being reloaded; `ready` must follow."""
        self._tell(state=f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Say that the shutdown has begun."""
        self._tell(state="STOPPING=1")

    def status(self, message: str) -> None:
        """Say in one line how the service is, for `systemctl status`; longer text is cut."""
        self._tell(status=f"STATUS={' '.join(message.split())[:STATUS_CHARACTERS]}")

    async def watch(self, is_alive: Callable[[], bool]) -> None:
        """Feed the watchdog while `is_alive`; return at once without one.

        After its whole time-out without food it ends the bot with SIGABRT and starts it again.
        """
        if self._address is None or self._watchdog_seconds is None:
            return
        was_alive = True
        while True:
            alive = is_alive()
            if alive:
                self._tell(sign="WATCHDOG=1")
            elif was_alive:
                log.error("systemd.watchdog_unfed", seconds=self._watchdog_seconds)
            was_alive = alive
            await asyncio.sleep(self._watchdog_seconds / FEEDS_PER_TIME_OUT)

    def _tell(self, **lines: str) -> None:
        """Send lines; of those that are still unsent, only the last of each kind counts."""
        if self._address is None:
            return
        self._untold |= lines
        message = "\n".join(self._untold.values()).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
                out.sendto(message, self._address)
        except OSError as error:
            log.debug("systemd.untold", error=type(error).__name__)
        else:
            self._untold.clear()


def service_manager(environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
    """Return what started this process, and remove its variables, which no child may use.

    Sources: sd_notify(3), sd_watchdog_enabled(3).
    """
    address = environment.pop("NOTIFY_SOCKET", None)
    microseconds = environment.pop("WATCHDOG_USEC", "")
    watched = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    is_number = microseconds.isascii() and microseconds.isdecimal()
    seconds = int(microseconds) / 1_000_000 if watched and is_number else 0
    return ServiceManager(address, seconds or None)


def _socket_address(address: str) -> str | None:
    """Return the address for the socket module, where abstract names begin with a zero byte."""
    if address.startswith("@"):
        return "\0" + address[1:]
    return address if address.startswith("/") else None
