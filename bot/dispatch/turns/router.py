"""From an accepted message to its one answer: a command, a conversation, or a plain sentence."""

import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final, Protocol

import structlog

from bot.approvals.answers import Answer, Answers
from bot.chat.handler import ChatHandler, TurnForgotten, TurnResult
from bot.commands.base import UNKNOWN_COMMAND, Command, CommandContext, Reply
from bot.commands.retry import RetryCommand
from bot.dispatch.background.file_cleanup import FileCleanup
from bot.dispatch.mailboxes import Job
from bot.dispatch.outgoing.outbox import Outbox
from bot.dispatch.outgoing.presence import Presence
from bot.dispatch.turns.batching import Batching
from bot.dispatch.turns.budget import TokenBudget
from bot.dispatch.turns.loop_guard import LoopGuard
from bot.dispatch.turns.requests import CommandCall, Request, RequestKind, parse_command
from bot.dispatch.turns.running import TurnChanged, Turns, TurnStopped
from bot.dispatch.turns.steering import Steering
from bot.dispatch.turns.suspended import SuspendedTurns
from bot.language.languages import Languages
from bot.messaging.events import Person
from bot.messaging.formatting import split
from bot.observability import metrics
from conversation_store.errors import StoreError
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    EditOutcome,
    OutgoingMessage,
    Question,
    Quote,
    ReceivedKind,
    ReceivedMessage,
    Retry,
)
from conversation_store.store import ConversationStore

log = structlog.get_logger()

EDIT_ANSWERED_SECONDS: Final = 600.0
"""An edit of a message that was answered no longer ago is answered by editing the answer."""

QUOTE_CHARACTERS: Final = 200
"""Of the message that an answer is shown as a reply to."""

NO_WORDS: Final = "Yes? Write what you want to know in the same message."
DISAPPEARED: Final = (
    "Your message disappeared before I could answer it. Please send it again if you still need it."
)
BUG: Final = "Something went wrong on my side. Please try again; if it stays, tell the operator."


class GroupRights(Protocol):
    """What a group allows. Implemented by `bot.dispatch.incoming.groups.GroupPermissions`."""

    async def may_write(self, chat: ChatId) -> bool:
        """Whether the bot may write in a group."""
        ...


class IdentityPolicy(Protocol):
    """Whose key counts. Implemented by `bot.dispatch.incoming.identities.Identities`."""

    async def may_talk(self, person: Person) -> bool:
        """Whether somebody's key is as good as the policy asks."""
        ...

    def is_verified(self, person: str) -> bool:
        """The same, by ACI, as far as is known without asking."""
        ...


