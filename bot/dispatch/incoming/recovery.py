"""What a start goes on with: answers that were not sent, messages that were not answered."""

from functools import partial

import structlog

from bot.approvals.answers import Answers
from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.incoming.changes import Changes
from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outgoing.doubts import Doubts
from bot.dispatch.turns.requests import RequestKind
from bot.dispatch.turns.router import Router
from bot.dispatch.turns.suspended import SuspendedTurns
from conversation_store.models import AcceptedMessage, ReceivedKind
from conversation_store.store import ConversationStore

log = structlog.get_logger()


async def resume(
    *,
    store: ConversationStore,
    answers: Answers,
    suspended: SuspendedTurns,
    mailboxes: Mailboxes,
    urgent: Mailboxes,
    doubts: Doubts,
    router: Router,
    changes: Changes,
    file_cleanup: FileCleanup,
) -> None:
    """Queue unfinished work, before anything new comes in, so that every chat keeps its order.

    It does not wait for room: none comes before there is a connection to send answers over.
    """
    await doubts.resume()
    unfinished = await store.messages.unfinished()
    log.info("recovery.found", waiting=len(unfinished.accepted), count=len(unfinished.outgoing))
    for part in unfinished.outgoing:
        lane = urgent if part.urgent else mailboxes
        lane.add(part.chat, Job(partial(doubts.deliver, part)))
    stopped = await _stop_what_was_to_be_stopped(store, router, unfinished.accepted)
    await answers.resume()
    waiting_for_people = await suspended.resume()
    for accepted in unfinished.accepted:
        if accepted.id in stopped:
            file_cleanup.files_of(*accepted.messages)
            continue
        if accepted.id in waiting_for_people:
            suspended.add(accepted.message.chat, accepted.id)
            continue
        request = router.classify(accepted)
        match request.kind:
            case RequestKind.DELETION:
                await changes.delete(accepted)
            case RequestKind.EDIT:
                await changes.edit(request)
            case _:
                changes.queue(request)


async def _stop_what_was_to_be_stopped(
    store: ConversationStore, router: Router, waiting: tuple[AcceptedMessage, ...]
) -> frozenset[int]:
    """Close what an unanswered `!stop` was about; otherwise the restart would do it after all."""
    stopped: set[int] = set()
    before: dict[str, list[int]] = {}
    for accepted in waiting:
        earlier = before.setdefault(accepted.message.chat, [])
        command = router.command_in(accepted.message)
        if command is not None and command.urgent:
            stopped.update(earlier)
            earlier.clear()
        elif accepted.message.kind is not ReceivedKind.DELETION:
            earlier += (accepted.id, *(piece.id for piece in accepted.joined))
    if stopped:
        await store.messages.stop(sorted(stopped))
    return frozenset(stopped)
