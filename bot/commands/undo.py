"""`!undo`: what came last is taken back, a change of a file or a question with its answer."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from bot.commands.base import (
    ONLY_ADMINS,
    AdminList,
    CommandContext,
    Reply,
    asker_refusal,
    group_refusal,
)
from bot.messaging.messenger import Messenger
from conversation_store.models import ChatId, Question
from sandbox.errors import WorkError

NOTHING: Final = "There is nothing to undo."
BROUGHT_BACK: Final = "{path} is back as it was before."
ALL_BROUGHT_BACK: Final = "These files are back as they were before: {paths}."
MAX_NAMED: Final = 20
CHANGED_FOR_ANOTHER: Final = (
    "The last change of a file came of somebody else's question: in a group only they, or an admin"
    " of the group or of the bot, can take it back."
)
QUESTION_NEXT: Final = "Send !undo again to make me forget the question as well."
FORGOTTEN: Final = (
    "I have forgotten the last question and my answer, and delete the answer for everyone."
)
FORGOTTEN_HERE: Final = (
    "I have forgotten the last question and my answer. Signal deletes nothing for everyone that is"
    " older than a day, so delete the answer yourself."
)


class Change(Protocol):
    """The last change of a file. Implemented by `tools.workspace.workspaces.Change`."""

    @property
    def at(self) -> int:
        """When it was, in ms."""
        ...

    @property
    def is_own(self) -> bool:
        """Whether it came of a question of whoever asks."""
        ...


class ChatFolder(Protocol):
    """One chat's folder. Implemented by `tools.workspace.workspaces.Workspace`."""

    async def do(self, deed: str, **arguments: object) -> str:
        """Have something done and return what is said of it; raises WorkError."""
        ...

    async def last_change(self) -> Change | None:
        """Return what `undo` takes back, None without anything; raises WorkError."""
        ...


FolderOf = Callable[[CommandContext], ChatFolder | None]
"""Returns the folder of a chat; None where whoever asks has none there. Raises WorkError."""


class Questions(Protocol):
    """The questions of chats. Implemented by `conversation_store.sections.turns.TurnStore`."""

    async def last_question(
        self, chat: ChatId, before: int, *, or_stopped: bool
    ) -> Question | None:
        """Return the last question of a chat that came before an inbox row; None without one."""
        ...


class Undo:
    """Takes back what came last.

    A file that was changed while the last question was answered is brought back before the
    question is forgotten.

    Args:
        questions: knows the last one.
        folder_of: finds the files of a chat.
        groups: who administers them.
        admins: of the bot.
        changeable_seconds: how old an answer may be that Signal deletes for everyone.
        clock: seconds since 1970.
    """

    name = "undo"
    summary = "take back what came last: a changed file, or a question and its answer"
    urgent = False

    def __init__(
        self,
        questions: Questions,
        folder_of: FolderOf,
        groups: Messenger,
        admins: AdminList,
        *,
        changeable_seconds: float,
        clock: Callable[[], float],
    ) -> None:
        self._questions = questions
        self._folder_of = folder_of
        self._groups = groups
        self._admins = admins
        self._changeable_seconds = changeable_seconds
        self._clock = clock

    async def run(self, context: CommandContext) -> Reply:
        """Bring a file back, or have the last question forgotten."""
        question = await self._questions.last_question(
            context.chat, context.inbox_id, or_stopped=False
        )
        since = 0 if question is None else question.asked_at
        if (brought_back := await self._bring_back(context, since)) is not None:
            return brought_back
        if question is None:
            return Reply(NOTHING)
        refused = await asker_refusal(context, question.asker, self._groups, self._admins)
        if refused is not None:
            return refused
        is_fresh = question.asked_at >= (self._clock() - self._changeable_seconds) * 1_000
        return Reply(FORGOTTEN if is_fresh else FORGOTTEN_HERE, undone=question)

    async def _bring_back(self, context: CommandContext, since: int) -> Reply | None:
        """Bring the file back that was changed last; None where none was since a time in ms."""
        try:
            folder = self._folder_of(context)
            if folder is None or (change := await _change_since(folder, since)) is None:
                return None
            if not change.is_own:
                refused = await group_refusal(context, self._groups, self._admins)
                if refused is not None:
                    return Reply(CHANGED_FOR_ANOTHER) if refused == Reply(ONLY_ADMINS) else refused
            said = _brought_back((await folder.do("undo")).split("\n"))
            if since and await _change_since(folder, since) is None:
                said = f"{said}\n{QUESTION_NEXT}"
            return Reply(said)
        except WorkError as error:
            return Reply(str(error))


def _brought_back(paths: Sequence[str]) -> str:
    """Say what is back: one file, or all that a command has changed."""
    if len(paths) == 1:
        return BROUGHT_BACK.format(path=paths[0])
    named = ", ".join(paths[:MAX_NAMED])
    more = f" … (+{len(paths) - MAX_NAMED})" if len(paths) > MAX_NAMED else ""
    return ALL_BROUGHT_BACK.format(paths=named + more)


async def _change_since(folder: ChatFolder, since: int) -> Change | None:
    change = await folder.last_change()
    return change if change is not None and change.at >= since else None
