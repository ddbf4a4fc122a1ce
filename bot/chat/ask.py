"""Ask people about calls with side effects, about the model's questions, and about its plans.

The bot stores a question with its turn, then shows it. People answer its message by a reaction, a
reply or a vote. In a private chat with one open question, their next words answer it; in a group,
words to the bot do that mean yes, no or an option. Only the person asked, or an admin, can answer;
in a group, only an admin can allow dangerous calls. An edit answers nothing. Silence ends a
question: about a call after minutes, otherwise after a day.

A turn that asks about a call waits in memory, and the chat's next messages wait for it. If only
the model's questions are open, the turn waits on disk: the tool raises `AwaitsPerson` and runs
again after the answer. Both survive a restart: the bot still takes answers to the same messages.
"""

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final
from weakref import WeakValueDictionary

import structlog
from cachetools import LRUCache

from bot.backoff import Backoff, set_within
from bot.chat.door import author_of
from bot.chat.joining import MAX_JOINED_BYTES
from bot.chat.meaning import BELOW, NOBODY, NOBODY_DECIDED, Meaning, answer_of, chose, meaning_of
from bot.chat.outbox import Doubts
from bot.chat.question_messages import (
    GRANT_DAYS,
    NOT_COUNTED,
    NOT_YOURS,
    OTHERS_WAIT,
    REMINDER,
    SAY_IT_TO_ME,
    STILL_OPEN,
    TOO_LATE,
    WHICH,
    QuestionMessage,
    asked_back,
    how_to_answer,
    poll_of,
    question_messages,
    styled_messages,
    told_question,
)
from bot.language.languages import Languages
from bot.observability import metrics
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout
from bot.signal.events import Person, PollVote, Reaction
from bot.signal.messenger import Poll
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    QuestionTerms,
    ReceivedMessage,
    StoredQuestion,
    StyledText,
)
from conversation_store.questions import DECISIONS
from conversation_store.store import ConversationStore
from tools.base import AwaitsPerson, Caller, Decision, ToolError, ToolRequest
from tools.executor import may_run_unasked
from tools.people import ASK_USER, Choice
from tools.question import CallQuestion

log = structlog.get_logger()

APPROVAL_SECONDS: Final = 300.0
"""After this long without an answer, a call may not run."""

PATIENCE_SECONDS: Final = 86_400.0
"""After this time the model learns that no answer to its question came."""

SENDING_SECONDS: Final = 300.0
"""Time limit of sending a question."""

CATCH_UP_SECONDS: Final = 15.0
"""Time after a restart to receive answers that people gave in the meantime."""

MAX_LOOK_SECONDS: Final = 60.0
"""Longest delay until the bot notices that the clock was set or the machine slept."""

MAX_OPEN_IN_CHAT: Final = 10
"""Questions of the model that may wait in one chat; more than people can tell apart."""

MAX_TOLD_CHARACTERS: Final = 200
"""Length of an open question, as later turns of the chat are told it."""

MAX_ANSWERED: Final = 1_000
"""Questions of the model whose answers are in memory; `Questions.answered` has them by row."""

MAX_EARLY: Final = 20
"""Reactions and votes that a chat keeps while a question is being sent."""

VOTING_SECONDS: Final = 10.0
"""A choice of several options is complete after this time without a further vote."""

SAY_SECONDS: Final = 15.0
SEND_RETRY: Final = Backoff(first_seconds=0.5, longest_seconds=15.0)

NOT_ASKED: Final = "Nobody could be asked. Go on without the answer."
NEXT_MESSAGE: Final = ""
"""Instead of a reason: the message goes to the chat, where it joins the turn that goes on."""

TOO_MANY: Final = (
    "Not asked: too many questions are waiting for an answer in this chat already. Go on without,"
    " or ask in your answer."
)

Render = Callable[[str], Awaitable[Sequence[StyledText]]]
"""Makes messages of Markdown."""

