"""What a start goes on with: answers that were not sent, messages that were not answered."""

from functools import partial

import structlog

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outbox import Outbox
from bot.dispatch.router import Router
from conversation_store.models import AcceptedMessage
from conversation_store.store import ConversationStore

log = structlog.get_logger()


async def resume(
    *,
    store: ConversationStore,
    mailboxes: Mailboxes,
    urgent: Mailboxes,
    outbox: Outbox,
    router: Router,
) -> None:
    """Queue unfinished work, before anything new comes in, so that every chat keeps its order.

    It does not wait for room: none comes before there is a connection to send answers over.
    """
    work = await store.unfinished()
    log.info("recovery.found", waiting=len(work.accepted), count=len(work.outgoing))
    for part in work.outgoing:
        mailboxes.add(part.chat, Job(partial(outbox.deliver, (part,))))
    stopped = await _stop_what_was_to_be_stopped(store, router, work.accepted)
    for accepted in work.accepted:
        if accepted.id in stopped:
            continue
        lane = urgent if router.is_urgent(accepted.message) else mailboxes
        job = Job(partial(router.handle, accepted), accepted.id)
        lane.add(accepted.message.chat, job)


async def _stop_what_was_to_be_stopped(
    store: ConversationStore, router: Router, waiting: tuple[AcceptedMessage, ...]
) -> frozenset[int]:
    """Close what an unanswered `!stop` was about; otherwise the restart would do it after all."""
    stopped: set[int] = set()
    before: dict[str, list[int]] = {}
    for accepted in waiting:
        earlier = before.setdefault(accepted.message.chat, [])
        if router.is_urgent(accepted.message):
            stopped.update(earlier)
            earlier.clear()
        else:
            earlier.append(accepted.id)
    if stopped:
        await store.stop(sorted(stopped))
    return frozenset(stopped)
