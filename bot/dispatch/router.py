"""From an accepted message to its one answer: a command, a conversation, or a plain sentence."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import structlog

from bot.approvals import Answer, ApprovalDesk
from bot.chat.handler import ChatHandler
from bot.commands.base import Command, CommandContext, Reply
from bot.dispatch.outbox import Outbox
from bot.dispatch.turns import Turns, TurnStopped
from bot.messaging.events import ChatId, Person
from bot.messaging.formatting import split
from bot.observability import metrics
from conversation_store.errors import StoreError
from conversation_store.models import (
    AcceptedMessage,
    OutgoingMessage,
    ReceivedMessage,
    StoredAttachment,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()

Work = Callable[[], Awaitable[None]]

COMMAND: Final = re.compile(r"!([a-z][\w-]*)$", re.IGNORECASE)

ONLY_TEXT: Final = "I can only read text so far. Please write what it is about."
NO_WORDS: Final = "Yes? Write what you want to know in the same message."
UNKNOWN_COMMAND: Final = "I don't know that command. Send !help to see what I can do."
BUG: Final = "Something went wrong on my side. Please try again; if it stays, tell the operator."


class Router:
    """Answers accepted messages.

    Args:
        commands: by name, without the exclamation mark.
        conversation: everything that is no command.
        turns: makes the conversation stoppable.
        approvals: knows the questions that wait for an answer.
        outbox: sends what was answered.
        store: where an answer without a turn is kept.
    """

    def __init__(
        self,
        *,
        commands: dict[str, Command],
        conversation: ChatHandler,
        turns: Turns,
        approvals: ApprovalDesk,
        outbox: Outbox,
        store: ConversationStore,
    ) -> None:
        self._commands = commands
        self._conversation = conversation
        self._turns = turns
        self._approvals = approvals
        self._outbox = outbox
        self._store = store

    def is_stop(self, message: ReceivedMessage) -> bool:
        """Whether a message is a command that ends what came before it."""
        name, _ = _parse_command(message.text)
        return name is not None and name in self._commands and self._commands[name].urgent

    def urgent_work(self, accepted: AcceptedMessage) -> Work | None:
        """Return the work of a message that may not wait behind the turn that it concerns."""
        if self.is_stop(accepted.message):
            return partial(self.handle, accepted)
        answer = self._approvals.answer_in(accepted.message)
        return partial(self._settle, accepted, answer) if answer is not None else None

    async def handle(self, accepted: AcceptedMessage) -> None:
        """Answer a message, whatever happens, and send the answer.

        Raises:
            StoreError: the process cannot go on; in a group when it came out of one.
        """
        try:
            outgoing = await self._answer(accepted)
        except TurnStopped:
            await self._store.stop((accepted.id,))
            metrics.TURNS.labels("stopped").inc()
            return
        except Exception as error:
            if _is_of_the_store(error):
                raise
            # The last boundary of a turn: a bug ends here, in words for the person.
            log.exception("turn.bug", turn=accepted.id)
            metrics.TURNS.labels("bug").inc()
            outgoing = await self._store.answer(accepted, (BUG,), outcome="bug")
        await self._outbox.deliver(outgoing)

    async def _settle(self, accepted: AcceptedMessage, answer: Answer) -> None:
        """Take a message as the answer to a question, or say why it is none."""
        words = await self._approvals.settle(accepted, answer)
        if words is not None:
            await self.refuse(accepted, words, "approval")

    async def refuse(self, accepted: AcceptedMessage, words: str, outcome: str) -> None:
        """Answer a message with a sentence that explains why it is not taken."""
        await self._outbox.deliver(await self._store.answer(accepted, (words,), outcome=outcome))

    async def _answer(self, accepted: AcceptedMessage) -> tuple[OutgoingMessage, ...]:
        message = accepted.message
        name, argument = _parse_command(message.text)
        if name is not None:
            reply = await self._run_command(name, argument, accepted)
            return await self._store.answer(
                accepted,
                split(reply.text),
                outcome="command",
                attachments=[
                    StoredAttachment(file.name, file.content_type, file.data)
                    for file in reply.attachments
                ],
            )
        if not message.text.strip():
            words = ONLY_TEXT if message.files else NO_WORDS
            return await self._store.answer(accepted, (words,), outcome="no_words")
        thought = await self._turns.run(
            message.chat, accepted.id, self._conversation.think(accepted)
        )
        return await self._conversation.finish(accepted, thought)

    async def _run_command(self, name: str, argument: str, accepted: AcceptedMessage) -> Reply:
        command = self._commands.get(name)
        if command is None:
            return Reply(UNKNOWN_COMMAND)
        message = accepted.message
        return await command.run(
            CommandContext(
                chat=ChatId.parse(message.chat),
                author=Person(message.author, message.author_number, message.author_name),
                argument=argument,
                inbox_id=accepted.id,
            )
        )


def _parse_command(text: str) -> tuple[str | None, str]:
    """Return the command's name and its argument; no name where the text is none."""
    first, argument = (*text.split(maxsplit=1), "", "")[:2]
    found = COMMAND.match(first)
    return (found[1].lower(), argument.strip()) if found else (None, "")


def _is_of_the_store(error: Exception) -> bool:
    """Whether the store failed; of tool calls that run side by side, one may have found out."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(StoreError) is not None
    return isinstance(error, StoreError)