_SILENCE: Final = {"call": Decision.SILENCE, "choice": NOBODY, "plan": NOBODY_DECIDED}


@dataclass(eq=False, slots=True)
class OpenQuestion:
    """A question that was sent whole and has no answer.

    Attributes:
        reminded: the bot has said that messages wait for it.
        hinted: the bot has said how to answer it in a group.
        asked_back: the bot has asked once which of several questions some plain words answer.
        over: set once it has an answer, or its turn has ended.
    """

    stored: StoredQuestion
    reminded: bool = False
    hinted: bool = False
    asked_back: bool = False
    over: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_about_call(self) -> bool:
        """Whether it asks if a call may run."""
        return self.stored.terms.kind == "call"

    @property
    def has_no_options(self) -> bool:
        """Whether a person answers it in words of their own."""
        return self.stored.terms.kind == "choice" and not self.stored.terms.options

    @property
    def timestamps(self) -> Sequence[int]:
        """Timestamps that an answer may name; for a call, only that of its last message."""
        return self.stored.timestamps[-1:] if self.is_about_call else self.stored.timestamps

    def fits(self, message: ReceivedMessage) -> bool:
        """Whether words as a whole mean a possible answer, such as yes or an option."""
        return answer_of(self.stored.terms, message.text, in_own_words=False) is not None

    def takes(self, message: ReceivedMessage) -> bool:
        """Whether any words can be its answer; files are none."""
        return bool(message.text.strip()) and (not message.files or self.fits(message))

    def came_before(self, message: ReceivedMessage) -> bool:
        """Whether a message is later, both by our clock and by its author's, which may be ahead."""
        is_later = message.timestamp > self.stored.timestamps[-1]
        return is_later and message.received_at >= self.stored.asked_at


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class Questions:
    """The open questions of all chats.

    Attributes:
        is_admin: whether a person may answer for others, allow dangerous calls, or allow a tool
            for longer.
        go_on: continues a turn, by its id, that waits on disk.
        poll_over: set when a poll may have to be ended on phones.
    """

    store: ConversationStore
    channel: Doubts
    languages: Languages
    is_admin: Callable[[Person], bool]
    go_on: Callable[[int], Awaitable[None]]
    render: Render
    clock: Callable[[], float] = time.time
    _of_chats: dict[ChatId, list[OpenQuestion]] = field(default_factory=dict, init=False)
    _sending: WeakValueDictionary[ChatId, asyncio.Lock] = field(
        default_factory=WeakValueDictionary, init=False
    )
    poll_over: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _changed: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _early: dict[ChatId, list[Reaction | PollVote]] = field(default_factory=dict, init=False)
    answered: LRUCache[int, str] = field(default_factory=lambda: LRUCache(MAX_ANSWERED), init=False)
    _silence_from: float = field(default=0.0, init=False)

    async def resume(self) -> None:
        """Load the questions left open by a restart; call this before messages come in."""
        for stored in await self.store.questions.open():
            self._listen(stored)
        self._silence_from = asyncio.get_running_loop().time() + CATCH_UP_SECONDS

    def awaited_by(self, chat: ChatId, turn_id: int) -> bool:
        """Whether a turn has an open question."""
        return any(one.stored.turn_id == turn_id for one in self._of_chats.get(chat, ()))

    def of_model(self, chat: ChatId) -> tuple[StoredQuestion, ...]:
        """Return the open questions of the model in a chat, oldest first."""
        return tuple(one.stored for one in self._of_chats.get(chat, ()) if not one.is_about_call)

    def asks(self, chat: ChatId, timestamp: int) -> bool:
        """Whether a message of the bot is an open question."""
        return self._find(chat, timestamp) is not None

    def forget_turn(self, chat: ChatId, turn_id: int) -> None:
        """Forget the questions of a turn."""
        for question in tuple(self._of_chats.get(chat, ())):
            if question.stored.turn_id == turn_id:
                self._forget(question)

    # Questions of a turn

    async def choose(self, caller: Caller, choice: Choice) -> str:
        """Return a person's choice or words; see `tools.people.Choose`."""
        chat = ChatId.parse(caller.chat)
        text = choice.question[:MAX_TOLD_CHARACTERS]
        terms = QuestionTerms("choice", caller.person, text, choice.options, choice.multiple)
        numbered = (f"{number}. {option}" for number, option in enumerate(choice.options, 1))
        messages = partial(question_messages, ASK_USER, "\n".join((choice.question, *numbered)))
        return await self._answer_for(caller, terms, messages, poll_of(chat, choice))

    async def decide(self, caller: Caller, plan: str) -> str:
        """Return a person's decision about a plan; see `tools.people.Decide`."""
        terms = QuestionTerms("plan", caller.person, plan[:MAX_TOLD_CHARACTERS])
        messages = partial(styled_messages, await self.render(plan))
        return await self._answer_for(caller, terms, messages)

    async def _answer_for(
        self,
        caller: Caller,
        terms: QuestionTerms,
        messages: Callable[[str], Sequence[QuestionMessage]],
        poll: Poll | None = None,
    ) -> str:
        """Return the answer to a question of the model; AwaitsPerson while it is open."""
        stored = None
        if caller.turn is not None:
            stored = await self.store.questions.find_or_open(caller.turn, caller.call, terms)
        if stored is None:
            raise ToolError(NOT_ASKED)
        if stored.answer is not None:
            return stored.answer
        if not stored.timestamps and len(self.of_model(stored.chat)) >= MAX_OPEN_IN_CHAT:
            raise ToolError(TOO_MANY)
        if await self._shown(stored, messages, poll) is None:
            raise ToolError(NOT_ASKED)
        raise AwaitsPerson

    # Questions before calls

    async def allow(
        self,
        request: ToolRequest,
        question: CallQuestion,
        message: ReceivedMessage,
        turn_id: int,
        helper: int | None,
        *,
        is_retry: bool,
    ) -> Decision:
        """Return whether a call may run; ask a person if needed, or resume an earlier question.

        Args:
            message: its author is asked.
            is_retry: the turn was answered before, so its calls may have run already: the bot asks
                even for tools that are allowed for longer.

        Raises:
            ToolError: the person answered in other words.
        """
        terms, store = _terms(request, question.text(), message, helper), self.store.questions
        stored = await store.find_or_open(turn_id, request.call_id, terms, helper=helper)
        if stored is not None and stored.begun:
            return Decision.INTERRUPTED
        # An answer counts only for the call and the words that the person was asked about.
        if stored is None or stored.terms.fingerprint != terms.fingerprint:
            return Decision.NOT_ASKED
        if stored.answer is None:
            runs_unasked = not stored.timestamps and await self._runs_unasked(
                request, stored, is_retry=is_retry
            )
            if runs_unasked:
                await store.answer(stored.id, Decision.YES)
            elif not await self._wait_for(stored, request.tool, question):
                return Decision.NOT_ASKED
            stored = await store.find(stored.id)
        if stored is None:
            return Decision.NOT_ASKED
        answer = stored.answer or Decision.SILENCE
        if answer not in DECISIONS:
            raise ToolError(answer, "declined")
        return Decision(answer)

    async def _runs_unasked(
        self, request: ToolRequest, stored: StoredQuestion, *, is_retry: bool
    ) -> bool:
        """Whether a call may run unasked; in a group, a current admin must have allowed that."""
        if not request.consent.asks:
            return True
        if is_retry or request.tool not in stored.terms.covers:
            return False
        chat, version = stored.chat, stored.terms.version
        giver = await self.store.grants.giver(chat, request.tool, version)
        if giver is None or not chat.is_group:
            return giver is not None
        return self.is_admin(Person(giver, giver))

    async def _wait_for(self, stored: StoredQuestion, tool: str, asked: CallQuestion) -> bool:
        """Ask about a call once and wait for the end of the question; False if it was not sent."""
        say = partial(self.languages.say, stored.chat)
        messages = partial(question_messages, tool, asked.text(say), say=say)
        question = await self._shown(stored, messages)
        if question is None:
            return False
        try:
            await question.over.wait()
        finally:
            self._forget(question)
        return True

    # Showing

    async def _shown(
        self,
        stored: StoredQuestion,
        messages: Callable[[str], Sequence[QuestionMessage]],
        poll: Poll | None = None,
    ) -> OpenQuestion | None:
        """Send a question unless people see it already; None if it could not be sent whole.

        Args:
            messages: returns its messages, given how to answer it; a poll replaces them.
        """
        if stored.timestamps:
            return self._find(stored.chat, stored.timestamps[-1]) or self._listen(stored)
        sentences = how_to_answer(stored.terms, minutes=APPROVAL_SECONDS / 60)
        how = " ".join(self.languages.say(stored.chat, sentence) for sentence in sentences)
        timestamps: list[int] = []
        is_poll = False
        try:
            # Send one question after another, so that their messages do not mix.
            async with (
                asyncio.timeout(SENDING_SECONDS),
                self._sending.setdefault(stored.chat, asyncio.Lock()),
            ):
                timestamps += await self._send_poll(stored.chat, poll)
                is_poll = bool(timestamps)
                for one in () if is_poll else messages(how):
                    send = partial(self.channel.send, stored.chat, one.text, styles=one.styles)
                    sent = await self._send(partial(send, attachments=one.attachments))
                    timestamps.append(sent)
            question = await self._asked(stored, timestamps, is_poll=is_poll)
        except (SignalRejected, SignalTimeout, TimeoutError, asyncio.CancelledError) as error:
            # Nobody waits for an answer: a part was refused, or the turn has ended.
            self._early.pop(stored.chat, None)
            for timestamp in timestamps:
                self.channel.withdraw(stored.chat, timestamp)
            if isinstance(error, asyncio.CancelledError):
                raise
            log.warning("approval.not_asked", reason=type(error).__name__)
            return None
        await self._take_early(stored.chat)
        if question.is_about_call:
            metrics.APPROVALS.labels("asked").inc()
        if is_poll:
            self.poll_over.set()  # it may have been answered before the store knew of the poll
        return question

    async def _asked(
        self, stored: StoredQuestion, timestamps: Sequence[int], *, is_poll: bool
    ) -> OpenQuestion:
        """Listen to the answers of a question that was sent."""
        seconds = APPROVAL_SECONDS if stored.terms.kind == "call" else PATIENCE_SECONDS
        now = int(self.clock() * 1_000)
        until = now + int(seconds * 1_000)
        asked = replace(stored, timestamps=tuple(timestamps), asked_at=now, expires_at=until)
        # Listen before the store knows it: an answer may be on its way already.
        question = self._listen(asked)
        await self.store.questions.mark_asked(asked, is_poll=is_poll)
        return question

    async def _send(self, send: Callable[[], Awaitable[int]]) -> int:
        # The channel itself repeats a send in doubt, because it knows the receipts.
        final = (SignalRejected, SignalTimeout)
        return await SEND_RETRY.retry(send, on=(SignalError,), final=final)

    async def _send_poll(self, chat: ChatId, poll: Poll | None) -> list[int]:
        """Send a poll, if there is one and the Signal side supports it; return its timestamp."""
        if poll is None:
            return []
        try:
            return [await self._send(partial(self.channel.send_poll, chat, poll))]
        except SignalRejected as error:
            log.info("approval.no_poll", reason=type(error).__name__)
        return []

    # Answers

    def answered_by(self, message: ReceivedMessage) -> Sequence[OpenQuestion]:
        """Return the open question that a message answers, or several if it fits several.

        An edit is never an answer: only messages written after the question count.
        """
        if message.edited or message.kind == "edit":
            return ()
        if message.question_timestamp is not None:
            question = self._find(message.chat, message.question_timestamp)
            return (question,) if question is not None and question.takes(message) else ()
        sending = self._sending.get(message.chat)
        if sending is not None and sending.locked():
            return ()
        here = [
            question
            for question in self._of_chats.get(message.chat, ())
            if self._in_time(message.timestamp, question)
        ]
        if message.chat.is_group:
            author = author_of(message)
            here = [one for one in here if self._may_answer(author, one) and message.mentions_bot]
            if len(here) != 1 or not here[0].has_no_options:
                return self._fitting(message, here)
        if len(here) == 1:
            return here if here[0].takes(message) and here[0].came_before(message) else ()
        return self._fitting(message, here)

    def _fitting(
        self, message: ReceivedMessage, questions: Sequence[OpenQuestion]
    ) -> Sequence[OpenQuestion]:
        """Return the question that words fit, or several if the bot has not asked back yet."""
        fitting = [one for one in questions if one.fits(message)]
        if fitting:  # any words answer a question without options
            fitting = [one for one in questions if one.fits(message) or one.has_no_options]
        if len(fitting) == 1:
            return fitting if fitting[0].came_before(message) else ()
        if all(question.asked_back for question in fitting):
            return ()
        for question in fitting:
            question.asked_back = True
        return fitting

    async def settle(
        self, accepted: AcceptedMessage, questions: Sequence[OpenQuestion]
    ) -> str | None:
        """Take a message as an answer; return the reason for the person if it does not count.

        The model reads words of the asker as a message, so that they can be edited and deleted as
        one: `NEXT_MESSAGE` says so. They also are one if they came just after another answer.
        """
        question, message = questions[0], accepted.message
        author, terms = author_of(message), question.stored.terms
        text = answer_of(terms, message.text, in_own_words=True)
        is_open = self._in_time(message.timestamp, question) and not question.over.is_set()
        if len(questions) > 1:
            return WHICH
        if not self._may_answer(author, question):
            return NOT_YOURS
        if is_open and text is None:
            return asked_back(terms)
        if is_open and text is not None:
            if not self._may_say(text, author, question):
                return NOT_COUNTED
            if await self._is_taken(question, text, accepted):
                return None
        return TOO_LATE if question.fits(message) else NEXT_MESSAGE

    async def _is_taken(self, question: OpenQuestion, text: str, accepted: AcceptedMessage) -> bool:
        """Take an answer; False if the question has one already, or if the message goes on."""
        message, author = accepted.message, author_of(accepted.message)
        self.answered[accepted.id] = told_question(question.stored)
        if question.fits(message) or not await self._joins(message, question):
            return await self._take(question, text, author, message.text, message=accepted)
        below = answer_of(question.stored.terms, BELOW, in_own_words=True)
        await self._take(question, below or text, author)
        return False

    async def _joins(self, message: ReceivedMessage, question: OpenQuestion) -> bool:
        """Whether the turn of a question can read a message as its own; a reply has a quote."""
        is_short = not message.quote and len(message.text.encode()) <= MAX_JOINED_BYTES
        is_own = message.author == question.stored.terms.asker
        return is_own and is_short and await self.store.questions.may_join(question.stored.id)

    async def react(self, reaction: Reaction) -> None:
        """Take a reaction as an answer: a thumb, or the picture of a number."""
        question = self._find(reaction.chat, reaction.target_timestamp)
        if question is None and not reaction.removed:
            self._keep_early(reaction)
        if reaction.removed or question is None:
            return
        answer = answer_of(question.stored.terms, reaction.emoji, in_own_words=False)
        if answer is None or not self._in_time(reaction.timestamp, question):
            return
        if self._may_say(answer, reaction.author, question):
            await self._take(question, answer, reaction.author, reaction.emoji)

    async def vote(self, vote: PollVote) -> None:
        """Take a vote as an answer; with several options, wait until no other vote follows."""
        question = self._find(vote.chat, vote.target_timestamp)
        if question is None:
            self._keep_early(vote)
        if question is None or not self._in_time(vote.timestamp, question):
            return
        terms = question.stored.terms
        choice = tuple(sorted({place for place in vote.options if place < len(terms.options)}))
        if not self._may_answer(vote.author, question):
            return
        if terms.multiple:
            await self._choose_for_now(question, choice, vote.author)
        elif len(choice) == 1:
            await self._take(question, chose(terms, choice), vote.author)

    def _keep_early(self, answer: Reaction | PollVote) -> None:
        """Keep an answer for a question that phones show while its timestamp is still unknown."""
        sending = self._sending.get(answer.chat)
        if sending is not None and sending.locked():
            early = self._early.setdefault(answer.chat, [])
            early.append(answer)
            del early[:-MAX_EARLY]

    async def _take_early(self, chat: ChatId) -> None:
        """Take the answers that came before the timestamp of a question was known."""
        for answer in self._early.pop(chat, ()):
            await (self.react(answer) if isinstance(answer, Reaction) else self.vote(answer))

    async def _choose_for_now(
        self, question: OpenQuestion, choice: tuple[int, ...], person: Person
    ) -> None:
        """Note a vote that further votes may replace; an empty vote keeps the question open."""
        stored = question.stored
        until = stored.asked_at + int(PATIENCE_SECONDS * 1_000)
        if choice:
            until = int((self.clock() + VOTING_SECONDS) * 1_000)
        text = chose(stored.terms, choice) if choice else None
        question.stored = replace(stored, chosen=text, expires_at=until)
        self._changed.set()
        await self.store.questions.choose_for_now(stored.id, text, by=person.aci, expires_at=until)

    def _may_answer(self, person: Person, question: OpenQuestion) -> bool:
        return person.aci == question.stored.terms.asker or self.is_admin(person)

    def _may_say(self, answer: str, person: Person, question: OpenQuestion) -> bool:
        """Whether a person may give an answer: some calls only an admin may allow."""
        if question.stored.terms.needs_admin and answer == Decision.YES:
            return self.is_admin(person)
        return self._may_answer(person, question)

    def _in_time(self, timestamp: int, question: OpenQuestion) -> bool:
        """Whether an answer of this time (ms) is in time; a phone's clock may be ahead of ours."""
        return min(timestamp, self.clock() * 1_000) <= question.stored.expires_at

    async def _take(
        self,
        question: OpenQuestion,
        answer: str,
        person: Person,
        said: str = "",
        *,
        message: AcceptedMessage | None = None,
    ) -> bool:
        """Take an answer from a person who may give it; False if the question has one already."""
        counts = await self._answer(question, answer, by=person.aci, message=message)
        terms, chat = question.stored.terms, question.stored.chat
        is_always = counts and bool(terms.covers) and meaning_of(said) is Meaning.ALWAYS
        if is_always and (not chat.is_group or self.is_admin(person)):
            # An admin may be listed by number alone. Store the name that is on the list.
            listed = person.number if not self.is_admin(Person(person.aci)) else None
            by = listed if listed is not None and chat.is_group else person.aci
            row = None if message is None else message.id
            await self.store.grants.give(chat, terms, by=by, days=GRANT_DAYS, message=row)
        return counts

    async def _answer(
        self,
        question: OpenQuestion,
        answer: str,
        *,
        by: str | None = None,
        message: AcceptedMessage | None = None,
    ) -> bool:
        """Answer a question, and let its turn continue once it has all its answers."""
        stored = question.stored
        counts = await self.store.questions.answer(stored.id, answer, by=by, message=message)
        if counts and question.is_about_call:
            metrics.APPROVALS.labels(answer if answer in DECISIONS else "other").inc()
        self._forget(question)
        if not self.awaited_by(stored.chat, stored.turn_id):
            await self.go_on(stored.turn_id)
        return counts

    # Reminders

    def overlooked_by(self, message: ReceivedMessage) -> OpenQuestion | None:
        """Return an open question that the author may have overlooked; each question only once.

        In a group, people may talk about other things, so only a question counts that their
        messages wait for. A command never answers a question, but waits for the one about a call.
        """
        is_reply = message.question_timestamp is not None
        only_calls = message.chat.is_group or is_reply or message.text.startswith("!")
        overlooked = [
            question
            for question in self._of_chats.get(message.chat, ())
            if not question.reminded and (question.is_about_call or not only_calls)
        ]
        for question in overlooked:
            question.reminded = True
        return max(overlooked, key=lambda question: question.is_about_call, default=None)

    def answered_unheard(self, message: ReceivedMessage) -> OpenQuestion | None:
        """Return the question that words in a group would answer, were they said to the bot.

        Each question only once, and only to a person who may answer it.
        """
        if message.mentions_bot or message.question_timestamp is not None or message.edited:
            return None
        author = author_of(message)
        for question in self._of_chats.get(message.chat, ()):
            is_meant = message.chat.is_group and question.fits(message)
            if is_meant and not question.hinted and self._may_answer(author, question):
                question.hinted = True
                return question
        return None

    async def remind(self, question: OpenQuestion, *, is_unheard: bool = False) -> None:
        """Remind people of a question, or say how to answer it; failures are harmless."""
        if question.over.is_set():
            return
        chat = question.stored.chat
        sentence = REMINDER if question.is_about_call else STILL_OPEN
        if chat.is_group:
            sentence = SAY_IT_TO_ME if is_unheard else OTHERS_WAIT
        try:
            async with asyncio.timeout(SAY_SECONDS):
                await self.channel.send(chat, self.languages.say(chat, sentence))
        except (SignalError, TimeoutError) as error:
            log.info("approval.not_reminded", reason=type(error).__name__)

    # Known questions

    def _find(self, chat: ChatId, timestamp: int) -> OpenQuestion | None:
        """Return the open question whose message has a timestamp."""
        here = self._of_chats.get(chat, ())
        return next((one for one in here if timestamp in one.timestamps), None)

    def _listen(self, stored: StoredQuestion) -> OpenQuestion:
        """Take answers to a question from now on; all of it must have been sent."""
        question = OpenQuestion(stored)
        self._of_chats.setdefault(stored.chat, []).append(question)
        self._changed.set()
        return question

    def _forget(self, question: OpenQuestion) -> None:
        question.over.set()
        self.poll_over.set()
        chat = question.stored.chat
        if here := [one for one in self._of_chats.pop(chat, ()) if one is not question]:
            self._of_chats[chat] = here

    # The end

    async def run(self) -> None:
        """End overdue questions until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            now, due = self.clock() * 1_000, self._silence_from <= loop.time()
            for question in self._open():
                if due and question.stored.expires_at <= now:
                    silence = _SILENCE[question.stored.terms.kind]
                    await self._answer(question, question.stored.chosen or silence)
            seconds = None
            if left := [question.stored.expires_at for question in self._open()]:
                catching_up = self._silence_from - loop.time()
                seconds = max(min(left) / 1_000 - self.clock(), catching_up, 0.0)
                seconds = min(seconds, MAX_LOOK_SECONDS)
            await set_within(self._changed, seconds)

    def _open(self) -> list[OpenQuestion]:
        return [question for questions in self._of_chats.values() for question in questions]


def _terms(
    request: ToolRequest, text: str, message: ReceivedMessage, helper: int | None
) -> QuestionTerms:
    consent = request.consent
    asked = f"{request.tool}\0{request.arguments}\0{text}"
    is_free = helper is None and may_run_unasked(consent, request.heard)
    return QuestionTerms(
        "call",
        message.author,
        fingerprint=hashlib.sha256(asked.encode()).hexdigest(),
        covers=consent.covers if is_free else (),
        version=consent.version,
        needs_admin=message.chat.is_group and consent.needs_admin,
    )
