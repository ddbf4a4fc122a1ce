from functools import cached_property
from typing import Any

from bot.signal.errors import SignalError
from bot.signal.receipts import DeliveryReceipts
from bot.signal.trouble import AccountTrouble


class PartialMessenger:
    """Messenger that can do nothing; a subclass does what its test needs."""

    connected: bool = True
    stuck: bool = False
    trouble: AccountTrouble | None = None
    server: str | None = None
    connected_since: float | None = None
    last_sign: float = 0.0
    undelivered: int = 0
    troubles: list[SignalError]

    @cached_property
    def receipts(self) -> DeliveryReceipts:
        return DeliveryReceipts()

    def stumble(self) -> None:
        """Raise the next of the troubles, if there are some."""
        if self.troubles:
            raise self.troubles.pop(0)

    async def run(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError

    stop_receiving = hold_receiving = resume_receiving = run
    send = send_poll = end_poll = delete = react = show_typing = mark_read = run
    fetch_file = discard_file = group = join_group = leave_group = run
    peer_identity = trust = accept_request = set_profile = run
    own_identity = account_status = lock_registration = run
