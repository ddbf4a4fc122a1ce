"""Reads back what the model saw and said."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from typing import Final

from conversation_store.connections import Row, Session
from conversation_store.models import ChatId, History, Image, Message, ModelState, Role, ToolCall

MAX_HISTORY_ROWS: Final = 2_000
"""Messages read for one prompt. Bounds chats of thousands of one-word turns."""

HISTORY_IMAGES: Final = 4
"""Images of earlier messages that the model sees again; they need much of its context."""

LAST_TURN: Final = 2**63 - 1
"""No turn has a higher id."""

HISTORY_SQL: Final = """
    SELECT turns.id, messages.id, role, content, tool_calls, tool_call_id, messages.state, outcome
    FROM turns JOIN messages ON messages.turn_id = turns.id
    WHERE turns.chat = ? AND turns.id >= ? AND turns.id < ?
        AND turns.state IN ('answered', 'failed') AND helper_of IS NULL
    ORDER BY turns.id DESC, messages.id DESC
    LIMIT ?
"""

IMAGES_SQL: Final = """
    SELECT turn_id, message_id, content_type, data FROM images
    WHERE chat = ? AND turn_id BETWEEN ? AND ? AND NOT EXISTS
        (SELECT 1 FROM messages WHERE messages.id = message_id AND helper_of IS NOT NULL)
    ORDER BY turn_id DESC, id DESC LIMIT ?
"""

SUSPENDED: Final = """
    SELECT turn_id FROM questions WHERE state = 'open' AND kind != 'call' AND NOT EXISTS (
        SELECT 1 FROM messages LEFT JOIN questions asked ON asked.id = messages.id
        WHERE messages.turn_id = questions.turn_id AND helper_of IS NULL
        AND role = 'tool' AND content IS NULL
        AND (asked.id IS NULL OR asked.kind = 'call' OR asked.state != 'open'
            OR asked.signal_timestamp IS NULL)
    )
