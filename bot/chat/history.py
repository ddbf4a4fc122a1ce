"""The past of a chat as its prompts show it: whole turns, and a summary of those before them."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, NamedTuple

from cachetools import LRUCache

from conversation_store.history import MAX_HISTORY_ROWS
from conversation_store.models import ChatId, Message, Role
from conversation_store.store import ConversationStore
from conversation_store.summaries import Summary

OPENING: Final = "[Earlier in this conversation, summarised:]"

KEPT_SHARE: Final = 0.7
"""Part of the room that history keeps after the oldest turns are left out."""

MAX_WINDOWS: Final = 10_000
"""Chats in memory; a forgotten chat may once lose more of its history than necessary."""


class Past(NamedTuple):
    """The part of a chat's past that a prompt shows.

    Attributes:
        turns: oldest first.
        summary: of what came before them; None without one.
        size: bytes of the whole past; None unless all of it is shown unchanged.
    """

    turns: tuple[tuple[Message, ...], ...] = ()
    summary: Message | None = None
    size: int | None = None


NO_PAST: Final = Past()


def _earlier(summaries: Sequence[Summary]) -> Message | None:
    """Return the message that shows summaries to the model; None without any."""
    if not summaries:
        return None
    # New ones come at the end, so that the text before them stays the same.
    return Message(Role.USER, "\n".join((OPENING, *(one.text for one in summaries))))


@dataclass(eq=False, repr=False, slots=True)
class HistoryWindow:
    """Reads the history of chats, always from the same first turn as long as that fits.

    If every new turn pushed out the oldest one, each request would begin differently, and an
    endpoint could reuse hardly anything from its cache. So when a history no longer fits, a good
    part of it is dropped at once, and the next requests begin alike. A summary does the same, and
    stands in for the turns that it was made of.
    """

    store: ConversationStore
    _: KW_ONLY
    shows_summaries: bool = True
    _first_turns: LRUCache[str, int] = field(
        default_factory=lambda: LRUCache(MAX_WINDOWS), init=False
    )

    async def read(self, chat: ChatId, *, max_bytes: int, before: int | None = None) -> Past:
        """Return the turns to be shown, and the summary of earlier ones.

        Args:
            max_bytes: UTF-8 bytes that they may take.
            before: leave out this turn and later turns.
        """
        summary, last = None, 0
        if self.shows_summaries:
            known = await self.store.summaries.of_chat(chat)
            known = tuple(one for one in known if before is None or one.last_turn < before)
            summary = _earlier(known)
            size = 0 if summary is None else len((summary.content or "").encode())
            if size > max_bytes:
                summary = None
            elif summary is not None:
                max_bytes -= size
                last = known[-1].last_turn
        first_turn = max(self._first_turns.get(chat, 0), last + 1)
        history = await self.store.turns.history(
            chat, max_bytes=max_bytes, first_turn=first_turn, before=before
        )
        if history.whole:
            return Past(history.turns, summary, history.size if first_turn == 1 else None)
        history = await self.store.turns.history(
            chat,
            max_bytes=int(max_bytes * KEPT_SHARE),
            max_messages=int(MAX_HISTORY_ROWS * KEPT_SHARE),
            first_turn=last + 1,
            before=before,
        )
        self._first_turns[chat] = history.first_turn
        return Past(history.turns, summary)
