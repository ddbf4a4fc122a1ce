"""`!memory`: what the bot was asked to remember here, to be read, forgotten and switched off.

In a group, every member reads it and forgets single facts; what concerns all of it is for admins.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final, Protocol

from bot.commands.base import AdminList, CommandContext, Reply, group_refusal, number_in
from bot.messaging.messenger import Messenger
from conversation_store.models import Attachment, ChatId, Fact

LISTED_FACTS: Final = 30
"""More is a file's worth."""

MINE: Final = "This is what you asked me to remember. I tell it in no other chat."
OURS: Final = "This is what I was asked to remember in this group. I tell it in no other chat."
NOTHING: Final = "I remember nothing here. Ask me to remember something, and I will."
OLDER: Final = "There are {count} older facts: send !memory export."
HOW: Final = (
    "!memory forget and a number forgets one, !memory forget all forgets all, !memory export sends"
    " them as a file, !memory off switches memory off here."
)
GOES: Final = (
    "A fact goes with the message that it came from: when that is deleted or disappears, and after"
    " {days} days."
)
KEEPS_NOTHING: Final = "I remember nothing here, because nothing is kept beyond an answer."
IS_OFF: Final = (
    "Memory is off here: I remember nothing new and use nothing of what I know. !memory on switches"
    " it on."
)
NOT_USED: Final = "Whoever operates me has switched memory off: I remember and use nothing."
SWITCHED_OFF: Final = (
    "Memory is off here from now on. What I know stays unused; !memory forget all forgets it."
)
SWITCHED_ON: Final = "Memory is on here from now on."
FORGOTTEN: Final = (
    "Forgotten: {what}. What was said about it in this chat is still there until !clear."
)
ALL_FORGOTTEN: Final = (
    "I remember nothing here any more. What was said in this chat is still there until !clear."
)
UNKNOWN: Final = "There is no such number. Send !memory to see them."
EXPORTED: Final = "Here is all that I remember in this chat. Facts: {count}."
FILE_NAME: Final = "memory.txt"


class Book(Protocol):
    """The facts of chats. Implemented by `conversation_store.sections.memory.MemoryStore`."""

    async def of_chat(self, chat: ChatId) -> tuple[Fact, ...]:
        """Return all facts of a chat in the order of their numbers."""
        ...

    async def forget(self, chat: ChatId, number: int) -> bool:
        """Forget a fact; False where the chat never had one of that number."""
        ...

    async def forget_all(self, chat: ChatId) -> int:
        """Forget all facts of a chat."""
        ...

    async def is_off(self, chat: ChatId) -> bool:
        """Whether nothing is remembered in a chat, and nothing of what was is used."""
        ...

    async def switch(self, chat: ChatId, *, on: bool) -> None:
        """Switch the memory of a chat on or off."""
        ...


class MemoryCommand:
    """Shows, exports and forgets the facts of a chat, and switches its memory on or off.

    Args:
        book: has them.
        groups: knows who administers a group.
        admins: who administers the bot.
        is_used: whether the operator wants facts to be remembered.
        retention_days: after how many days messages go, and facts with them.
    """

    name = "memory"
    summary = "what I remember here, and forget it"
    urgent = False

    def __init__(
        self,
        book: Book,
        groups: Messenger,
        admins: AdminList,
        *,
        is_used: bool,
        retention_days: Callable[[], int],
    ) -> None:
        self._book = book
        self._groups = groups
        self._admins = admins
        self._is_used = is_used
        self._retention_days = retention_days

    async def run(self, context: CommandContext) -> Reply:
        """Do what the first word says; without one, list."""
        match context.argument.casefold().split():
            case ["off" | "on" as how]:
                return await self._switch(context, on=how == "on")
            case ["export"]:
                return await self._export(context.chat)
            case ["forget", "all"]:
                return await self._forget_all(context)
            case ["forget", *numbers]:
                return await self._forget(context.chat, numbers)
            case _:
                return await self._list(context.chat)

    async def _list(self, chat: ChatId) -> Reply:
        facts = await self._book.of_chat(chat)
        lines = [await self._state(chat)]
        if facts:
            lines = [OURS if chat.is_group else MINE, *map(_line, facts[-LISTED_FACTS:])]
            if len(facts) > LISTED_FACTS:
                lines.append(OLDER.format(count=len(facts) - LISTED_FACTS))
            lines += ["", HOW, await self._state(chat)]
        return Reply("\n".join(lines))

    async def _state(self, chat: ChatId) -> str:
        if not self._is_used:
            return NOT_USED
        if not (days := self._retention_days()):
            return KEEPS_NOTHING
        if await self._book.is_off(chat):
            return IS_OFF
        has_facts = bool(await self._book.of_chat(chat))
        return GOES.format(days=days) if has_facts else NOTHING

    async def _forget(self, chat: ChatId, words: Sequence[str]) -> Reply:
        numbers = [number for word in words if (number := number_in(word)) is not None]
        if not numbers or len(numbers) < len(words):
            return Reply(UNKNOWN)
        known = [number for number in numbers if await self._book.forget(chat, number)]
        if not known:
            return Reply(UNKNOWN)
        return Reply(FORGOTTEN.format(what=", ".join(map(str, known))))

    async def _forget_all(self, context: CommandContext) -> Reply:
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        await self._book.forget_all(context.chat)
        return Reply(ALL_FORGOTTEN)

    async def _switch(self, context: CommandContext, *, on: bool) -> Reply:
        if refused := await group_refusal(context, self._groups, self._admins):
            return refused
        await self._book.switch(context.chat, on=on)
        return Reply(SWITCHED_ON if on else SWITCHED_OFF)

    async def _export(self, chat: ChatId) -> Reply:
        facts = await self._book.of_chat(chat)
        if not facts:
            return Reply(NOTHING)
        text = "".join(f"{_line(fact)}\n" for fact in facts)
        file = Attachment(FILE_NAME, "text/plain", text.encode(errors="replace"))
        return Reply(EXPORTED.format(count=len(facts)), (file,))


def _line(fact: Fact) -> str:
    until = "" if fact.expires_at is None else f", ⏱ {_day(fact.expires_at)}"
    return f"{fact.number}. {fact.text} ({_day(fact.said_at)}{until})"


def _day(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1_000, UTC).strftime("%Y-%m-%d")
