"""What the client needs of an API that models speak; implemented in `bot.llm.dialects`."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from bot.llm.attested import Sealing
from bot.llm.messages import Completion, ModelRequest


class Parameter(StrEnum):
    """A part of requests that some endpoints refuse, and that they can be made without."""

    USAGE = "usage"
    """Of streams: the count of tokens at their end."""
    STREAM = "stream"
    TOOL_CHOICE = "tool_choice"
    FOREIGN_SIGNATURE = "foreign_signature"
    """The mark of calls that another model made, in place of a signature."""
    SYSTEM_ROLE = "system_role"
    THINK = "think"
    """That what a model thinks comes apart from its answer."""
    CACHING = "caching"
    """Marks that say up to where the endpoint is to cache a request."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request, and the way in which it is made.

    Attributes:
        request: what the model is asked.
        omitted: what the endpoint refuses, and is left out.
        attested: the endpoint has proven who reads along.
        sealing: encrypts what is said; only for a dialect that `seals`.
    """

    request: ModelRequest
    omitted: frozenset[Parameter] = frozenset()
    attested: bool = False
    sealing: Sealing | None = None


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One HTTP request; without a body it is a GET, else a POST.

    Attributes:
        url: where it goes.
        headers: what it says beside its body, the key among it.
        body: JSON.
    """

    url: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class ListedModel:
    """A model that an endpoint lists; what it can do is None where that is not said."""

    id: str
    sees_images: bool | None = None
    calls_tools: bool | None = None


class AnswerReader(Protocol):
    """Takes the bytes of one answer as they come."""

    @property
    def begun(self) -> bool:
        """Whether any byte has come."""
        ...

    @property
    def done(self) -> bool:
        """Whether the endpoint said that nothing more will come."""
        ...

    @property
    def completion_id(self) -> str:
        """What the endpoint calls this answer; empty when it has not said."""
        ...

    def feed(self, data: bytes) -> None:
        """Take the next bytes; LlmError when they cannot be part of a good answer."""
        ...

    def completion(self) -> Completion:
        """Return the answer now that the bytes have ended; LlmBroken when it is not whole."""
        ...


class Dialect(Protocol):
    """Puts requests into an endpoint's words, and reads its answers."""

    @property
    def seals(self) -> bool:
        """Whether it can send a conversation encrypted."""
        ...

    def use_key(self, api_key: str | None) -> None:
        """Take another key, from the next request on."""
        ...

    def put(self, asked: Asked) -> WireRequest:
        """Return the request; what is not to be sent of it is left out."""
        ...

    def parameters(self, asked: Asked) -> Collection[Parameter]:
        """Return what this request has that an endpoint may refuse and it can be made without."""
        ...

    def reader(self, content_type: str, sealing: Sealing | None) -> AnswerReader:
        """Return what reads an answer of this type; it begins with the first byte of the body."""
        ...

    def listing(self) -> WireRequest:
        """Return the request for what the endpoint offers."""
        ...

    def listed(self, body: bytes) -> Sequence[ListedModel]:
        """Return what the endpoint offers, of the answer to `listing`; ValueError if unreadable."""
        ...

    def lookup(self) -> WireRequest:
        """Return the request for what the endpoint says of its model."""
        ...

    def looked_up(self, body: bytes) -> ListedModel | None:
        """Return what it says, of the answer to `lookup`; None where it does not know the model.

        Raises:
            ValueError: it cannot be read.
        """
        ...
