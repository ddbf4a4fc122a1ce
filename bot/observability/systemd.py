"""Notifications to systemd, by the datagrams of sd_notify(3).

Nothing here waits or raises. Lines that the socket has no room for go with the next datagram.
Without systemd, nothing is sent.
"""

import asyncio
import os
import socket
import time
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Final

import structlog

STATUS_CHARACTERS: Final = 200
FEEDS_PER_TIMEOUT: Final = 3
"""More than one, because a sign of life may be late or lost."""

log = structlog.get_logger()


@dataclass
class ServiceManager:
    """systemd, from the view of its service. Made by `service_manager`.

    Attributes:
        address: of its socket, as the socket module wants it; None without systemd.
        watchdog_seconds: systemd ends a service that is silent for this long; None: it does not.
    """

    address: str | None
    watchdog_seconds: float | None
    _unsent: dict[str, str] = field(default_factory=dict, init=False)

    def ready(self) -> None:
        """Report that the start, or a reload, is complete."""
        self._send(state="READY=1")

    def reloading(self) -> None:
        """Report that the settings are being reloaded; `ready` must follow."""
        self._send(state=f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Report that the shutdown has begun."""
        self._send(state="STOPPING=1")

    def status(self, message: str) -> None:
        """Set the line of `systemctl status`; longer text is cut."""
        self._send(status=f"STATUS={' '.join(message.split())[:STATUS_CHARACTERS]}")

    async def watch(self, is_alive: Callable[[], bool]) -> None:
        """Feed the watchdog while `is_alive`; return at once without one.

        After its whole time-out without food it ends the bot with SIGABRT and starts it again.
        """
        if self.address is None or self.watchdog_seconds is None:
            return
        was_alive = True
        while True:
            alive = is_alive()
            if alive:
                self._send(sign="WATCHDOG=1")
            elif was_alive:
                log.error("systemd.watchdog_unfed", seconds=self.watchdog_seconds)
            was_alive = alive
            await asyncio.sleep(self.watchdog_seconds / FEEDS_PER_TIMEOUT)

    def _send(self, **lines: str) -> None:
        """Send lines; of unsent ones, keep only the last of each kind."""
        if self.address is None:
            return
        self._unsent |= lines
        message = "\n".join(self._unsent.values()).encode(errors="replace")
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
                out.sendto(message, self.address)
        except OSError as error:
            log.debug("systemd.untold", error=type(error).__name__)
        else:
            self._unsent.clear()


def service_manager(environment: MutableMapping[str, str] = os.environ) -> ServiceManager:
    """Return the manager of this service, and remove its variables, which no child may use.

    Sources: sd_notify(3), sd_watchdog_enabled(3).
    """
    address = environment.pop("NOTIFY_SOCKET", "")
    if address.startswith("@"):
        address = "\0" + address[1:]  # an abstract name
    microseconds = environment.pop("WATCHDOG_USEC", "")
    is_ours = environment.pop("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    is_number = microseconds.isascii() and microseconds.isdecimal()
    seconds = int(microseconds) / 1_000_000 if is_ours and is_number else 0
    return ServiceManager(address if address.startswith(("\0", "/")) else None, seconds or None)
