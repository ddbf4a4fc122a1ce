"""A chat command: a function with a decorator that gives its name, help and permission.

Add a command in three steps: write the function in a file of this package, decorate it with
`command`, and list it in `bot.commands.catalog`.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, Literal

from bot.errors import SignalError
from bot.language.languages import Languages
from bot.llm.models import Models
from bot.signal.events import Person
from bot.signal.messenger import Messenger
from conversation_store.models import Attachment, ChatId, Question, Retry
from conversation_store.pairings import PairedPerson
from conversation_store.store import ConversationStore
from tools.registry import Registry
from tools.sandbox.pool import SandboxPolicy
from tools.workspace.workspaces import Workspaces

if TYPE_CHECKING:
    # Loading the verification takes long, and most bots have nothing to prove.
    from bot.attestation.bundle import Bundle
    from bot.attestation.checks import Report

PROOFS_PER_MINUTE: Final = 5
MINUTE_SECONDS: Final = 60.0
TOO_MANY: Final = "I make up to {number} proofs a minute for you. Ask again in {seconds} s."


@dataclass(frozen=True, slots=True)
class People:
    """Facts and decisions about people.

    Attributes:
        is_admin: whether a person administers the bot.
        tokens_per_day: the limit of a person; 0: unlimited.
        until_next_day: the time until the next day, as `5 h 20 min`.
        let_in: lets the owner of a pairing code talk to the bot, or returns None for an unknown
            code; None if codes do not count.
        trust: trusts the key of a code or safety number, and returns its owner, or None if no such
            key waits; raises SignalError.
    """

    is_admin: Callable[[Person], bool]
    tokens_per_day: Callable[[Person], int]
    until_next_day: Callable[[], str]
    let_in: Callable[[str], Awaitable[PairedPerson | None]] | None
    trust: Callable[[str], Awaitable[str | None]]


@dataclass(frozen=True, slots=True)
class ChatTurns:
    """The turns of a command's chat.

    Attributes:
        running: counts the turns in progress in all chats.
        stop: stops the chat's messages before an inbox id, and returns their number.
        clear: forgets the chat's conversation, and returns the number of its turns.
    """

    running: Callable[[], int]
    stop: Callable[[int], Awaitable[int]]
    clear: Callable[[], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools, their sandboxes and the files of chats, if chats have any."""

    registry: Registry
    sandboxes: SandboxPolicy
    workspaces: Workspaces | None