class Router:
    """Answers accepted messages.

    Args:
        commands: by name, without the exclamation mark.
        conversation: everything that is no command.
        turns: makes the conversation stoppable.
        batching: gathers what is written in one go.
        answers: knows the questions that wait for one.
        suspended: the turns that wait for people's answers.
        steering: finds what is written while a turn runs.
        outbox: sends what was answered.
        store: where an answer without a turn is kept.
        file_cleanup: deletes files that nobody reads.
        presence: shows that an answer is being written.
        loop_guard: is told who was answered.
        budget: how much may be asked.
        group_permissions: what groups allow.
        identity_policy: whose key counts.
        languages: in which the bot itself speaks.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        *,
        commands: dict[str, Command],
        conversation: ChatHandler,
        turns: Turns,
        batching: Batching,
        answers: Answers,
        suspended: SuspendedTurns,
        steering: Steering,
        outbox: Outbox,
        store: ConversationStore,
        file_cleanup: FileCleanup,
        presence: Presence,
        loop_guard: LoopGuard,
        budget: TokenBudget,
        group_permissions: GroupRights,
        identity_policy: IdentityPolicy,
        languages: Languages,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._commands = commands
        self._conversation = conversation
        self._turns = turns
        self._batching = batching
        self._answers = answers
        self._suspended = suspended
        self._steering = steering
        self._outbox = outbox
        self._store = store
        self._file_cleanup = file_cleanup
        self._presence = presence
        self._loop_guard = loop_guard
        self._budget = budget
        self._group_permissions = group_permissions
        self._identity_policy = identity_policy
        self._languages = languages
        self._clock = clock

    def classify(self, accepted: AcceptedMessage) -> Request:
        """Return what a message is; ask once, and again only when its text has changed."""
        message = accepted.message
        if message.kind is ReceivedKind.SCHEDULED:
            return Request(accepted)
        self._languages.notice(message.chat, message.text)
        command = self.command_in(message)
        if command is not None and command.urgent:
            return Request(accepted, command)
        # What somebody says to a question counts only as far as the person's key does.
        listens = self._identity_policy.is_verified(message.author)
        return Request(accepted, command, self._answers.answer_in(message) if listens else None)

    def command_in(self, message: ReceivedMessage) -> CommandCall | None:
        """Return the command that a message calls; None where it is for the model."""
        if message.kind is ReceivedKind.SCHEDULED:
            return None
        return parse_command(message.text, self._commands)

    def job(self, request: Request) -> Job:
        """Return the work of answering a message, for its mailbox."""
        accepted = request.accepted
        if request.answer is not None:
            return Job(partial(self._settle, accepted, request.answer), accepted)
        stands_alone = accepted.begun or accepted.message.kind is ReceivedKind.SCHEDULED
        joins = request.kind is RequestKind.CONVERSATION and not stands_alone
        return Job(partial(self.handle, request), accepted, joins=joins)

    def notice(self, message: ReceivedMessage) -> None:
        """Let people see at once that a message was taken."""
        if message.kind is ReceivedKind.SCHEDULED:
            return
        self._presence.noticed(
            message.chat,
            message.author,
            message.timestamp,
            received_at=message.received_at,
        )

    async def handle(self, request: Request) -> None:
        """Answer a message, whatever happens, and send the answer.

        Raises:
            StoreError: the process cannot go on; in a group when it came out of one.
        """
        ready = await self._ready(request.accepted)
        if ready is None:
            self._file_cleanup.files_of(*request.accepted.messages)
            return
        # An edit that is answered may read otherwise by now.
        same = ready is request.accepted
        command = request.command if same else self.command_in(ready.message)
        chat = ready.message.chat
        if chat.is_group:
            self.notice(ready.message)
        async with self._presence.typing(chat) as typing:
            outgoing = await self._answer_somehow(ready, command)
            typing.answered = await self._outbox.deliver(outgoing, just_stored=True)
        if typing.answered:
            self._count_answer(ready.message, "conversation" if command is None else "command")
        self._loop_guard.answered(ready.message.chat, ready.message.author)

    def _count_answer(self, message: ReceivedMessage, kind: str) -> None:
        waited = max(0.0, self._clock() - message.received_at / 1_000)
        metrics.ANSWER_SECONDS.labels(kind).observe(waited)

    async def _ready(self, accepted: AcceptedMessage) -> AcceptedMessage | None:
        """Return what is to be answered now; None where a guest keeps silent."""
        if accepted.message.kind is ReceivedKind.EDIT:
            within_ms = int(EDIT_ANSWERED_SECONDS * 1_000)
            outcome, accepted = await self._store.messages.settle_edit(
                accepted, answered_within_ms=within_ms
            )
            if outcome not in {EditOutcome.ANSWERED, EditOutcome.UNKNOWN}:
                return None
        message = accepted.message
        chat = message.chat
        if chat.is_group and not await self._group_permissions.may_write(chat):
            await self._store.turns.answer(
                accepted, (), outcome="may_not_write", joined=accepted.joined
            )
            return None
        if not await self._identity_policy.may_talk(_author(message)):
            await self._store.turns.answer(
                accepted, (), outcome="unverified", joined=accepted.joined
            )
            return None
        return accepted

    async def _answer_somehow(
        self, accepted: AcceptedMessage, command: CommandCall | None
    ) -> tuple[OutgoingMessage, ...]:
        """Answer a message with what can be said; a bug becomes a sentence."""
        pieces = [accepted, *accepted.joined]
        try:
            return await self._answer(pieces, command)
        except Exception as error:
            if _is_of_the_store(error):
                raise
            # The last boundary of a turn: a bug ends here, in words for the person.
            log.exception("turn.bug", turn=accepted.id)
            metrics.TURNS.labels("bug").inc()
            self._file_cleanup.files_of(*(piece.message for piece in pieces))
            return await self._store.turns.answer(
                pieces[0],
                (self._languages.say(pieces[0].message.chat, BUG),),
                outcome="bug",
                joined=pieces[1:],
            )

    async def _settle(self, accepted: AcceptedMessage, answer: Answer) -> None:
        """Take a message as the answer to a question, or say why it does not count."""
        words = await self._answers.settle(accepted, answer)
        if words is None:
            self._file_cleanup.files_of(accepted.message)
        else:
            await self.refuse(accepted, words, "approval")

    async def refuse(self, accepted: AcceptedMessage, words: str, outcome: str) -> None:
        """Answer a message with a sentence that explains why it is not taken."""
        self._file_cleanup.files_of(accepted.message)
        said = self._languages.say(accepted.message.chat, words)
        await self._outbox.deliver(
            await self._store.turns.answer(accepted, (said,), outcome=outcome)
        )

    async def _answer(
        self, pieces: list[AcceptedMessage], command: CommandCall | None
    ) -> tuple[OutgoingMessage, ...]:
        """Answer what the pieces are, also when they become other ones meanwhile."""
        while pieces:
            first = pieces[0]
            reply = await self._reply_at_once(pieces, command)
            retry = None if reply is None else reply[0].retry
            if reply is not None and retry is None:
                await self._wait_no_longer(reply[0].undone)
                outgoing = await self._say(pieces, *reply)
                self._file_cleanup.files_of(*(piece.message for piece in pieces))
                return outgoing
            try:
                result = await self._turns.run(
                    first.message.chat, pieces, partial(self._run_turn, pieces, retry)
                )
                if result is None:
                    if self._answers.awaited_by(first.id):
                        self._suspended.add(first.message.chat, first.id)
                        return ()
                    pieces[0] = replace(pieces[0], begun=True)  # answered at this very moment
                    continue
                # Outside what can be stopped: from here on the answer is certain to be sent.
                quote = _quote_of(pieces[-1])
                return await self._conversation.finish(pieces, result, quote=quote, retry=retry)
            except TurnStopped:
                await self._store.messages.stop([piece.id for piece in pieces])
                metrics.TURNS.labels("stopped").inc()
                self._file_cleanup.files_of(*(piece.message for piece in pieces))
                return ()
            except TurnChanged:
                await self._store.turns.restart(first.id)
            except TurnForgotten:
                pieces[:] = await self._store.messages.waiting_of(pieces)
            finally:
                self._suspended.end_unless_waiting(first.id)
            pieces[:] = [replace(piece, begun=False, joined=()) for piece in pieces]
            command = self.command_in(pieces[0].message) if pieces else None
        return ()

    async def _run_turn(
        self, pieces: list[AcceptedMessage], retry: Retry | None
    ) -> TurnResult | None:
        if pieces[0].message.kind is ReceivedKind.SCHEDULED:
            return await self._conversation.run_turn(tuple(pieces))
        hear = partial(self._hear, pieces)
        if pieces[0].begun or retry is not None:
            return await self._conversation.run_turn(tuple(pieces), hear=hear, retry=retry)
        async with self._conversation.asking_early() as early:

            def paused() -> None:
                if self._turns.has_room:
                    early.ask(tuple(pieces))

            await self._batching.gather(pieces[0].message.chat, pieces, paused=paused)
            self._notice_joined(pieces[1:])
            return await self._conversation.run_turn(tuple(pieces), early, hear=hear)

    def _hear(self, pieces: list[AcceptedMessage]) -> Sequence[AcceptedMessage]:
        """Let a turn answer as well what its person has written since it began."""
        taken = self._steering.take(pieces[0].message.chat, pieces)
        self._notice_joined(taken)
        return taken

    def _notice_joined(self, pieces: Sequence[AcceptedMessage]) -> None:
        """Let people see that messages were taken; in private they have seen it already."""
        for piece in pieces:
            if piece.message.chat.is_group:
                self.notice(piece.message)

    async def _reply_at_once(
        self, pieces: Sequence[AcceptedMessage], command: CommandCall | None
    ) -> tuple[Reply, str] | None:
        """Return the reply to what needs no conversation, and its outcome; None where it does.

        Of several messages, which are a conversation, the first may ask for a retry.
        """
        accepted, message = pieces[0], pieces[0].message
        if command is not None and command.is_question:
            command = None
        is_retry = command is not None and isinstance(command.command, RetryCommand)
        if len(pieces) > 1 and not is_retry:
            return None
        if command is not None:
            reply = await self._run_command(command, accepted)
            if reply.retry is None:
                return reply, "command"
        elif message.expires_at is not None and message.expires_at <= self._clock() * 1_000:
            return Reply(DISAPPEARED), "disappeared"
        elif not message.text.strip() and not message.files:
            return Reply(NO_WORDS), "no_words"
        else:
            reply = None
        used_up = None if accepted.begun else await self._budget.refusal(_author(message))
        if used_up is not None:
            return Reply(used_up), "budget"
        return None if reply is None else (reply, "retry")

    async def _wait_no_longer(self, undone: Question | None) -> None:
        """Let the turn of a question that is taken back wait for nobody, if it does."""
        if undone is None:
            return
        waited = await self._suspended.take_with(undone.chat, undone.turn)
        if waited is not None:
            self._file_cleanup.files_of(*waited.messages)

    async def _say(
        self, pieces: Sequence[AcceptedMessage], reply: Reply, outcome: str
    ) -> tuple[OutgoingMessage, ...]:
        accepted = pieces[0]
        return await self._store.turns.answer(
            accepted,
            split(self._languages.say(accepted.message.chat, reply.text)),
            outcome=outcome,
            attachments=reply.attachments,
            quote=_quote_of(accepted),
            always_quote=accepted.message.chat.is_group,
            joined=pieces[1:],
            undone=reply.undone,
        )

    async def _run_command(self, call: CommandCall, accepted: AcceptedMessage) -> Reply:
        if call.command is None:
            return Reply(UNKNOWN_COMMAND)
        message = accepted.message
        return await call.command.run(
            CommandContext(
                chat=message.chat,
                author=_author(message),
                argument=call.argument,
                inbox_id=accepted.id,
            )
        )


def _author(message: ReceivedMessage) -> Person:
    return Person(message.author, message.author_number, message.author_name)


def _quote_of(accepted: AcceptedMessage) -> Quote | None:
    """What an answer is shown as a reply to; phones know a message by its first timestamp."""
    message = accepted.message
    if message.kind is ReceivedKind.SCHEDULED:
        return None  # nobody's phone has it
    timestamp = message.target_timestamp or message.timestamp
    return Quote(timestamp, message.author, message.text[:QUOTE_CHARACTERS])


def _is_of_the_store(error: Exception) -> bool:
    """Whether the store failed; of tool calls that run side by side, one may have found out."""
    if isinstance(error, ExceptionGroup):
        return error.subgroup(StoreError) is not None
    return isinstance(error, StoreError)
