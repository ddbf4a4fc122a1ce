"""Care for the bot's Signal account: look at it every hour, and warn before it is lost.

Signal refuses versions of signal-cli that are some months old, and drops accounts without telling
the bot. So the bot asks Signal for something every hour, and looks at the age of signal-cli.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from datetime import UTC, date, datetime
from typing import Final

import structlog

from bot.backoff import Backoff
from bot.chat.outbox import Notices
from bot.chat.registration_lock import RegistrationLock
from bot.observability.metrics import SIGNAL_CLI_AGE
from bot.signal.errors import SignalError
from bot.signal.messenger import Messenger
from bot.signal.releases import ADMIN_DAYS, LOG_DAYS, age_days, age_words
from bot.signal.spawned import SpawnedSignalCli
from bot.signal.transport import account_trouble
from bot.signal.trouble import AccountTrouble
from conversation_store.store import ConversationStore

LOOK_SECONDS: Final = 3_600.0
AGAIN: Final = Backoff(first_seconds=15.0, longest_seconds=300.0)
"""Pause between two checks while something is wrong."""
POLL_SECONDS: Final = 1.0
"""Pause between two checks of signal-cli's log, which cost nothing."""
DAYS_BETWEEN_WARNINGS: Final = 7
WARNED: Final = "signal_cli_age_told"
"""Entry of the store: day of the last warning to the admins."""

log = structlog.get_logger()


@dataclass(eq=False, repr=False, slots=True)
class Caretaker:
    """Looks at the account, its lock and signal-cli's age, and tells log and admins."""

    messenger: Messenger
    signal_cli: SpawnedSignalCli | None
    notices: Notices
    store: ConversationStore
    lock: RegistrationLock
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    _told: AccountTrouble | None = field(default=None, init=False)
    _warned_on: date | None = field(default=None, init=False)

    async def run(self) -> None:
        """Check the account each hour, during a trouble at growing intervals, until cancelled."""
        looks = 0
        while True:
            if self.messenger.connected or self.messenger.trouble is not None:
                await self._look()
            await self._tell_trouble()
            signs = self._signs()
            looks = 0 if signs == (None, None) else looks + 1
            seconds = AGAIN.seconds(looks) if looks else LOOK_SECONDS
            next_at = time.monotonic() + (seconds if self.messenger.server else POLL_SECONDS)
            while time.monotonic() < next_at and self._signs() == signs:  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)

    def _signs(self) -> tuple[AccountTrouble | None, AccountTrouble | None]:
        """Return what the errors of requests and signal-cli's log have told."""
        in_log = None if self.signal_cli is None else self.signal_cli.trouble
        return self.messenger.trouble, in_log

    async def _look(self) -> None:
        """Ask signal-cli for its version, and Signal for the account's devices."""
        with suppress(SignalError):
            await self.messenger.account_status()
            await self._tell_age(datetime.fromtimestamp(self.clock(), UTC).date())
            await self.messenger.own_identity()  # its failure tells the transport about the account
            await self.lock.keep()

    async def _tell_trouble(self) -> None:
        """Tell the admins once that Signal refuses this version.

        With any other trouble of the account, the bot could not send that message.
        """
        trouble = account_trouble(self.messenger, self.signal_cli)
        if trouble is not self._told:
            self._told = trouble
            if trouble is AccountTrouble.OUTDATED:
                await self.notices.to_admins(trouble)

    async def _tell_age(self, today: date) -> None:
        """Warn in the log each day from 60 days on, and the admins each week from 75 days on."""
        days = age_days(self.messenger.server, today)
        words = age_words(self.messenger.server, today)
        SIGNAL_CLI_AGE.set(-1 if days is None else days)
        if words is None or days is None or days < LOG_DAYS:
            return
        if self._warned_on != today:
            self._warned_on = today
            log.warning("signal_cli.old", days=days, reason=words)
        last = await self.store.get_metadata(WARNED)
        is_due = last is None or (today - date.fromisoformat(last)).days >= DAYS_BETWEEN_WARNINGS
        if days >= ADMIN_DAYS and is_due:
            await self.store.set_metadata(WARNED, today.isoformat())
            await self.notices.to_admins(words)
