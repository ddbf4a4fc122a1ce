"""What the model saw and said, as it is read back."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from conversation_store.connections import Execute, Row
from conversation_store.models import (
    ChatId,
    EndedCall,
    EndedCalls,
    EndedHelper,
    History,
    Image,
    Message,
    ModelState,
    Role,
    ToolCall,
)

MAX_HISTORY_ROWS: Final = 2_000
"""Messages read for one prompt; bounds a chat of thousands of one-word turns."""

HISTORY_IMAGES: Final = 4
"""Images of earlier messages that the model is shown again; they cost much of its context."""

LAST_TURN: Final = 2**63 - 1
"""No turn has a higher number."""

HISTORY_SQL: Final = """
    SELECT turns.id, messages.id, role, content, tool_calls, tool_call_id, messages.state
    FROM turns JOIN messages ON messages.turn_id = turns.id
    WHERE turns.chat = ? AND turns.id >= ? AND turns.id < ?
        AND turns.state IN ('answered', 'failed') AND helper_of IS NULL
    ORDER BY turns.id DESC, messages.id DESC
    LIMIT ?
"""

Messages = tuple[Message, ...]
Numbered = list[tuple[int, Message]]
"""Messages with the numbers of their rows."""
Shown = Mapping[int | None, Sequence[Image]]
"""Images by the message that shows them; by None, those of a turn's first one."""


def of_chat(
    execute: Execute,
    chat: ChatId,
    *,
    max_bytes: int,
    max_rows: int,
    first_turn: int,
    before: int | None = None,
) -> History:
    """Return the newest whole turns of a chat that fit, oldest first, with the newest images."""
    end = LAST_TURN if before is None else before
    rows = list(execute(HISTORY_SQL, (chat, first_turn, end, max_rows + 1)))
    turns = _newest_turns(rows[:max_rows], max_bytes)
    whole = len(rows) <= max_rows and sum(map(len, turns.values())) == len(rows)
    if not turns:
        return History((), first_turn, whole=whole)
    shown: dict[int, dict[int | None, list[Image]]] = {}
    rows = list(
        execute(
            "SELECT turn_id, message_id, content_type, data FROM images"
            " WHERE chat = ? AND turn_id BETWEEN ? AND ? AND NOT EXISTS (SELECT 1 FROM messages"
            " WHERE messages.id = message_id AND helper_of IS NOT NULL)"
            " ORDER BY turn_id DESC, id DESC LIMIT ?",
            (chat, min(turns), max(turns), HISTORY_IMAGES),
        )
    )
    for turn_id, message_id, content_type, data in rows:
        in_turn = shown.setdefault(turn_id, {})
        in_turn.setdefault(message_id, []).insert(0, Image(content_type, data))
    with_images = (
        _with_images(messages, shown.get(turn_id, {})) for turn_id, messages in turns.items()
    )
    return History(tuple(with_images), min(turns), whole=whole)


def of_turn(execute: Execute, turn_id: int, helper: int | None = None) -> Messages:
    """Return what is stored of a turn, the person's message first, or of a helper, its task first.

    Args:
        execute: runs a statement.
        turn_id: the turn.
        helper: the row of the call that the helper works off; None: of the turn itself.
    """
    rows = list(
        execute(
            "SELECT id, role, content, tool_calls, tool_call_id, state FROM messages"
            " WHERE turn_id = ? AND helper_of IS ? ORDER BY id",
            (turn_id, helper),
        )
    )
    messages = [_numbered_message(row) for row in rows]
    shown: dict[int | None, list[Image]] = {}
    images = list(
        execute(
            "SELECT message_id, content_type, data FROM images WHERE turn_id = ? ORDER BY id",
            (turn_id,),
        )
    )
    for message_id, content_type, data in images:
        if message_id is not None or helper is None:
            shown.setdefault(message_id, []).append(Image(content_type, data))
    return _with_images(messages, shown)


def ended_calls(execute: Execute, turn_id: int) -> EndedCalls:
    """Return how those calls of a turn and of its helpers ended that have ended."""
    names: dict[tuple[int | None, str], str] = {}
    tasks: dict[int, str] = {}
    outcomes: dict[int, str] = {}
    ended: dict[int | None, list[EndedCall]] = {}
    rows = execute(
        "SELECT id, helper_of, CASE role WHEN 'user' THEN content END, tool_calls, tool_call_id,"
        " outcome FROM messages WHERE turn_id = ? ORDER BY id",
        (turn_id,),
    )
    for id_, helper, said, tool_calls, call_id, outcome in rows:
        if tool_calls:
            names.update({(helper, call["id"]): call["name"] for call in json.loads(tool_calls)})
        elif outcome is not None:
            outcomes[id_] = outcome
            call = EndedCall(names[helper, call_id], outcome)
            ended.setdefault(helper, []).append(call)
        elif said is not None and helper is not None:
            tasks[helper] = said
    helpers = {
        helper: EndedHelper(task, tuple(ended.get(helper, ())), outcomes.get(helper))
        for helper, task in tasks.items()
    }
    return EndedCalls(tuple(ended.get(None, ())), helpers)


def has_result_with(execute: Execute, chat: ChatId, words: str) -> bool:
    """Whether anything that is kept of what tools returned or people sent contains these words."""
    rows = list(
        execute(
            "SELECT 1 FROM turns JOIN messages ON messages.turn_id = turns.id"
            " WHERE turns.chat = ? AND role IN ('tool', 'user') AND instr(content, ?) LIMIT 1",
            (chat, words),
        )
    )
    return bool(rows)


def _with_images(messages: Numbered, shown: Shown) -> Messages:
    owners: list[int | None] = [id_ for id_, _ in messages]
    owners[:1] = [None] * len(owners[:1])
    return tuple(
        replace(message, images=tuple(shown[owner])) if owner in shown else message
        for owner, (_, message) in zip(owners, messages, strict=True)
    )


def _newest_turns(rows: Iterable[Row], max_bytes: int) -> dict[int, Numbered]:
    """Collect whole turns, oldest first, from rows that run from the newest to the oldest."""
    turns: list[tuple[int, Numbered]] = []
    size = 0
    for turn_id, newest_first in groupby(rows, key=itemgetter(0)):
        turn = [_numbered_message(row[1:]) for row in newest_first]
        turn.reverse()
        size += sum(_size(message) for _, message in turn)
        # A turn opens with the person's message, unless the limit on rows has cut it.
        if size > max_bytes or turn[0][1].role != "user":
            break
        turns.append((turn_id, turn))
    return dict(reversed(turns))


def _numbered_message(row: Row) -> tuple[int, Message]:
    id_, role, content, tool_calls, tool_call_id, state = row
    calls = tuple(ToolCall(**call) for call in json.loads(tool_calls)) if tool_calls else ()
    wanted_back = ModelState(**json.loads(state)) if state else None
    return id_, Message(Role(role), content, calls, tool_call_id, state=wanted_back)


def _size(message: Message) -> int:
    size = len((message.content or "").encode())
    if message.state is not None:
        size += len(message.state.data.encode())
    return size + sum(
        len(call.name.encode()) + len(call.arguments.encode()) for call in message.tool_calls
    )
