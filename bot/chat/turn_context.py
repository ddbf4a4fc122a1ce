"""What one turn's tool calls need beside their arguments: chat, audit, progress, approval.

A helper's calls need the same, and are kept as the helper's. A call goes to its rows, its metrics
and its sign in the chat before the model sees a result.
"""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, Protocol

from bot.approvals.desk import ApprovalDesk, TurnApproval
from bot.chat.progress import Progress
from bot.chat.tool_signs import Ended
from bot.messaging.events import Person
from bot.messaging.messenger import Sender
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    EndedCall,
    Image,
    Message,
    NewExchange,
    TokenSpend,
    Turn,
)
from conversation_store.store import ConversationStore
from tools.base import Caller, Outcome, ToolRequest, ToolResult

RAN: Final = frozenset({Outcome.OK, Outcome.FAILED, Outcome.TIMEOUT, Outcome.BUG})
"""Outcomes of calls that ran; only these are shown again after a restart."""


class Signs(Protocol):
    """Shows which tools run. Implemented by `Progress`, and for helpers by `HelperSigns`."""

    def show(self, names: Iterable[str]) -> None:
        """Note that tools start."""
        ...

    def finished(self, name: str, *, ok: bool) -> None:
        """Note that a call that was shown has ended."""
        ...

    def show_again(self, ended: Ended) -> None:
        """Note how calls ended before a restart."""
        ...


class TurnContext:
    """The surroundings of one turn; keeps and shows its calls. Implements `tools.audit.Audit`.

    Args:
        store: where calls are kept.
        accepted: the message that they are made for.
        caller: who wrote it.
        turn_id: the turn.
        progress: shows in the chat that work goes on.
        approval: asks a person before a call with side effects.
        keep_arguments: whether arguments are kept, beside their hash.
        clock: seconds since 1970.
        signs: where calls are shown; None: in the progress message itself.
        helper: whose calls they are; None: those of the turn itself.
    """

    def __init__(
        self,
        store: ConversationStore,
        accepted: AcceptedMessage,
        caller: Caller,
        turn_id: int,
        *,
        progress: Progress,
        approval: TurnApproval,
        keep_arguments: bool,
        clock: Callable[[], float],
        signs: Signs | None = None,
        helper: int | None = None,
    ) -> None:
        self._store = store
        self._accepted = accepted
        self.caller = caller
        self._turn_id = turn_id
        self.progress = progress
        self._signs = signs or progress
        self._helper = helper
        self.approval = approval
        self._keep_arguments = keep_arguments
        self._clock = clock
        self._shown: set[str] = set()

    @property
    def person(self) -> Person:
        """Who wrote what the turn answers."""
        message = self._accepted.message
        return Person(message.author, message.author_number)

    @property
    def chat(self) -> ChatId:
        """Where the turn happens."""
        return self._accepted.message.chat

    def of_helper(self, helper: int, caller: Caller, signs: Signs) -> "TurnContext":
        """Return the context of a helper of this turn.

        Args:
            helper: as the store knows it.
            caller: whom its calls are made for, and which there are.
            signs: where they are shown.
        """
        return TurnContext(
            self._store,
            self._accepted,
            caller,
            self._turn_id,
            progress=self.progress,
            approval=self.approval.of_helper(helper),
            keep_arguments=self._keep_arguments,
            clock=self._clock,
            signs=signs,
            helper=helper,
        )

    async def record_calls(
        self, asked: Message, exchanged: Sequence[NewExchange], spent: Sequence[TokenSpend]
    ) -> None:
        """Store that the model asks for calls; see `TurnStore.record_calls`."""
        await self._store.turns.record_calls(
            self._turn_id, asked, exchanged, spent, helper=self._helper
        )

    def show(self, requests: Iterable[ToolRequest]) -> None:
        """Show in the chat that calls run."""
        for request in requests:
            self._shown.add(request.call_id)
            self._signs.show([request.tool])

    async def show_again(self, is_shown: Callable[[str], bool]) -> None:
        """Show how the calls ended that were made before a restart.

        Args:
            is_shown: whether calls of a tool are shown at all, by its name.
        """
        ended = await self._store.turns.ended_calls(self._turn_id)
        if self._helper is not None:
            helper = ended.helpers.get(self._helper)
            self._signs.show_again(_signs_of(helper.calls if helper else (), is_shown))
            return
        self._signs.show_again(_signs_of(ended.calls, is_shown))
        for helper in ended.helpers.values():
            if helper.outcome is not None:
                signs = self.progress.helper(helper.task)
                signs.show_again(_signs_of(helper.calls, is_shown))
                signs.ended(ok=helper.outcome == Outcome.OK)

    async def starting(self, request: ToolRequest) -> None:
        """Store that a call that somebody has allowed runs now, and show it."""
        await self._store.approvals.begin(self._turn_id, request.call_id, self._helper)
        self.show([request])

    async def finished(self, result: ToolResult) -> None:
        """Store the result and its audit entry in one transaction, count it and show it."""
        # The name comes from the model: only names of real tools may become labels.
        tool = "unknown" if result.outcome is Outcome.UNKNOWN else result.request.tool
        metrics.count_tool_call(tool, result.outcome, result.duration_seconds)
        arguments = result.request.arguments
        entry = AuditEntry(
            at=int(self._clock() * 1_000),
            chat=self.chat,
            author=self.caller.person,
            turn_id=self._turn_id,
            tool=tool,
            arguments_sha256=hashlib.sha256(arguments.encode()).hexdigest(),
            outcome=result.outcome,
            duration_ms=round(result.duration_seconds * 1000),
            arguments=arguments if self._keep_arguments else None,
        )
        files = [Attachment(file.name, file.content_type, file.data) for file in result.files]
        await self._store.turns.record_result(
            self._turn_id,
            result.request.call_id,
            result.content,
            entry,
            images=images_of(result),
            files=files,
            helper=self._helper,
        )
        if result.request.call_id in self._shown:
            self._shown.remove(result.request.call_id)
            self._signs.finished(result.request.tool, ok=result.outcome is Outcome.OK)


