"""`ask_user`, `propose_plan`: the model asks a person, and goes on once there is an answer."""

from dataclasses import dataclass
from typing import Annotated, Final, Protocol

from pydantic import Field

from tools.base import Caller, Tool
from tools.display import one_line, plain
from tools.errors import InvalidArguments, ToolError
from tools.schema import tool_from

MIN_OPTIONS: Final = 2
MAX_OPTIONS: Final = 10
MAX_OPTION_CHARACTERS: Final = 100
MAX_QUESTION_CHARACTERS: Final = 1_000

MAX_SHOWN_BYTES: Final = 4_000
"""Of a question with its options; spelt-out signs make them longer than they were."""

SENDING_SECONDS: Final = 330.0
"""For putting a question while there is no connection: longer than the bot tries."""

MAX_PLAN_CHARACTERS: Final = 6_000

ASK_USER: Final = "ask_user"
PROPOSE_PLAN: Final = "propose_plan"

_NOBODY: Final = "Nobody can be asked here."

Option = Annotated[str, Field(min_length=1, max_length=MAX_OPTION_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class Choice:
    """A question with answers to choose from, as a person is shown it.

    Attributes:
        question: perhaps of several lines.
        options: on one line each, no two alike.
        multiple: whether several may be chosen.
    """

    question: str
    options: tuple[str, ...]
    multiple: bool = False


class People(Protocol):
    """Asks people. Implemented by `bot.approvals.questions.QuestionDesk`."""

    async def choose(self, caller: Caller, choice: Choice) -> str:
        """Return what a person has answered.

        Raises:
            AwaitsPerson: nobody has so far; ask again when somebody has.
            ToolError: nobody can be asked.
        """
        ...

    async def decide(self, caller: Caller, plan: str) -> str:
        """Return what a person says to a plan in Markdown; raises what `choose` raises."""
        ...


class Nobody:
    """Asks nobody, for those who only look at the tools. Implements `People`."""

    async def choose(self, caller: Caller, choice: Choice) -> str:
        """Refuse."""
        raise ToolError(_NOBODY)

    async def decide(self, caller: Caller, plan: str) -> str:
        """Refuse."""
        raise ToolError(_NOBODY)


def ask_user_of(people: People) -> Tool:
    """Return the tool that asks a person."""

    async def ask_user(
        caller: Caller,
        question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS)],
        options: Annotated[list[Option], Field(min_length=MIN_OPTIONS, max_length=MAX_OPTIONS)],
        *,
        multiple: bool = False,
    ) -> str:
        """Ask the person to choose, or to answer in words, when you cannot go on without it.

        The answer may take up to a day, which costs nothing. Do not ask for permission to use
        tools: that is done by itself.

        Args:
            caller: Who is asked.
            question: What you need to know.
            options: Answers to choose from, each a few words.
            multiple: Whether several of them may be chosen.
        """
        return await people.choose(caller, _choice(question, options, multiple=multiple))

    return tool_from(
        ask_user,
        answered_by_person=True,
        timeout_seconds=SENDING_SECONDS,
        given={"caller": lambda caller: caller},
    )


def propose_plan_of(people: People) -> Tool:
    """Return the tool that puts a plan before a person."""

    async def propose_plan(
        caller: Caller, plan: Annotated[str, Field(min_length=1, max_length=MAX_PLAN_CHARACTERS)]
    ) -> str:
        """Put a plan before the person, and wait until it is accepted, refused or to be changed.

        Do so before longer work that changes something, once you know what there is to do.

        Args:
            caller: Who decides.
            plan: What you are going to do, in Markdown, as a numbered list of its steps.
        """
        return await people.decide(caller, plan)

    return tool_from(
        propose_plan,
        answered_by_person=True,
        timeout_seconds=SENDING_SECONDS,
        given={"caller": lambda caller: caller},
    )


def _choice(question: str, options: list[str], *, multiple: bool) -> Choice:
    asked, shown = plain(question), tuple(map(one_line, options))
    if len("\n".join((asked, *shown)).encode(errors="replace")) > MAX_SHOWN_BYTES:
        raise InvalidArguments("Not asked: it is too long for a message. Ask in fewer words.")
    if not all(shown) or len({option.casefold() for option in shown}) < len(shown):
        raise InvalidArguments("Not asked: every option needs words of its own.")
    return Choice(asked, shown, multiple)
