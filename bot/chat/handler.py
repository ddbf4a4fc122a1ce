"""A turn from its messages to its stored answer.

Everything is on disk before the next step uses it. The tool loop is in `tool_loop`.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Final, Protocol

import structlog

from bot.chat.allowance import AllowanceUsedUp, Budget
from bot.chat.asked_again import asked_again
from bot.chat.bells import headings, token_bound
from bot.chat.early_request import EarlyRequest, Question, StillTrying, asking_early
from bot.chat.history_window import HistoryWindow
from bot.chat.live_turns import LiveTurn, LiveTurns
from bot.chat.media import Media, Prepared
from bot.chat.notes import ChatNotes
from bot.chat.plan_mode import PLANNING, is_to_be_planned, without_command
from bot.chat.prompt import Prompt, Prompts
from bot.chat.quotes import checked
from bot.chat.rendering.client import Renderer
from bot.chat.rendering.layout import plain
from bot.chat.todo import last_shown
from bot.chat.tool_loop import ToolLoop
from bot.chat.turn_context import TurnContext, TurnContexts
from bot.chat.turn_state import TurnState
from bot.language.languages import Languages
from bot.llm.errors import LlmError
from bot.llm.failover import Route
from bot.llm.messages import Completion
from bot.llm.model import Model
from bot.llm.models import Models
from bot.messaging.events import Person
from bot.observability import metrics
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    Image,
    Message,
    NewExchange,
    OutgoingMessage,
    OverheardMessage,
    Quote,
    ReceivedMessage,
    Retry,
    Role,
    StyledText,
    TokenSpend,
    Turn,
    TurnStatus,
    TurnUsage,
)
from conversation_store.store import ConversationStore
from tools.base import Caller

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 10
"""A turn that began this often and never ended is given up: it may be what ends the process."""

EMPTY: Final = "The model had nothing to say to that, twice. Please say it in other words."
GIVEN_UP: Final = (
    "I was interrupted several times while answering this and have given up on it."
    " Please send it again if you still need it."
)
CUT: Final = (
    "(My answer ends here because it became too long for my model. Ask me to go on, and I will.)"
)
ANSWERED_BY: Final = "\n\n(answered by {name})"
MODEL_GONE: Final = "The model {name}, which was chosen here, is gone; the default one answers now."


Hear = Callable[[], Sequence[AcceptedMessage]]
"""Returns messages that have become part of a turn since it was called last."""


class TurnForgotten(Exception):
    """One of the messages was deleted at the last moment, and with it the whole turn."""


class SignatureDesk(Protocol):
    """Checks signatures of answers. Implemented by `dispatch.outgoing.proofs.AnswerProofs`."""

    def wake(self) -> None:
        """Look for exchanges of turns that have just ended."""
        ...


@dataclass(frozen=True, slots=True)
class TurnResult:
    """An answer that is found and not yet stored.

    Attributes:
        turn: the turn that it ends.
        status: ANSWERED or FAILED.
        answer: the text, as the model wrote it.
        shown: the messages that show it.
        usage: the tokens that it cost.
        model: what answered, as its endpoint calls it; empty where none was asked.
        rounds: how often tools were called.
        exchanged: requests and answers that are not stored yet, where signatures are checked.
        spent: what is not counted yet.
    """

    turn: Turn
    status: TurnStatus
    answer: str
    shown: Sequence[StyledText]
    usage: TurnUsage
    model: str = ""
    rounds: int = 0
    exchanged: tuple[NewExchange, ...] = ()
    spent: tuple[TokenSpend, ...] = ()


class ChatHandler:
    """Answers messages with the model's help.

    Args:
        loop: finds the answer.
        live: knows the turns that run, for tools.
        contexts: make what each turn's tool calls need.
        prompts: how messages are put before the model, and how much history fits.
        notes: what the model is told about each chat.
        is_admin: whether somebody administers the bot.
        budget: what somebody may use in a day.
        store: keeps everything.
        media: reads what comes with messages.
        renderer: turns answers into messages.
        proofs: checks the signatures of answers; None where the endpoint signs none.
        models: which one answers each chat.
        languages: in which the bot itself speaks.
        words_for: what a person is told of a model that cannot answer.
        clock: seconds since 1970.
    """

    def __init__(
        self,
        *,
        loop: ToolLoop,
        live: LiveTurns,
        contexts: TurnContexts,
        prompts: Prompts,
        notes: ChatNotes,
        is_admin: Callable[[Person], bool],
        budget: Budget,
        store: ConversationStore,
        media: Media,
        renderer: Renderer,
        proofs: SignatureDesk | None,
        models: Models,
        languages: Languages,
        words_for: Callable[[LlmError, Model], str],
        clock: Callable[[], float],
    ) -> None:
        self._loop = loop
        self._live = live
        self._contexts = contexts
        self._prompts = prompts
        self._notes = notes
        self._is_admin = is_admin
        self._budget = budget
        self._store = store
        self._window = HistoryWindow(store)
        self._media = media
        self._renderer = renderer
        self._proofs = proofs
        self._models = models
        self._languages = languages
        self._words_for = words_for
        self._clock = clock

    def asking_early(self) -> AbstractAsyncContextManager[EarlyRequest]:
        """Provide a way to ask the model before it is known what a turn has to answer."""
        return asking_early(self._first_request, self._send)

    async def _send(self, question: Question, still_trying: StillTrying) -> Completion:
        model = self._models.get(question.model) or self._models.default
        return await model.complete(question.request, still_trying=still_trying)

    async def _first_request(self, pieces: Sequence[AcceptedMessage]) -> Question | None:
        messages = await self._checked(pieces)
        if any(message.files for message in messages):
            return None  # to read them takes long, and may be to no purpose
        now = self._now()
        chat = messages[0].chat
        model = self._models.route(chat).model
        overheard = await self._overheard(chat)
        messages, is_planned = without_command(messages)
        prompt = await self._prompt(self._caller(messages[-1]), chat, is_planned=is_planned)
        content = prompt.user_content(messages, model.traits, overheard=overheard)
        content = _asked(content, is_planned=is_planned)
        most = prompt.history_bytes(now, model.traits, [Message(Role.USER, content)])
        history = await self._window.read(chat, max_bytes=most)
        return await self._loop.first_request(prompt, model, history, content, now)

    async def run_turn(
        self,
        pieces: Sequence[AcceptedMessage],
        early: EarlyRequest | None = None,
        *,
        hear: Hear = tuple,
        retry: Retry | None = None,
    ) -> TurnResult | None:
        """Find the answer to a message, or to several that belong together; may be cancelled.

        None where the turn waits on disk for people to answer questions.

        A model that cannot answer becomes a plain sentence, never an exception.

        Args:
            pieces: the messages.
            early: may have the answer to the first request already.
            hear: takes what the person has written since, between two steps.
            retry: the first message asks for this; what else there is was written with it.

        Raises:
            TurnForgotten: the messages are gone.
        """
        now = self._now()
        accepted = pieces[-1]
        turn, fleeting, can_be_asked = await self._begin(pieces, retry)
        log.debug("turn.began", turn=turn.id, attempt=turn.attempts, count=len(pieces))
        if turn.attempts > MAX_ATTEMPTS:
            log.error("turn.given_up", attempts=turn.attempts, turn=turn.id)
            shown = plain(self._languages.say(accepted.message.chat, GIVEN_UP), ())
            return TurnResult(turn, TurnStatus.FAILED, GIVEN_UP, shown, TurnUsage())
        if not can_be_asked:
            refusal = "\n".join(turn.notices)
            shown = await self._renderer.as_typed(refusal, ())
            return TurnResult(turn, TurnStatus.FAILED, refusal, shown, TurnUsage())
        wanted, before = (None, None) if retry is None else (retry.model, retry.question.turn)
        route = self._models.route(accepted.message.chat, wanted)
        caller = self._caller(accepted.message, retry)
        prompt = await self._prompt(caller, accepted.message.chat)
        planning = None
        if is_to_be_planned(turn.messages):
            planning = await self._prompt(caller, accepted.message.chat, is_planned=True)
        most = prompt.history_bytes(now, route.model.traits, turn.messages)
        history = await self._window.read(accepted.message.chat, max_bytes=most, before=before)
        context = self._contexts.of(
            accepted, replace(caller, turn=turn.id), turn, is_retry=retry is not None
        )
        state = TurnState(
            turn,
            history,
            fleeting,
            early,
            person=accepted.message.author,
            chat=accepted.message.chat,
            route=route,
            prompt=prompt,
            still_trying=context.progress.still_trying,
            further=partial(self._further, turn.id, hear, prompt, route),
            most_tokens=token_bound(accepted.message),
            stops=partial(self._budget.stops, context.person),
            planning=planning,
        )
        context.progress.show_list(last_shown(turn.messages))
        try:
            with self._live.running(LiveTurn(state, context)):
                return await self._answered(state, context, accepted.message.chat, now)
        finally:
            # Of a turn that is stopped: what it has spent counts all the same.
            if spent := state.take_spent():
                self._store.usage.add(spent)

    async def _checked(self, pieces: Sequence[AcceptedMessage]) -> list[ReceivedMessage]:
        """Return messages with what is true of what they quote."""
        outbox, reminders = self._store.outbox, self._store.reminders
        return [await checked(piece.message, outbox, reminders) for piece in pieces]

    async def _further(
        self, turn_id: int, hear: Hear, prompt: Prompt, route: Route
    ) -> Message | None:
        """Return what a person has written while a turn runs, once that is stored as its part."""
        pieces = hear()
        if not pieces:
            return None
        messages = await self._checked(pieces)
        content = prompt.user_content(messages, route.model.traits)
        # Of what was deleted meanwhile nothing is heard; the turn is told so as well.
        if not await self._store.turns.hear(turn_id, pieces, content):
            return None
        return Message(Role.USER, content)

    async def _answered(
        self, state: TurnState, context: TurnContext, chat: ChatId, now: datetime
    ) -> TurnResult | None:
        try:
            async with context.progress.running():
                answer = await self._loop.run(state, context, now)
                if answer is None:
                    context.progress.keep_last_edit()
        except LlmError as error:
            log.warning("turn.failed", error=type(error).__name__, turn=state.turn.id)
            sentence = self._words_for(error, state.route.model)
            return await self._failed(state, chat, sentence)
        except AllowanceUsedUp as error:
            log.info("turn.allowance_used_up", turn=state.turn.id)
            return await self._failed(state, chat, error.sentence)
        if answer is None:
            log.debug("turn.awaits_people", turn=state.turn.id, count=len(state.open_calls))
            return None
        if not answer:
            return await self._failed(state, chat, EMPTY)
        written = answer
        if state.is_cut:
            written += f"\n\n{self._languages.say(chat, CUT)}"
        if state.route.stands_in:
            written += ANSWERED_BY.format(name=state.route.model.name)
        shown = await self._renderer.messages(written, state.notices)
        return _result(state, TurnStatus.ANSWERED, answer, shown)

    def _now(self) -> datetime:
        return datetime.fromtimestamp(self._clock(), UTC)

    def _caller(self, message: ReceivedMessage, retry: Retry | None = None) -> Caller:
        """Return for whom calls are made; nobody lends an admin's rights to another's question."""
        person = Person(message.author, message.author_number)
        is_own = retry is None or retry.question.asker == message.author
        return Caller(message.author, message.chat, is_admin=is_own and self._is_admin(person))

    async def _prompt(self, caller: Caller, chat: ChatId, *, is_planned: bool = False) -> Prompt:
        prompts = self._prompts
        prompt = prompts.of_planner(caller) if is_planned else prompts.of(caller)
        return prompt.with_notes(await self._notes.of(chat))

    async def _overheard(self, chat: ChatId) -> tuple[OverheardMessage, ...]:
        return await self._store.messages.overheard(chat) if chat.is_group else ()

    async def _failed(self, state: TurnState, chat: ChatId, sentence: str) -> TurnResult:
        said = self._languages.say(chat, sentence)
        shown = await self._renderer.as_typed(said, state.notices)
        return _result(state, TurnStatus.FAILED, sentence, shown)

    async def _begin(
        self, pieces: Sequence[AcceptedMessage], retry: Retry | None
    ) -> tuple[Turn, tuple[Image, ...], bool]:
        """Begin or resume a turn; also return images not to be kept, and whether to ask."""
        if retry is not None and not pieces[0].begun:
            return await self._begin_again(pieces, retry), (), True
        messages = await self._checked(pieces)
        has_files = any(message.files for message in messages)
        if pieces[0].begun:
            resumed = await self._store.turns.resume(pieces[0])
            if resumed is None:
                raise TurnForgotten
            return resumed, (), True
        chat = messages[0].chat
        gone = await self._models.forget_gone(chat)
        model = self._models.route(chat).model
        prepared = _as_written(messages)
        if has_files:
            prepared = await self._media.prepare(messages, model.vision)
        notices = [self._languages.say(chat, one) for one in prepared.notices]
        if gone is not None:
            notices.insert(0, self._languages.say(chat, MODEL_GONE).format(name=gone))
        notices[:0] = await headings(messages[0], self._store.reminders, self._languages)
        overheard = await self._overheard(chat)
        messages, is_planned = without_command(messages)
        content = self._prompts.of(self._caller(messages[-1])).user_content(
            messages,
            model.traits,
            words=_said(messages, prepared),
            overheard=overheard,
        )
        turn = self._store.turns.begin(
            pieces,
            _asked(content, is_planned=is_planned),
            images=prepared.images,
            notices=notices,
            overheard=overheard,
        )
        at_once = [message for message in messages if message.view_once]
        if at_once:
            await self._store.upkeep.ping()  # behind it, the turn's beginning is on disk
            await self._media.discard(at_once)
        return turn, prepared.fleeting, prepared.has_words

    async def _begin_again(self, pieces: Sequence[AcceptedMessage], retry: Retry) -> Turn:
        """Begin a turn that asks what an earlier one asked, and what was written with the request.

        Raises:
            TurnForgotten: the earlier one is gone.
        """
        earlier = await self._store.turns.find(retry.question.turn)
        if earlier is None:
            raise TurnForgotten
        request, *more = await self._checked(pieces)
        model = self._models.route(request.chat, retry.model).model
        content = asked_again(earlier.messages)
        if more:
            prompt = self._prompts.of(self._caller(request, retry))
            content = "\n".join((content, prompt.user_content(more, model.traits)))
        return self._store.turns.begin(
            pieces,
            content,
            images=earlier.messages[0].images,
            notices=earlier.notices,
            retries=earlier.id,
        )

    async def finish(
        self,
        pieces: Sequence[AcceptedMessage],
        result: TurnResult,
        *,
        quote: Quote | None,
        retry: Retry | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store the answer as what is to be sent, and count the turn.

        Args:
            pieces: the messages that are answered.
            result: the answer.
            quote: the message that it is shown as a reply to, where that is called for.
            retry: the request that is answered; where there is no better answer, the earlier one
                stays.

        Raises:
            TurnForgotten: nothing of it was stored.
        """
        first = pieces[0]
        if retry is not None and result.status is not TurnStatus.ANSWERED:
            _count(result)
            self._store.usage.add(result.spent)
            return await self._store.turns.answer(
                first,
                result.shown,
                outcome="not_retried",
                quote=quote,
                always_quote=first.message.chat.is_group,
                joined=pieces[1:],
            )
        # Not earlier: a turn whose messages change begins afresh and reads the files again. Not
        # later: nobody looks at answered messages again, whatever ends the process now.
        messages = [piece.message for piece in pieces]
        if any(message.files for message in messages):
            await self._store.upkeep.ping()  # behind it, what was read is on disk
            await self._media.discard(messages)
        outgoing = await self._store.turns.finish(
            result.turn,
            state=result.status,
            answer=result.answer,
            parts=result.shown,
            quote=quote,
            always_quote=first.message.chat.is_group,
            replaces=first.replaces,
            retried=None if retry is None else retry.question,
            model=result.model,
            usage=result.usage,
            exchanged=result.exchanged,
            spent=result.spent,
        )
        if not outgoing:
            raise TurnForgotten
        if self._proofs is not None:
            self._proofs.wake()
        log.debug("turn.finished", turn=first.id, outcome=result.status, count=result.rounds)
        _count(result)
        return outgoing


