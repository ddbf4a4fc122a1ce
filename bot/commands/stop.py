"""`!stop`: ends what the bot is doing in this chat. Goes through the urgent lane."""

from typing import Protocol

from bot.commands.base import CommandContext, Reply
from conversation_store.models import ChatId


class Stopper(Protocol):
    """What ends a turn. Implemented by `bot.dispatch.turns.running.Turns`."""

    async def stop(self, chat: ChatId, *, before: int) -> int:
        """Stop what a chat asked for before a message; return how many messages that were."""
        ...


class Stop:
    """Stops the running answer and drops the messages that wait behind it."""

    name = "stop"
    summary = "stop what I am doing here"
    urgent = True

    def __init__(self, stopper: Stopper) -> None:
        self._stopper = stopper

    async def run(self, context: CommandContext) -> Reply:
        """Stop, and say what that was."""
        stopped = await self._stopper.stop(context.chat, before=context.inbox_id)
        if stopped == 0:
            return Reply("There is nothing to stop.")
        if stopped == 1:
            return Reply("Stopped.")
        return Reply(f"Stopped. {stopped - 1} more of your messages will not be answered.")