"""
"""Selects turns that wait on disk for people: their only open calls are questions of the model that
were sent. Nothing of such a turn is in memory, and its messages still owe an answer."""

Messages = tuple[Message, ...]
Numbered = list[tuple[int, Message]]
"""Messages with the ids of their rows."""
Shown = Mapping[int | None, Sequence[Image]]
"""Images by the message that shows them; None stands for the first message of a turn."""


@dataclass(frozen=True, slots=True)
class EndedCalls:
    """The ended calls of a turn, or of one of its helpers.

    Attributes:
        calls: name of the tool and outcome of each, in order.
        task: of the helper.
        outcome: of the helper; None until its own call has ended.
    """

    calls: tuple[tuple[str, str], ...] = ()
    task: str = ""
    outcome: str | None = None


def of_chat(
    db: Session,
    chat: ChatId,
    *,
    has_images: bool,
    max_bytes: int,
    max_messages: int,
    first_turn: int,
    before: int | None,
) -> History:
    """See `TurnStore.history`."""
    last = LAST_TURN if before is None else before
    rows = db.run(HISTORY_SQL, chat, first_turn, last, max_messages + 1)
    turns, size = _newest_turns(rows[:max_messages], max_bytes)
    whole = len(rows) <= max_messages and sum(map(len, turns.values())) == len(rows)
    if not turns:
        return History((), first_turn, whole=whole)
    shown: dict[int, dict[int | None, list[Image]]] = {}
    span = (chat, min(turns), max(turns), HISTORY_IMAGES)
    images = db.run(IMAGES_SQL, *span) if has_images else ()
    for turn_id, message_id, content_type, data in images:
        in_turn = shown.setdefault(turn_id, {})
        in_turn.setdefault(message_id, []).insert(0, Image(content_type, data))
    with_images = (
        _with_images(messages, shown.get(turn_id, {})) for turn_id, messages in turns.items()
    )
    return History(tuple(with_images), min(turns), whole=whole, size=size)


def of_turn(db: Session, turn_id: int, helper: int | None = None) -> Messages:
    """Return the stored messages of a turn, or those of a helper, in order.

    Args:
        helper: row of the call that the helper works on.
    """
    rows = db.run(
        "SELECT id, role, content, tool_calls, tool_call_id, state, outcome FROM messages"
        " WHERE turn_id = ? AND helper_of IS ? ORDER BY id",
        *(turn_id, helper),
    )
    messages = [_numbered_message(row) for row in rows]
    shown: dict[int | None, list[Image]] = {}
    for message_id, content_type, data in db.run(
        "SELECT message_id, content_type, data FROM images WHERE turn_id = ? ORDER BY id", turn_id
    ):
        if message_id is not None or helper is None:
            shown.setdefault(message_id, []).append(Image(content_type, data))
    return _with_images(messages, shown)


def ended_calls(db: Session, turn_id: int) -> dict[int | None, EndedCalls]:
    """Return how the calls of a turn ended, without those still open.

    Returns:
        the turn's own calls under None, a helper's under the row of its call.
    """
    names: dict[tuple[int | None, str], str] = {}
    tasks: dict[int | None, str] = {None: ""}
    outcomes: dict[int | None, str] = {}
    ended = defaultdict[int | None, list[tuple[str, str]]](list)
    for id_, helper, said, tool_calls, call_id, outcome in db.run(
        "SELECT id, helper_of, CASE role WHEN 'user' THEN content END, tool_calls, tool_call_id,"
        " outcome FROM messages WHERE turn_id = ? ORDER BY id",
        turn_id,
    ):
        if tool_calls:
            names.update({(helper, call["id"]): call["name"] for call in json.loads(tool_calls)})
        elif outcome is not None:
            outcomes[id_] = outcome
            ended[helper].append((names[helper, call_id], outcome))
        elif said is not None and helper is not None:
            tasks[helper] = said
    return {
        helper: EndedCalls(tuple(ended[helper]), task, outcomes.get(helper))
        for helper, task in tasks.items()
    }


def open_call(
    db: Session, turn_id: int, tool_call_id: str, helper: int | None = None
) -> int | None:
    """Return the row of an open call of a turn, or of one of its helpers.

    Some endpoints reuse ids of calls in later rounds, and in every helper.
    """
    found: int | None = db.value(
        "SELECT id FROM messages WHERE turn_id = ? AND tool_call_id = ?"
        " AND helper_of IS ? AND role = 'tool' AND content IS NULL ORDER BY id LIMIT 1",
        *(turn_id, tool_call_id, helper),
    )
    return found


def _with_images(messages: Numbered, shown: Shown) -> Messages:
    owners: list[int | None] = [id_ for id_, _ in messages]
    owners[:1] = [None] * len(owners[:1])
    return tuple(
        replace(message, images=tuple(shown[owner])) if owner in shown else message
        for owner, (_, message) in zip(owners, messages, strict=True)
    )


def _newest_turns(rows: Iterable[Row], max_bytes: int) -> tuple[dict[int, Numbered], int]:
    """Collect whole turns, oldest first, from rows that run from the newest to the oldest.

    Returns:
        the turns, and their bytes.
    """
    turns: list[tuple[int, Numbered]] = []
    size = 0
    for turn_id, newest_first in groupby(rows, key=itemgetter(0)):
        turn = [_numbered_message(row[1:]) for row in newest_first]
        turn.reverse()
        more = sum(_size(message) for _, message in turn)
        # A turn opens with the person's message, unless the limit on rows has cut it.
        if size + more > max_bytes or turn[0][1].role != "user":
            break
        size += more
        turns.append((turn_id, turn))
    return dict(reversed(turns)), size


def _numbered_message(row: Row) -> tuple[int, Message]:
    id_, role, content, tool_calls, tool_call_id, state, outcome = row
    calls = tuple(ToolCall(**call) for call in json.loads(tool_calls)) if tool_calls else ()
    wanted_back = ModelState(**json.loads(state)) if state else None
    failed = outcome not in (None, "ok")
    return id_, Message(Role(role), content, calls, tool_call_id, state=wanted_back, failed=failed)


def _size(message: Message) -> int:
    size = len((message.content or "").encode())
    if message.state is not None:
        size += len(message.state.data.encode())
    return size + sum(
        len(call.name.encode()) + len(call.arguments.encode()) for call in message.tool_calls
    )