class TurnContexts:
    """Makes the context of each turn.

    Args:
        store: keeps calls, and which message shows progress.
        approvals: asks people.
        channel: where progress is shown.
        progress_shown: called with the chat whenever a progress message was sent.
        keep_arguments: whether the audit keeps the arguments of calls beside their hash.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        store: ConversationStore,
        approvals: ApprovalDesk,
        channel: Sender,
        *,
        progress_shown: Callable[[ChatId], None],
        keep_arguments: bool,
        clock: Callable[[], float],
    ) -> None:
        self._store = store
        self._approvals = approvals
        self._channel = channel
        self._progress_shown = progress_shown
        self._keep_arguments = keep_arguments
        self._clock = clock

    def of(
        self, accepted: AcceptedMessage, caller: Caller, turn: Turn, *, is_retry: bool = False
    ) -> TurnContext:
        """Return the context of a turn that answers somebody's message.

        Args:
            accepted: the message.
            caller: who wrote it.
            turn: the turn.
            is_retry: it answers a question anew; see `TurnApproval`.
        """
        chat = accepted.message.chat
        progress = Progress(
            self._channel,
            chat,
            turn.progress_timestamp,
            edits=turn.progress_edits,
            remember=partial(self._remember_progress, turn.id, chat),
        )
        return TurnContext(
            self._store,
            accepted,
            caller,
            turn.id,
            progress=progress,
            approval=self._approvals.for_turn(accepted, turn.id, is_retry=is_retry),
            keep_arguments=self._keep_arguments,
            clock=self._clock,
        )

    def _remember_progress(self, turn_id: int, chat: ChatId, timestamp: int) -> None:
        self._progress_shown(chat)
        self._store.turns.record_progress(turn_id, timestamp)


def _signs_of(ended: Iterable[EndedCall], is_shown: Callable[[str], bool]) -> Ended:
    return [
        (call.tool, call.outcome == Outcome.OK)
        for call in ended
        if call.outcome in RAN and is_shown(call.tool)
    ]


def images_of(result: ToolResult) -> tuple[Image, ...]:
    """Return what the model is shown of a result, as it is kept."""
    return tuple(Image(image.content_type, image.data) for image in result.images)