@dataclass(slots=True)
class Prover:
    """Makes proofs of the bot, at most `PROOFS_PER_MINUTE` for each person.

    Attributes:
        make: returns a bundle for a challenge, and the own check of it; raises BotError.
        clock: monotonic seconds.
    """

    make: Callable[[str], Awaitable["tuple[Bundle, Report]"]]
    clock: Callable[[], float] = time.monotonic
    _made: dict[str, list[float]] = field(default_factory=dict, init=False)

    def refusal(self, person: Person) -> str:
        """Count a proof and return "", or return the refusal for a person with too many."""
        now = self.clock()
        recent = {
            aci: [at for at in times if now - at < MINUTE_SECONDS]
            for aci, times in self._made.items()
        }
        self._made = {aci: times for aci, times in recent.items() if times}
        times = self._made.setdefault(person.aci, [])
        if len(times) < PROOFS_PER_MINUTE:
            times.append(now)
            return ""
        seconds = math.ceil(times[0] + MINUTE_SECONDS - now)
        return TOO_MANY.format(number=PROOFS_PER_MINUTE, seconds=seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts that commands may use.

    Attributes:
        prover: None outside a trusted execution environment.
        uses_memory: whether the operator wants facts to be remembered.
        move_reminders: stores a person's time zone by the name of a place, moves the reminders
            along and returns the zone; raises InvalidArguments for an unknown place.
        clock: seconds since 1970.
        started_at: monotonic seconds.
    """

    store: ConversationStore
    messenger: Messenger
    models: Models
    languages: Languages
    people: People
    tools: Tools
    prover: Prover | None
    uses_memory: bool
    move_reminders: Callable[[str, str, datetime], Awaitable[str]]
    clock: Callable[[], float]
    started_at: float = field(default_factory=time.monotonic)


MAX_DIGITS: Final = 9
"""No list is longer, and the store takes no numbers with more than 18 digits."""

UNKNOWN_COMMAND: Final = "I don't know that command. Send !help to see what I can do."
"""Commands for admins also answer this to other people."""
IN_PRIVATE: Final = "I do that only in our private chat."
ONLY_ADMINS: Final = "In a group only an admin of the group or of the bot can do that."
ONLY_ASKER: Final = (
    "In a group only the person who asked the last question, or an admin of the group or of the"
    " bot, can do that."
)
CANNOT_TELL: Final = "I cannot find out right now who administers this group. Try again later."


Allowed = Literal["everyone", "group_admins", "admins"]
"""People who may use a command.

- group_admins: in a group, only its admins and the bot's may change something; everyone may read.
- admins: only admins of the bot, in private; for other people the command does not exist.
"""


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A command that a person has sent.

    Attributes:
        argument: the text after the command's name.
        inbox_id: number of the message; later messages have higher numbers.
        turns: of the chat.
    """

    chat: ChatId
    author: Person
    argument: str
    inbox_id: int
    parts: Parts
    turns: ChatTurns
    listed: tuple["Command", ...] = ()

    @property
    def by_admin(self) -> bool:
        """Whether an admin of the bot has sent it."""
        return self.parts.people.is_admin(self.author)

    @property
    def by_admin_in_private(self) -> bool:
        """Whether an admin of the bot has sent it in a private chat."""
        return self.by_admin and not self.chat.is_group


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to a command.

    Attributes:
        text: the words; empty if the bot says nothing.
        attachments: files that are sent with the first part.
        undone: a question to forget, with its answer, in the step that stores this reply.
        retry: a question that the model answers instead of this reply.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    undone: Question | None = None
    retry: Retry | None = None


Run = Callable[[CommandContext], Awaitable[Reply]]


@dataclass(frozen=True, slots=True)
class Command:
    """A command.

    Attributes:
        name: its word, without the exclamation mark.
        urgent: tells from the argument whether the command is answered at once, before the
            messages that wait in its chat.
    """

    name: str
    summary: str
    allowed: Allowed
    urgent: Callable[[str], bool]
    run: Run

    async def answer(self, context: CommandContext) -> Reply:
        """Run the command, or refuse it if the person may not use it."""
        if self.allowed == "admins" and not context.by_admin_in_private:
            return Reply(IN_PRIVATE if context.by_admin else UNKNOWN_COMMAND)
        changes = self.allowed == "group_admins" and not self.urgent(context.argument)
        if changes and (refused := await group_refusal(context)):
            return Reply(refused)
        return await self.run(context)


def never(_: str) -> bool:
    """Answer a command after the messages before it."""
    return False


def always(_: str) -> bool:
    """Answer a command at once: it only reads, or ends a turn."""
    return True


def without_argument(argument: str) -> bool:
    """Answer a command at once if it has no argument, and so only reads."""
    return not argument


def command(
    name: str,
    summary: str,
    *,
    allowed: Allowed = "everyone",
    urgent: Callable[[str], bool] = never,
) -> Callable[[Run], Command]:
    """Make a command of a function; see `Command`."""

    def made(run: Run) -> Command:
        return Command(name, summary, allowed, urgent, run)

    return made


async def group_refusal(context: CommandContext) -> str | None:
    """Return the refusal for a person who may not decide for a group, or None."""
    if not context.chat.is_group or context.by_admin:
        return None
    try:
        group = await context.parts.messenger.group(context.chat)
    except SignalError:
        return CANNOT_TELL
    if group is None or not context.author.is_in(group.admins):
        return ONLY_ADMINS
    return None


async def asker_refusal(context: CommandContext, asker: str) -> str | None:
    """Return the refusal for a person who may not change another person's question, or None."""
    if asker == context.author.aci:
        return None
    refused = await group_refusal(context)
    return ONLY_ASKER if refused == ONLY_ADMINS else refused


def number_in(word: str) -> int | None:
    """Parse a list number typed by a user; None if it is not one."""
    is_number = word.isascii() and word.isdigit() and len(word) <= MAX_DIGITS
    return int(word) if is_number else None


def day(at_ms: int) -> str:
    """Return the date of a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d")
