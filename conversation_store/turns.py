"""Turns: the conversation with the model from a message to its answer.

A turn answers a message, or several, and has the id of the first. A row of `messages` with role
'tool' and no content is a call that has started and not ended.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Final, NamedTuple

from conversation_store import (
    changes,
    deletion,
    heard,
    history,
    messages,
    outbox,
    questions,
    reactions,
    reminders,
    search,
    usage,
)
from conversation_store.connections import Row, Session
from conversation_store.database import (
    Aggregate,
    of_aggregate,
    reads,
    reads_aside,
    writes,
    writes_and_scrubs_if_gone,
    writes_and_scrubs_soon,
    writes_later,
)
from conversation_store.history import MAX_HISTORY_ROWS
from conversation_store.models import (
    AcceptedMessage,
    Attachment,
    AuditEntry,
    ChatId,
    History,
    Image,
    Message,
    NewExchange,
    OutgoingMessage,
    OverheardMessage,
    Question,
    Quote,
    Role,
    StoredReminder,
    StoredTurn,
    StyledText,
    TokenSpend,
    TurnEnd,
)
from conversation_store.reactions import AnswerReaction

BEGIN_WITHIN_SECONDS: Final = 0.05
"""The beginning of a quick turn shares the commit of its end. A crash before that loses nothing:
the turn begins again, and counts one attempt less."""

INTERRUPTED: Final = "Interrupted: this call was cut off before its result was known."

CLEARED_AT_ONCE: Final = 100
"""Turns that `clear` deletes in one write."""

MAX_IMAGES_OF_RESULTS: Final = 10
"""Images that results of one turn keep; a model is shown no more in one request."""
MAX_FILES_BYTES: Final = 32 * 1024 * 1024
"""Bytes of all files that tools produce in one turn; files that do not fit are left out."""


class Told(NamedTuple):
    """What the first message of a turn tells the model, in addition to people's messages to it.

    Attributes:
        overheard: messages to others.
        reacted: reactions to earlier answers.
        asked: turns whose questions are open.
        rung: reminders that came since the last turn.
    """

    overheard: Sequence[OverheardMessage] = ()
    reacted: Sequence[AnswerReaction] = ()
    asked: Sequence[int] = ()
    rung: Sequence[StoredReminder] = ()


NOTHING_TOLD: Final = Told()


class TurnStore(Aggregate):
    """The turns of all chats."""

    ended_calls = reads(of_aggregate(history.ended_calls))
    last_question = reads(of_aggregate(changes.last_question))

    @reads
    def history(
        self,
        db: Session,
        chat: ChatId,
        *,
        max_bytes: int,
        max_messages: int = MAX_HISTORY_ROWS,
        first_turn: int = 0,
        before: int | None = None,
    ) -> History:
        """Return the newest whole turns of a chat that fit, oldest first, with the newest images.

        Args:
            max_bytes: UTF-8 bytes of contents and calls; a turn that does not fit ends the history.
            max_messages: of all turns together.
            first_turn: older turns are not read.
            before: this turn and later ones are not read.
        """
        return history.of_chat(
            db,
            chat,
            has_images=self._context.with_images.may_have(db, chat),
            max_bytes=max_bytes,
            max_messages=max_messages,
            first_turn=first_turn,
            before=before,
        )

    def begin(
        self,
        pieces: Sequence[AcceptedMessage],
        content: str,
        *,
        images: Sequence[Image] = (),
        notices: Sequence[str] = (),
        told: Told = NOTHING_TOLD,
        retries: int | None = None,
    ) -> StoredTurn:
        """Begin the one turn of messages that have none, without waiting for the disk.

        Writes keep their order, so nothing of the turn is stored before its beginning. If one of
        the messages was deleted in the meantime, nothing of the turn is stored at all.

        Args:
            pieces: the messages to be answered, oldest first.
            content: the user message as the model sees it.
            notices: lines for the person above the answer.
            told: what the content tells of in addition.
            retries: the earlier turn whose question is answered again; it must still be stored.
        """
        message = Message(Role.USER, content, images=tuple(images))
        turn = StoredTurn(pieces[0].id, 1, (message,), notices=tuple(notices))
        self._database.write_later(
            lambda db: self._begin(db, turn, pieces, told, retries),
            BEGIN_WITHIN_SECONDS,
        )
        return turn

    def _begin(
        self,
        db: Session,
        turn: StoredTurn,
        pieces: Sequence[AcceptedMessage],
        told: Told,
        retried: int | None,
    ) -> None:
        if not all(_reads_as(db, piece) for piece in pieces):
            return
        expiry = _expiry(db, pieces)
        if retried is not None:
            rows = db.run("SELECT expires_at FROM turns WHERE id = ?", retried)
            if not rows:
                return
            expiry.append(rows[0][0])
            db.run("UPDATE inbox SET retries = ? WHERE id = ?", retried, turn.id)
        chat, now = pieces[0].message.chat, self._now_ms()
        # An earlier attempt may have left a row.
        db.run("DELETE FROM facts WHERE turn_id = ?", turn.id)
        db.run(
            "INSERT OR REPLACE INTO turns (id, chat, state, attempts, started_at, expires_at,"
            " notices) VALUES (?, ?, 'running', 1, ?, ?, ?)",
            *(turn.id, chat, now, _earliest(expiry)),
            json.dumps(turn.notices, ensure_ascii=False) if turn.notices else None,
        )
        heard.take(db, told.overheard, turn.id)
        reactions.take(db, chat, told.reacted, turn.id)
        for source in told.asked:
            deletion.add_turn(db, turn.id, source)
        reminders.tell(db, told.rung, turn.id, now)
        for piece in pieces[1:]:
            messages.join(db, piece.id, turn.id)
        if any(piece.message.quote for piece in pieces):
            reminders.tell_quoted(db, pieces, turn.id, now)
        _add_message(db, turn.id, turn.messages[0], now)
        if turn.messages[0].images:
            self._context.with_images.add(chat)
        for image in turn.messages[0].images:
            _add_image(db, turn.id, None, image)

    @writes
    def hear(
        self,
        db: Session,
        turn_id: int,
        pieces: Sequence[AcceptedMessage],
        content: str,
        reacted: Sequence[AnswerReaction] = (),
    ) -> bool:
        """Add messages to a running turn.

        Returns:
            False if the turn or one of the messages was deleted in the meantime; then nothing is
            stored.
        """
        rows = db.run("SELECT expires_at FROM turns WHERE id = ? AND state = 'running'", turn_id)
        if not rows or not all(_reads_as(db, piece) for piece in pieces):
            return False
        expires_at = _earliest([rows[0][0], *_expiry(db, pieces)])
        db.run("UPDATE turns SET expires_at = ? WHERE id = ?", expires_at, turn_id)
        for piece in pieces:
            messages.join(db, piece.id, turn_id)
        if any(piece.message.quote for piece in pieces):
            reminders.tell_quoted(db, pieces, turn_id, self._now_ms())
        reactions.take(db, pieces[0].message.chat, reacted, turn_id)
        _add_message(db, turn_id, Message(Role.USER, content), self._now_ms())
        return True

    @reads
    def find(self, db: Session, turn_id: int) -> StoredTurn | None:
        """Return a stored turn; None if it is gone."""
        sql = "SELECT attempts, progress_timestamp, progress_edits, notices FROM turns WHERE id = ?"
        return _stored(db, turn_id, db.run(sql, turn_id))

    @writes
    def resume(self, db: Session, accepted: AcceptedMessage) -> StoredTurn | None:
        """Continue the turn that a crash or a restart left, and count one more attempt.

        None if it was deleted together with one of its messages.
        """
        rows = db.run(
            "UPDATE turns SET attempts = attempts + 1 WHERE id = ?"
            " RETURNING attempts, progress_timestamp, progress_edits, notices",
            accepted.id,
        )
        return _stored(db, accepted.id, rows)

    @writes_and_scrubs_soon
    def restart(self, db: Session, turn_id: int) -> None:
        """Delete a turn, so that its messages can begin again."""
        deletion.forget(db, [turn_id])

    @writes
    def begin_helper(
        self, db: Session, turn_id: int, tool_call_id: str, task: str
    ) -> StoredTurn | None:
        """Begin the helper that works on an open call, or continue what a restart left of it.

        The messages of a helper belong to its turn and name the call; they are in no history.

        Args:
            task: the helper's first message.

        Returns:
            None if the call is not open.
        """
        call = history.open_call(db, turn_id, tool_call_id)
        if call is None:
            return None
        said = history.of_turn(db, turn_id, call)
        if not said:
            said = (Message(Role.USER, task),)
            _add_message(db, turn_id, said[0], self._now_ms(), call)
        return StoredTurn(call, 1, said)

    @reads_aside
    def has_result_with(self, db: Session, chat: ChatId, words: str) -> bool:
        """Return whether a stored result of a tool, or a message of a person, has these words."""
        rows = db.run(
            "SELECT 1 FROM turns JOIN messages ON messages.turn_id = turns.id"
            " WHERE turns.chat = ? AND role IN ('tool', 'user') AND instr(content, ?) LIMIT 1",
            *(chat, words),
        )
        return bool(rows)

    @writes
    def record_calls(
        self,
        db: Session,
        turn_id: int,
        assistant: Message,
        exchanged: Sequence[NewExchange] = (),
        spent: Sequence[TokenSpend] = (),
        *,
        helper: int | None = None,
    ) -> None:
        """Store that the model asks for calls, each as started, before any of them runs.

        Args:
            exchanged: the exchanges with the model, if their signatures are to be checked.
            spent: counts even if the turn is gone.
            helper: see `begin_helper`; None if the turn itself asks.
        """
        now = self._now_ms()
        usage.count(db, spent, now)
        if not db.run("SELECT 1 FROM turns WHERE id = ?", turn_id):
            return
        usage.add_exchanges(db, turn_id, exchanged)
        _add_message(db, turn_id, assistant, now, helper)
        for call in assistant.tool_calls:
            started = Message(Role.TOOL, None, tool_call_id=call.id)
            _add_message(db, turn_id, started, now, helper)

    @writes
    def record_result(
        self,
        db: Session,
        tool_call_id: str,
        content: str,
        entry: AuditEntry,
        *,
        images: Sequence[Image] = (),
        files: Sequence[Attachment] = (),
        helper: int | None = None,
    ) -> None:
        """Store the result of a call before the model sees it.

        If the turn is gone, only the audit entry is stored.

        Args:
            images: shown with the result; a turn keeps its newest.
            files: sent with the turn's answer, if they fit.
            helper: see `begin_helper`; None if the call is one of the turn itself.
        """
        call = history.open_call(db, entry.turn_id, tool_call_id, helper)
        if call is not None:
            sql = "UPDATE messages SET content = ?, outcome = ? WHERE id = ?"
            db.run(sql, content, entry.outcome, call)
        if call is not None and images:
            self._context.with_images.add(entry.chat)
            _add_images_of_result(db, entry.turn_id, call, images)
        sql = "SELECT answered_by FROM questions WHERE id = ? AND state = 'begun'"
        db.insert("audit", **asdict(entry), allowed_by=db.value(sql, call))
        if files:
            _keep_files(db, entry.turn_id, files)

    @writes_later
    def record_progress(self, db: Session, turn_id: int, signal_timestamp: int) -> None:
        """Store the turn's progress message, so that a restart edits it; waits for nothing."""
        db.run(
            "UPDATE turns SET progress_edits = progress_edits + (progress_timestamp NOT NULL),"
            " progress_timestamp = ? WHERE id = ?",
            *(signal_timestamp, turn_id),
        )

    @writes_and_scrubs_if_gone
    def finish(
        self,
        db: Session,
        turn: StoredTurn,
        ended: TurnEnd,
        parts: Sequence[str | StyledText],
        *,
        quote: Quote | None = None,
        replaces: int | None = None,
        to_make: outbox.FileToMake | None = None,
    ) -> tuple[tuple[OutgoingMessage, ...], bool]:
        """End a turn with its answer: history, inbox and outbox change in one transaction.

        Args:
            quote: quoted if the chat is a group, or something else was said in the meantime; a
                reaction is for this message.
            replaces: inbox row whose answer this one replaces; see `AcceptedMessage`.
            to_make: a file that is made later and sent with the answer.

        Returns:
            the messages to send; none if the turn or its message was deleted in the meantime.
        """
        now = self._now_ms()
        usage.count(db, ended.spent, now)
        rows = _end(db, turn, ended, now)
        if not rows:
            return (), ended.retried is not None
        ((chat, expires_at),) = rows
        chat = ChatId.parse(chat)
        usage.add_exchanges(db, turn.id, ended.exchanged)
        if ended.retried is not None:
            replaces = changes.conclude(db, turn.id, ended.retried, now)
        files = _take_files(db, turn.id) if ended.has_called else ()
        answer = outbox.NewAnswer(
            turn.id,
            chat,
            tuple(parts),
            files,
            quote,
            replaces,
            expires_at,
            reaction=ended.reaction,
            to_make=to_make,
        )
        outcome = ended.state if ended.retried is None else messages.RETRIED
        to_send = _add_answer(db, answer, outcome, now)
        if ended.was_scheduled:
            failed = ended.state != "answered"
            reminders.count_run(db, turn.id, has_failed=failed, now_ms=now)
        expired = expires_at is not None and expires_at <= now
        if expired:
            deletion.end(db, turn.id)
        elif self._context.retention_days == 0:
            db.run("DELETE FROM turns WHERE id = ?", turn.id)
        return to_send, expired or ended.retried is not None

    async def answer(
        self,
        accepted: AcceptedMessage,
        parts: Sequence[str | StyledText],
        *,
        outcome: str,
        attachments: Sequence[Attachment] = (),
        quote: Quote | None = None,
        joined: Sequence[AcceptedMessage] = (),
        undone: Question | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Answer a message without a turn (a command, a notice), or end it without words.

        A turn that a bug ended is deleted, because half a turn would confuse the model.

        Args:
            accepted: with `replaces`, its answer replaces an earlier one.
            attachments: sent with the first part.
            undone: a question that is deleted together with its answer, on people's phones too.

        Returns:
            the messages to send; none if the message was deleted in the meantime.
        """
        expires_at = _earliest([one.message.expires_at for one in (accepted, *joined)])

        def close(db: Session) -> tuple[OutgoingMessage, ...]:
            now = self._now_ms()
            if messages.outcome(db, accepted.id) == "deleted":
                return ()
            deletion.abandon(db, accepted.id)
            removals = () if undone is None else changes.undo(db, undone, now)
            for piece in joined:
                messages.join(db, piece.id, accepted.id)
            answer = outbox.NewAnswer(
                accepted.id,
                accepted.message.chat,
                tuple(parts),
                tuple(attachments),
                quote,
                accepted.replaces,
                expires_at,
                tuple(removals),
            )
            to_send = _add_answer(db, answer, outcome, now)
            if accepted.message.kind == "scheduled":
                reminders.count_run(db, accepted.id, has_failed=True, now_ms=now)
            return to_send

        write = self._database.write if undone is None else self._database.write_and_scrub
        to_send = await write(close)
        self._context.scrub_if_gone(expired=expires_at is not None and expires_at <= self._now_ms())
        return to_send

    async def clear(self, chat: ChatId) -> int:
        """Delete a chat's history and return the number of turns.

        Also deletes answers that could not be sent, words that wait for a turn, and words kept for
        catch-up. Messages that wait to be sent stay. Turns are deleted a few at a time, so that no
        other chat waits for long.
        """
        last = await self._database.write(partial(_clear_waiting, chat=chat))
        cleared = 0
        while step := await self._database.write(partial(_clear_turns, chat=chat, last=last)):
            cleared += step
        await self._database.scrub()
        return cleared


def _clear_waiting(db: Session, chat: ChatId) -> int:
    """Delete a chat's given-up answers and overheard words; return the newest turn of all chats.

    Also deletes the words kept for catch-up. Running turns that were told them are deleted when
    they end.
    """
    outbox.drop(db, "chat = ? AND state = 'given_up'", chat)
    heard.forget_waiting(db, chat)
    db.run("DELETE FROM kept_words WHERE chat = ?", chat)
    for turn_id in deletion.told_in_catch_up(db, chat):
        deletion.forget_at_end(db, turn_id)
    return int(db.value("SELECT max(id) FROM turns") or 0)


def _clear_turns(db: Session, chat: ChatId, last: int) -> int:
    cleared = db.run(
        "DELETE FROM turns WHERE id IN (SELECT id FROM turns WHERE chat = ? AND id <= ?"
        " AND state != 'running' LIMIT ?) RETURNING id",
        *(chat, last, CLEARED_AT_ONCE),
    )
    for (turn_id,) in cleared:
        db.run("DELETE FROM exchanges WHERE turn_id = ?", turn_id)
    return len(cleared)


def _reads_as(db: Session, piece: AcceptedMessage) -> bool:
    """Return whether a message still waits, and its quote has not been deleted since."""
    rows = db.run(
        "SELECT json_extract(body, '$.quote.text') FROM inbox WHERE id = ? AND state = 'waiting'",
        piece.id,
    )
    quote = piece.message.quote
    return bool(rows) and (quote is None or not quote.text or rows[0][0] != "")


def _expiry(db: Session, pieces: Sequence[AcceptedMessage]) -> list[int | None]:
    """Return when messages and the messages that they quote disappear."""
    return [
        at
        for piece in pieces
        for at in (piece.message.expires_at, messages.quoted_expiry(db, piece.message))
    ]


def _earliest(times: Sequence[int | None]) -> int | None:
    return min((at for at in times if at is not None), default=None)


def _stored(db: Session, turn_id: int, rows: Sequence[Row]) -> StoredTurn | None:
    for attempts, progress_timestamp, progress_edits, notices in rows:
        return StoredTurn(
            turn_id,
            attempts,
            history.of_turn(db, turn_id),
            progress_timestamp,
            progress_edits,
            tuple(json.loads(notices or "[]")),
        )
    return None


def _add_message(
    db: Session, turn_id: int, message: Message, now_ms: int, helper: int | None = None
) -> None:
    calls = [asdict(call) for call in message.tool_calls]
    state = message.state and asdict(message.state)
    db.insert(
        "messages",
        turn_id=turn_id,
        role=message.role,
        content=message.content,
        tool_calls=json.dumps(calls, ensure_ascii=False) if calls else None,
        tool_call_id=message.tool_call_id,
        state=json.dumps(state, ensure_ascii=False) if state else None,
        created_at=now_ms,
        helper_of=helper,
    )


def _add_image(db: Session, turn_id: int, message_id: int | None, image: Image) -> None:
    db.run(
        "INSERT INTO images (turn_id, chat, message_id, content_type, data)"
        " SELECT id, chat, ?, ?, ? FROM turns WHERE id = ?",
        *(message_id, image.content_type, image.data, turn_id),
    )


def _add_images_of_result(
    db: Session, turn_id: int, message_id: int, images: Sequence[Image]
) -> None:
    """Add images that the result of a call shows, and keep the newest such images of the turn."""
    for image in images:
        _add_image(db, turn_id, message_id, image)
    db.run(
        "DELETE FROM images WHERE turn_id = ?1 AND message_id IS NOT NULL AND id NOT IN"
        " (SELECT id FROM images WHERE turn_id = ?1 AND message_id IS NOT NULL"
        " ORDER BY id DESC LIMIT ?2)",
        *(turn_id, MAX_IMAGES_OF_RESULTS),
    )


def _end(db: Session, turn: StoredTurn, ended: TurnEnd, now_ms: int) -> list[Row]:
    """Make a turn history; return its chat and timer, or nothing if it or its message is gone."""
    turn_id = turn.id
    rows = db.run(
        "UPDATE turns SET state = ? WHERE id = ? AND EXISTS"
        " (SELECT 1 FROM inbox WHERE inbox.id = turns.id AND inbox.state = 'waiting')"
        " RETURNING chat, expires_at",
        *(ended.state, turn_id),
    )
    if rows and ended.has_called:
        db.run(
            "UPDATE messages SET content = ?"
            " WHERE turn_id = ? AND role = 'tool' AND content IS NULL",
            *(INTERRUPTED, turn_id),
        )
        questions.end(db, turn_id)
    if rows:
        _add_message(db, turn_id, Message(Role.ASSISTANT, ended.answer), now_ms)
        _make_searchable(db, turn, rows[0][0], ended, now_ms)
        if ChatId.parse(rows[0][0]).is_group:
            # The table `sources` still says that the turn was told them.
            db.run("DELETE FROM overheard WHERE turn_id = ?", turn_id)
    return rows


def _make_searchable(db: Session, turn: StoredTurn, chat: str, ended: TurnEnd, now_ms: int) -> None:
    content = turn.messages[0].content or ""
    search.add(db, turn.id, content, None if ended.retried is None else ended.retried.turn)
    if ended.state == "answered" and not ended.reaction:
        search.add_answer(db, turn.id, chat, ended.answer, now_ms)


def _add_answer(
    db: Session, answer: outbox.NewAnswer, outcome: str, now_ms: int
) -> tuple[OutgoingMessage, ...]:
    """Store an answer, and end its message and those that joined it.

    It quotes the message only if that is needed to show what it answers.
    """
    row, chat = answer.row, answer.chat
    if answer.quote is not None and not (
        answer.reaction
        or chat.is_group
        or messages.came_between(db, row, chat)
        or outbox.said_since(db, row, chat)
    ):
        answer = replace(answer, quote=None)
    to_send = outbox.add_answer(db, answer, now_ms)
    messages.close(db, row, outcome)
    messages.close_joined(db, row)
    return to_send


def _keep_files(db: Session, turn_id: int, files: Sequence[Attachment]) -> None:
    """Keep the files of a call as far as they fit; none if the turn is gone."""
    size = db.value("SELECT total(length(data)) FROM turn_files WHERE turn_id = ?", turn_id)
    for file in files:
        if size + len(file.data) <= MAX_FILES_BYTES:
            size += len(file.data)
            db.run(
                "INSERT INTO turn_files (turn_id, name, content_type, data)"
                " SELECT id, ?, ?, ? FROM turns WHERE id = ?",
                *(file.name, file.content_type, file.data, turn_id),
            )


def _take_files(db: Session, turn_id: int) -> tuple[Attachment, ...]:
    """Return the files that tools produced in a turn, and delete them."""
    rows = db.run(
        "SELECT name, content_type, data FROM turn_files WHERE turn_id = ? ORDER BY id", turn_id
    )
    if rows:
        db.run("DELETE FROM turn_files WHERE turn_id = ?", turn_id)
    return tuple(Attachment(*row) for row in rows)
