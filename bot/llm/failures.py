"""What an endpoint's refusal means: from a status and an error body to a kind of error.

The endpoint's prose decides the kind and goes no further, because it may quote the conversation;
an error of ours carries the endpoint's own short code instead.
"""

import json
import re
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmUnauthorized,
    LlmUnavailable,
)
from bot.llm.wire import Streaming

MAX_PROSE_CHARACTERS: Final = 2000
"""Of an error's text that is looked at: what matters is said first, quotes come after."""

NO_STATUS: Final = 0

WRONG_KEY: Final = "It does not accept the key. See LLM__API_KEY."
NO_CREDIT: Final = "The account has no credit."
UNKNOWN_MODEL: Final = "It does not know the model. See LLM__MODEL."
WRONG_PATH: Final = (
    "It has no model under this address. LLM__BASE_URL ends with /v1 at most servers."
)
WANTS_TLS: Final = "It speaks TLS. LLM__BASE_URL must begin with https://."
REDIRECTS: Final = (
    "It redirects, which the bot does not follow. Set LLM__BASE_URL to where it leads; often that"
    " is the same address with https://."
)
BROKE_OFF: Final = "Its answer ended in an error."

_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|exceed_context|prompt is too long"
    r"|(input|prompt|message).{0,40}(too long|too many tokens|exceeds?\b.{0,40}tokens)"
    r"|maximum.{0,20}(context|input|prompt).{0,20}(length|tokens)|reduce the length",
    re.IGNORECASE,
)
_MODEL = re.compile(r"\bmodel(\b|_)", re.IGNORECASE)
_WANTS_TLS = re.compile(r"\bHTTPS (server|port)\b", re.IGNORECASE)
_STREAM_OPTIONS = re.compile(r"stream_options|include_usage", re.IGNORECASE)
_STREAM = re.compile(r"\bstream(ing)?\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class EndpointRefusal:
    """An error as the endpoint said it.

    Attributes:
        status: HTTP status, or the status named inside a stream; NO_STATUS where there is none.
        code: the endpoint's own word for the error, empty when it has none.
        prose: what it said, for deciding only.
    """

    status: int
    code: str
    prose: str

    @property
    def is_temporary(self) -> bool:
        """Whether the same request may work a little later."""
        if self.code == "insufficient_quota":
            return False
        return self.status in (408, 429) or self.status >= 500

    def simpler_streaming(self, asked: Streaming) -> Streaming | None:
        """Return the next way to ask where the endpoint refuses how it was asked, else None."""
        if self.status not in (400, 422) or self._too_long or asked is Streaming.OFF:
            return None
        if asked is Streaming.WITH_USAGE and _STREAM_OPTIONS.search(self.prose):
            return Streaming.PLAIN
        return Streaming.OFF if _STREAM.search(self.prose) else None

    def as_error(self) -> LlmError:
        """Return the error that this refusal is for the rest of the program."""
        phrase = _PHRASES.get(self.status, "no reason given")
        said = self.code or phrase
        message, reason = f"HTTP {self.status}: {said}", f"HTTP {self.status}, {phrase}."
        if self.status == HTTPStatus.PAYMENT_REQUIRED or self.code == "insufficient_quota":
            return LlmUnauthorized(message, f"{reason} {NO_CREDIT}")
        if self.status in (401, 403):
            return LlmUnauthorized(message, f"{reason} {WRONG_KEY}")
        if self.is_temporary:
            return LlmUnavailable(message, reason)
        if self._too_long:
            return LlmContextTooLong(self.status, said, reason)
        if self.status == NO_STATUS:
            return LlmBroken(f"The endpoint's answer ended in an error: {said}", BROKE_OFF)
        return LlmRejected(self.status, said, f"{reason} {self._advice}".rstrip())

    @property
    def _advice(self) -> str:
        """What the operator can do about a request that was refused for good."""
        if _WANTS_TLS.search(self.prose):
            return WANTS_TLS
        if 300 <= self.status < 400:
            return REDIRECTS
        if self.status == HTTPStatus.NOT_FOUND and _MODEL.search(f"{self.code} {self.prose}"):
            return UNKNOWN_MODEL
        wrong_path = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED)
        return WRONG_PATH if self.status in wrong_path else ""

    @property
    def _too_long(self) -> bool:
        if self.status not in (NO_STATUS, 400, 413, 422):
            return False
        return _TOO_LONG.search(f"{self.code} {self.prose}") is not None


def refusal_from_http(status: int, body: bytes) -> EndpointRefusal:
    """Read an answer whose status is not 200."""
    prose = body.decode(errors="replace")
    try:
        said = json.loads(prose)
    except (ValueError, RecursionError):
        said = None
    inner = said.get("error") if isinstance(said, dict) else None
    return _refusal(status, inner or said, prose)


def error_inside_answer(said: object) -> LlmError:
    """Return the error that came where a piece of an answer was expected."""
    code = said.get("code") if isinstance(said, dict) else None
    status = code if isinstance(code, int) and 400 <= code < 600 else NO_STATUS
    return _refusal(status, said, json.dumps(said)).as_error()


def _refusal(status: int, said: object, prose: str) -> EndpointRefusal:
    words = said if isinstance(said, dict) else {}
    codes = (words.get("code"), words.get("type"))
    code = next((c for c in codes if isinstance(c, str) and _CODE.fullmatch(c)), "")
    return EndpointRefusal(status, code, prose[:MAX_PROSE_CHARACTERS])
