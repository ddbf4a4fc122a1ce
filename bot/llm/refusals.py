"""Maps an endpoint's refusal, a status with a body, to an error with advice for the operator.

The endpoint's prose decides the kind of error and is then dropped, because it may quote the
conversation. The error carries the endpoint's short code instead.
"""

import json
import re
from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from bot.llm.api import Parameter, json_in
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
"""Bound of an error's text; quotes come after the part that matters."""

NO_STATUS: Final = 0
"""Replaces the missing status of an error inside an answer."""

ENDS_WITH_V1: Final = "See LLM__BASE_URL, which ends with /v1 at most servers."
WEB_PAGE: Final = f"It answers with a web page. {ENDS_WITH_V1}"
BROKE_OFF: Final = "Its answer ended in an error."
_WRONG_KEY: Final = "It does not accept the key. See LLM__API_KEY."
_WRONG_CREDENTIALS: Final = (
    "It does not accept the credentials. See LLM__ACCESS_KEY_ID, LLM__SECRET_ACCESS_KEY and"
    " LLM__SESSION_TOKEN."
)
_WRONG_CLOCK: Final = "The clock of this machine is wrong, so its signatures are refused."
_NO_ACCESS: Final = "The account has no access to this model. See LLM__MODEL."
_NO_CREDIT: Final = "The account has no credit."
_NEEDS_PROFILE: Final = (
    "It answers with this model through an inference profile only, which is the model's name with a"
    " region before it, such as eu. See LLM__MODEL."
)
_UNKNOWN_MODEL: Final = "It does not know the model. See LLM__MODEL."
_WRONG_PATH: Final = f"It has no model under this address. {ENDS_WITH_V1}"
_WANTS_TLS: Final = "It speaks TLS. LLM__BASE_URL must begin with https://."
_REDIRECTS: Final = (
    "It redirects, which the bot does not follow. Set LLM__BASE_URL to where it leads; often that"
    " is the same address with https://."
)
_NO_TOOLS: Final = "It takes no tools. See LLM__TOOL_CALLING."

_PHRASES: Final = {status.value: status.phrase for status in HTTPStatus} | {529: "Overloaded"}
_CODE: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
_TOO_LONG: Final = (
    r"context.{0,20}(length|window|size|limit)|exceed_context|prompt is too long|request_too_large"
    r"|tokens exceeds? maximum"
    r"|(input|prompt|message).{0,40}(too long|too many tokens|exceeds?\b.{0,40}tokens)"
    r"|maximum.{0,20}(context|input|prompt).{0,20}(length|tokens)|reduce the length"
)
_LIMIT: Final = re.compile(
    r"context (?:length|size|window)(?: is| of)?(?: only)? \(?(\d{3,8})\b"
    r"|(?:number of tokens allowed|maximum allowed length) \(?(\d{3,8})\b"
    r"|> (\d{3,8}) maximum|\b(\d{3,8}) maximum context length"
)
"""The limit of tokens in messages of OpenAI, vLLM, SGLang, llama.cpp, LM Studio, Gemini."""
_POOR: Final = "insufficient_quota|credit balance is too low|invalid_payment_instrument"
_BAD_KEY: Final = r"API_?\s?key (not valid|expired|is invalid)|API_KEY_INVALID"
_PASSING: Final = (
    r"^(api|timeout|overloaded|rate_limit)_error|^(throttl|modelTimeout|internalS|serviceU)"
)
"""Types of errors inside an answer, by Anthropic and Bedrock."""
_REFUSAL: Final = (
    r"((not|n't|un|only|can't)[ -]?(be )?(support|enabl|allow|permit|availab|recogni|implement)\w*"
    r"|unknown (parameter|argument|field|name)|requires|no endpoints)"
)
_TOOLS: Final = r"(\btools?\b|\bfunctions?\b|(tool|function)[ _-]?(call|use|choice)\w*)"
_SYSTEM: Final = r"(system|developer)[ _](role|message|prompt|instruction)s?"
_REFUSED_TOOLS: Final = f"{_REFUSAL}.{{0,60}}{_TOOLS}|{_TOOLS}.{{0,80}}{_REFUSAL}"
_REFUSED_SYSTEM: Final = (
    f"{_SYSTEM}.{{0,60}}{_REFUSAL}|{_REFUSAL}.{{0,60}}{_SYSTEM}"
    r"|only user[a-z, ]* roles? (is|are) supported"
)

_REFUSED_ORDER: Final = r"role.{0,4}user.{0,20}after.{0,12}tool|roles must alternate"
"""Of Mistral's API, and of the templates of its models."""

_ANY: Final = range(600)
_REFUSING: Final = frozenset({400, 422})
_REFUSING_KEY: Final = frozenset({401, 403})
_REFUSING_TEMPLATE: Final = frozenset({400, 404, 422, 500, 501})
"""Statuses if a model's template lacks a role or tools: llama.cpp uses 500, OpenRouter 404."""

