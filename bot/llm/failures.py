"""What an endpoint's refusal means: from a status and an error body to a kind of error.

The endpoint's prose decides the kind and goes no further, because it may quote the conversation;
an error of ours carries the endpoint's own short code instead.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from types import MappingProxyType
from typing import Final

from bot.llm.dialect import Parameter
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmToolsRefused,
    LlmUnauthorized,
    LlmUnavailable,
)

MAX_PROSE_CHARACTERS: Final = 2000
"""Of an error's text that is looked at: what matters is said first, quotes come after."""

NO_STATUS: Final = 0

WRONG_KEY: Final = "It does not accept the key. See LLM__API_KEY."
WRONG_CREDENTIALS: Final = (
    "It does not accept the credentials. See LLM__ACCESS_KEY_ID, LLM__SECRET_ACCESS_KEY and"
    " LLM__SESSION_TOKEN."
)
WRONG_CLOCK: Final = "The clock of this machine is wrong, so its signatures are refused."
NO_ACCESS: Final = "The account has no access to this model. See LLM__MODEL."
NO_CREDIT: Final = "The account has no credit."
NEEDS_PROFILE: Final = (
    "It answers with this model through an inference profile only, which is the model's name with a"
    " region before it, such as eu. See LLM__MODEL."
)
UNKNOWN_MODEL: Final = "It does not know the model. See LLM__MODEL."
WRONG_PATH: Final = (
    "It has no model under this address. LLM__BASE_URL ends with /v1 at most servers."
)
WANTS_TLS: Final = "It speaks TLS. LLM__BASE_URL must begin with https://."
REDIRECTS: Final = (
    "It redirects, which the bot does not follow. Set LLM__BASE_URL to where it leads; often that"
    " is the same address with https://."
)
NO_TOOLS: Final = "It takes no tools. See LLM__TOOL_CALLING."
BROKE_OFF: Final = "Its answer ended in an error."

