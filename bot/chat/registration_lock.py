"""The registration lock: a PIN without which nobody else can register the bot's number.

Signal asks for the PIN until the account has been unused for 7 days. The bot makes the PIN, keeps
it in the encrypted store, and sets it again every 3 days, because Signal may lose PINs
when it changes its enclaves. If Signal cannot be reached, the bot tries again at its next check.
"""

import secrets
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Final

import structlog

from bot.signal.errors import SignalError, SignalRejected
from bot.signal.messenger import Messenger
from conversation_store.store import ConversationStore, note_in

PIN: Final = "registration_pin"
SET_AT: Final = "registration_pin_set_at"
"""Entries of the store: the digits, and when Signal took them last (seconds)."""
DIGITS: Final = 20
"""As many as Signal takes."""
EVERY_SECONDS: Final = 3 * 86_400

log = structlog.get_logger()


@dataclass(eq=False, repr=False, slots=True)
class RegistrationLock:
    """Sets, renews or removes the lock; `wanted`: whether there should be one."""

    messenger: Messenger
    store: ConversationStore
    _: KW_ONLY
    wanted: bool
    clock: Callable[[], float] = time.time

    async def keep(self) -> None:
        """Set the lock if it is due, or remove it; raises SignalUnavailable."""
        pin = await self.store.get_metadata(PIN)
        if not self.wanted:
            if pin:
                await self.store.set_metadata(SET_AT, "")  # first, as a kill may come in between
                await self.messenger.lock_registration(None)
                await self.store.set_metadata(PIN, "")
                log.info("registration_lock.removed")
            return
        set_at = await self.store.get_metadata(SET_AT)
        if pin and set_at and self.clock() - float(set_at) < EVERY_SECONDS:
            return
        if not pin:
            pin = "".join(secrets.choice("0123456789") for _ in range(DIGITS))
            await self.store.set_metadata(PIN, pin)  # before Signal has it, so that none is lost
        try:
            await self.messenger.lock_registration(pin)
        except SignalRejected:
            if not set_at:  # otherwise Signal has that PIN, and asks for it
                self.wanted = False  # until the next start
                await self.store.set_metadata(PIN, "")
            log.warning(
                "registration_lock.refused",
                setting="SIGNAL__REGISTRATION_LOCK",
                reason="if the bot is a linked device, use the registration lock of the phone",
            )
            return
        except SignalError as error:
            log.warning("registration_lock.not_set", error=type(error).__name__)
            return
        await self.store.set_metadata(SET_AT, str(int(self.clock())))
        if not set_at:
            log.info("registration_lock.set", reason="signal-tee-bot signal-cli pin shows the PIN")


def kept_pin(store: Path, key: str | None) -> str | None:
    """Return the PIN in a store, also next to a running bot; raises StoreError."""
    return note_in(store, key, PIN) or None
