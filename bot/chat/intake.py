"""Intake: store each message before anything else reads it, then hand it to its chat.

The envelope alone decides who may talk, before the store: nothing that a stranger wrote is kept,
not even in another person's quote. Messages that admitted people send to others in a group are kept
for a while as well, so that the bot knows the topic when it is asked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from bot.chat.alarm import Alarm
from bot.chat.chat import Chat, Chats
from bot.chat.door import MessageRequests, Pairing, Refusal, names_of
from bot.chat.joining import MAX_WAITING_IN_CHAT, Queue, Work, nothing
from bot.chat.namesakes import Namesakes
from bot.chat.replies import parse_command
from bot.chat.upkeep import Expiry
from bot.commands.questions import stop
from bot.observability import logs, metrics
from bot.signal.events import (
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
from conversation_store.models import AcceptedMessage, ChatId, ReceivedMessage
from conversation_store.reactions import NewReaction
from tools.emoji import is_emoji

log = structlog.get_logger()

TOO_MANY_WAITING: Final = Refusal(
    "mailbox_full",
    "I am still busy with your earlier messages, so I did not take this one."
    " Please send it again later, or send !stop to drop what waits.",
)


def received(message: IncomingMessage, now_ms: int, edited: Edit | None = None) -> ReceivedMessage:
    """Return a message as it is stored, also as it reads after an edit.

    `sent_at` is the time of Signal's server, because the author's clock may be wrong.
    """
    expires_at = now_ms + message.expires_seconds * 1_000 if message.expires_seconds else None
    is_reply = message.quote is not None and message.quote.by_bot
    return ReceivedMessage(
        account=message.account,
        author=message.author.aci,
        author_number=message.author.number,
        author_name=message.author.name,
        timestamp=message.timestamp,
        chat=message.chat,
        text=message.text,
        received_at=now_ms,
        sent_at=min(message.server_timestamp or now_ms, now_ms),
        files=message.files,
        quote=message.quote,
        expires_at=expires_at,
        view_once=message.view_once,
        mentions_bot=message.chat.is_group and message.addresses_bot and not is_reply,
        kind="message" if edited is None else "edit",
        target_author=None if edited is None else message.author.aci,
        target_timestamp=None if edited is None else edited.target_timestamp,
    )


def received_deletion(deletion: Deletion, now_ms: int) -> ReceivedMessage:
    """Return a deletion as it is stored: it has no words."""
    return ReceivedMessage(
        account=deletion.account,
        author=deletion.author.aci,
        author_number=deletion.author.number,
        timestamp=deletion.timestamp,
        chat=deletion.chat,
        text="",
        received_at=now_ms,
        sent_at=now_ms,
        kind="deletion",
        target_author=deletion.target_author,
        target_timestamp=deletion.target_timestamp,
    )


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Intake:
    """Stores events from a transport and hands them to their chats."""

    chats: Chats
    pairing: Pairing
    message_requests: MessageRequests
    expiry: Expiry
    alarm: Alarm
    clock: Callable[[], float]
    _namesakes: Namesakes = field(default_factory=Namesakes, init=False)

    async def deliver(self, delivery: Sequence[Incoming]) -> None:
        """Take events, oldest first; return when they are stored and queued."""
        admitted: list[ReceivedMessage] = []
        overheard: list[ReceivedMessage] = []
        for one in delivery:
            if isinstance(one, IncomingMessage):
                await self._sort(one, admitted, overheard)
                continue
            # The event may be about a message that came just before, so store that first.
            await self._keep(admitted, overheard)
            admitted, overheard = [], []
            if isinstance(one, Edit | Deletion):
                admitted = await self._change(one)
            else:
                await self._take_event(one)
        await self._keep(admitted, overheard)

    async def _take_event(self, event: Incoming) -> None:
        if isinstance(event, Reaction):
            metrics.INTAKE.labels("reaction").inc()
            if self.chats.door.hears(event.author):
                await self.chats.questions.react(event)
                await self.alarm.react(event)
            await self._keep_reaction(event)
        elif isinstance(event, PollVote):
            metrics.INTAKE.labels("vote").inc()
            if self.chats.door.hears(event.author):
                await self.chats.questions.vote(event)
        elif isinstance(event, GroupChanged):
            await self._look_into(event.chat, partial(self.chats.door.groups.changed, event))
        elif isinstance(event, IdentityChanged):
            look = partial(self.chats.door.identities.changed, event.person)
            await self._look_into(ChatId.direct(event.person.aci), look)

    async def _keep_reaction(self, reaction: Reaction) -> None:
        """Keep a reaction to an answer for the model, or delete one that was taken back."""
        author, chat = reaction.author, reaction.chat
        new = NewReaction(
            chat, reaction.target_timestamp, author.aci, reaction.emoji, reaction.timestamp
        )
        if reaction.removed:
            await self.chats.store.reactions.remove(new)
        elif self.chats.door.hears(author) and is_emoji(reaction.emoji):
            if chat.is_group:
                new = replace(new, name=self._namesakes.name_for(chat, author.aci, author.name))
            await self.chats.store.reactions.keep(new)

    async def _look_into(self, chat: ChatId, look: Work) -> None:
        """Queue work that asks the Signal side; drop it if the chat has too much."""
        with self.chats.open(chat) as here:
            if len(here.urgent) < MAX_WAITING_IN_CHAT:
                await self.chats.urgent_room.wait()
                here.add(look, urgent=True)

    async def _keep(
        self, admitted: Sequence[ReceivedMessage], overheard: Sequence[ReceivedMessage]
    ) -> None:
        if overheard:
            await self.chats.store.messages.overhear(overheard)
            for message in overheard:
                self._watch_timer(message)
                await self._hint(message)
            metrics.INTAKE.labels("overheard").inc(len(overheard))
        if not admitted:
            return
        is_verified = self.chats.door.identities.is_verified
        unverified = frozenset(one.author for one in admitted if not is_verified(one.author))
        stored = await self.chats.store.messages.accept(admitted, unverified=unverified)
        for message, accepted in zip(admitted, stored, strict=True):
            if accepted is not None:
                await self._hand_over(accepted)
                continue
            metrics.INTAKE.labels("duplicate").inc()
            # Perhaps the files of a message that came twice are still needed.
            if message.files and await self.chats.store.messages.is_past(message):
                self.chats.file_cleanup.files_of(message)

    def _now_ms(self) -> int:
        return int(self.clock() * 1_000)

    async def _sort(
        self,
        message: IncomingMessage,
        admitted: list[ReceivedMessage],
        overheard: list[ReceivedMessage],
    ) -> None:
        if message.unread:
            self.chats.file_cleanup.add(message.unread)
        if not self.chats.door.access.may_talk(message.author):
            metrics.INTAKE.labels("not_admitted").inc()
            log.debug("intake.not_admitted", person=logs.person_id(message.author.aci))
            self.chats.file_cleanup.files_of(message)
            await self.pairing.stranger(message)
            return
        if not message.chat.is_group:
            self.message_requests.accept(message.author.aci)
        self.chats.door.identities.seen(message.author.aci)
        message = self._with_own_name(self._without_strangers_words(message))
        if self.chats.door.access.addressed(message) or self._is_own_command(message.text):
            admitted.append(received(message, self._now_ms()))
            return
        self.chats.file_cleanup.files_of(message)
        is_verified = self.chats.door.identities.is_verified(message.author.aci)
        if message.text and self.chats.door.access.listens and is_verified:
            overheard.append(received(message, self._now_ms()))
        else:
            metrics.INTAKE.labels("not_admitted").inc()

    def _is_own_command(self, text: str) -> bool:
        """Whether a text names a command of the bot exactly; others may be meant for other bots."""
        commands = self.chats.replies.commands
        found = parse_command(text, commands)
        groups = self.chats.door.access.settings.groups
        return groups != "off" and found is not None and found[0].name in commands

    def _without_strangers_words(self, message: IncomingMessage) -> IncomingMessage:
        """Return a message without what it quotes, but the reply itself, if a stranger wrote it."""
        quote = message.quote
        if quote is None or quote.by_bot or quote.author == message.author.aci:
            return message
        author = quote.author
        if author is not None and self.chats.door.hears(Person(author, quote.author_number)):
            return message
        self.chats.file_cleanup.add(file for file in message.files if file.quoted)
        kept = tuple(file for file in message.files if not file.quoted)
        return replace(message, files=kept, quote=replace(quote, text="", file_name=None))

    def _with_own_name(self, message: IncomingMessage) -> IncomingMessage:
        """Return a message of a group under a name that no other member has."""
        if not message.chat.is_group:
            return message
        author = message.author
        name = self._namesakes.name_for(message.chat, author.aci, author.name)
        return replace(message, author=replace(author, name=name))

    async def _change(self, change: Edit | Deletion) -> list[ReceivedMessage]:
        """Return the row of an edit or a deletion, if it concerns the bot."""
        if isinstance(change, Deletion):
            deletion = received_deletion(change, self._now_ms())
            # People may take back their words even if they may not talk any more.
            known = self.chats.door.access.may_talk(change.author)
            if known or await self.chats.store.messages.knows_target(deletion):
                return [deletion]
            metrics.INTAKE.labels("not_admitted").inc()
            return []
        self.chats.file_cleanup.add(change.message.unread)
        if not self.chats.door.access.may_talk(change.message.author):
            metrics.INTAKE.labels("not_admitted").inc()
            self.chats.file_cleanup.files_of(change.message)
            return []
        message = self._with_own_name(self._without_strangers_words(change.message))
        edit = received(message, self._now_ms(), change)
        # An edit of an unknown message is answered like a message.
        is_addressed = self.chats.door.access.addressed(change.message)
        if is_addressed or await self.chats.store.messages.find_target(edit) is not None:
            return [edit]
        self.chats.file_cleanup.files_of(edit)
        metrics.INTAKE.labels("overheard").inc()
        await self.chats.store.changes.edit_overheard(edit)
        return []

    # The place of a message in its chat

    async def _hand_over(self, accepted: AcceptedMessage) -> None:
        """Give a message, an edit or a deletion to its chat; wait for room first."""
        message = accepted.message
        self._watch_timer(message)
        with self.chats.open(message.chat) as chat:
            if message.kind == "deletion":
                metrics.INTAKE.labels("deletion").inc()
                await self.chats.urgent_room.wait()
                await chat.delete(accepted)
                return
            self.chats.notices.languages.notice(message.chat, message.text)
            if message.kind == "edit":
                await self._hand_over_edit(accepted, chat)
            else:
                await self._hand_over_message(accepted, chat)

    async def _hand_over_edit(self, edit: AcceptedMessage, chat: Chat) -> None:
        command = self.chats.replies.command_in(edit.message)
        if await self._is_turned_away(edit, chat, chat.queue, is_command=command is not None):
            return
        metrics.INTAKE.labels("edit").inc()
        await self.chats.room.wait()
        await self.chats.urgent_room.wait()
        if await chat.edit(edit):
            await self._remind_of_question(edit.message, chat)

    async def _hand_over_message(self, accepted: AcceptedMessage, chat: Chat) -> None:
        chats, message = self.chats, accepted.message
        command, argument = chats.replies.command_in(message) or (None, "")
        reads = command is not None and command.urgent(argument)
        questions = chat.answered_by(message)
        # A chat that is full, or writes too fast, can still be stopped and answer questions.
        is_exempt = command is stop or bool(questions)
        queue = None if is_exempt else chat.urgent if reads else chat.queue
        if await self._is_turned_away(accepted, chat, queue, is_command=command is not None):
            return
        metrics.INTAKE.labels("urgent" if is_exempt else "accepted").inc()
        if questions:
            await chats.urgent_room.wait()
            chat.add(partial(chat.settle, accepted, questions), urgent=True)
            return
        if reads:
            # Later messages do not join the turn that !stop ends.
            if chat.queue.is_worked:
                chat.add(nothing)
            await chats.urgent_room.wait()
            chat.add(accepted, urgent=True)
        else:
            await chats.room.wait()
            chat.add(accepted)
        if not is_exempt and not message.chat.is_group:
            # In a group, the bot first checks whether it may write there.
            chat.notice(message)
        if not reads:
            await self._remind_of_question(message, chat)

    async def _is_turned_away(
        self, accepted: AcceptedMessage, chat: Chat, queue: Queue | None, *, is_command: bool
    ) -> bool:
        """Refuse a message if there is a reason; without a queue, the bounds do not apply."""
        message = accepted.message
        is_exempt = queue is None
        refusal = self.chats.door.refusal(message, is_command=is_command, is_exempt=is_exempt)
        if refusal is None and queue is not None and len(queue) >= MAX_WAITING_IN_CHAT:
            log.warning("intake.mailbox_full", **names_of(message))
            refusal = TOO_MANY_WAITING
        if refusal is None:
            return False
        metrics.INTAKE.labels(refusal.outcome).inc()
        if refusal.text is None:
            self.chats.file_cleanup.files_of(message)
            await self.chats.store.turns.answer(accepted, (), outcome=refusal.outcome)
        else:
            # Urgent, ahead of the chat's other messages: the person should know now.
            await self.chats.urgent_room.wait()
            refuse = partial(chat.refuse, accepted, refusal.text, refusal.outcome)
            chat.add(refuse, urgent=True)
        return True

    def _watch_timer(self, message: ReceivedMessage) -> None:
        if message.expires_at is not None:
            self.expiry.timer.at(message.expires_at)

    async def _remind_of_question(self, message: ReceivedMessage, chat: Chat) -> None:
        if await self._hint(message):
            return
        question = self.chats.questions.overlooked_by(message)
        if question is not None:
            await self.chats.urgent_room.wait()
            chat.add(partial(self.chats.questions.remind, question), urgent=True)

    async def _hint(self, message: ReceivedMessage) -> bool:
        """Say in a group how to answer, if a message was perhaps an answer; return whether."""
        questions = self.chats.questions
        question = questions.answered_unheard(message)
        if question is not None:
            with self.chats.open(message.chat) as chat:
                await self.chats.urgent_room.wait()
                chat.add(partial(questions.remind, question, is_unheard=True), urgent=True)
        return question is not None
