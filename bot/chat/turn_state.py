"""A turn on its way through the tool loop: what the model has been shown, and what it cost."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from bot.chat.early_request import EarlyRequest, StillTrying
from bot.chat.media import CANNOT_SEE
from bot.chat.quotes import without_bots_words
from bot.llm.messages import Completion
from conversation_store.models import Image, Message, NewExchange, Role, ToolCall, Turn, TurnUsage
from tools.base import Heard


class TurnState:
    """One turn on its way: what the model has been shown so far, and what it cost.

    Args:
        turn: which.
        history: what came before.
        fleeting: images that are shown and never kept.
        early: may have the answer to the first request already.
        still_trying: told when the model makes the turn wait.
    """

    def __init__(
        self,
        turn: Turn,
        history: Sequence[Sequence[Message]],
        fleeting: Sequence[Image] = (),
        early: EarlyRequest | None = None,
        *,
        still_trying: StillTrying,
    ) -> None:
        self.turn = turn
        self.early = early
        self.still_trying = still_trying
        self.history = history
        person, *rest = turn.messages
        self.messages = [replace(person, images=(*person.images, *fleeting)), *rest]
        self.notices = list(turn.notices)
        self.images_disabled = False
        self.usage = TurnUsage()
        self.rounds = sum(bool(message.tool_calls) for message in turn.messages)
        self.exchanged: list[NewExchange] = []

    @property
    def calls(self) -> int:
        """How many calls were asked for, whatever became of them."""
        return sum(message.role == "tool" for message in self.messages)

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """Calls of the last assistant message that have no result yet."""
        open_ids = {
            message.tool_call_id
            for message in self.messages
            if message.role == "tool" and message.content is None
        }
        asked = [message for message in self.messages if message.tool_calls]
        return tuple(call for call in asked[-1].tool_calls if call.id in open_ids) if asked else ()

    @property
    def heard(self) -> Heard:
        """What the model has been told so far."""
        told = [*chain.from_iterable(self.history), *self.messages]
        return Heard(
            people=[
                without_bots_words(message.content or "")
                for message in told
                if message.role == "user"
            ],
            results=[message.content or "" for message in told if message.role == "tool"],
        )

    def ask(self, assistant: Message) -> Message:
        """Add a message that calls tools, with every call open and no id used twice."""
        used = {call.id for message in self.messages for call in message.tool_calls}
        calls = []
        for call in assistant.tool_calls:
            own_id = call.id
            while own_id in used:
                own_id = f"{call.id}_{len(used)}"
            used.add(own_id)
            calls.append(replace(call, id=own_id))
        assistant = replace(assistant, tool_calls=tuple(calls))
        self.rounds += 1
        self.messages.append(assistant)
        self.messages += [
            Message(Role.TOOL, None, tool_call_id=call.id) for call in assistant.tool_calls
        ]
        return assistant

    def close(self, call_id: str, content: str) -> None:
        """Give an open call its result."""
        for index, message in enumerate(self.messages):
            if message.tool_call_id == call_id and message.content is None:
                self.messages[index] = replace(message, content=content)

    def disable_images(self) -> None:
        """Show no image from now on, and say so where one came with the message."""
        self.images_disabled = True
        if any(message.images for message in self.messages):
            self.notices.append(CANNOT_SEE)

    def take_exchanged(self) -> tuple[NewExchange, ...]:
        """Return the exchanges that are not stored yet; whoever takes them stores them."""
        taken = tuple(self.exchanged)
        self.exchanged.clear()
        return taken

    def count(self, completion: Completion) -> None:
        """Add what a request cost."""
        usage = completion.usage
        self.usage = TurnUsage(
            requests=self.usage.requests + 1,
            prompt_tokens=self.usage.prompt_tokens + (usage.prompt_tokens if usage else 0),
            completion_tokens=self.usage.completion_tokens
            + (usage.completion_tokens if usage else 0),
        )
