"""Turns: how one begins, goes on, ends, and is forgotten with all that was derived in it."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from conversation_store import (
    history,
    inbox,
    instructions,
    outgoing,
    overheard,
    remembered,
    reminders,
)
from conversation_store.connections import Execute, Row
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    Image,
    Message,
    ModelState,
    NewExchange,
    OverheardMessage,
    Role,
    Turn,
    TurnStatus,
    TurnUsage,
)
from conversation_store.reminders import Holders

INTERRUPTED: Final = "Interrupted: this call was cut off before its result was known."

FORGET_CONTENTS: Final = (
    "DELETE FROM messages WHERE turn_id = ?",
    "DELETE FROM images WHERE turn_id = ?",
    "DELETE FROM turn_files WHERE turn_id = ?",
)


@dataclass(frozen=True, slots=True)
class Ended:
    """What is left to do for a turn that has ended: where its answer goes, and until when."""

    chat: ChatId
    expires_at: int | None


def begin(
    execute: Execute,
    turn: Turn,
    pieces: Sequence[AcceptedMessage],
    told: Sequence[OverheardMessage],
    *,
    retries: int | None,
    now_ms: int,
) -> None:
    """Store a turn's beginning, unless one of its messages was forgotten meanwhile.

    Of one that answers the question of an earlier turn anew (`retries`), the earlier one has to be
    there as well.
    """
    if not all(inbox.is_waiting(execute, piece.id) for piece in pieces):
        return
    expiry = [piece.message.expires_at for piece in pieces]
    if retries is not None:
        if not is_there(execute, retries):
            return
        expiry += [at for (at,) in execute("SELECT expires_at FROM turns WHERE id = ?", (retries,))]
        inbox.retry(execute, turn.id, retries)
    expiry.append(overheard.take(execute, told, turn.id))
    first = pieces[0].message
    # A row that an earlier try has left goes with all that belongs to it.
    forget_told(execute, remembered.forget_from(execute, turn.id))
    execute(
        "INSERT OR REPLACE INTO turns (id, chat, state, attempts, started_at, expires_at, notices)"
        " VALUES (?, ?, 'running', 1, ?, ?, ?)",
        (
            turn.id,
            first.chat,
            now_ms,
            min((at for at in expiry if at is not None), default=None),
            json.dumps(turn.notices, ensure_ascii=False) if turn.notices else None,
        ),
    )
    for piece in pieces[1:]:
        inbox.join(execute, piece.id, turn.id)
    reminders.tell_quoted(execute, pieces, turn.id, now_ms)
    add_message(execute, turn.id, turn.messages[0], now_ms)
    _add_images(execute, turn.id, first.chat, turn.messages[0].images)


def hear(
    execute: Execute,
    turn_id: int,
    pieces: Sequence[AcceptedMessage],
    content: str,
    now_ms: int,
) -> bool:
    """Add messages to a turn that runs, unless it or one of them was forgotten meanwhile."""
    rows = list(
        execute("SELECT expires_at FROM turns WHERE id = ? AND state = 'running'", (turn_id,))
    )
    if not rows or not all(inbox.is_waiting(execute, piece.id) for piece in pieces):
        return False
    expiry = [at for (at,) in rows] + [piece.message.expires_at for piece in pieces]
    execute(
        "UPDATE turns SET expires_at = ? WHERE id = ?",
        (min((at for at in expiry if at is not None), default=None), turn_id),
    )
    for piece in pieces:
        inbox.join(execute, piece.id, turn_id)
    reminders.tell_quoted(execute, pieces, turn_id, now_ms)
    add_message(execute, turn_id, Message(Role.USER, content), now_ms)
    return True


def resume(execute: Execute, turn_id: int) -> Turn | None:
    """Count one more attempt and return what is stored of a turn; None for one that is gone."""
    rows = list(
        execute(
            "UPDATE turns SET attempts = attempts + 1 WHERE id = ?"
            " RETURNING attempts, progress_timestamp, progress_edits, notices",
            (turn_id,),
        )
    )
    return _stored(execute, turn_id, rows)


def find(execute: Execute, turn_id: int) -> Turn | None:
    """Return what is stored of a turn; None for one that is gone."""
    rows = list(
        execute(
            "SELECT attempts, progress_timestamp, progress_edits, notices FROM turns WHERE id = ?",
            (turn_id,),
        )
    )
    return _stored(execute, turn_id, rows)


def _stored(execute: Execute, turn_id: int, rows: Sequence[Row]) -> Turn | None:
    if not rows:
        return None
    attempts, progress_timestamp, progress_edits, notices = rows[0]
    return Turn(
        turn_id,
        attempts,
        history.of_turn(execute, turn_id),
        progress_timestamp,
        progress_edits,
        tuple(json.loads(notices or "[]")),
    )


def is_there(execute: Execute, turn_id: int) -> bool:
    """Whether a turn was begun and is not forgotten."""
    return bool(list(execute("SELECT 1 FROM turns WHERE id = ?", (turn_id,))))


def add_message(
    execute: Execute, turn_id: int, message: Message, now_ms: int, helper: int | None = None
) -> None:
    """Add a message to a turn that is there, or to one of its helpers."""
    calls = [
        {"id": call.id, "name": call.name, "arguments": call.arguments}
        for call in message.tool_calls
    ]
    execute(
        "INSERT INTO messages (turn_id, role, content, tool_calls, tool_call_id, state, created_at,"
        " helper_of) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            turn_id,
            message.role,
            message.content,
            json.dumps(calls, ensure_ascii=False) if calls else None,
            message.tool_call_id,
            _dumped(message.state),
            now_ms,
            helper,
        ),
    )


def _dumped(state: ModelState | None) -> str | None:
    if state is None:
        return None
    return json.dumps({"of": state.of, "data": state.data}, ensure_ascii=False)


def add_exchanges(execute: Execute, turn_id: int, exchanges: Sequence[NewExchange]) -> None:
    """Add exchanges of a turn, whose signatures are still to be checked."""
    for exchange in exchanges:
        execute(
            "INSERT INTO exchanges"
            " (turn_id, completion_id, request_sha256, response_sha256, model, state)"
            " VALUES (?, ?, ?, ?, ?, 'waiting')",
            (
                *(turn_id, exchange.completion_id),
                *(exchange.request_sha256, exchange.response_sha256, exchange.model),
            ),
        )


def add_images_of_result(
    execute: Execute, turn_id: int, message_id: int, images: Sequence[Image], most: int
) -> None:
    """Add what the result of a call shows, and keep the newest such images of its turn."""
    for image in images:
        execute(
            "INSERT INTO images (turn_id, chat, message_id, content_type, data)"
            " SELECT id, chat, ?, ?, ? FROM turns WHERE id = ?",
            (message_id, image.content_type, image.data, turn_id),
        )
    execute(
        "DELETE FROM images WHERE turn_id = ? AND message_id IS NOT NULL AND id NOT IN"
        " (SELECT id FROM images WHERE turn_id = ? AND message_id IS NOT NULL"
        " ORDER BY id DESC LIMIT ?)",
        (turn_id, turn_id, most),
    )


def add_calls(
    execute: Execute, turn_id: int, assistant: Message, now_ms: int, helper: int | None = None
) -> None:
    """Add a message that asks for calls, and each of them as started."""
    add_message(execute, turn_id, assistant, now_ms, helper)
    for call in assistant.tool_calls:
        started = Message(Role.TOOL, None, tool_call_id=call.id)
        add_message(execute, turn_id, started, now_ms, helper)


def open_call(
    execute: Execute, turn_id: int, tool_call_id: str, helper: int | None = None
) -> int | None:
    """Return the row of an open call of a turn, or of one of its helpers.

    A careless endpoint may use an id again in a later round, and for every helper.
    """
    rows = list(
        execute(
            "SELECT id FROM messages WHERE turn_id = ? AND tool_call_id = ?"
            " AND helper_of IS ? AND role = 'tool' AND content IS NULL ORDER BY id LIMIT 1",
            (turn_id, tool_call_id, helper),
        )
    )
    return next((row_id for (row_id,) in rows), None)


def end(
    execute: Execute,
    turn: Turn,
    *,
    state: TurnStatus,
    answer: str,
    model: str,
    usage: TurnUsage,
    now_ms: int,
) -> Ended | None:
    """Make a turn history; None where it, or the message that it answers, is gone."""
    ended = list(
        execute(
            "UPDATE turns SET state = ?, finished_at = ?, model = ?, requests = ?,"
            " prompt_tokens = ?, completion_tokens = ? WHERE id = ? AND EXISTS"
            " (SELECT 1 FROM inbox WHERE inbox.id = turns.id AND inbox.state = 'waiting')"
            " RETURNING chat, expires_at",
            (
                state,
                now_ms,
                model,
                usage.requests,
                usage.prompt_tokens,
                usage.completion_tokens,
                turn.id,
            ),
        )
    )
    if not ended:
        return None
    execute(
        "UPDATE messages SET content = ? WHERE turn_id = ? AND role = 'tool' AND content IS NULL",
        (INTERRUPTED, turn.id),
    )
    execute(
        "UPDATE approvals SET state = 'silence' WHERE state = 'open'"
        " AND id IN (SELECT id FROM messages WHERE turn_id = ?)",
        (turn.id,),
    )
    add_message(execute, turn.id, Message(Role.ASSISTANT, answer), now_ms)
    overheard.forget_told(execute, turn.id)
    ((chat, expires_at),) = ended
    return Ended(ChatId.parse(chat), expires_at)


def abandon(execute: Execute, turn_id: int, now_ms: int) -> None:
    """End a turn without an answer of its own and forget what was said in it."""
    rows = list(
        execute(
            "UPDATE turns SET state = 'stopped', finished_at = ?, notices = NULL WHERE id = ?"
            " RETURNING id",
            (now_ms, turn_id),
        )
    )
    if rows:
        for statement in FORGET_CONTENTS:
            execute(statement, (turn_id,))
        _forget_exchanges(execute, turn_id)
        overheard.release(execute, turn_id)
        forget_told(execute, remembered.forget_from(execute, turn_id))


def drop_history(execute: Execute, turn_id: int) -> None:
    """Keep nothing of what was said in a turn that has ended; its exchanges are still checked."""
    execute("DELETE FROM turns WHERE id = ?", (turn_id,))


def forget(execute: Execute, turn_id: int, *, time_is_over: bool = False) -> None:
    """Forget a turn with all that was derived in it; messages that wait stand for themselves.

    Args:
        execute: runs a statement.
        turn_id: the turn.
        time_is_over: nobody took it back, its history has disappeared. What it is to remind people
            of is still to come then, and what it has remembered goes at its own time.
    """
    execute("DELETE FROM turns WHERE id = ?", (turn_id,))
    _forget_exchanges(execute, turn_id)
    execute("UPDATE audit SET arguments = NULL WHERE turn_id = ?", (turn_id,))
    overheard.release(execute, turn_id)
    inbox.part(execute, turn_id)
    if not time_is_over:
        forget_holders(execute, reminders.forget_from(execute, turn_id))
        instructions.forget_from(execute, turn_id)
        forget_told(execute, remembered.forget_from(execute, turn_id))


def forget_holders(execute: Execute, holders: Holders) -> None:
    """Forget what holds the words of reminders that are forgotten by now.

    Questions that the bot asked itself go as if their messages were taken back.
    """
    outgoing.drop(execute, holders.unsaid)
    for run in holders.runs:
        for turn_id in inbox.with_retries(execute, run):
            forget(execute, turn_id)
            outgoing.drop_unsent(execute, turn_id)
            if inbox.is_waiting(execute, turn_id):
                inbox.close(execute, turn_id, "deleted")
    for told in holders.told:
        forget_with_answers(execute, inbox.with_retries(execute, told))


def forget_told(execute: Execute, told: Iterable[int]) -> None:
    """Forget turns that were told what is forgotten by now; one that runs, when it ends."""
    for turn_id in told:
        if not forget_at_end(execute, turn_id):
            forget(execute, turn_id, time_is_over=True)


def forget_with_answers(execute: Execute, told: Iterable[int]) -> None:
    """Forget turns that were told what people take back, and what is unsent of their answers.

    One that runs goes when it ends; the facts that came from it go at once.
    """
    for turn_id in told:
        if forget_at_end(execute, turn_id):
            forget_told(execute, remembered.forget_from(execute, turn_id))
        else:
            forget(execute, turn_id, time_is_over=True)
            outgoing.drop_unsent(execute, turn_id)


def forget_at_end(execute: Execute, turn_id: int) -> bool:
    """Let nothing stay of a turn that runs, once it has ended; False where it does not run."""
    rows = list(
        execute(
            "UPDATE turns SET expires_at = 0 WHERE id = ? AND state = 'running' RETURNING id",
            (turn_id,),
        )
    )
    return bool(rows)


def clear(execute: Execute, chat: ChatId) -> int:
    """Forget a chat's turns that do not run and return how many that were."""
    sql = "DELETE FROM turns WHERE chat = ? AND state != 'running' RETURNING id, expires_at"
    forgotten = list(execute(sql, (chat,)))
    for turn_id, expires_at in forgotten:
        _forget_exchanges(execute, turn_id)
        if expires_at is not None:  # nothing knows any more when its arguments have to go
            execute("UPDATE audit SET arguments = NULL WHERE turn_id = ?", (turn_id,))
    return len(forgotten)


