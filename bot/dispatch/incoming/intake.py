"""The door: what comes in is stored before anything else looks at it, then gets its lane.

Who may talk is decided on the envelope alone, before the store: nothing that a stranger wrote is
kept, not even in somebody else's quote. What people who may talk say to others in a group is kept
for a while as well, so that the bot knows what is talked about when it is asked.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import Final, NamedTuple

import structlog

from bot.approvals.answers import Answers
from bot.dispatch.background.alarm import Alarm
from bot.dispatch.background.expiry import Expiry
from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.background.steady_clock import SteadyClock
from bot.dispatch.incoming.access import Access, Allowance
from bot.dispatch.incoming.changes import Changes
from bot.dispatch.incoming.groups import GroupPermissions
from bot.dispatch.incoming.identities import Identities
from bot.dispatch.incoming.message_requests import MessageRequests
from bot.dispatch.incoming.pairing import Pairing
from bot.dispatch.incoming.received import received, received_deletion, received_edit
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.turns.loop_guard import LoopGuard, LoopVerdict
from bot.dispatch.turns.requests import Request, RequestKind
from bot.dispatch.turns.router import Router
from bot.messaging.events import (
    Deletion,
    Edit,
    GroupChanged,
    IdentityChanged,
    Incoming,
    IncomingMessage,
    Person,
    PollVote,
    Reaction,
)
from bot.observability import log_ids, metrics
from bot.observability.log_ids import LogId
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    ReceivedMessage,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()

TOO_FAST: Final = "You are writing faster than I can answer. Please wait a minute."
TOO_MANY_WAITING: Final = (
    "I am still busy with your earlier messages, so I did not take this one."
    " Please send it again later, or send !stop to drop what waits."
)

_Words = IncomingMessage | Edit | Deletion

_COUNTED_AS: Final = {
    RequestKind.DELETION: "deletion",
    RequestKind.EDIT: "edit",
    RequestKind.URGENT_COMMAND: "urgent",
    RequestKind.ANSWER: "urgent",
}
"""Everything else is counted as accepted."""


class _Refusal(NamedTuple):
    """Why a message is not taken, and what is said about it; without a text, silence."""

    outcome: str
    text: str | None = None


_OVER: Final = {
    Allowance.FIRST_OVER: _Refusal("rate_limited", TOO_FAST),
    Allowance.OVER: _Refusal("rate_limited"),
}


class Intake:
    """Takes what comes from a transport, stores it and hands it to its lane.

    Args:
        access: who may talk, and how much.
        store: where messages are kept.
        answers: takes reactions.
        mailboxes: the ordinary lane.
        urgent: the lane of what may not wait behind the turn that it concerns.
        router: does the work.
        changes: carries out edits and deletions.
        pairing: gives strangers a code, where a code lets people in.
        message_requests: accepts those of people who may talk.
        group_permissions: is told when a group changes.
        identities: is told of new keys, and who has written.
        file_cleanup: deletes files that nobody will look at.
        loop_guard: finds out who is a bot.
        expiry: removes what disappears.
        alarm: is told which reminders are done.
        clock: hears from messages what time it is.
    """

    def __init__(
        self,
        *,
        access: Access,
        store: ConversationStore,
        answers: Answers,
        mailboxes: Mailboxes,
        urgent: Mailboxes,
        router: Router,
        changes: Changes,
        pairing: Pairing,
        message_requests: MessageRequests,
        group_permissions: GroupPermissions,
        identities: Identities,
        file_cleanup: FileCleanup,
        loop_guard: LoopGuard,
        expiry: Expiry,
        alarm: Alarm,
        clock: SteadyClock,
    ) -> None:
        self._access = access
        self._store = store
        self._answers = answers
        self._mailboxes = mailboxes
        self._urgent = urgent
        self._router = router
        self._changes = changes
        self._pairing = pairing
        self._message_requests = message_requests
        self._group_permissions = group_permissions
        self._identities = identities
        self._file_cleanup = file_cleanup
        self._loop_guard = loop_guard
        self._expiry = expiry
        self._alarm = alarm
        self._clock = clock

    async def deliver(self, delivery: Sequence[Incoming]) -> None:
        """Take what came, oldest first; returns when it is stored and has its lane."""
        for words, group in groupby(delivery, lambda one: isinstance(one, _Words)):
            if words:
                await self._take([one for one in group if isinstance(one, _Words)])
                continue
            for one in group:
                await self._take_event(one)

    async def _take_event(self, event: Incoming) -> None:
        if isinstance(event, Reaction):
            metrics.INTAKE.labels("reaction").inc()
            if self._access.may_talk(event.author) and self._identities.is_verified(
                event.author.aci
            ):
                await self._answers.react(event)
                await self._alarm.react(event)
        elif isinstance(event, PollVote):
            metrics.INTAKE.labels("vote").inc()
            if self._access.may_talk(event.author) and self._identities.is_verified(
                event.author.aci
            ):
                await self._answers.vote(event)
        elif isinstance(event, GroupChanged):
            job = Job(partial(self._group_permissions.changed, event))
            await self._look_into(event.chat, job)
        elif isinstance(event, IdentityChanged):
            job = Job(partial(self._identities.changed, event))
            await self._look_into(ChatId.direct(event.person.aci), job)

    async def _look_into(self, chat: ChatId, job: Job) -> None:
        """Do what asks the Signal side; of a flood, as much as a chat may have waiting."""
        if not self._urgent.is_full(chat):
            await self._urgent.put(chat, job)

    async def _take(self, words: Sequence[_Words]) -> None:
        admitted: list[ReceivedMessage] = []
        overheard: list[ReceivedMessage] = []
        for one in words:
            if isinstance(one, IncomingMessage):
                await self._sort(one, admitted, overheard)
                continue
            # What is changed may have come just before; it has to be known by then.
            await self._keep(admitted, overheard)
            admitted, overheard = await self._change(one), []
        await self._keep(admitted, overheard)

    async def _keep(
        self, admitted: Sequence[ReceivedMessage], overheard: Sequence[ReceivedMessage]
    ) -> None:
        if overheard:
            await self._store.messages.overhear(overheard)
            for message in overheard:
                self._watch_timer(message)
            metrics.INTAKE.labels("overheard").inc(len(overheard))
        if not admitted:
            return
        unverified = frozenset(
            message.author
            for message in admitted
            if not self._identities.is_verified(message.author)
        )
        stored = await self._store.messages.accept(admitted, unverified=unverified)
        for message, accepted in zip(admitted, stored, strict=True):
            if accepted is not None:
                await self._choose_lane(accepted)
                continue
            metrics.INTAKE.labels("duplicate").inc()
            # The files of a message that came twice are still needed, perhaps.
            if message.files and await self._store.messages.is_past(message):
                self._file_cleanup.files_of(message)

    async def _hear_the_time(self, message: IncomingMessage) -> None:
        """Ask Signal's server for the time; whoever writes says anything."""
        told_ms = message.delivered_timestamp or message.server_timestamp
        if told_ms is not None and self._clock.heard(told_ms / 1_000):
            await self._store.upkeep.set_back()
            self._alarm.look()

    async def _sort(
        self,
        message: IncomingMessage,
        admitted: list[ReceivedMessage],
        overheard: list[ReceivedMessage],
    ) -> None:
        await self._hear_the_time(message)
        self._file_cleanup.add(message.unread)
        if not self._access.may_talk(message.author):
            metrics.INTAKE.labels("not_admitted").inc()
            log.debug("intake.not_admitted", person=log_ids.person(message.author.aci))
            self._file_cleanup.files_of(message)
            await self._pairing.stranger(message)
            return
        if not message.chat.is_group:
            self._message_requests.accept(message.author.aci)
        await self._identities.seen(message.author.aci)
        message = self._without_strangers_words(message)
        if self._access.addressed(message):
            admitted.append(received(message, self._clock.now_ms()))
            return
        self._file_cleanup.files_of(message)
        listens = self._access.listens and self._identities.is_verified(message.author.aci)
        if message.text and listens:
            overheard.append(received(message, self._clock.now_ms()))
        else:
            metrics.INTAKE.labels("not_admitted").inc()

    def _without_strangers_words(self, message: IncomingMessage) -> IncomingMessage:
        """Return a message whose quote has no text, where it is of somebody who may not talk."""
        quote = message.quote
        if quote is None or quote.by_bot or quote.author == message.author.aci:
            return message
        if quote.author is not None:
            author = Person(quote.author, quote.author_number)
            if self._access.may_talk(author) and self._identities.is_verified(author.aci):
                return message
        return replace(message, quote=replace(quote, text=""))

    async def _change(self, change: Edit | Deletion) -> list[ReceivedMessage]:
        """Return what an edit or a deletion is to be stored as, if it is anything to the bot."""
        if isinstance(change, Deletion):
            deletion = received_deletion(change, self._clock.now_ms())
            # People may take back what they wrote whether they still may talk or not.
            known = self._access.may_talk(change.author)
            if known or await self._store.messages.knows_target(deletion):
                return [deletion]
            metrics.INTAKE.labels("not_admitted").inc()
            return []
        self._file_cleanup.add(change.message.unread)
        if not self._access.may_talk(change.message.author):
            metrics.INTAKE.labels("not_admitted").inc()
            self._file_cleanup.files_of(change.message)
            return []
        message = self._without_strangers_words(change.message)
        edit = received_edit(replace(change, message=message), self._clock.now_ms())
        # Of what was never received it is answered as a message, and goes when that is deleted.
        is_addressed = self._access.addressed(change.message)
        if is_addressed or await self._store.messages.find_target(edit) is not None:
            return [edit]
        self._file_cleanup.files_of(edit)
        metrics.INTAKE.labels("overheard").inc()
        await self._store.messages.edit_overheard(edit)
        return []

    async def _choose_lane(self, accepted: AcceptedMessage) -> None:
        message = accepted.message
        self._watch_timer(message)
        request = self._router.classify(accepted)
        kind = request.kind
        if kind is not RequestKind.DELETION and (refusal := self._refusal(request, kind)):
            await self._turn_away(accepted, refusal)
            return
        metrics.INTAKE.labels(_COUNTED_AS.get(kind, "accepted")).inc()
        match kind:
            case RequestKind.DELETION:
                await self._urgent.room()
                await self._changes.delete(accepted)
            case RequestKind.EDIT:
                await self._mailboxes.room()
                await self._urgent.room()
                if await self._changes.edit(request):
                    await self._remind_of_question(message)
            case RequestKind.URGENT_COMMAND | RequestKind.ANSWER:
                if kind is RequestKind.URGENT_COMMAND:
                    # What a person writes after !stop does not belong to the turn that it ends.
                    self._mailboxes.divide(message.chat)
                await self._urgent.put(message.chat, self._router.job(request))
            case RequestKind.COMMAND | RequestKind.CONVERSATION:
                await self._mailboxes.put(message.chat, self._router.job(request))
                if not message.chat.is_group:
                    # In a group it is seen first whether the bot may write there.
                    self._router.notice(message)
                await self._remind_of_question(message)

    def _refusal(self, request: Request, kind: RequestKind) -> _Refusal | None:
        """Return why a message is not taken; None where it is."""
        message = request.accepted.message
        allowance = self._access.spend(message.author)
        match self._verdict(request):
            case LoopVerdict.FIRST_SILENCE:
                log.warning("intake.loop", **_names(message))
                return _Refusal("loop", self._loop_guard.notice(message.chat, message.author))
            case LoopVerdict.SILENCE:
                return _Refusal("loop")
        if kind in {RequestKind.URGENT_COMMAND, RequestKind.ANSWER}:
            return None
        if allowance in _OVER:
            return _OVER[allowance]
        if self._mailboxes.is_full(message.chat):
            log.warning("intake.mailbox_full", **_names(message))
            return _Refusal("mailbox_full", TOO_MANY_WAITING)
        return None

    async def _turn_away(self, accepted: AcceptedMessage, refusal: _Refusal) -> None:
        metrics.INTAKE.labels(refusal.outcome).inc()
        if refusal.text is None:
            self._file_cleanup.files_of(accepted.message)
            await self._store.turns.answer(accepted, (), outcome=refusal.outcome)
        else:
            # Not behind the chat's other messages: the person should know now.
            refuse = partial(self._router.refuse, accepted, refusal.text, refusal.outcome)
            await self._urgent.put(accepted.message.chat, Job(refuse))

    def _watch_timer(self, message: ReceivedMessage) -> None:
        if message.expires_at is not None:
            self._expiry.at(message.expires_at)

    def _verdict(self, request: Request) -> LoopVerdict:
        message = request.accepted.message
        author = Person(message.author, message.author_number)
        if self._access.is_admin(author):
            return LoopVerdict.TALK
        if request.command is not None:
            self._loop_guard.release(message.chat, message.author)
        return self._loop_guard.verdict(message.chat, message.author, len(message.text))

    async def _remind_of_question(self, message: ReceivedMessage) -> None:
        question = self._answers.overlooked_by(message)
        if question is not None:
            await self._urgent.put(message.chat, Job(partial(self._answers.remind, question)))


def _names(message: ReceivedMessage) -> dict[str, LogId | None]:
    """By which the log tells the chat and the person of a message apart from others."""
    return {"chat": log_ids.chat(message.chat), "person": log_ids.person(message.author)}
