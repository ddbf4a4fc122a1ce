"""The door: what comes in is stored before anything else looks at it, then gets its lane.

Who may talk is decided on the envelope alone, before the store: nothing of a stranger is kept.
"""

import time
from collections.abc import Sequence
from functools import partial
from itertools import groupby
from typing import Final

import structlog

from bot.approvals import ApprovalDesk
from bot.dispatch.access import Access, Allowance
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.router import Router
from bot.messaging.events import Incoming, IncomingMessage, Quoted, Reaction
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    ReceivedFile,
    ReceivedMessage,
    ReceivedQuote,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()

TOO_FAST: Final = "You are writing faster than I can answer. Please wait a minute."
TOO_MANY_WAITING: Final = (
    "I am still busy with your earlier messages, so I did not take this one."
    " Please send it again later, or send !stop to drop what waits."
)


class Intake:
    """Takes messages from a transport, stores them and hands them to their lane.

    Args:
        access: who may talk, and how much.
        store: where messages are kept.
        approvals: takes reactions.
        mailboxes: the ordinary lane.
        urgent: the lane of what may not wait behind the turn that it concerns.
        router: does the work.
    """

    def __init__(
        self,
        *,
        access: Access,
        store: ConversationStore,
        approvals: ApprovalDesk,
        mailboxes: Mailboxes,
        urgent: Mailboxes,
        router: Router,
    ) -> None:
        self._access = access
        self._store = store
        self._approvals = approvals
        self._mailboxes = mailboxes
        self._urgent = urgent
        self._router = router

    async def deliver(self, delivery: Sequence[Incoming]) -> None:
        """Take what came, oldest first; returns when messages are stored and have their lane."""
        for messages, group in groupby(delivery, lambda one: isinstance(one, IncomingMessage)):
            if messages:
                await self._take([one for one in group if isinstance(one, IncomingMessage)])
            else:
                await self._take_reactions([one for one in group if isinstance(one, Reaction)])

    async def _take_reactions(self, reactions: Sequence[Reaction]) -> None:
        metrics.INTAKE.labels("reaction").inc(len(reactions))
        for reaction in reactions:
            if self._access.may_talk(reaction.author):
                await self._approvals.react(reaction)

    async def _take(self, messages: Sequence[IncomingMessage]) -> None:
        admitted = [message for message in messages if self._access.admits(message)]
        metrics.INTAKE.labels("not_admitted").inc(len(messages) - len(admitted))
        if not admitted:
            return
        for accepted in await self._store.accept([_received(message) for message in admitted]):
            if accepted is None:
                metrics.INTAKE.labels("duplicate").inc()
            else:
                await self._choose_lane(accepted)

    async def _choose_lane(self, accepted: AcceptedMessage) -> None:
        message = accepted.message
        allowance = self._access.spend(message.author)
        urgent = self._router.urgent_work(accepted)
        if urgent is not None:
            await self._urgent.put(message.chat, Job(urgent, accepted.id))
        elif allowance is Allowance.OVER:
            metrics.INTAKE.labels("rate_limited").inc()
            await self._store.answer(accepted, (), outcome="rate_limited")
        elif allowance is Allowance.FIRST_OVER:
            metrics.INTAKE.labels("rate_limited").inc()
            await self._refuse(accepted, TOO_FAST, "rate_limited")
        elif self._mailboxes.is_full(message.chat):
            metrics.INTAKE.labels("mailbox_full").inc()
            log.warning("intake.mailbox_full")
            await self._refuse(accepted, TOO_MANY_WAITING, "mailbox_full")
        else:
            metrics.INTAKE.labels("accepted").inc()
            job = Job(partial(self._router.handle, accepted), accepted.id)
            await self._mailboxes.put(message.chat, job)
            await self._remind_of_question(message)

    async def _remind_of_question(self, message: ReceivedMessage) -> None:
        question = self._approvals.overlooked_by(message)
        if question is not None:
            await self._urgent.put(message.chat, Job(partial(self._approvals.remind, question)))

    async def _refuse(self, accepted: AcceptedMessage, words: str, outcome: str) -> None:
        # Not behind the chat's other messages: the person should know now.
        refuse = partial(self._router.refuse, accepted, words, outcome)
        await self._urgent.put(accepted.message.chat, Job(refuse))


def _received(message: IncomingMessage) -> ReceivedMessage:
    received_at = time.time_ns() // 1_000_000
    return ReceivedMessage(
        account=message.account,
        author=message.author.aci,
        author_number=message.author.number,
        author_name=message.author.name,
        timestamp=message.timestamp,
        chat=str(message.chat),
        text=message.text,
        files=tuple(
            ReceivedFile(file.id, file.content_type, file.name, file.size, file.voice_note)
            for file in message.files
        ),
        quote=None if message.quote is None else _received_quote(message.quote),
        received_at=received_at,
        sent_at=min(message.server_timestamp or received_at, received_at),
    )


def _received_quote(quote: Quoted) -> ReceivedQuote:
    return ReceivedQuote(quote.timestamp, quote.author, quote.by_bot, quote.text, quote.has_files)
