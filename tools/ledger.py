"""The one list of the data that leaves the machine for an answer.

Every path out calls `note` before it sends. A turn collects the entries of all that runs in its
task, and stores them (`!sent` shows them). Outside of a turn, nothing of a person leaves.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Literal, NamedTuple

MAX_CHARACTERS: Final = 2_000
"""Longest detail; the rest is left out."""

Kind = Literal["model", "recording", "speech", "search", "page", "place", "tool", "file"]
"""Kinds of data that the machine sends.

- model: the conversation, to a model. recording: a voice note, to be written down. speech: an
  answer, to be spoken.
- search: words of a search. page: the address of a page. place: a place, to a weather service.
- tool: a call of a tool of an MCP server. file: a file, with the answer.
"""


class Entry(NamedTuple):
    """One kind of data that was sent to one place.

    Attributes:
        target: the host or server that got it.
        detail: the name of the model, the words, the address, or the call.
        size: bytes.
        is_proven: it is proven who can read the data there.
    """

    kind: Kind
    target: str
    detail: str
    size: int
    is_proven: bool = False


_collect: ContextVar[Callable[[Entry], None] | None] = ContextVar("ledger", default=None)


def note(kind: Kind, target: str, detail: str, size: int = 0, *, is_proven: bool = False) -> None:
    """Note that something leaves now."""
    if (collect := _collect.get()) is not None:
        collect(Entry(kind, target, detail[:MAX_CHARACTERS], size, is_proven))


@contextmanager
def noting(collect: Callable[[Entry], None]) -> Iterator[None]:
    """Give all entries of this task, and of the tasks that it begins, to a function."""
    token = _collect.set(collect)
    try:
        yield
    finally:
        _collect.reset(token)
