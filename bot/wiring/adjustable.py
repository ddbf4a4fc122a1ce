"""The parts that take other settings while they run."""

from dataclasses import dataclass

from bot.chat.prompt import Prompt
from bot.chat.tool_loop import ToolLoop
from bot.dispatch.incoming.access import Access
from bot.dispatch.incoming.groups import GroupPermissions
from bot.dispatch.outgoing.notices import Notices
from bot.dispatch.outgoing.presence import Presence
from bot.dispatch.turns.batching import Batching
from bot.dispatch.turns.loop_guard import LoopGuard
from bot.wiring.endpoint import OpenEndpoint
from conversation_store.store import ConversationStore
from tools.executor import ToolExecutor
from tools.rate_limits import RateLimits


@dataclass(frozen=True, slots=True)
class Adjustable:
    """The parts that take other settings while they run, as `bot.wiring.reload` says them.

    Where the bot `makes_proofs`, what these say may not change.
    """

    makes_proofs: bool
    access: Access
    group_permissions: GroupPermissions
    notices: Notices
    loop_guard: LoopGuard
    batching: Batching
    presence: Presence
    prompt: Prompt
    tool_loop: ToolLoop
    executor: ToolExecutor
    tool_limits: RateLimits
    endpoint: OpenEndpoint
    store: ConversationStore
