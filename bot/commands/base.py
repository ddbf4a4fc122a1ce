"""A chat command: a function with a decorator that gives its name, help and permission.

Add a command in four steps: write the function in the file of its subject (`status` for the bot's
state), decorate it with `command`, list it in `bot.commands.catalog`, and translate its line of
`!help` in every `bot/language/*.po`. docs/ASSISTANT.md has the table of commands for people.
"""

import math
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final, Literal

from bot.attestation.bundle import Bundle
from bot.attestation.checks import Report
from bot.language.languages import Languages
from bot.llm.models import Models
from bot.llm.speech import Voices
from bot.signal.errors import SignalError
from bot.signal.events import Person
from bot.signal.messenger import Messenger
from conversation_store.models import Attachment, ChatId, Question, Retry
from conversation_store.pairings import PairedPerson
from conversation_store.store import ConversationStore
from tools.registry import Registry
from tools.sandbox.errors import WorkError
from tools.sandbox.pool import SandboxPolicy
from tools.workspace.workspaces import Workspaces

PROOFS_PER_MINUTE: Final = 5
MINUTE_SECONDS: Final = 60.0

UNKNOWN_COMMAND: Final = "I don't know that command. Send !help to see what I can do."
"""Other people also get this answer to commands for admins."""
NEAREST_COMMAND: Final = "I don't know that command. Did you mean !{name}?"
IN_PRIVATE: Final = "I do that only in our private chat."
ONLY_ADMINS: Final = "In a group only an admin of the group or of the bot can do that."
ONLY_ASKER: Final = (
    "In a group only the person who asked the last question, or an admin of the group or of the"
    " bot, can do that."
)
CANNOT_TELL: Final = "I cannot find out right now who administers this group. Try again later."


class Refused(Exception):
    """The bot does not do what the command asks; the text says why."""


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
        make: returns a bundle for a challenge, and the bot's own check of it; raises BotError.
        clock: monotonic seconds.
    """

    make: Callable[[str], Awaitable[tuple[Bundle, Report]]]
    clock: Callable[[], float] = time.monotonic
    _made: dict[str, list[float]] = field(default_factory=dict, init=False)

    def admit(self, person: Person) -> None:
        """Count a proof; raises Refused for a person with too many."""
        now = self.clock()
        recent = {
            aci: [at for at in times if now - at < MINUTE_SECONDS]
            for aci, times in self._made.items()
        }
        self._made = {aci: times for aci, times in recent.items() if times}
        times = self._made.setdefault(person.aci, [])
        if len(times) >= PROOFS_PER_MINUTE:
            seconds = math.ceil(times[0] + MINUTE_SECONDS - now)
            raise Refused(
                f"I make up to {PROOFS_PER_MINUTE} proofs a minute for you. Ask again in"
                f" {seconds} s."
            )
        times.append(now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """All parts that commands may use.

    Attributes:
        voices: when the bot speaks; None if nothing speaks.
        prover: None outside a trusted execution environment.
        tokens_per_day: the limit of a person; 0: unlimited.
        until_next_day: the time until the next day, as `5 h 20 min`.
        let_in: lets the owner of a pairing code talk to the bot, or returns None for an unknown
            code; is None if the bot takes no codes.
        trust: trusts the key of a code or safety number, and returns its owner, or None if no such
            key waits; raises SignalError.
        uses_memory: whether the operator wants the bot to remember facts.
        move_reminders: stores a person's time zone by the name of a place, moves the reminders
            along and returns the zone; raises InvalidArguments for an unknown place.
        clock: seconds since 1970.
        started_at: monotonic seconds.
    """

    store: ConversationStore
    messenger: Messenger
    models: Models
    languages: Languages
    voices: Voices | None
    tools: Tools
    prover: Prover | None
    is_admin: Callable[[Person], bool]
    tokens_per_day: Callable[[Person], int]
    until_next_day: Callable[[], str]
    let_in: Callable[[str], Awaitable[PairedPerson | None]] | None
    trust: Callable[[str], Awaitable[str | None]]
    uses_memory: bool
    move_reminders: Callable[[str, str, datetime], Awaitable[str]]
    clock: Callable[[], float]
    started_at: float = field(default_factory=time.monotonic)


@dataclass(frozen=True, slots=True)
class CommandContext:
    """A command that a person has sent.

    Attributes:
        argument: the text after the command's name.
        inbox_id: number of the message; later messages have higher numbers.
        replies_to: Signal's timestamp of the bot's message that it replies to, if it does.
        listed: the commands of the bot.
    """

    chat: ChatId
    author: Person
    argument: str
    inbox_id: int
    parts: Parts
    turns: ChatTurns
    listed: tuple["Command", ...] = ()
    replies_to: int | None = None

    @property
    def by_admin(self) -> bool:
        """Whether an admin of the bot has sent it."""
        return self.parts.is_admin(self.author)

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
        undone: a question to forget, with its answer, in the transaction that stores this reply.
        retry: a question that the model answers instead of this reply.
    """

    text: str
    attachments: tuple[Attachment, ...] = ()
    undone: Question | None = None
    retry: Retry | None = None


Run = Callable[[CommandContext], Awaitable[Reply | str]]

Allowed = Literal["everyone", "group_admins", "admins"]
"""People who may use a command.

- group_admins: in a group, only its admins and the bot's may change things; everyone may read.
- admins: only admins of the bot, in private; for other people the command does not exist.
"""

Changes = tuple[str, ...] | Literal["always", "never", "with_argument"]
"""When a command changes something: a rule, or the first words of arguments that do.

A command that changes something waits for the messages before it; others are answered at once.
"""


@dataclass(frozen=True, slots=True)
class Command:
    """A command; its name has no exclamation mark."""

    name: str
    summary: str
    run: Run
    allowed: Allowed = "everyone"
    changes: Changes = "always"

    def urgent(self, argument: str) -> bool:
        """Whether the bot answers at once, before the messages that wait in the chat."""
        if self.changes == "with_argument":
            return not argument
        if isinstance(self.changes, str):
            return self.changes == "never"
        words = argument.casefold().split()
        return not words or words[0] not in self.changes

    async def answer(self, context: CommandContext) -> Reply:
        """Run the command, or refuse it if the person may not use it."""
        if self.allowed == "admins" and not context.by_admin_in_private:
            return Reply(IN_PRIVATE if context.by_admin else UNKNOWN_COMMAND)
        try:
            if self.allowed == "group_admins" and not self.urgent(context.argument):
                await check_admin(context)
            reply = await self.run(context)
        except (Refused, WorkError) as error:
            return Reply(str(error))
        return Reply(reply) if isinstance(reply, str) else reply


def command(
    name: str, summary: str, *, allowed: Allowed = "everyone", changes: Changes = "always"
) -> Callable[[Run], Command]:
    """Return a decorator that makes a command of a function."""
    return lambda run: Command(name, summary, run, allowed, changes)


async def check_admin(context: CommandContext, asker: str | None = None) -> None:
    """Raise Refused for a person who may not decide for a group.

    Args:
        asker: the ACI of the person who asked the question; this person may decide as well.
    """
    if asker == context.author.aci or not context.chat.is_group or context.by_admin:
        return
    try:
        group = await context.parts.messenger.group(context.chat)
    except SignalError:
        raise Refused(CANNOT_TELL) from None
    if group is None or not context.author.is_in(group.admins):
        raise Refused(ONLY_ASKER if asker else ONLY_ADMINS)


def day(at_ms: int) -> str:
    """Return the date of a time, in UTC."""
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d")
