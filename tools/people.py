"""Tools by which the model asks the person, or answers with an emoji.

`ask_user` and `propose_plan` ask, and the model goes on after the answer. `react` is an answer.
"""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field

from tools.base import Caller, InvalidArguments, Tool
from tools.display import one_line, plain
from tools.emoji import MAX_CHARACTERS as MAX_EMOJI_CHARACTERS
from tools.emoji import is_emoji
from tools.schema import tool_from

MAX_OPTIONS: Final = 10
MAX_OPTION_CHARACTERS: Final = 100
MAX_QUESTION_CHARACTERS: Final = 1_000
MAX_PLAN_CHARACTERS: Final = 6_000
MAX_SHOWN_BYTES: Final = 4_000
"""Bound of a question with its options; spelt-out characters make them longer."""

SENDING_SECONDS: Final = 330.0
"""For sending a question without a connection: longer than the bot tries."""

ASK_USER: Final = "ask_user"
PROPOSE_PLAN: Final = "propose_plan"
REACT: Final = "react"

REACTED: Final = "Reacted with "
"""The beginning of the result of a reaction; the emoji follows."""

Option = Annotated[str, Field(min_length=1, max_length=MAX_OPTION_CHARACTERS)]


@dataclass(frozen=True, slots=True)
class Choice:
    """A question as a person is shown it; each option is on one line, all differ.

    Without options, the person answers in words.
    """

    question: str
    options: tuple[str, ...]
    multiple: bool = False


Choose = Callable[[Caller, Choice], Awaitable[str]]
"""Returns a person's answer; raises AwaitsPerson until there is one."""

Decide = Callable[[Caller, str], Awaitable[str]]
"""Returns a person's answer to a plan in Markdown; raises what a `Choose` raises."""


def ask_user_of(choose: Choose) -> Tool:
    """Return the tool that asks a person."""

    async def ask_user(
        caller: Caller,
        question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARACTERS)],
        options: Annotated[tuple[Option, ...], Field(max_length=MAX_OPTIONS)] = (),
        *,
        multiple: bool = False,
    ) -> str:
        """Show the person a question and wait for the answer, if you cannot go on without it.

        Not for permission to call a tool: calls that need it ask by themselves.

        Args:
            options: 2 to 10 short choices; leave out for a free answer.
            multiple: Several may be chosen.
        """
        if len(options) == 1:  # some models send all of them as one text
            options = tuple(filter(None, map(str.strip, options[0].split(","))))
        return await choose(caller, _choice(question, options, multiple=multiple))

    return _answered_by_person(ask_user)


def propose_plan_of(decide: Decide) -> Tool:
    """Return the tool that puts a plan before a person."""

    async def propose_plan(
        caller: Caller, plan: Annotated[str, Field(min_length=1, max_length=MAX_PLAN_CHARACTERS)]
    ) -> str:
        """Show the person a plan and wait for yes, no or changes.

        Before work of many steps that changes something, or if they ask to see a plan first. After
        a yes you may call tools ten times as often.

        Args:
            plan: Markdown list of steps.
        """
        return await decide(caller, plan)

    return _answered_by_person(propose_plan)


def react_of(check: Callable[[Caller], None]) -> Tool:
    """Return the tool that answers by a reaction; `check` raises ToolError if words are needed."""

    async def react(
        caller: Caller,
        emoji: Annotated[str, Field(min_length=1, max_length=MAX_EMOJI_CHARACTERS)],
    ) -> str:
        """Answer by one emoji, if words are too much."""
        if not is_emoji(emoji):
            raise InvalidArguments("Not sent: give one emoji and nothing else, such as 👍.")
        check(caller)
        return REACTED + emoji

    return tool_from(react, bookkeeping=True, given={"caller": lambda caller: caller})


def _answered_by_person(function: Callable[..., Awaitable[str]]) -> Tool:
    return tool_from(
        function,
        answered_by_person=True,
        timeout_seconds=SENDING_SECONDS,
        given={"caller": lambda caller: caller},
    )


def _choice(question: str, options: Sequence[str], *, multiple: bool) -> Choice:
    if len(options) == 1:
        raise InvalidArguments("Not asked: give at least two options, or none.")
    asked, shown = plain(question), tuple(map(one_line, options))
    if len("\n".join((asked, *shown)).encode(errors="replace")) > MAX_SHOWN_BYTES:
        raise InvalidArguments("Not asked: it is too long for a message. Ask in fewer words.")
    if not all(shown) or len({option.casefold() for option in shown}) < len(shown):
        raise InvalidArguments("Not asked: every option needs words of its own.")
    return Choice(asked, shown, multiple and bool(shown))
