"""What one turn's tool calls need beside their arguments: chat, audit, progress, approval."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from bot.approvals import ApprovalDesk, TurnApproval
from bot.chat.audit import TurnAudit
from bot.chat.progress import Progress
from bot.messaging.messenger import Sender
from conversation_store.models import AcceptedMessage, ChatId, Turn
from conversation_store.store import ConversationStore


@dataclass(frozen=True, slots=True)
class TurnContext:
    """The surroundings of one turn.

    Attributes:
        chat: where it happens.
        audit: stores each call and its result.
        progress: shows in the chat that work goes on.
        approval: asks a person before a call with side effects.
    """

    chat: ChatId
    audit: TurnAudit
    progress: Progress
    approval: TurnApproval


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

    def of(self, accepted: AcceptedMessage, turn: Turn) -> TurnContext:
        """Return the context of a turn that answers a message."""
        chat = accepted.message.chat
        progress = Progress(
            self._channel,
            chat,
            turn.progress_timestamp,
            remember=partial(self._remember_progress, turn.id, chat),
        )
        audit = TurnAudit(
            self._store,
            accepted,
            turn.id,
            progress,
            keep_arguments=self._keep_arguments,
            clock=self._clock,
        )
        return TurnContext(chat, audit, progress, self._approvals.for_turn(accepted, turn.id))

    def _remember_progress(self, turn_id: int, chat: ChatId, timestamp: int) -> None:
        self._progress_shown(chat)
        self._store.turns.record_progress(turn_id, timestamp)
