"""One question to people: who may answer it, what they have said so far, and how it says that."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from bot.approvals.asked import Asked
from bot.language.languages import Languages
from conversation_store.models import ApprovalState, ChatId, StoredApproval
from tools.display import visible

HOW_TO_ANSWER: Final = (
    "👍 this message or reply “yes” to allow it, 👎 or “no” to refuse."
    " No answer within {minutes} is a no."
)
GRANT_DAYS: Final = 30
HOW_TO_ALLOW: Final = (
    "♾️ or “always” allows {what} in this chat for {days} days without asking;"
    " !grants takes it back."
)
ADMIN_NEEDED: Final = "Only an admin of the bot can allow this."
ADMINS_NEEDED: Final = "Only admins of the bot can allow this: {yes} of {needed} have said yes."

MAX_COVERED: Final = 8
MAX_COVERED_CHARACTERS: Final = 200
"""What is longer cannot be shown in a line, so nobody can allow it for longer."""


@dataclass(slots=True)
class Question(Asked):
    """A question about a call; `state` is final once `decided` is set.

    Attributes:
        covers: what may be allowed for longer.
        version: of the tool.
        admins_needed: how many admins have to say yes; 0: the asker may decide as well.
        state: how far it has come.
        yes: how many admins have said yes, where they are counted.
        shown_yes: the same as people were shown it last.
        edits: timestamps of its edits, the last one at the end.
        line: timestamp of the message below it that shows that, where the question cannot.
        reminded: the person was told that it is open.
        decided: set once it is over.
        changed: set with each answer.
    """

    covers: tuple[str, ...] = ()
    version: str = ""
    admins_needed: int = 0
    state: ApprovalState = ApprovalState.OPEN
    yes: int = 0
    shown_yes: int = 0
    edits: list[int] = field(default_factory=list)
    line: int | None = None
    reminded: bool = False
    decided: asyncio.Event = field(default_factory=asyncio.Event)
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def timestamps(self) -> Sequence[int]:
        """By which phones may name it: those of its last message and of its edits."""
        return (self.signal_timestamp, *self.edits)

    def decide(self, state: ApprovalState) -> None:
        """Let everybody who waits go on."""
        self.state = state
        self.decided.set()
        self.changed.set()


def question_of(stored: StoredApproval, *, patience_seconds: float) -> Question | None:
    """Return a question as it was asked before a restart; None if it was not sent whole.

    Args:
        stored: the question.
        patience_seconds: how long answers to it count.
    """
    if stored.signal_timestamp is None or stored.expires_at is None:
        return None
    return Question(
        stored.id,
        stored.chat,
        stored.asker,
        stored.signal_timestamp,
        stored.expires_at - int(patience_seconds * 1_000),
        stored.expires_at,
        stored.covers,
        stored.version,
        stored.admins_needed,
        yes=stored.yes,
        shown_yes=stored.yes,
        edits=list(stored.edits),
    )


def covered(covers: Sequence[str]) -> str:
    """Return what a person may allow for longer, on one line; empty where that is nothing."""
    what = visible(", ".join(covers))
    is_short = len(covers) <= MAX_COVERED and len(what) <= MAX_COVERED_CHARACTERS
    return what if is_short else ""


def how_to_answer(
    languages: Languages,
    chat: ChatId,
    *,
    minutes: float,
    covers: Sequence[str],
    admins_needed: int,
    yes: int = 0,
) -> str:
    """Return what stands at the end of a question.

    Args:
        languages: of the chat.
        chat: where it is asked.
        minutes: until silence counts as no.
        covers: what may be allowed for longer.
        admins_needed: how many admins have to say yes; 0: the asker may decide as well.
        yes: how many have.
    """
    said = [HOW_TO_ANSWER.format(minutes=f"{minutes:g} minutes")]
    if (what := covered(covers)) and admins_needed <= 1:
        said.append(HOW_TO_ALLOW.format(what=what, days=GRANT_DAYS))
    if admins_needed == 1:
        said.append(ADMIN_NEEDED)
    elif admins_needed:
        said.append(ADMINS_NEEDED.format(yes=yes, needed=admins_needed))
    return " ".join(languages.say(chat, sentence) for sentence in said)


def said_yes(languages: Languages, question: Question) -> str:
    """Return a line about how many admins have said yes."""
    line = ADMINS_NEEDED.format(yes=question.yes, needed=question.admins_needed)
    return languages.say(question.chat, line)
