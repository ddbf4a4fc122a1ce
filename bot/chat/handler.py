"""Begin turns, let the loop find their answers, and store the answers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

import structlog

from bot.chat.history import HistoryWindow
from bot.chat.joining import RunningTurn
from bot.chat.loop import ToolLoop
from bot.chat.media import Media, Prepared
from bot.chat.pictures import picture_for
from bot.chat.plan import PLANNING, is_to_be_planned, last_shown, without_command
from bot.chat.prompt import Notes, Prompt, further_lines, notes_of
from bot.chat.quotes import BELL, one_line, shortened
from bot.chat.rendering import Renderer
from bot.chat.summaries import Summaries
from bot.chat.turn import AllowanceUsedUp, Turn, TurnParts, checked_messages, note_outgoing
from bot.chat.voice import Voice
from bot.language.languages import Languages
from bot.llm.errors import LlmError
from bot.llm.models import Model, Models
from bot.observability import metrics
from bot.signal.events import Person
from bot.signal.formatting import plain
from conversation_store.models import (
    AcceptedMessage,
    ChatId,
    Image,
    Message,
    OutgoingMessage,
    Quote,
    ReceivedMessage,
    Retry,
    Role,
    StoredTurn,
    TurnEnd,
)
from conversation_store.reminders import ReminderStore
from conversation_store.store import ConversationStore
from conversation_store.turns import Told
from tools.base import Caller
from tools.ledger import Entry, noting
from tools.reminders import from_ms, zone_named

log = structlog.get_logger()

MAX_ATTEMPTS: Final = 10
"""The bot gives up a turn that began this often and never ended: it may crash the process."""

EMPTY: Final = "The model gave no answer, even when asked again. Please ask in other words."
GIVEN_UP: Final = (
    "I was interrupted several times while answering this and have given up on it."
    " Please send it again if you still need it."
)
CUT: Final = (
    "(My answer ends here because it became too long for my model. Ask me to go on, and I will.)"
)
ANSWERED_BY: Final = "\n\n(answered by {name})"
MODEL_GONE: Final = "The model {name}, which was chosen here, is gone; the default one answers now."

MAX_CALLS_TOLD: Final = 10
"""Earlier calls that the model hears of when a person asks again."""
MAX_ARGUMENTS_CHARACTERS: Final = 200

OPENING: Final = (
    "\n[You were asked this before, and made these calls for it, which were carried out:"
)
ENDING: Final = "Make a call that changes something again only if that is wanted twice.]"

LATE_MS: Final = 60_000
"""A reminder that is later than this names its due time."""

LATE: Final = "(Late: this was for {when}.)"
LATE_SERIES: Final = "(Late: this was for {when}, and {count} more times since.)"

HEADING_CHARACTERS: Final = 80
"""Length of a scheduled question above its answer."""

MAX_TOKENS: Final = 100_000
"""Tokens of one run of a scheduled question; then the model has to answer."""


class TurnForgotten(Exception):
    """A message was deleted at the last moment, and the whole turn with it."""


@dataclass(eq=False, repr=False, slots=True, kw_only=True)
class ChatHandler:
    """Answers messages with the model's help.

    Attributes:
        answered: called when an answer is stored.
        running: the turns that run, by id.
        summaries: None if the operator wants none.
        voice: None if nothing speaks.
        words_for: returns the text for a person whose model cannot answer.
    """

    loop: ToolLoop
    running: dict[int, Turn]
    parts: TurnParts
    prompt: Prompt
    uses_memory: bool
    is_admin: Callable[[Person], bool]
    store: ConversationStore
    media: Media
    renderer: Renderer
    answered: Callable[[], None]
    models: Models
    languages: Languages
    words_for: Callable[[LlmError, Model], str]
    summaries: Summaries | None
    voice: Voice | None
    _window: HistoryWindow = field(init=False)

    def __post_init__(self) -> None:
        self._window = HistoryWindow(self.store, shows_summaries=self.summaries is not None)

    async def run_turn(self, running: RunningTurn, retry: Retry | None) -> Turn | None:
        """Find the answer to the messages of a turn; may be cancelled.

        If the model cannot answer, the answer is a sentence that says so. Return None if the turn
        waits on disk for people to answer questions. Raise TurnForgotten if its messages are gone.

        Args:
            retry: the first message asks for it; the others came with that message.
        """
        if self.summaries is not None:
            self.summaries.make_way()
        first = running.pieces[0]
        joins = first.message.kind != "scheduled"
        if joins and not first.begun and retry is None:
            running.take(begun=False)
        pieces = tuple(running.pieces)
        before_the_turn: list[Entry] = []
        with noting(before_the_turn.append):
            turn, can_be_asked = await self._begin(pieces, running if joins else None, retry)
        for entry in before_the_turn:
            note_outgoing(self.store, turn.id, entry)
        log.debug("turn.began", turn=turn.id, attempt=turn.stored.attempts, count=len(pieces))
        if turn.stored.attempts > MAX_ATTEMPTS:
            log.error("turn.given_up", attempts=turn.stored.attempts, turn=turn.id)
            turn.answer, turn.shown = GIVEN_UP, plain(self.languages.say(turn.chat, GIVEN_UP), ())
            return turn
        if not can_be_asked:
            turn.answer = "\n".join(turn.notices)
            turn.shown = await self.renderer.as_typed(turn.answer, ())
            return turn
        turn.past_before = None if retry is None else retry.question.turn
        await self._read_past(turn)
        turn.progress.show_list(last_shown(turn.messages))
        self.running[turn.id] = turn
        try:
            with noting(partial(note_outgoing, self.store, turn.id)):
                is_answered = await self._is_answered(turn, running)
                if turn.status == "answered" and not turn.reaction:
                    turn.to_make = picture_for(turn.answer, turn.shown)
                    if turn.to_make is None and self.voice is not None:
                        turn.to_make = await self.voice.to_speak(turn, running.pieces)
            return turn if is_answered else None
        finally:
            del self.running[turn.id]
            # A stopped turn has also spent tokens.
            if turn.status != "answered" and turn.costs.spent:
                self.store.usage.add(turn.costs.take()[1])

    async def _read_past(self, turn: Turn) -> None:
        traits, stored = turn.route.model.traits, turn.stored.messages
        most = turn.final_prompt.history_bytes(turn.began_at, traits, stored)
        turn.past = await self._window.read(turn.chat, max_bytes=most, before=turn.past_before)

    async def read_past_again(self, chat: ChatId) -> None:
        """Let later requests of a chat's running turns show nothing that was deleted since."""
        for turn in [*self.running.values()]:
            if turn.chat == chat:
                await self._read_past(turn)

    async def _ask(self, turn: Turn, running: RunningTurn) -> str | None:
        """Return the answer, None if it waits for people; show the progress meanwhile."""
        try:
            async with turn.progress.running():
                answer = await self.loop.run(turn)
                if answer is None:
                    turn.progress.keep_last_edit()
                return answer
        except asyncio.CancelledError:
            if running.is_stopped:
                await turn.progress.show_stopped()
            raise

    async def _is_answered(self, turn: Turn, running: RunningTurn) -> bool:
        """Find the answer of a turn; False if it waits for people."""
        try:
            answer = await self._ask(turn, running)
        except LlmError as error:
            log.warning("turn.failed", error=type(error).__name__, turn=turn.id)
            await self._fail(turn, self.words_for(error, turn.route.model))
            return True
        except AllowanceUsedUp as error:
            log.info("turn.allowance_used_up", turn=turn.id)
            await self._fail(turn, error.sentence)
            return True
        if answer is None:
            log.debug("turn.awaits_people", turn=turn.id, count=len(turn.open_calls))
            return False
        if not answer:
            await self._fail(turn, EMPTY)
            return True
        if turn.reaction:
            turn.status, turn.answer = "answered", answer
            return True
        written = answer
        if turn.is_cut:
            written += f"\n\n{self.languages.say(turn.chat, CUT)}"
        if turn.route.stands_in:
            written += ANSWERED_BY.format(name=turn.route.model.name)
        turn.shown = await self.renderer.messages(written, turn.notices)
        turn.status, turn.answer = "answered", answer
        return True

    async def _fail(self, turn: Turn, sentence: str) -> None:
        turn.answer, said = sentence, self.languages.say(turn.chat, sentence)
        turn.shown = await self.renderer.as_typed(said, turn.notices)

    def _caller(self, message: ReceivedMessage, zone: str, retry: Retry | None = None) -> Caller:
        """Return the caller of tools; repeating another person's question gives no admin rights."""
        person = Person(message.author, message.author_number)
        is_own = retry is None or retry.question.asker == message.author
        is_admin = is_own and self.is_admin(person)
        return Caller(message.author, message.chat, is_admin=is_admin, zone=zone)

    async def _begin(
        self, pieces: Sequence[AcceptedMessage], running: RunningTurn | None, retry: Retry | None
    ) -> tuple[Turn, bool]:
        """Begin or resume a turn; also return whether there is something to ask the model."""
        fleeting: tuple[Image, ...] = ()
        can_be_asked = True
        accepted = pieces[-1]
        chat, person = accepted.message.chat, accepted.message.author
        name = accepted.message.author_name or ""
        speaks = "mute" if self.voice is None else self.voice.voices.of(chat)
        notes = await notes_of(
            self.store,
            chat,
            uses_memory=self.uses_memory,
            person=person,
            name=name,
            speaks=speaks,
        )
        if pieces[0].begun:
            resumed = await self.store.turns.resume(pieces[0])
            if resumed is None:
                raise TurnForgotten
            stored = resumed
        elif retry is not None:
            stored = await self._begin_again(pieces, retry, notes)
        else:
            stored, fleeting, can_be_asked = await self._begin_new(pieces, notes)
        caller = self._caller(accepted.message, notes.zone, retry)
        turn = Turn(
            self.parts,
            stored,
            accepted,
            replace(caller, turn=stored.id),
            self.models.route(chat, None if retry is None else retry.model),
            replace(self.prompt, caller=caller, notes=notes),
            fleeting=fleeting,
            running=running,
            is_retry=retry is not None,
            most_tokens=MAX_TOKENS if accepted.message.kind == "scheduled" else None,
        )
        if is_to_be_planned(stored.messages):
            turn.planning = replace(turn.final_prompt, only_reading=True)
        return turn, can_be_asked

    async def _begin_new(
        self, pieces: Sequence[AcceptedMessage], notes: Notes
    ) -> tuple[StoredTurn, tuple[Image, ...], bool]:
        """Begin a turn; also return images not to be kept, and whether to ask."""
        messages = await checked_messages(self.store, pieces)
        chat = messages[0].chat
        gone = await self.models.forget_gone(chat)
        model = self.models.route(chat).model
        prepared = Prepared(words=("",) * len(messages))
        if any(message.files for message in messages):
            prepared = await self.media.prepare(messages, model.sees_images)
        notices = [self.languages.say(chat, one) for one in prepared.notices]
        if gone is not None:
            notices.insert(0, self.languages.say(chat, MODEL_GONE).format(name=gone))
        notices[:0] = await headings(messages[0], self.store.reminders, self.languages)
        overheard = await self.store.messages.overheard(chat) if chat.is_group else ()
        # A scheduled question is no message of the person.
        is_scheduled = messages[0].kind == "scheduled"
        reactions, rung = ((), ()) if is_scheduled else (notes.reactions, notes.rung)
        open_questions = self.parts.questions.of_model(chat)
        messages, is_planned = without_command(messages)
        # The words of each message: its text, then the text of its files.
        both = zip(messages, prepared.words, strict=True)
        said = ["\n".join(filter(None, (message.text, words))) for message, words in both]
        prompt = replace(self.prompt, caller=self._caller(messages[-1], notes.zone), notes=notes)
        content = prompt.user_content(
            messages,
            model.traits,
            words=said,
            overheard=overheard,
            reactions=reactions,
            further=further_lines(open_questions, rung),
        )
        turn = self.store.turns.begin(
            pieces,
            f"{content}\n{PLANNING}" if is_planned else content,
            images=prepared.images,
            notices=notices,
            told=Told(overheard, reactions, [one.turn_id for one in open_questions], rung),
        )
        at_once = [message for message in messages if message.view_once]
        if at_once:
            await self.store.upkeep.ping()  # after it, the turn's beginning is on disk
            await self.media.discard(at_once)
        return turn, prepared.fleeting, prepared.has_words

    async def _begin_again(
        self, pieces: Sequence[AcceptedMessage], retry: Retry, notes: Notes
    ) -> StoredTurn:
        """Begin a turn with an earlier question and the messages that came with the request."""
        earlier = await self.store.turns.find(retry.question.turn)
        if earlier is None:
            raise TurnForgotten
        request, *more = await checked_messages(self.store, pieces)
        model = self.models.route(request.chat, retry.model).model
        content = asked_again(earlier.messages)
        if more:
            caller = self._caller(request, notes.zone, retry)
            prompt = replace(self.prompt, caller=caller, notes=notes)
            content = "\n".join((content, prompt.user_content(more, model.traits)))
        return self.store.turns.begin(
            pieces,
            content,
            images=earlier.messages[0].images,
            notices=earlier.notices,
            retries=earlier.id,
        )

    async def finish(
        self,
        pieces: Sequence[AcceptedMessage],
        turn: Turn,
        *,
        quote: Quote | None,
        retry: Retry | None = None,
    ) -> tuple[OutgoingMessage, ...]:
        """Store the answer for sending, and count the turn; TurnForgotten if nothing was stored.

        Args:
            quote: the message that the answer quotes, if it needs a quote, or reacts to.
            retry: the request that is answered; without a new answer, the earlier one stays.
        """
        first = pieces[0]
        if retry is not None and turn.status != "answered":
            _count(turn)
            return await self.store.turns.answer(
                first, turn.shown, outcome="not_retried", quote=quote, joined=pieces[1:]
            )
        # Not earlier: a turn whose messages change starts again and reads the files again. Not
        # later: after a kill, the next start does not look at answered messages.
        messages = [piece.message for piece in pieces]
        if any(message.files for message in messages):
            await self.store.upkeep.ping()  # after it, the words of the files are on disk
            await self.media.discard(messages)
        outgoing = await self.store.turns.finish(
            turn.stored,
            TurnEnd(
                turn.status,
                turn.answer,
                *turn.costs.take(),
                None if retry is None else retry.question,
                was_scheduled=first.message.kind == "scheduled",
                has_called=turn.rounds > 0,
                reaction=turn.reaction,
            ),
            turn.shown,
            quote=quote,
            replaces=first.replaces,
            to_make=turn.to_make,
        )
        if not outgoing:
            raise TurnForgotten
        self.answered()
        if self.summaries is not None:
            self.summaries.look(turn.chat, turn.person, turn.bytes_in_chat)
        log.debug("turn.finished", turn=first.id, outcome=turn.status, count=turn.rounds)
        _count(turn)
        return outgoing


