"""Edits and deletions: what people make of what they have written.

A change of what waits or runs is made in memory first, in one step with the decision that it does,
so that no answer to the old words can slip through; then it is stored. Both are rows of the inbox,
so a restart in between makes the change again; it waits for no room, so whoever brings new ones has
to.
"""

from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.turns.requests import Request
from bot.dispatch.turns.router import Router
from bot.dispatch.turns.running import Turns
from bot.dispatch.turns.suspended import SuspendedTurns
from bot.messaging.events import Person
from conversation_store.models import AcceptedMessage, ChatId
from conversation_store.store import ConversationStore

IsGroupAdmin = Callable[[ChatId, Person], Awaitable[bool]]


class Changes:
    """Carries out accepted edits and deletions.

    Args:
        store: where they are kept.
        turns: what runs.
        suspended: what waits for people.
        mailboxes: what waits.
        urgent: where a deletion by somebody else waits for the group's word.
        router: answers what was edited.
        file_cleanup: deletes files of what was deleted.
        is_group_admin: whether somebody may delete what others wrote.
    """

    def __init__(
        self,
        *,
        store: ConversationStore,
        turns: Turns,
        suspended: SuspendedTurns,
        mailboxes: Mailboxes,
        urgent: Mailboxes,
        router: Router,
        file_cleanup: FileCleanup,
        is_group_admin: IsGroupAdmin,
    ) -> None:
        self._store = store
        self._turns = turns
        self._suspended = suspended
        self._mailboxes = mailboxes
        self._urgent = urgent
        self._router = router
        self._file_cleanup = file_cleanup
        self._is_group_admin = is_group_admin

    async def edit(self, request: Request) -> bool:
        """Let a message without an answer read otherwise; else answer the edit in its turn.

        Returns:
            Whether it waits for its turn, rather than changing the one that runs.
        """
        edit = request.accepted
        chat = edit.message.chat
        target_id = await self._store.messages.find_target(edit.message)
        target = None if target_id is None else self._unanswered(chat, target_id)
        if target is None and target_id is not None:
            waited = await self._suspended.take_with(chat, target_id)
            if waited is not None:
                await self._answer_afresh(waited, edit, target_id)
                return True
            target = self._unanswered(chat, target_id)  # it may have gone on in between
        if target is None:
            self.queue(request)
            return True
        # What was begun before the start is about the old words.
        revised = replace(target, message=target.message.after(edit.message), begun=False)
        waits = not self._turns.revise(revised)
        if waits:
            self._requeue(revised)
        await self._store.messages.merge_edit(edit, target)
        return waits

    async def _answer_afresh(
        self, waited: AcceptedMessage, edit: AcceptedMessage, target_id: int
    ) -> None:
        """Let a turn that waited for people begin again with a message as it reads now."""
        pieces = [replace(waited, joined=()), *waited.joined]
        target = next(piece for piece in pieces if piece.id == target_id)
        self._begin_again(
            replace(piece, message=piece.message.after(edit.message)) if piece is target else piece
            for piece in pieces
        )
        await self._store.messages.merge_edit(edit, target)

    def _begin_again(self, pieces: Iterable[AcceptedMessage]) -> None:
        """Queue messages whose turn is forgotten, to be answered by a new one."""
        first, *others = (replace(piece, begun=False) for piece in pieces)
        again = replace(first, joined=tuple(others))
        self.queue(self._router.classify(again))

    def queue(self, request: Request) -> None:
        """Put the work of a message into its lane, room or not."""
        lane = self._urgent if request.urgent else self._mailboxes
        lane.add(request.accepted.message.chat, self._router.job(request))

    def _requeue(self, revised: AcceptedMessage) -> None:
        """Let what waits read otherwise in its place, unless it may wait no longer now."""
        chat = revised.message.chat
        request = self._router.classify(revised)
        if request.urgent:
            self._mailboxes.replace(chat, revised.id, None)
            self.queue(request)
        else:
            self._mailboxes.replace(chat, revised.id, self._router.job(request))

    async def delete(self, deletion: AcceptedMessage) -> None:
        """Forget what was deleted, and what was made of it; end the turn that is about it."""
        message = deletion.message
        if message.author == message.target_author:
            await self._forget(deletion)
        else:
            self._urgent.add(message.chat, Job(partial(self._forget_if_allowed, deletion)))

    async def _forget_if_allowed(self, deletion: AcceptedMessage) -> None:
        message = deletion.message
        person = Person(message.author, message.author_number)
        if await self._is_group_admin(message.chat, person):
            await self._forget(deletion)
        else:
            await self._store.turns.answer(deletion, (), outcome="no_group_admin")

    async def _forget(self, deletion: AcceptedMessage) -> None:
        chat = deletion.message.chat
        waited = await self._suspended_turn_of(deletion)
        closed = await self._store.messages.forget(deletion)
        if waited is not None:
            pieces = (replace(waited, joined=()), *waited.joined)
            self._file_cleanup.files_of(*(one.message for one in pieces if one.id in closed))
            if left := [piece for piece in pieces if piece.id not in closed]:
                await self._store.turns.restart(waited.id)
                self._begin_again(left)
        for inbox_id in closed:
            if (deleted := self._unanswered(chat, inbox_id)) is not None:
                self._file_cleanup.files_of(deleted.message)
            if deleted is not None and not self._turns.withdraw(chat, inbox_id):
                self._mailboxes.replace(chat, inbox_id, self._job_without(deleted))

    async def _suspended_turn_of(self, deletion: AcceptedMessage) -> AcceptedMessage | None:
        """Take out the turn that waits for people and knows a message that is deleted."""
        known_to = await self._store.messages.find_target(deletion.message)
        if known_to is None:
            known_to = await self._store.messages.told_turn(deletion)
        if known_to is None:
            return None
        return await self._suspended.take_with(deletion.message.chat, known_to)

    def _job_without(self, deleted: AcceptedMessage) -> Job | None:
        """Return the work that is left of a message and those that were to be answered with it."""
        if not deleted.joined:
            return None
        first, *others = deleted.joined
        left = replace(first, joined=tuple(others))
        return self._router.job(Request(left, self._router.command_in(left.message)))

    def _unanswered(self, chat: ChatId, inbox_id: int) -> AcceptedMessage | None:
        return self._turns.piece(chat, inbox_id) or self._mailboxes.piece(chat, inbox_id)
