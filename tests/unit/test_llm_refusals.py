"""Kind, advice and numbers that are read from the refusals of real endpoints."""

import json
from typing import Final

import pytest

from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmToolsRefused,
    LlmUnauthorized,
    LlmUnavailable,
    may_be_about_images,
)
from bot.llm.refusals import error_inside_answer, refusal_from_http

SECRET: Final = "sesame"
DENIED: Final = "You don't have access to the model with the specified ID."
NO_MONEY: Final = "Model access is denied due to INVALID_PAYMENT_INSTRUMENT"
PROFILE: Final = "Invocation of model ID x with on-demand throughput isn't supported."
TLS_PORT: Final = "<h1>The plain HTTP request was sent to HTTPS port</h1>"
LIMIT: Final = "input length and `max_tokens` exceed context limit: 199000 + 4096 > 200000"


def refusal(code: int, said: object) -> LlmError:
    """Return the error for a body, which quotes a secret of the conversation at its end."""
    if isinstance(said, dict):
        said = json.dumps({"error": {**said, "message": f"{said.get('message', '')} {SECRET}"}})
    return refusal_from_http(code, str(said).encode())


@pytest.mark.parametrize(
    ("code", "said", "kind", "advice"),
    [
        (529, {"message": "Overloaded"}, LlmUnavailable, "HTTP 529, Overloaded."),
        (408, "", LlmUnavailable, "HTTP 408"),
        (429, {"code": "rate_limit_exceeded"}, LlmUnavailable, "HTTP 429"),
        (500, "<html>oops</html>", LlmUnavailable, "HTTP 500"),
        (429, {"code": "insufficient_quota"}, LlmUnauthorized, "no credit"),
        (402, {"message": "billing issue"}, LlmUnauthorized, "no credit"),
        (403, {"message": NO_MONEY}, LlmUnauthorized, "no credit"),
        (400, {"message": "Your credit balance is too low"}, LlmUnauthorized, "no credit"),
        (401, {"message": "no"}, LlmUnauthorized, "See LLM__API_KEY"),
        (403, "<html>no</html>", LlmUnauthorized, "See LLM__API_KEY"),
        (400, {"message": "API key not valid."}, LlmUnauthorized, "See LLM__API_KEY"),
        (403, {"message": "Signature expired: 2026 is now"}, LlmUnauthorized, "clock"),
        (403, {"message": "The request signature we"}, LlmUnauthorized, "LLM__ACCESS_KEY_ID"),
        (403, {"message": "The security token is"}, LlmUnauthorized, "LLM__SESSION_TOKEN"),
        (403, {"message": DENIED}, LlmUnauthorized, "no access to this model"),
        (404, {"message": "model 'x' not found"}, LlmRejected, "See LLM__MODEL"),
        (404, {"code": "model_not_found"}, LlmRejected, "See LLM__MODEL"),
        (400, {"message": "The provided model identifier is invalid."}, LlmRejected, "LLM__MODEL"),
        (400, {"message": PROFILE}, LlmRejected, "inference profile"),
        (404, {"detail": "Not Found"}, LlmRejected, "ends with /v1"),
        (405, "", LlmRejected, "ends with /v1"),
        (301, "", LlmRejected, "redirects"),
        (400, TLS_PORT, LlmRejected, "must begin with https://"),
        (400, {"code": "invalid", "message": "bad"}, LlmRejected, "HTTP 400"),
        (413, "<html>too large</html>", LlmRejected, "HTTP 413"),
        (409, "", LlmRejected, "HTTP 409"),
        (413, {"type": "request_too_large"}, LlmContextTooLong, "HTTP 413"),
        (400, {"code": "context_length_exceeded"}, LlmContextTooLong, "HTTP 400"),
        (400, {"message": "maximum context length, stream"}, LlmContextTooLong, "HTTP 400"),
        (400, {"message": LIMIT}, LlmContextTooLong, "HTTP 400"),
        (400, {"message": "input tokens exceeds maximum length"}, LlmContextTooLong, "HTTP 400"),
        (400, {"message": "tools is not supported"}, LlmToolsRefused, "See LLM__TOOL_CALLING"),
    ],
)
def test_refusal_has_its_kind_and_advises_the_operator(
    code: int, said: object, kind: type[LlmError], advice: str
) -> None:
    error = refusal(code, said)
    assert type(error) is kind
    assert advice in error.reason
    assert SECRET not in f"{error} {error.reason}"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ({"type": "overloaded_error"}, LlmUnavailable),
        ({"type": "throttlingException"}, LlmUnavailable),
        ({"type": "internalServerException"}, LlmUnavailable),
        ({"code": 429}, LlmUnavailable),
        ({"code": 502}, LlmUnavailable),
        ({"type": "modelStreamErrorException"}, LlmBroken),
        ({"type": "new_error"}, LlmBroken),
        ({"type": ["list"]}, LlmBroken),
        ("no object", LlmBroken),
        (None, LlmBroken),
        ({"type": "validationException", "message": "Input is too long"}, LlmContextTooLong),
        ({"type": "exceed_context_size_error", "code": 400}, LlmContextTooLong),
        ({"type": "validationException", "message": "Malformed input"}, LlmRejected),
        ({"code": 400}, LlmRejected),
    ],
)
def test_error_inside_an_answer_has_its_kind(said: object, kind: type[LlmError]) -> None:
    assert type(error_inside_answer(said)) is kind


@pytest.mark.parametrize(
    ("error", "tokens"),
    [
        ({"type": "exceed_context_size_error", "n_prompt_tokens": 14_429, "n_ctx": 8_192}, 8_192),
        ("This model's maximum context length is 16384 tokens. However, you requested 1", 16_384),
        ("The input (61709 tokens) is longer than the model's context length (40960)", 40_960),
        ("Requested token count exceeds the model's maximum context length of 202752", 202_752),
        ("Input length (160062 tokens) exceeds the maximum allowed length (59862 tokens).",
         59_862),
        ("Requested tokens (2285) exceed context window of 2048", 2_048),
        ("the model is loaded with context length of only 4096 tokens, which is not", 4_096),
        ("prompt is too long: 208310 tokens > 200000 maximum", 200_000),
        ("The input token count (1100000) exceeds the maximum number of tokens allowed (1048576).",
         1_048_576),
        ({"code": "context_length_exceeded", "message": "Too long."}, None),
    ],
)  # fmt: skip
def test_size_of_the_context_is_read_from_a_refusal(error: object, tokens: int | None) -> None:
    refused = refusal(400, error if isinstance(error, dict) else {"message": error})
    assert isinstance(refused, LlmContextTooLong)
    assert refused.context_tokens == tokens


@pytest.mark.parametrize(
    ("details", "seconds"),
    [
        ([{"@type": "google.rpc.RetryInfo", "retryDelay": "58s"}], 59.0),
        ([{"@type": "a"}, {"retryDelay": "1.5s"}], 2.5),
        ([{"retryDelay": "soon"}, "text", None], None),
        ({"retryDelay": "58s"}, None),
    ],
)
def test_wait_is_read_from_a_refusal_of_gemini(details: object, seconds: float | None) -> None:
    said = {"error": {"code": 429, "details": details}}
    for body in (said, [said]):
        assert refusal_from_http(429, json.dumps(body).encode()).after_seconds == seconds


def test_refusal_of_a_request_may_be_about_its_images() -> None:
    for code in (400, 404, 413, 415, 422):
        assert may_be_about_images(refusal(code, "no"))
    for code, said in ((400, {"code": "context_length_exceeded"}), (409, "no"), (503, "no")):
        assert not may_be_about_images(refusal(code, said))
