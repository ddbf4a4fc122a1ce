"""Decide which calls need a person's yes, and write the question.

Only an explicit yes lets such a call run. The question shows every argument, whole, each on a line
of its own; characters that a phone would hide are spelt out (`tools.display`). A call that is too
long to be shown is refused, never shown in part.

A call with side effects needs a yes. Once the model has read strangers' words, two more kinds do:

- A call that could carry a conversation away. It may freely open an internet address that a person
  or a page has named letter by letter. An address that the model puts together itself could contain
  words from this chat, for the owner of that address.
- A call that lasts: a stranger's words would speak for the person in every later conversation.
"""

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from pydantic import BaseModel

from tools.base import Decision, Heard, Tool, first_sentence
from tools.display import shown, visible
from tools.errors import Declined, Interrupted, InvalidArguments, Unanswered
from tools.results import holds_marked, marked_by

MAX_QUESTION_BYTES: Final = 32_768
"""About twenty pages."""

_MAY_NAME: Final = frozenset({"web_search", "web_fetch"})
"""Tools whose results name addresses that the model did not choose. A tool of an MCP server may
only repeat words that the model has sent it."""

_MAX_DESCRIPTION_CHARACTERS: Final = 200
_PLAIN_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")

_ADDRESS: Final = (
    "May {tool} open this address? Nobody named it here: the model made it up after it read what"
    " strangers wrote. It could carry away what was said in this chat."
)
_DECLINED: Final = (
    "Not run: the person said no. Do not call it again unless the person asks for it; "
    "tell the person that it was not done."
)
_SILENCE: Final = (
    "Not run: the person was asked and did not answer in time. Do not call it again by yourself; "
    "tell the person that it was not done and may be asked for again."
)
_NOT_ASKED: Final = (
    "Not run: it needs a person's yes, and nobody could be asked. Do not call it again by "
    "yourself; tell the person that it was not done."
)
_INTERRUPTED: Final = (
    "It was begun before a restart; whether it took effect is unknown. Do not call it again by "
    "yourself; tell the person."
)


def needs_yes(tool: Tool, arguments: Any, heard: Heard) -> bool:
    """Tell whether a call needs a person's yes, by its parsed arguments and the words before it."""
    if tool.side_effects:
        return True
    if tool.address is None and not tool.lasting:
        return False
    if not heard.strangers_before and not strangers_words(heard):
        return False
    if tool.address is None:
        return True
    pages = (result for result in heard.results if marked_by(result) in _MAY_NAME)
    return not _is_named(tool.address(arguments), (*heard.people, *pages))


def strangers_words(heard: Heard, *, but_of: Collection[str] = ()) -> bool:
    """Tell whether the model was shown strangers' words, also in files that people handed on.

    Results of the tools in `but_of` do not count.
    """
    results = (result for result in heard.results if marked_by(result) not in but_of)
    return any(map(holds_marked, chain(results, heard.people)))


def _is_named(address: str, texts: Iterable[str]) -> bool:
    """Tell whether an address is in one of the texts, but for its fragment, slash and scheme."""
    sent = address.partition("#")[0].rstrip("/")
    without_scheme = sent.partition("://")[2] or sent
    return any(without_scheme in text for text in texts)


def require_yes(decision: Decision) -> None:
    """Return if a person has allowed a call.

    Raises:
        Declined: a person said no.
        Unanswered: there was no answer in time, or the question could not be sent.
        Interrupted: it was allowed and begun before a restart.
    """
    match decision:
        case Decision.YES:
            return
        case Decision.NO:
            raise Declined(_DECLINED)
        case Decision.INTERRUPTED:
            raise Interrupted(_INTERRUPTED)
        case Decision.SILENCE:
            raise Unanswered(_SILENCE)
        case Decision.NOT_ASKED:
            raise Unanswered(_NOT_ASKED)


def question(tool: Tool, arguments: Any, hints: Sequence[str] = ()) -> str:
    """Return the question about a call, at most `MAX_QUESTION_BYTES` long.

    A heading, then a line for each argument: its name and its whole value, as JSON. Two calls of a
    tool with different arguments never read the same. Hints come last.

    Raises:
        InvalidArguments: it would be too long.
        TypeError: the arguments have no names.
    """
    named = _named(arguments)
    # Spelling out only makes it longer.
    if _fits(json.dumps(named, ensure_ascii=False)):
        listed = (f"{_name(name)}: {shown(value)}" for name, value in named.items())
        careful = (f"⚠️ {'; '.join(map(visible, hints))}",) if hints else ()
        text = "\n".join((_heading(tool, arguments), *listed, *careful))
        if _fits(text):
            return text
    raise InvalidArguments(
        f"Not run: the arguments of {tool.name} are too long to be shown to the person who has to "
        "allow the call. Send less at once."
    )


def _heading(tool: Tool, arguments: Any) -> str:
    if tool.address is not None and not tool.side_effects:
        return _ADDRESS.format(tool=tool.name)
    if tool.question is not None:
        return visible(tool.question(arguments))
    description = " ".join(first_sentence(tool.description).split())
    if len(description) > _MAX_DESCRIPTION_CHARACTERS:
        description = f"{description[:_MAX_DESCRIPTION_CHARACTERS]}…"
    return f"Run {tool.name}? {visible(description)}"


def _fits(text: str) -> bool:
    return len(text.encode(errors="replace")) <= MAX_QUESTION_BYTES


def _named(arguments: Any) -> Mapping[str, object]:
    if isinstance(arguments, BaseModel):
        return arguments.model_dump(mode="json")
    if isinstance(arguments, Mapping):
        return arguments
    raise TypeError("arguments without names cannot be shown to a person")


def _name(name: str) -> str:
    """Return an argument's name, quoted if it could be mistaken for something else."""
    return name if _PLAIN_NAME.fullmatch(name) else shown(name)