def _count(turn: Turn) -> None:
    metrics.TURNS.labels(turn.status).inc()
    metrics.TURN_ROUNDS.observe(turn.rounds)
    with_tools = "yes" if turn.rounds else "no"
    metrics.TURN_TOKENS.labels(with_tools, "prompt").inc(turn.costs.prompt_tokens)
    metrics.TURN_TOKENS.labels(with_tools, "completion").inc(turn.costs.completion_tokens)


def asked_again(earlier: Sequence[Message]) -> str:
    """Return the words of people in an earlier turn, and its calls.

    The model does not see its earlier answer, so that it makes a new one. It has to know the calls,
    so that it does not make them twice.
    """
    said = (message.content or "" for message in earlier if message.role is Role.USER)
    # If the earlier turn was a retry too, its question ends with an older list of calls: cut it.
    words = "\n".join(content.partition(OPENING)[0] for content in said)
    calls = [
        f"{call.name} {shortened(one_line(call.arguments), MAX_ARGUMENTS_CHARACTERS)}"
        for message in earlier
        for call in message.tool_calls
    ]
    if not calls:
        return words
    return "\n".join((f"{words}{OPENING}", *calls[:MAX_CALLS_TOLD], ENDING))


def late_line(due_at: int, zone: str | None, *, missed: int = 0) -> str:
    """Return the line with a due time (ms), and how often the reminder was missed since."""
    local = from_ms(due_at).astimezone(zone_named(zone))
    when = f"{local:%Y-%m-%d %H:%M}" if zone else f"{local:%Y-%m-%d %H:%M} UTC"
    return (LATE_SERIES if missed > 0 else LATE).format(when=when, count=missed)


async def headings(
    message: ReceivedMessage, reminders: ReminderStore, languages: Languages
) -> list[str]:
    """Return the lines above the answer to a scheduled question; none above other answers."""
    if message.kind != "scheduled":
        return []
    lines = [BELL + shortened(message.text, HEADING_CHARACTERS)]
    if message.received_at - message.timestamp > LATE_MS:
        line = late_line(message.timestamp, await reminders.zone_of(message.author))
        lines.append(languages.say(message.chat, line))
    return lines
