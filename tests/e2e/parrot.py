"""A model that repeats secrets. With them, tests find everything derived from a message."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from tests.fakes.openai_server import Request, text, tool_calls, words_of

SECRET: Final = re.compile(r"zq\d+qz")
NOTHING: Final = "I see."

Call = Callable[[str], tuple[str, Mapping[str, object]]]
"""Returns name and arguments of a call that repeats some words."""

_numbers = count(1_000_000)


def new_secret() -> str:
    """Return a word that no other message contains."""
    return f"zq{next(_numbers)}qz"


def secrets_in(words: object) -> str:
    """Return all secrets that something contains."""
    return " ".join(sorted(set(SECRET.findall(str(words)))))


class Parrot:
    """Makes the planned calls of a turn and answers; both repeat what the turn was told.

    It repeats nothing from earlier turns or from the system text.

    Attributes:
        plan: the calls of the next turn, one for each request.
    """

    def __init__(self) -> None:
        self.plan: Sequence[Call] = ()

    async def __call__(self, request: Request, writer: asyncio.StreamWriter) -> None:
        """Answer a request."""
        messages: list[dict[str, Any]] = request.body["messages"]
        said = max(at for at, message in enumerate(messages) if message["role"] == "user")
        told = [words_of(message["content"]) for message in messages[said:]]
        words = secrets_in(told) or NOTHING
        made = sum(message["role"] == "tool" for message in messages[said:])
        is_turn = any(tool["function"]["name"] == "remember" for tool in request.body["tools"])
        if is_turn and made < len(self.plan):
            await tool_calls(self.plan[made](words))(request, writer)
        else:
            await text(words)(request, writer)


def remember(words: str) -> tuple[str, Mapping[str, object]]:
    """Store a fact."""
    return "remember", {"text": f"Fact: {words}"}


def remind(words: str) -> tuple[str, Mapping[str, object]]:
    """Set a reminder."""
    return "remind", {"text": f"Think of {words}", "at": "2070-01-01T09:00Z"}


def recall(_: str) -> tuple[str, Mapping[str, object]]:
    """Find all facts."""
    return "recall", {"query": ""}


def catch_up(_: str) -> tuple[str, Mapping[str, object]]:
    """Find what was said in the group."""
    return "catch_up", {}


def ask(words: str) -> tuple[str, Mapping[str, object]]:
    """Ask the person."""
    return "ask_user", {"question": f"Which, {words}?", "options": ["Red", "Green"]}


def delegate(words: str) -> tuple[str, Mapping[str, object]]:
    """Give a task to a helper."""
    return "delegate", {"task": f"Repeat {words}"}


def search_files(_: str) -> tuple[str, Mapping[str, object]]:
    """Search the files for secrets."""
    return "search_files", {"query": "zq"}
