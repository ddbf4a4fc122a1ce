"""Requests to an attested model and their answers, whose signatures are checked."""

from conversation_store import (
    exchanges,
    outgoing,
)
from conversation_store.database import (
    Execute,
)
from conversation_store.models import (
    ChatId,
    ExchangeState,
    OutgoingMessage,
    StoredExchange,
)
from conversation_store.sections.context import StoreContext


class ExchangeStore:
    """Requests to an attested model and their answers, whose signatures are checked.

    Args:
        context: of the store.
    """

    def __init__(self, context: StoreContext) -> None:
        self._context = context

    async def unchecked(self, limit: int) -> tuple[StoredExchange, ...]:
        """Return exchanges of finished turns whose signature is not checked, oldest first."""
        return await self._context.database.read(lambda execute: exchanges.waiting(execute, limit))

    async def of_last_answer(self, chat: ChatId) -> tuple[StoredExchange, ...]:
        """Return the exchanges behind the last answer in a chat, in their order."""
        return await self._context.database.read(
            lambda execute: exchanges.of_last_turn(execute, chat)
        )

    async def settle(
        self,
        exchange: StoredExchange,
        state: ExchangeState,
        *,
        kind: str,
        words: str,
        warning: str | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store what a signature said; return what is to be sent because of it.

        Args:
            exchange: which; one that is settled already, or forgotten, stays as it is.
            state: what was found.
            kind: of the signature.
            words: what that means.
            warning: sent behind the turn's answer, once for all of its exchanges.
        """

        def settle(execute: Execute) -> tuple[OutgoingMessage, ...]:
            warned = exchanges.has_wrong(execute, exchange.turn_id)
            if not exchanges.settle(execute, exchange, state, kind, words):
                return ()
            if warning is None or warned:
                return ()
            chats = list(execute("SELECT chat FROM inbox WHERE id = ?", (exchange.turn_id,)))
            return tuple(
                outgoing.follow_up(
                    execute,
                    inbox_id=exchange.turn_id,
                    chat=ChatId.parse(chat),
                    text=warning,
                    now_ms=self._context.now_ms(),
                )
                for (chat,) in chats
            )

        return await self._context.database.write(settle)
