"""Conversations for models that refuse the role `system`."""

from collections.abc import Sequence
from dataclasses import replace

from conversation_store.models import Message, Role


def without_system_role(messages: Sequence[Message]) -> list[Message]:
    """Return a conversation that begins with its first person, who says the system text before."""
    system = [message.content or "" for message in messages if message.role is Role.SYSTEM]
    others = [message for message in messages if message.role is not Role.SYSTEM]
    text = "\n\n".join(system)
    if not text:
        return others
    if not others or others[0].role is not Role.USER:
        return [Message(Role.USER, text), *others]
    first = others[0]
    return [replace(first, content=f"{text}\n\n{first.content or ''}"), *others[1:]]
