"""Asks people before a call with side effects runs, in the chat that the call came from.

It is answered by a 👍 or 👎, or by words such as `yes` or `no thanks`. What says neither for sure
is asked back. An edit answers nothing. Silence is no. Question and answer are on disk, so a restart
in between goes on with the same question, and an allowed call is begun once. A question that a
crash has cut between two of its messages is asked again from its beginning.

A dangerous call in a group is allowed by admins alone, by as many as the quorum says. Each counts
once, on disk as well; the question is edited to say how many there are. One no is enough.
"""

import asyncio
import hashlib
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

import structlog

from bot.approvals.asked import NOT_YOURS, TOO_LATE, YES_OR_NO, AskedQuestions
from bot.approvals.meaning import Meaning, meaning_of
from bot.approvals.question import (
    GRANT_DAYS,
    Question,
    covered,
    how_to_answer,
    question_of,
    said_yes,
)
from bot.errors import SignalError
from bot.language.languages import Languages
from bot.messaging.events import Person, Reaction
from bot.messaging.messenger import Sender
from bot.messaging.questions import question_messages
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    ApprovalState,
    ChatId,
    ReceivedMessage,
    StoredApproval,
)
from conversation_store.store import ConversationStore
from tools.approval import Decision
from tools.base import Consent, ToolRequest

log = structlog.get_logger()

PATIENCE_SECONDS: Final = 300.0
"""Silence for so long is no."""

CATCH_UP_SECONDS: Final = 15.0
"""After a restart: how long answers that were given meanwhile may take to come in."""

SHOW_SECONDS: Final = 5.0
"""For showing how many have said yes: who has said the last one waits for no more than that."""

NOT_COUNTED: Final = "Only admins of the bot can allow this; your yes does not count."
REMINDER: Final = (
    "I am waiting for your 👍 or 👎 on my question above; then I will read this message."
)

_STATES: Final = {
    Meaning.YES: ApprovalState.YES,
    Meaning.ALWAYS: ApprovalState.YES,
    Meaning.NO: ApprovalState.NO,
}

_DECISIONS: Final = {
    ApprovalState.YES: Decision.YES,
    ApprovalState.NO: Decision.NO,
    ApprovalState.SILENCE: Decision.SILENCE,
    ApprovalState.BEGUN: Decision.INTERRUPTED,
}


