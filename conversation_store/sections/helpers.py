"""Helpers: parts of a turn with a conversation of their own, which works off one call of it.

What a helper is shown, says and calls are messages of the turn that name this call; they are in no
history, and go with the turn. Everything else about them is stored as for the turn itself.
"""

from conversation_store import history, turns
from conversation_store.connections import Execute
from conversation_store.models import Message, Role, StoredHelper
from conversation_store.sections.section import Section, writes_ordered


class HelperStore(Section):
    """How far the helpers of turns have come."""

    @writes_ordered
    def begin(
        self, execute: Execute, turn_id: int, tool_call_id: str, task: str
    ) -> StoredHelper | None:
        """Begin what an open call of a turn delegates, or go on with what a restart has left.

        Args:
            execute: runs a statement.
            turn_id: the turn.
            tool_call_id: the call; None is returned when it is not open.
            task: what the helper is told, where it begins.
        """
        call = turns.open_call(execute, turn_id, tool_call_id)
        if call is None:
            return None
        messages = history.of_turn(execute, turn_id, call)
        if not messages:
            messages = (Message(Role.USER, task),)
            turns.add_message(execute, turn_id, messages[0], self._context.now_ms(), call)
        return StoredHelper(call, messages)