_KINDS: Final[Sequence[tuple[type[LlmError], Collection[int], str, str]]] = (
    (LlmUnauthorized, {402}, "", _NO_CREDIT),
    (LlmUnauthorized, _ANY, _POOR, _NO_CREDIT),
    (LlmUnauthorized, _REFUSING_KEY, "signature (expired|not yet current)", _WRONG_CLOCK),
    (LlmUnauthorized, _REFUSING_KEY, "security token|request signature", _WRONG_CREDENTIALS),
    (LlmUnauthorized, _REFUSING_KEY, "access to the model|model access is denied", _NO_ACCESS),
    (LlmUnauthorized, _REFUSING_KEY, "", _WRONG_KEY),
    (LlmUnauthorized, {400}, _BAD_KEY, _WRONG_KEY),  # of Gemini
    (LlmContextTooLong, {NO_STATUS, 400, 413, 422}, _TOO_LONG, ""),
    (LlmToolsRefused, _REFUSING_TEMPLATE, _REFUSED_TOOLS, _NO_TOOLS),
    (LlmUnavailable, {408, 429, *range(500, 600)}, "", ""),
    (LlmUnavailable, {NO_STATUS}, _PASSING, ""),
    (LlmRejected, {NO_STATUS}, r"^(invalid_request|not_found|validation)", ""),
    (LlmUnauthorized, {NO_STATUS}, r"^(authentication|billing|permission)", ""),
    (LlmBroken, {NO_STATUS}, "", ""),
    (LlmRejected, _ANY, r"\bHTTPS (server|port)\b", _WANTS_TLS),
    (LlmRejected, range(300, 400), "", _REDIRECTS),
    (LlmRejected, _ANY, "on-demand throughput", _NEEDS_PROFILE),
    (LlmRejected, _ANY, "model identifier is invalid", _UNKNOWN_MODEL),
    (LlmRejected, {404}, r"\bmodel(\b|_)", _UNKNOWN_MODEL),
    (LlmRejected, {404, 405}, "", _WRONG_PATH),
)
"""Error, statuses, words and advice; the first line that fits counts."""

_PARTS: Final[Sequence[tuple[Parameter, Collection[int], str]]] = (
    (Parameter.USAGE, _REFUSING, "stream_options|include_usage"),
    (Parameter.STREAM, _REFUSING, r"\bstream(ing)?\b"),
    (Parameter.TOOL_CHOICE, _REFUSING, r"\btool_?choice\b"),
    (Parameter.SYSTEM_ROLE, _REFUSING_TEMPLATE, _REFUSED_SYSTEM),
    (Parameter.THINK, _REFUSING, r"not support thinking|\bthink\b"),
    (Parameter.USER_AFTER_RESULT, _REFUSING_TEMPLATE, _REFUSED_ORDER),
    (Parameter.CACHING, {400, 403, 422}, "cache_?control|cache_?point|prompt caching"),
)
"""Parts of a request, with the statuses and words of endpoints that refuse them."""
_DELAY: Final = re.compile(r"(\d{1,6}(?:\.\d{1,9})?)s")
MAX_DETAILS: Final = 16


def refusal_from_http(status: int, body: bytes, after_seconds: float | None = None) -> LlmError:
    """Return the refusal in an answer whose status is not 200; its body may ask for a wait too."""
    prose = body.decode("utf-8-sig", errors="replace")
    said = json_in(prose)
    if isinstance(said, list) and said:
        said = said[0]  # of Gemini
    inner = said.get("error") if isinstance(said, dict) else None
    error = _error(status, inner or said, prose)
    error.came_first = True
    error.after_seconds = error.after_seconds if after_seconds is None else after_seconds
    return error


def error_inside_answer(said: object) -> LlmError:
    """Return the error that an endpoint sent in place of a piece of an answer."""
    words = said if isinstance(said, dict) else {}
    code = words.get("code")
    status = code if isinstance(code, int) and 400 <= code < 600 else NO_STATUS
    return _error(status, said, json.dumps(said))


def _error(status: int, said: object, prose: str) -> LlmError:
    words = said if isinstance(said, dict) else {}
    codes = (words.get("code"), words.get("type"), words.get("status"))
    code = next((c for c in codes if isinstance(c, str) and _CODE.fullmatch(c)), "")
    prose = f"{code} {prose[:MAX_PROSE_CHARACTERS]}"

    def fits(statuses: Collection[int], pattern: str) -> bool:
        found = re.search(pattern, prose, re.IGNORECASE | re.DOTALL)
        return status in statuses and found is not None

    kinds = ((kind, advice) for kind, where, pattern, advice in _KINDS if fits(where, pattern))
    kind, advice = next(kinds, (LlmRejected, ""))
    phrase = _PHRASES.get(status, "no reason given")
    reason = f"HTTP {status}, {phrase}. {advice}".rstrip() if status else BROKE_OFF
    error: LlmError
    if issubclass(kind, LlmRejected):
        error = kind(status, code or phrase, reason)
    else:
        error = kind(f"HTTP {status}: {code or phrase}", reason)
    if isinstance(error, LlmContextTooLong):
        error.context_tokens = _limit(words, prose)
    else:
        error.refused_parts = {part for part, where, pattern in _PARTS if fits(where, pattern)}
        error.after_seconds = _retry_delay(words)
    return error


def _limit(words: Mapping[str, object], prose: str) -> int | None:
    """Return how many tokens a model reads, according to its refusal of a longer prompt."""
    if isinstance(tokens := words.get("n_ctx"), int):  # of llama.cpp
        return tokens
    found = _LIMIT.search(prose)
    return int(next(filter(None, found.groups()))) if found is not None else None


def _retry_delay(words: Mapping[str, object]) -> float | None:
    """Return the seconds of a google.rpc.RetryInfo, or None."""
    details = words.get("details")
    for detail in details[:MAX_DETAILS] if isinstance(details, list) else ():
        delay = detail.get("retryDelay") if isinstance(detail, dict) else None
        if isinstance(delay, str) and (found := _DELAY.fullmatch(delay)) is not None:
            return float(found[1]) + 1.0  # the delay is rounded down
    return None