def expired(execute: Execute, now_ms: int) -> list[int]:
    """Return the turns that have disappeared and do not run."""
    rows = list(
        execute("SELECT id FROM turns WHERE expires_at <= ? AND state != 'running'", (now_ms,))
    )
    return [turn_id for (turn_id,) in rows]


def next_expiry(execute: Execute, now_ms: int) -> int | None:
    """Return when the next turn disappears; it may have ended by then.

    What runs past its time is forgotten when it ends.
    """
    ((expires_at,),) = execute(
        "SELECT min(expires_at) FROM turns WHERE expires_at IS NOT NULL"
        " AND (state != 'running' OR expires_at > ?)",
        (now_ms,),
    )
    return None if expires_at is None else int(expires_at)


def purge(execute: Execute, before: int, at_most: int) -> int:
    """Forget turns that were begun before a time and do not run; return how many that were."""
    sql = (
        "DELETE FROM turns WHERE id IN (SELECT id FROM turns"
        " WHERE started_at < ? AND state != 'running' LIMIT ?) RETURNING id"
    )
    return len(list(execute(sql, (before, at_most))))


def _forget_exchanges(execute: Execute, turn_id: int) -> None:
    execute("DELETE FROM exchanges WHERE turn_id = ?", (turn_id,))


def _add_images(execute: Execute, turn_id: int, chat: ChatId, images: Sequence[Image]) -> None:
    for image in images:
        execute(
            "INSERT INTO images (turn_id, chat, content_type, data) VALUES (?, ?, ?, ?)",
            (turn_id, chat, image.content_type, image.data),
        )