def _count(result: TurnResult) -> None:
    metrics.TURNS.labels(result.status).inc()
    metrics.TURN_ROUNDS.observe(result.rounds)
    with_tools = "yes" if result.rounds else "no"
    metrics.TURN_TOKENS.labels(with_tools, "prompt").inc(result.usage.prompt_tokens)
    metrics.TURN_TOKENS.labels(with_tools, "completion").inc(result.usage.completion_tokens)


def _result(
    state: TurnState, status: TurnStatus, answer: str, shown: Sequence[StyledText]
) -> TurnResult:
    return TurnResult(
        state.turn,
        status,
        answer,
        shown,
        state.usage,
        state.route.model.id,
        rounds=state.rounds,
        exchanged=state.take_exchanged(),
        spent=state.take_spent(),
    )


def _asked(content: str, *, is_planned: bool) -> str:
    """Return what is asked, with what says that it is to be planned."""
    return f"{content}\n{PLANNING}" if is_planned else content


def _as_written(messages: Sequence[ReceivedMessage]) -> Prepared:
    return Prepared(words=("",) * len(messages))


def _said(messages: Sequence[ReceivedMessage], prepared: Prepared) -> list[str]:
    """Return what each message says: its text, then what is in its files."""
    both = zip(messages, prepared.words, strict=True)
    return ["\n".join(filter(None, (message.text, words))) for message, words in both]