_PHRASES = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}
_CODE = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TOO_LONG = re.compile(
    r"context.{0,20}(length|window|size|limit)|exceed_context|prompt is too long|request_too_large"
    r"|tokens exceeds? maximum"
    r"|(input|prompt|message).{0,40}(too long|too many tokens|exceeds?\b.{0,40}tokens)"
    r"|maximum.{0,20}(context|input|prompt).{0,20}(length|tokens)|reduce the length",
    re.IGNORECASE,
)
_NO_CREDIT = re.compile(r"credit balance is too low|invalid_payment_instrument", re.IGNORECASE)
_UNAUTHORIZED = (
    (re.compile(r"signature (expired|not yet current)", re.IGNORECASE), WRONG_CLOCK),
    (re.compile(r"security token|request signature", re.IGNORECASE), WRONG_CREDENTIALS),
    (re.compile(r"access to the model|model access is denied", re.IGNORECASE), NO_ACCESS),
)
"""What AWS says with 403, and what it means."""
_WRONG_KEY = re.compile(
    r"API_?\s?key (not valid|expired|is invalid)|API_KEY_INVALID", re.IGNORECASE
)
"""Gemini says so with 400."""
_NEEDS_PROFILE = re.compile(r"on-demand throughput", re.IGNORECASE)
_NO_SUCH_MODEL = re.compile(r"model identifier is invalid", re.IGNORECASE)
_MODEL = re.compile(r"\bmodel(\b|_)", re.IGNORECASE)
_WANTS_TLS = re.compile(r"\bHTTPS (server|port)\b", re.IGNORECASE)
_REFUSAL = (
    r"((not|n't|un|only|can't)[ -]?(be )?(support|enabl|allow|permit|availab|recogni|implement)\w*"
    r"|unknown (parameter|argument|field|name)|requires|no endpoints)"
)
_TOOLS = r"(\btools?\b|\bfunctions?\b|(tool|function)[ _-]?(call|use|choice)\w*)"
_NO_TOOLS = re.compile(
    f"{_REFUSAL}.{{0,60}}{_TOOLS}|{_TOOLS}.{{0,80}}{_REFUSAL}", re.IGNORECASE | re.DOTALL
)
_SYSTEM = r"(system|developer)[ _](role|message|prompt|instruction)s?"
_ONLY_OTHERS = r"only user[a-z, ]* roles? (is|are) supported"
_PARAMETERS: Final[Mapping[Parameter, re.Pattern[str]]] = MappingProxyType(
    {
        Parameter.USAGE: re.compile(r"stream_options|include_usage", re.IGNORECASE),
        Parameter.STREAM: re.compile(r"\bstream(ing)?\b", re.IGNORECASE),
        Parameter.TOOL_CHOICE: re.compile(r"\btool_?choice\b", re.IGNORECASE),
        Parameter.SYSTEM_ROLE: re.compile(
            f"{_SYSTEM}.{{0,60}}{_REFUSAL}|{_REFUSAL}.{{0,60}}{_SYSTEM}|{_ONLY_OTHERS}",
            re.IGNORECASE | re.DOTALL,
        ),
        Parameter.FOREIGN_SIGNATURE: re.compile(r"thought.?signature", re.IGNORECASE),
        Parameter.THINK: re.compile(r"not support thinking|\bthink\b", re.IGNORECASE),
        Parameter.CACHING: re.compile(r"cache_?control", re.IGNORECASE),
    }
)
_REFUSING: Final = frozenset({400, 422})
_REFUSING_TEMPLATE: Final = frozenset({400, 404, 422, 500, 501})
"""Statuses of what a model's template cannot put: llama.cpp says 500, OpenRouter 404."""


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
        if self._no_credit or self._no_tools:
            return False
        return self.status in (408, 429) or self.status >= 500

    def refused(self, sent: Collection[Parameter]) -> Parameter | None:
        """Return which part of a request the endpoint refuses; None where it is none of these."""
        if self._too_long:
            return None
        return next((one for one in _PARAMETERS if one in sent and self._speaks_of(one)), None)

    def _speaks_of(self, parameter: Parameter) -> bool:
        is_template = parameter is Parameter.SYSTEM_ROLE
        refusing = _REFUSING_TEMPLATE if is_template else _REFUSING
        return self.status in refusing and _PARAMETERS[parameter].search(self.prose) is not None

    @property
    def _no_credit(self) -> bool:
        """Whether the account has to be paid for; Anthropic says so with 400, Bedrock with 403."""
        if self.status == HTTPStatus.PAYMENT_REQUIRED or self.code == "insufficient_quota":
            return True
        return self.status in (400, 403) and _NO_CREDIT.search(self.prose) is not None

    @property
    def _no_tools(self) -> bool:
        """Whether it is the tools that the endpoint, or its model, does not know."""
        return self.status in _REFUSING_TEMPLATE and _NO_TOOLS.search(self.prose) is not None

    def as_error(self) -> LlmError:
        """Return the error that this refusal is for the rest of the program."""
        phrase = _PHRASES.get(self.status, "no reason given")
        said = self.code or phrase
        message, reason = f"HTTP {self.status}: {said}", f"HTTP {self.status}, {phrase}."
        if self._no_credit:
            return LlmUnauthorized(message, f"{reason} {NO_CREDIT}")
        if self.status in (401, 403) or (self.status == 400 and _WRONG_KEY.search(self.prose)):
            found = (advice for said, advice in _UNAUTHORIZED if said.search(self.prose))
            return LlmUnauthorized(message, f"{reason} {next(found, WRONG_KEY)}")
        if self.is_temporary:
            return LlmUnavailable(message, reason)
        if self.status == NO_STATUS and not self._too_long:
            return LlmBroken(f"The endpoint's answer ended in an error: {said}", BROKE_OFF)
        return self._rejection(said, reason)

    def _rejection(self, said: str, reason: str) -> LlmRejected:
        if self._too_long:
            return LlmContextTooLong(self.status, said, reason)
        if self._no_tools:
            return LlmToolsRefused(self.status, said, f"{reason} {NO_TOOLS}")
        return LlmRejected(self.status, said, f"{reason} {self._advice}".rstrip())

    @property
    def _advice(self) -> str:
        """What the operator can do about a request that was refused for good."""
        if _WANTS_TLS.search(self.prose):
            return WANTS_TLS
        if 300 <= self.status < 400:
            return REDIRECTS
        if _NEEDS_PROFILE.search(self.prose):
            return NEEDS_PROFILE
        if _NO_SUCH_MODEL.search(self.prose):
            return UNKNOWN_MODEL
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
    codes = (words.get("code"), words.get("type"), words.get("status"))
    code = next((c for c in codes if isinstance(c, str) and _CODE.fullmatch(c)), "")
    return EndpointRefusal(status, code, prose[:MAX_PROSE_CHARACTERS])
