"""A busy chat: its queue, its turn, and its turns that wait for people.

A busy chat has one object, and an idle chat none. One task works through its messages and also
sends, so answers leave in order; chats work at the same time. Urgent work has a queue and a task of
its own: `!stop`, answers to questions, commands that only read, and reminders.

Edits, deletions and `!stop` change the object in one step of the event loop, so no answer to the
old words can slip through; then they change the store. They are rows of the inbox, so a restart in
between repeats them.

A suspended turn waits for a person's answer. Only its id is in memory; the store has the rest. The
code that takes the id out of `suspended` decides if the turn continues, ends or starts again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import structlog
from structlog.contextvars import bound_contextvars

from bot.chat.ask import NEXT_MESSAGE, OpenQuestion, Questions
from bot.chat.door import Door, author_of
from bot.chat.handler import ChatHandler, TurnForgotten
from bot.chat.joining import (
    EDIT_ANSWERED_MS,
    MAX_RUNNING_TURNS,
    Queue,
    Room,
    RunningTurn,
    TurnChanged,
    TurnStopped,
    Work,
    as_edited,
    joined_into_one,
    rewritten,
)
from bot.chat.outbox import Notices
from bot.chat.presence import Presence
from bot.chat.quotes import quote_of
from bot.chat.replies import BUG, UNSEEN, Replies
from bot.chat.turn import Turn
from bot.chat.upkeep import FileCleanup
from bot.commands.base import ChatTurns, Reply
from bot.commands.questions import stop
from bot.observability import logs, metrics
from bot.signal.events import Person
from bot.signal.formatting import split
from conversation_store.connections import is_of_store
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    OutgoingMessage,
    ReceivedMessage,
    Retry,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()


@dataclass(eq=False, repr=False, slots=True)
class Chat:
    """One busy chat.

    Attributes:
        queue: messages that wait for their turn, and work that keeps their order.
        urgent: work that does not wait behind a turn.
        users: tasks that work with this object; without any, it is removed.
        edits: held while the store merges an edit into a message that is queued with it already.
    """

    id: ChatId
    chats: "Chats"
    queue: Queue
    urgent: Queue
    turn: RunningTurn | None = None
    suspended: set[int] = field(default_factory=set)
    users: int = 0
    edits: asyncio.Lock = field(default_factory=asyncio.Lock)

    # Queues

    def add(
        self, item: AcceptedMessage | Work, *, urgent: bool = False, before: int | None = None
    ) -> None:
        """Queue a message or other work; urgent work does not wait behind a turn."""
        if self.chats.winding_down:
            return
        queue = self.urgent if urgent else self.queue
        queue.add(item, before=before)
        if not queue.is_worked:
            queue.is_worked = True
            self.users += 1
            self.chats.begin(self._work(queue))

    async def _work(self, queue: Queue) -> None:
        try:
            # All log events of the work carry the chat's id.
            with bound_contextvars(chat=logs.chat_id(self.id)):
                while queue and not self.chats.winding_down:
                    item = queue.take()
                    if not isinstance(item, AcceptedMessage):
                        await item()
                    elif queue is self.urgent or not await self._goes_on_before(item):
                        await self.answer(item)
        finally:
            queue.clear()
            queue.is_worked = False
            self.leave()

    async def _goes_on_before(self, item: AcceptedMessage) -> bool:
        """Queue turns whose questions were just answered, and the message behind them."""
        asks = self.chats.questions.awaited_by
        answered = [one for one in self.suspended if not asks(self.id, one)]
        if answered:
            self.queue.add(item, before=item.id)
            for turn_id in answered:
                await self.go_on(turn_id)
        return bool(answered)

    def leave(self) -> None:
        """Note that a task no longer works with this object."""
        self.users -= 1
        if not self.users and not self.suspended:
            self.chats.forget(self.id)

    def is_urgent(self, accepted: AcceptedMessage) -> bool:
        """Whether a message is a command that is answered at once."""
        command, argument = self.chats.replies.command_in(accepted.message) or (None, "")
        return command is not None and command.urgent(argument) and not accepted.joined

    # Answers to questions, and refusals

    def answered_by(self, message: ReceivedMessage) -> Sequence[OpenQuestion]:
        """Return the questions that a message may answer, if the person's key is trusted."""
        is_command = self.chats.replies.command_in(message) is not None
        if message.kind == "scheduled" or is_command:
            return ()
        is_verified = self.chats.door.identities.is_verified(message.author)
        return self.chats.questions.answered_by(message) if is_verified else ()

    async def settle(self, accepted: AcceptedMessage, questions: Sequence[OpenQuestion]) -> None:
        """Take a message as the answer to a question, or say why it does not count."""
        words = await self.chats.questions.settle(accepted, questions)
        if words is None:
            self._clean([accepted])
        elif words == NEXT_MESSAGE:
            self.add(accepted, before=accepted.id)
            self.notice(accepted.message)
        else:
            await self.refuse(accepted, words, "approval")

    async def refuse(self, accepted: AcceptedMessage, words: str, outcome: str) -> None:
        """Answer a message with a sentence that explains why it is not taken."""
        self._clean([accepted])
        said = self.chats.notices.languages.say(self.id, words)
        stored = await self.chats.store.turns.answer(accepted, (said,), outcome=outcome)
        await self.chats.notices.outbox.deliver(stored)

    def notice(self, one: ReceivedMessage) -> None:
        """Show at once that a message was accepted."""
        show, at = self.chats.presence.noticed, one.received_at
        if one.kind != "scheduled":
            show(self.id, one.author, one.timestamp, received_at=at)

    def _clean(self, accepted: Iterable[AcceptedMessage]) -> None:
        """Delete the files of messages on the Signal side."""
        self.chats.file_cleanup.files_of(*(one for each in accepted for one in each.messages))

    # Answering

    async def answer(self, accepted: AcceptedMessage) -> None:
        """Answer a message even if something fails, and send the answer; raises StoreError."""
        chats = self.chats
        if accepted.message.kind == "edit":
            settle = chats.store.changes.settle_edit
            outcome, accepted = await settle(accepted, answered_within_ms=EDIT_ANSWERED_MS)
            if outcome == "too_late":
                self._clean([accepted])
                return
            await self._send_removals()
        message = accepted.message
        if refused := await chats.door.silence(message):
            await chats.store.turns.answer(accepted, (), outcome=refused, joined=accepted.joined)
            self._clean([accepted])
            return
        is_command = chats.replies.command_in(message) is not None
        if self.id.is_group:
            self.notice(message)
        async with chats.presence.typing(self.id) as typing:
            outgoing = await self._answer_anyway([accepted, *accepted.joined])
            typing.only_reacts = all(part.is_reaction for part in outgoing)
            typing.answered = await chats.notices.outbox.deliver(outgoing, just_stored=True)
        if typing.answered:
            waited = max(0.0, chats.replies.parts.clock() - message.received_at / 1_000)
            kind = "command" if is_command else "conversation"
            metrics.ANSWER_SECONDS.labels(kind).observe(waited)
        if is_command:  # `!retry` withdraws messages of the earlier turn
            await self._send_removals()
        chats.door.loops.answered(self.id, message.author)
        if message.kind == "scheduled":
            chats.reminders_changed.set()  # it may have failed once too often

    async def _answer_anyway(self, pieces: list[AcceptedMessage]) -> tuple[OutgoingMessage, ...]:
        """Answer messages; if a bug stops that, send the person a sentence about it."""
        try:
            return await self._answer(pieces)
        except Exception as error:
            if is_of_store(error):
                raise
            # The last boundary of a turn: a bug ends here, in words for the person.
            first, *others = pieces
            log.exception("turn.bug", turn=first.id)
            metrics.TURNS.labels("bug").inc()
            self._clean(pieces)
            said = self.chats.notices.languages.say(self.id, BUG)
            return await self.chats.store.turns.answer(first, (said,), outcome="bug", joined=others)

    async def _answer(self, pieces: list[AcceptedMessage]) -> tuple[OutgoingMessage, ...]:
        """Answer the pieces, and start again if they change in the meantime."""
        chats = self.chats
        while pieces:
            async with self.edits:  # else the turn may be told what its old words had made
                first = pieces[0]
            found = await chats.replies.to(pieces, ChatTurns(chats.running, self.stop, self.clear))
            if found is not None and found[0].retry is None:
                return await self._say(pieces, *found)
            retry = None if found is None else found[0].retry
            try:
                result = await self._run(pieces, retry)
                if result is None:
                    if chats.questions.awaited_by(self.id, first.id):
                        self.suspended.add(first.id)
                        return ()
                    pieces[0] = replace(pieces[0], begun=True)  # the questions were just answered
                    continue
                # From here on nothing stops the turn: the answer is certain to be sent.
                quote = quote_of(pieces[-1])
                return await chats.conversation.finish(pieces, result, quote=quote, retry=retry)
            except TurnStopped:
                await self._end_unanswered(piece.id for piece in pieces)
                metrics.TURNS.labels("stopped").inc()
                self._clean(pieces)
                return ()
            except TurnChanged:
                await chats.store.turns.restart(first.id)
            except TurnForgotten:
                pieces[:] = await chats.store.messages.waiting_of(pieces)
            finally:
                if first.id not in self.suspended:
                    chats.questions.forget_turn(self.id, first.id)
            pieces[:] = [replace(piece, begun=False, joined=()) for piece in pieces]
        return ()

    async def _run(self, pieces: list[AcceptedMessage], retry: Retry | None) -> Turn | None:
        """Find the answer; `stop`, edits and deletions may end the turn and change the pieces."""
        self.turn = RunningTurn(
            self.queue,
            pieces,
            self.chats.door.identities.is_verified,
            joined=self._notice_joined,
            clock=self.chats.replies.parts.clock,
        )
        try:
            find = partial(self.chats.conversation.run_turn, self.turn, retry)
            return await self.turn.run(find, self.chats.places)
        finally:
            self.turn = None

    def _notice_joined(self, pieces: Iterable[AcceptedMessage]) -> None:
        """Show in a group that messages were accepted; private chats have shown it already."""
        if self.id.is_group:
            for piece in pieces:
                self.notice(piece.message)

    async def _say(
        self, pieces: Sequence[AcceptedMessage], reply: Reply, outcome: str
    ) -> tuple[OutgoingMessage, ...]:
        """Store a reply, and end the suspended turn that it undoes."""
        chats, (first, *others) = self.chats, pieces
        if reply.undone is not None:
            waited = await self._take_suspended_with(reply.undone.turn)
            self._clean([] if waited is None else [waited])
        outgoing = await chats.store.turns.answer(
            first,
            split(chats.notices.languages.say(self.id, reply.text)),
            outcome=outcome,
            attachments=reply.attachments,
            quote=quote_of(first),
            joined=others,
            undone=reply.undone,
        )
        if reply.undone is not None:
            chats.file_cleanup.look()
        if outcome == "command":  # it may have deleted words that suspended turns have read
            await chats.restart_deleted()
        self._clean(pieces)
        return outgoing

    # Ending turns

    async def stop(self, before: int) -> int:
        """Stop the turns and messages before an inbox id, and return the number of messages."""
        dropped = self.queue.drop(before=before)
        waited = [turn_id for turn_id in self.suspended if turn_id < before]
        self.end(waited)
        turn, stopped = self.turn, 0
        if turn is not None and turn.pieces[0].id < before and await turn.stop():
            stopped = len(turn.pieces)
        self._clean(dropped)
        await self._close(waited)
        await self._end_unanswered(accepted.id for accepted in dropped)
        return len(waited) + len(dropped) + stopped

    async def clear(self) -> int:
        """Delete the conversation, end the suspended turns, and return the number of turns."""
        waited = list(self.suspended)
        self.end(waited)
        await self._close(waited)
        return len(waited) + await self.chats.store.turns.clear(self.id)

    def end(self, turn_ids: Iterable[int]) -> None:
        """Forget suspended turns and their questions."""
        for turn_id in turn_ids:
            self.suspended.discard(turn_id)
            self.chats.questions.forget_turn(self.id, turn_id)

    async def _close(self, turn_ids: Sequence[int]) -> None:
        """Close the messages of turns that waited for people."""
        for turn_id in turn_ids:
            if (accepted := await self.chats.store.questions.suspended_turn(turn_id)) is not None:
                self._clean([accepted])
        await self._end_unanswered(turn_ids)

    async def _end_unanswered(self, rows: Iterable[int]) -> None:
        """End messages without an answer, and delete their open questions for everyone."""
        await self.chats.store.changes.stop([*rows])
        await self._send_removals()

    async def _take_suspended(self, turn_id: int) -> AcceptedMessage | None:
        """End a suspended turn and return its messages; None if it does not wait."""
        if turn_id not in self.suspended:
            return None
        accepted = await self.chats.store.questions.suspended_turn(turn_id)
        if turn_id not in self.suspended:
            return None
        self.end([turn_id])
        return accepted

    async def _take_suspended_with(self, row: int) -> AcceptedMessage | None:
        """End the suspended turn that answers a message, and return its messages."""
        turn_id = await self.chats.store.questions.turn_of(row) if self.suspended else row
        return await self._take_suspended(turn_id)

    async def go_on(self, turn_id: int) -> None:
        """Queue a turn that has its answers, if it is still suspended."""
        if (accepted := await self._take_suspended(turn_id)) is not None:
            self.add(accepted, urgent=self.is_urgent(accepted), before=turn_id)

    async def restart(self, turn: int) -> None:
        """Start a turn again, if it is still suspended."""
        if (waited := await self._take_suspended(turn)) is not None:
            await self._restart(waited)

    async def _restart(self, waited: AcceptedMessage, closed: Collection[int] = ()) -> None:
        """Queue the messages of a turn that was suspended, without the closed ones."""
        pieces = (replace(waited, joined=()), *waited.joined)
        self._clean(piece for piece in pieces if piece.id in closed)
        if left := [piece for piece in pieces if piece.id not in closed]:
            await self.chats.store.turns.restart(waited.id)
            self._begin_again(left)

    def _begin_again(self, pieces: Iterable[AcceptedMessage]) -> None:
        """Queue the messages of a deleted turn for a new turn."""
        first, *others = (replace(piece, begun=False) for piece in pieces)
        joined = replace(first, joined=tuple(others))
        self.add(joined, urgent=self.is_urgent(joined))

    # Edits and deletions

    async def edit(self, edit: AcceptedMessage) -> bool:
        """Edit a message that has no answer yet; queue the edit of an answered message.

        Return whether the edit waits in a queue instead of changing the running turn.
        """
        store = self.chats.store
        target_id = await store.messages.find_target(edit.message)
        target = None if target_id is None else self._unanswered(target_id)
        if target is None and target_id is not None:
            waited = await self._take_suspended_with(target_id)
            if waited is not None:
                await self._answer_afresh(waited, edit, target_id)
                return True
            answer = as_edited(edit, target_id, self.chats.questions.answered)
            if await self._restarts_without(target_id, answer):
                await store.changes.take_back_answer(edit, answer)
                await self._send_removals()
                return False
            if await self._edit_among_waiting(edit, target_id):
                return True
            target = self._unanswered(target_id)  # its turn may have continued in the meantime
        if target is None:
            self.add(edit, urgent=self.is_urgent(edit))
            return True
        # Stored steps of the turn are about the old words.
        revised = replace(rewritten(target, edit, self.chats.questions.answered), begun=False)
        waits = self.turn is None or not self.turn.change(revised.id, revised)
        if waits and self.is_urgent(revised):
            self.queue.replace(revised.id, None)
            self.add(revised, urgent=True)
        elif waits:
            self.queue.replace(revised.id, revised)
        await self._merge(edit, target)
        return waits

    async def _edit_among_waiting(self, edit: AcceptedMessage, target_id: int) -> bool:
        """Edit a message that waits joined to an earlier one; return whether there is one."""
        pieces = [replace(piece, begun=False) for piece in self.queue.holding(target_id)]
        for number, piece in enumerate(pieces):
            if piece.id == target_id:
                pieces[number] = rewritten(piece, edit, self.chats.questions.answered)
                self.queue.replace(pieces[0].id, joined_into_one(pieces))
                await self._merge(edit, piece)
                return True
        return False

    async def _merge(self, edit: AcceptedMessage, target: AcceptedMessage) -> None:
        """Merge an edit into a message that waits, and take back what its turn has made so far."""
        async with self.edits:
            await self.chats.store.changes.merge_edit(edit, target)
        await self._send_removals()

    async def _answer_afresh(
        self, waited: AcceptedMessage, edit: AcceptedMessage, target_id: int
    ) -> None:
        """Restart a suspended turn with an edited message."""
        pieces = [replace(waited, joined=()), *waited.joined]
        target = next((piece for piece in pieces if piece.id == target_id), None)
        if target is None:  # it answered a question of the turn
            answer = as_edited(edit, target_id, self.chats.questions.answered)
            await self.chats.store.changes.take_back_answer(edit, answer)
            self._begin_again([*pieces, answer])
            await self._send_removals()
            return
        revised = rewritten(target, edit, self.chats.questions.answered)
        self._begin_again(revised if piece is target else piece for piece in pieces)
        await self._merge(edit, target)

    async def delete(self, deletion: AcceptedMessage) -> None:
        """Delete a message and everything derived from it; end its turn."""
        if deletion.message.author == deletion.message.target_author:
            await self._forget(deletion)
        else:
            self.add(partial(self._forget_if_allowed, deletion), urgent=True)

    async def _forget_if_allowed(self, deletion: AcceptedMessage) -> None:
        person = author_of(deletion.message)
        if await self.chats.door.groups.is_group_admin(self.id, person):
            await self._forget(deletion)
        else:
            await self.chats.store.turns.answer(deletion, (), outcome="no_group_admin")

    async def _forget(self, deletion: AcceptedMessage) -> None:
        chats = self.chats
        chats.questions.answered.clear()  # the deleted message may have led to a question
        known = await chats.store.messages.find_target(deletion.message)
        waited = None
        if known is not None:
            waited = await self._take_suspended_with(known)
            await self._restarts_without(known)
        unseen = chats.notices.languages.say(self.id, UNSEEN)
        closed, told, note = await chats.store.changes.forget(deletion, unseen=unseen)
        if note is not None:
            chats.notices.queue(note)
        await chats.conversation.read_past_again(self.id)
        await self._send_removals()
        chats.file_cleanup.look()
        if chats.conversation.summaries is not None:  # one may have gone with the message
            chats.conversation.summaries.look(self.id, author_of(deletion.message))
        if waited is not None:
            await self._restart(waited, closed)
        await chats.each_suspended(told, Chat.restart)
        for inbox_id in closed:
            deleted = self._unanswered(inbox_id)
            if deleted is None:
                self._remove_among_waiting(inbox_id)
                continue
            self._clean([replace(deleted, joined=())])
            if self.turn is None or not self.turn.change(inbox_id, None):
                self.queue.replace(inbox_id, joined_into_one(deleted.joined))

    def _remove_among_waiting(self, inbox_id: int) -> None:
        """Remove a deleted message that waits joined to an earlier one."""
        if pieces := self.queue.holding(inbox_id):
            self._clean(piece for piece in pieces if piece.id == inbox_id)
            left = [replace(piece, begun=False) for piece in pieces if piece.id != inbox_id]
            self.queue.replace(pieces[0].id, joined_into_one(left))

    async def _send_removals(self) -> None:
        """Queue the deletions for everyone that a change has stored; the outbox sends each once."""
        for removal in await self.chats.store.outbox.removals(self.id):
            self.chats.notices.queue(removal)

    async def _restarts_without(self, row: int, new: AcceptedMessage | None = None) -> bool:
        """Restart the running turn if a message answered one of its questions; return whether."""
        turn_id, turn = await self.chats.store.questions.turn_of(row), self.turn
        if turn is None or turn.piece(row) is not None:
            return False
        return turn.change(turn_id, turn.piece(turn_id), also=new)

    def _unanswered(self, inbox_id: int) -> AcceptedMessage | None:
        """Return the current text of a message in the running turn or in the queue."""
        running = None if self.turn is None else self.turn.piece(inbox_id)
        return running or self.queue.find(inbox_id)


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Chats:
    """The busy chats.

    Attributes:
        tasks: where the chats' tasks live; work that raises ends this group.
        reminders_changed: set when the due reminders have to be read again.
    """

    tasks: asyncio.TaskGroup
    store: ConversationStore
    replies: Replies
    conversation: ChatHandler
    questions: Questions
    notices: Notices
    presence: Presence
    door: Door
    file_cleanup: FileCleanup
    reminders_changed: asyncio.Event
    room: Room = field(default_factory=partial(Room, "ordinary"), init=False)
    urgent_room: Room = field(default_factory=partial(Room, "urgent"), init=False)
    places: asyncio.Semaphore = field(
        default_factory=partial(asyncio.Semaphore, MAX_RUNNING_TURNS), init=False
    )
    winding_down: bool = field(default=False, init=False)
    _busy: dict[ChatId, Chat] = field(default_factory=dict, init=False)
    _workers: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        metrics.SUSPENDED_TURNS.set_function(  # in a thread, so chats may come and go meanwhile
            lambda: sum(len(chat.suspended) for chat in list(self._busy.values()))
        )

    def running(self) -> int:
        """Count the turns in progress."""
        return sum(chat.turn is not None for chat in self._busy.values())

    @contextmanager
    def open(self, chat: ChatId) -> Iterator[Chat]:
        """Provide the object of a chat, which stays the same inside."""
        here = self._busy.get(chat)
        if here is None:
            here = Chat(chat, self, Queue(self.room), Queue(self.urgent_room))
            self._busy[chat] = here
        here.users += 1
        try:
            yield here
        finally:
            here.leave()

    def forget(self, chat: ChatId) -> None:
        """Remove an idle chat."""
        del self._busy[chat]

    def begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Start a task of a chat."""
        worker = self.tasks.create_task(work)
        self._workers.add(worker)
        worker.add_done_callback(self._workers.discard)

    # Start and end

    async def resume(self) -> None:
        """Queue unfinished work before anything new comes in, so that every chat keeps its order.

        Does not wait for room: the queued work needs the connection, which starts later.
        """
        outbox = self.notices.outbox
        await outbox.doubts.resume(reacts=self.presence.ack_reaction is not None)
        unanswered = await self.store.messages.unfinished()
        stopped = await self._repeat_stops(unanswered)
        unsent = await self.store.outbox.unfinished()
        log.info("recovery.found", waiting=len(unanswered), count=len(unsent))
        for part in unsent:
            with self.open(part.chat) as chat:
                chat.add(partial(outbox.deliver, (part,)), urgent=part.urgent)
        await self.questions.resume()
        suspended = await self.store.questions.suspended_turns()
        for accepted in unanswered:
            message = accepted.message
            with self.open(message.chat) as chat:
                if accepted.id in stopped:
                    self.file_cleanup.files_of(*accepted.messages)
                elif accepted.id in suspended:
                    chat.suspended.add(accepted.id)
                elif message.kind == "deletion":
                    await chat.delete(accepted)
                elif message.kind == "edit":
                    await chat.edit(accepted)
                else:
                    self.notices.languages.notice(message.chat, message.text)
                    has_turn = accepted.begun or bool(accepted.joined)
                    if questions := () if has_turn else chat.answered_by(message):
                        chat.add(partial(chat.settle, accepted, questions), urgent=True)
                    else:
                        chat.add(accepted, urgent=chat.is_urgent(accepted))

    async def _repeat_stops(self, waiting: Sequence[AcceptedMessage]) -> frozenset[int]:
        """Close the messages before each unanswered `!stop`, and return their ids."""
        stopped: set[int] = set()
        before: dict[ChatId, list[int]] = {}
        for accepted in waiting:
            earlier = before.setdefault(accepted.message.chat, [])
            command, argument = self.replies.command_in(accepted.message) or (None, "")
            if command is stop:
                stopped.update(earlier)
                earlier.clear()
            elif command is not None and command.urgent(argument):
                continue  # `!stop` does not end commands that only read
            elif accepted.message.kind != "deletion":
                earlier += (accepted.id, *(piece.id for piece in accepted.joined))
        if stopped:
            await self.store.changes.stop(sorted(stopped))
        return frozenset(stopped)

    def wind_down(self) -> None:
        """Start no further work, and end all waits for room; the next start does the rest."""
        self.winding_down = True
        self.room.close()
        self.urgent_room.close()

    async def drain(self) -> None:
        """Wait until no work runs; after `wind_down`, ignore waiting work."""
        while self._workers:
            await asyncio.wait(self._workers)

    def cancel(self) -> None:
        """Cancel the work of all chats; the next start continues from the store."""
        for worker in self._workers:
            worker.cancel()

    # Work for chats from other parts

    async def run(self, answered: asyncio.Queue[int]) -> None:
        """Queue notices, checks of new keys and answered turns for chats, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._send_notices())
            tasks.create_task(self._look_at_new_keys())
            tasks.create_task(self._continue_turns(answered))

    async def _send_notices(self) -> None:
        while True:
            note = await self.notices.waiting.get()
            with self.open(note.chat) as chat:
                chat.add(partial(self.notices.outbox.deliver, (note,)), urgent=note.urgent)

    async def _look_at_new_keys(self) -> None:
        while True:
            private = await self.notices.outbox.untrusted.get()
            with self.open(private) as chat:
                look = partial(self.door.identities.changed, Person(private.value))
                chat.add(look, urgent=True)

    async def _continue_turns(self, answered: asyncio.Queue[int]) -> None:
        while True:
            await self.each_suspended([await answered.get()], Chat.go_on)

    def disappeared(self, accepted: AcceptedMessage) -> None:
        """Forget a suspended turn whose message has expired."""
        with self.open(accepted.message.chat) as chat:
            chat.end([accepted.id])
        self.questions.answered.clear()
        self.file_cleanup.files_of(*accepted.messages)

    async def restart_deleted(self) -> None:
        """Restart the suspended turns that have read words which are deleted by now."""
        if any(chat.suspended for chat in self._busy.values()):
            await self.each_suspended(await self.store.questions.deleted_turns(), Chat.restart)

    async def each_suspended(
        self, turn_ids: Iterable[int], do: Callable[[Chat, int], Awaitable[None]]
    ) -> None:
        """Call `do` for each of these turns that is suspended."""
        for turn_id in turn_ids:
            for found in self._busy.values():
                if turn_id in found.suspended:
                    with self.open(found.id) as chat:
                        await do(chat, turn_id)
                    break