class ApprovalDesk:
    """The questions that wait for an answer.

    Args:
        store: where they are kept.
        asked: the open ones.
        channel: where it is said that one is open, and how many have said yes.
        is_admin: whether a person may allow dangerous calls, and something for longer.
        languages: in which the bot itself speaks.
        patience_seconds: silence for so long is no.
        catch_up_seconds: after a restart, how long answers may take to come in.
        quorum: how many admins have to allow a dangerous call in a group.
        clock: seconds since 1970.

    Attributes:
        quorum: may be changed at any time; it counts from the next question on.
    """

    def __init__(
        self,
        *,
        store: ConversationStore,
        asked: AskedQuestions,
        channel: Sender,
        is_admin: Callable[[Person], bool],
        languages: Languages,
        patience_seconds: float = PATIENCE_SECONDS,
        catch_up_seconds: float = CATCH_UP_SECONDS,
        quorum: int = 1,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._store = store
        self._asked = asked
        self._channel = channel
        self._is_admin = is_admin
        self._languages = languages
        self._patience_seconds = patience_seconds
        self._catch_up_seconds = catch_up_seconds
        self.quorum = quorum
        self._clock = clock

    async def resume(self) -> None:
        """Know the questions that a restart has left open, before anything comes in."""
        for stored in await self._store.approvals.waiting():
            question = question_of(stored, patience_seconds=self._patience_seconds)
            if question is not None:
                self._asked.listen(question)

    def for_turn(
        self, accepted: AcceptedMessage, turn_id: int, *, is_retry: bool = False
    ) -> "TurnApproval":
        """Return who asks for the calls of one turn; see `TurnApproval`."""
        return TurnApproval(self, self._store, accepted, turn_id, is_retry=is_retry)

    def overlooked_by(self, message: ReceivedMessage) -> Question | None:
        """Return the open question that a message waits behind, once for each question.

        Only in a private chat: in a group, others may talk meanwhile.
        """
        for question in self._asked.in_chat(message.chat):
            if isinstance(question, Question) and not question.reminded:
                question.reminded = True
                return None if message.chat.is_group else question
        return None

    async def settle(
        self, accepted: AcceptedMessage, question: Question, meaning: Meaning
    ) -> str | None:
        """Take a message as an answer; return words for the person where it does not count.

        Without words the message is closed: the turn goes on and says the rest.
        """
        message = accepted.message
        author = Person(message.author, message.author_number, message.author_name)
        if not self._asked.may_answer(author, question):
            return NOT_YOURS
        if meaning not in _STATES:
            return YES_OR_NO
        if question.decided.is_set() or not self._asked.in_time(message.timestamp, question):
            return TOO_LATE
        state = _STATES[meaning]
        if state is ApprovalState.YES and not self._counts(author, question):
            return NOT_COUNTED
        await self._take(question, meaning, author, accepted)
        # Else it was decided otherwise, or its turn has ended without asking after a restart.
        return None if question.state in {state, ApprovalState.OPEN} else TOO_LATE

    async def react(self, reaction: Reaction, question: Question) -> None:
        """Take a reaction to a question as an answer, if it says yes or no."""
        meaning = meaning_of(reaction.emoji)
        state = _STATES.get(meaning)
        if state is None or not self._asked.in_time(reaction.timestamp, question):
            return
        may_say = self._counts if state is ApprovalState.YES else self._asked.may_answer
        if may_say(reaction.author, question):
            await self._take(question, meaning, reaction.author)

    async def _take(
        self,
        question: Question,
        meaning: Meaning,
        person: Person,
        answer: AcceptedMessage | None = None,
    ) -> None:
        """Take what a person says who may say it, and the message that says it."""
        is_first = not question.decided.is_set()
        if _STATES[meaning] is ApprovalState.YES and question.admins_needed:
            await self._count(question, person, answer)
        else:
            await self._decide(question, _STATES[meaning], by=person.aci, answer=answer)
        if meaning is Meaning.ALWAYS and is_first:
            await self._allow_for_longer(question, person)

    async def needs_nobody(self, stored: StoredApproval, consent: Consent) -> bool:
        """Return whether a call may run without asking; notes that it was allowed."""
        if consent.asks and (
            self._admins_needed(stored.chat, consent) > 1
            or not await self._store.grants.cover(stored.chat, consent.covers, consent.version)
        ):
            return False
        return await self._store.approvals.decide(stored.id, ApprovalState.YES) is ApprovalState.YES

    async def ask(self, stored: StoredApproval, tool: str, text: str, consent: Consent) -> Decision:
        """Put a question about a tool, unless that is done, and wait for its answer."""
        question = self._asked.find(stored.chat, stored.signal_timestamp)
        resumed = isinstance(question, Question)
        if not isinstance(question, Question):
            question = await self._put(stored, tool, text, consent)
            if question is None:
                return Decision.NOT_ASKED
        try:
            async with asyncio.timeout(self._time_left(question, resumed=resumed)):
                while not question.decided.is_set():
                    if question.yes != question.shown_yes:
                        await self._show_yes(question, tool, text)
                    await question.changed.wait()
                    question.changed.clear()
        except TimeoutError:
            await self._decide(question, ApprovalState.SILENCE)
        finally:
            self._asked.forget(question)
        return _DECISIONS[question.state]

    async def _put(
        self, stored: StoredApproval, tool: str, text: str, consent: Consent
    ) -> Question | None:
        """Send a question, trying again while there is no connection; None if it cannot be."""
        admins_needed = self._admins_needed(stored.chat, consent)
        how = self._how(stored.chat, consent.covers, admins_needed)
        messages = question_messages(tool, text, how)
        sent = await self._asked.send(stored.chat, messages, seconds=self._patience_seconds)
        if not sent.timestamps:
            return None
        timestamp = sent.timestamps[-1]
        asked_at = int(self._clock() * 1_000)
        question = Question(
            stored.id,
            stored.chat,
            stored.asker,
            timestamp,
            asked_at,
            asked_at + int(self._patience_seconds * 1_000),
            consent.covers,
            consent.version,
            admins_needed,
        )
        # Before the store has it: an answer may be on its way already.
        self._asked.listen(question)
        await self._store.approvals.mark_asked(
            question.id,
            timestamp,
            question.expires_at,
            covers=question.covers,
            version=question.version,
            admins_needed=admins_needed,
        )
        metrics.APPROVALS.labels("asked").inc()
        return question

    def _how(self, chat: ChatId, covers: Sequence[str], admins_needed: int, yes: int = 0) -> str:
        return how_to_answer(
            self._languages,
            chat,
            minutes=self._patience_seconds / 60,
            covers=covers,
            admins_needed=admins_needed,
            yes=yes,
        )

    async def _show_yes(self, question: Question, tool: str, text: str) -> None:
        """Say how many admins have said yes: in the question, where it is one message.

        A message with a file cannot be edited, and of several the last one shows a part alone: for
        these it is a line below, which is edited from then on.
        """
        question.shown_yes = question.yes
        how = self._how(question.chat, question.covers, question.admins_needed, question.yes)
        messages = question_messages(tool, text, how)
        replaces: int | None
        words, replaces = messages[0].text, question.timestamps[-1]
        if is_apart := len(messages) > 1 or bool(messages[0].attachments):
            words = said_yes(self._languages, question)
            replaces = question.line
        try:
            async with asyncio.timeout(SHOW_SECONDS):
                shown = await self._channel.send(question.chat, words, replaces=replaces)
        except (SignalError, TimeoutError) as error:
            log.info("approval.not_shown", reason=type(error).__name__)
            return
        if is_apart:
            question.line = shown
            return
        question.edits.append(shown)
        self._asked.listen(question)
        await self._store.approvals.mark_edited(question.id, shown)

    def _time_left(self, question: Question, *, resumed: bool) -> float:
        left = min(question.expires_at / 1000 - self._clock(), self._patience_seconds)
        return max(left, self._catch_up_seconds) if resumed else left

    async def _allow_for_longer(self, question: Question, person: Person) -> None:
        """Keep that something is allowed here; in a group an admin alone can do that."""
        if question.state is not ApprovalState.YES or not covered(question.covers):
            return
        if question.admins_needed > 1 or (question.chat.is_group and not self._is_admin(person)):
            return
        await self._store.grants.give(
            question.chat, question.covers, question.version, by=person.aci, days=GRANT_DAYS
        )

    def _counts(self, person: Person, question: Question) -> bool:
        """Whether a person's yes counts."""
        if question.admins_needed:
            return self._is_admin(person)
        return self._asked.may_answer(person, question)

    def _admins_needed(self, chat: ChatId, consent: Consent) -> int:
        """Return how many admins have to allow a call; 0: whom it is made for may."""
        is_dangerous = consent.is_dangerous or not covered(consent.covers)
        return self.quorum if chat.is_group and consent.changes and is_dangerous else 0

    async def _count(
        self, question: Question, person: Person, answer: AcceptedMessage | None
    ) -> None:
        """Count the yes of an admin, once; the last one that is needed decides."""
        counted = await self._store.approvals.count_yes(
            question.id, by=person.aci, needed=question.admins_needed, answer=answer
        )
        question.yes = counted.yes
        if counted.state is ApprovalState.OPEN:
            question.changed.set()
        else:
            self._note(question, ApprovalState.YES, counted.state)

    async def _decide(
        self,
        question: Question,
        state: ApprovalState,
        *,
        by: str | None = None,
        answer: AcceptedMessage | None = None,
    ) -> None:
        decided = await self._store.approvals.decide(question.id, state, by=by, answer=answer)
        self._note(question, state, decided)

    def _note(
        self, question: Question, wanted: ApprovalState, decided: ApprovalState | None
    ) -> None:
        """Take note of how the store has it; None: it is gone."""
        if decided is wanted and not question.decided.is_set():
            metrics.APPROVALS.labels(wanted).inc()
        question.decide(decided or ApprovalState.SILENCE)


class TurnApproval:
    """Asks for the calls of one turn, or of a helper. Implements `tools.approval.Approval`.

    Args:
        desk: puts the questions.
        store: keeps them.
        accepted: the message that the calls are made for.
        turn_id: the turn.
        is_retry: the question was answered before, so its calls may have been carried out already:
            what is allowed for longer is asked about, too.
        helper: whose calls they are; None: those of the turn itself.
    """

    def __init__(
        self,
        desk: ApprovalDesk,
        store: ConversationStore,
        accepted: AcceptedMessage,
        turn_id: int,
        *,
        is_retry: bool = False,
        helper: int | None = None,
    ) -> None:
        self._desk = desk
        self._store = store
        self._accepted = accepted
        self._turn_id = turn_id
        self._is_retry = is_retry
        self._helper = helper

    def of_helper(self, helper: int) -> "TurnApproval":
        """Return who asks for the calls of a helper of this turn."""
        return TurnApproval(
            self._desk,
            self._store,
            self._accepted,
            self._turn_id,
            is_retry=self._is_retry,
            helper=helper,
        )

    async def ask(self, request: ToolRequest, question: str) -> Decision:
        """Ask, or go on with the question that a restart has left, or return its answer."""
        stored = await self.stored(request, question)
        if stored is None:
            return Decision.NOT_ASKED
        if stored.state is ApprovalState.BEGUN:
            return Decision.INTERRUPTED
        # An answer counts for the very call, and the very words, that were asked about.
        if stored.fingerprint != _fingerprint(request, question):
            return Decision.NOT_ASKED
        if stored.state is not ApprovalState.OPEN:
            return _DECISIONS[stored.state]
        consent = request.consent
        if self._is_retry:
            consent = replace(consent, covers=())
        if stored.signal_timestamp is None and await self._desk.needs_nobody(stored, consent):
            return Decision.YES
        return await self._desk.ask(stored, request.tool, question, request.consent)

    async def stored(self, request: ToolRequest, question: str) -> StoredApproval | None:
        """Return the question about a call as the store has it; None if the call is not open."""
        return await self._store.approvals.find_or_open(
            self._turn_id,
            request.call_id,
            chat=self._accepted.message.chat,
            asker=self._accepted.message.author,
            fingerprint=_fingerprint(request, question),
            helper=self._helper,
        )


def _fingerprint(request: ToolRequest, question: str) -> str:
    asked = f"{request.tool}\0{request.arguments}\0{question}"
    return hashlib.sha256(asked.encode()).hexdigest()
