"""Which calls a person is asked about, what the question says, and what comes of the answer.

Only an explicit yes lets such a call run. The question shows every argument of the call, whole, in
words that cannot disguise anything: each on a line of its own, with what a phone would hide spelt
out (`tools.display`). A call that is too large to be shown is refused, never shown in part.

Asked about are calls with side effects, and, once the model has read what strangers wrote, two more
kinds. A call that could carry a conversation away: it may ask only those addresses on the internet
that a person or what it read has named, letter by letter, because an address that it puts together
itself could contain what people said here, for whoever it belongs to. And a call that lasts: what
strangers have it remember would speak for them in every later conversation.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, Never

from pydantic import BaseModel

from tools.approval import Approval, Decision
from tools.base import Heard, Tool, ToolRequest, first_sentence
from tools.display import shown, visible
from tools.errors import Declined, Interrupted, InvalidArguments, Unanswered
from tools.results import holds_marked, marked_by

MAX_QUESTION_BYTES: Final = 32_768
"""Some twenty pages: more than anybody reads before a yes."""

_MAY_NAME: Final = frozenset({"web_search", "web_fetch"})
"""Tools whose results name addresses: what they return is not of the model's choice. A server's
tool may only repeat what the model has sent it."""

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
    """Whether a person is asked before a call.

    Args:
        tool: what is called.
        arguments: as the tool has parsed them.
        heard: what the model has been told before it made the call.
    """
    if tool.side_effects:
        return True
    if tool.address is None and not tool.lasting:
        return False
    told = chain(heard.results, heard.people)  # people hand on files, which strangers may have made
    if not heard.strangers_before and not any(map(holds_marked, told)):
        return False
    if tool.address is None:
        return True
    pages = (result for result in heard.results if marked_by(result) in _MAY_NAME)
    return not _is_named(tool.address(arguments), (*heard.people, *pages))


def _is_named(address: str, texts: Iterable[str]) -> bool:
    """Whether an address is in one of the texts; what is not sent, or says nothing, may differ."""
    sent = address.partition("#")[0].rstrip("/")
    without_scheme = sent.partition("://")[2] or sent
    return any(without_scheme in text for text in texts)


async def approve(request: ToolRequest, asked: str, approval: Approval) -> None:
    """Return when a person has allowed the call.

    Raises:
        Declined: a person said no.
        Unanswered: nobody answered in time, or nobody could be asked.
        Interrupted: it was allowed and begun before a restart.
    """
    decision = await approval.ask(request, asked)
    if decision is not Decision.YES:
        _refuse(decision)


def question(tool: Tool, arguments: Any, risks: Sequence[str] = ()) -> str:
    """Return what a call is going to do, for a person, within `MAX_QUESTION_BYTES`.

    Below a heading, every argument stands on a line of its own: its name and its whole value, as
    JSON. Two calls of a tool with different arguments never read the same. Risks come last.

    Raises:
        InvalidArguments: that is too long.
        TypeError: the arguments have no names.
    """
    named = _named(arguments)
    # Nothing is spelt out in vain: that would only make it longer.
    if _fits(json.dumps(named, ensure_ascii=False)):
        listed = (f"{_name(name)}: {shown(value)}" for name, value in named.items())
        careful = (f"⚠️ {'; '.join(map(visible, risks))}",) if risks else ()
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
    """Return an argument's name, quoted where it could be taken for something else."""
    return name if _PLAIN_NAME.fullmatch(name) else shown(name)


def _refuse(decision: Decision) -> Never:
    match decision:
        case Decision.NO:
            raise Declined(_DECLINED)
        case Decision.INTERRUPTED:
            raise Interrupted(_INTERRUPTED)
        case Decision.SILENCE:
            raise Unanswered(_SILENCE)
        case _:
            raise Unanswered(_NOT_ASKED)
