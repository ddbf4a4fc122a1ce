"""The model's endpoint: one request in, one whole answer out.

An endpoint that has not answered once since the start may have a wrong address: it is tried for a
few seconds only. One that has answered, or says that it is busy, is worth the patience of
`RetryPolicy`.

The answer is streamed where the endpoint can stream, so that a silent endpoint is told from a
slow one, and only a whole answer leaves. So a request may be tried again also after an answer has
begun and broken off; only a few times, as the model has worked for each. Wire format: bot.llm.wire;
errors: bot.llm.errors.
"""

import asyncio
import contextlib
import hashlib
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final
from urllib.parse import urlsplit

import httpx
import structlog
from pydantic import ValidationError

from bot.http_client import new_tls_context
from bot.llm.attested import Admission, Encryption, Exchange, Sealing
from bot.llm.counting import counted
from bot.llm.endpoint import Endpoint
from bot.llm.errors import (
    LlmBroken,
    LlmError,
    LlmTimeout,
    LlmUnavailable,
    LlmUnreachable,
)
from bot.llm.failures import EndpointRefusal, refusal_from_http
from bot.llm.messages import Completion, ToolSpec
from bot.llm.reach import Reach
from bot.llm.retry import LongWait, RetryPolicy, retry_after_seconds
from bot.llm.stream import AnswerReader, EventStream, WholeBody
from bot.llm.transport import AiohttpTransport, bounded_body, sent
from bot.llm.wire import ModelList, Streaming, request_body
from bot.observability.metrics import (
    LLM_FIRST_BYTE_SECONDS,
    LLM_RETRIES,
    LLM_TOKENS,
    LLM_WAITING,
)
from conversation_store.models import Message

TOTAL_SECONDS: Final = 600.0
"""One answer from the request to its last byte, however steadily it trickles."""
AFTER_THE_END_SECONDS: Final = 1.0
"""After `[DONE]`: how long the end of the HTTP body may take, which keeps the connection usable."""
MODELS_SECONDS: Final = 15.0
MODELS_CONNECTIONS: Final = 2
FED_AT_ONCE_BYTES: Final = 32 * 1024
"""Of an answer, between two turns of the event loop; a socket may give several times as much."""
MAX_BROKEN_ANSWERS: Final = 3
"""How many answers may break off or make no sense; each costs what a whole one does."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_MODEL_LIST_BYTES: Final = 8 * 1024 * 1024

DEFAULT_RETRY: Final = RetryPolicy()

WEB_PAGE: Final = "It answers with a web page. LLM__BASE_URL ends with /v1 at most servers."

__all__ = ["Endpoint", "LlmClient", "open_transport"]

log = structlog.get_logger()


def open_transport(
    endpoint: Endpoint, *, tls: ssl.SSLContext | None = None
) -> httpx.AsyncBaseTransport:
    """Return a transport fit for the endpoint, with a running loop; the caller closes it.

    It follows no redirect, reads nothing from the environment and, for plain http, makes no TLS
    context.

    Args:
        endpoint: where to.
        tls: whose certificates are believed; None: the usual certificate authorities.
    """
    if tls is None and urlsplit(endpoint.base_url).scheme == "https":
        tls = new_tls_context()
    return AiohttpTransport(
        max_connections=endpoint.max_concurrency + MODELS_CONNECTIONS,
        silence_seconds=endpoint.timeout_seconds,
        tls=tls,
    )


def _tell_nobody() -> None:
    """Whoever asks does not mind the wait."""


class _TryAgain(Exception):
    """Nothing of an answer has come, and the next attempt may fare better."""

    def __init__(self, error: LlmError, after_seconds: float | None = None) -> None:
        super().__init__()
        self.error = error
        self.after_seconds = after_seconds


class _Refused(Exception):
    """The endpoint will not answer this request as it was asked."""

    def __init__(self, refusal: EndpointRefusal) -> None:
        super().__init__()
        self.refusal = refusal


class LlmClient:
    """Asks any OpenAI-compatible endpoint.

    Args:
        transport: sends the requests, see `open_transport`; closed by whoever made it. There is no
            `httpx.AsyncClient` around it: its redirects, cookies and hooks are not for an endpoint,
            and cost 0.4 ms a request.
        endpoint: which model, and where.
        retry: when to try again.
        total_seconds: bound of one attempt, from the request to the last byte.
        admission: asked before everything that is sent of a conversation; None admits all.
        encryption: of what is said, to the model; None sends it as it is.

    Attributes:
        reach: what is known of the way to the endpoint.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        endpoint: Endpoint,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        total_seconds: float = TOTAL_SECONDS,
        admission: Admission | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._model = endpoint.model
        self._retry = retry
        self._total_seconds = total_seconds
        self._admission = admission
        self._encryption = encryption
        self._slots = asyncio.Semaphore(endpoint.max_concurrency)
        self._streaming = Streaming.WITH_USAGE
        self._completions_url = httpx.URL(endpoint.url("chat/completions"))
        self._models_url = httpx.URL(endpoint.url("models"))
        self._headers = _headers(endpoint)
        self.reach = Reach(endpoint.base_url)

    @property
    def busy(self) -> bool:
        """Whether another request would have to wait for a place at the endpoint."""
        return self._slots.locked()

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        self._endpoint = replace(self._endpoint, api_key=api_key)
        self._headers = _headers(self._endpoint)

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        may_call: bool = True,
        still_trying: Callable[[], None] = _tell_nobody,
    ) -> Completion:
        """Return the model's whole answer.

        Waits for its turn among `max_concurrency` requests first; that wait ends because each of
        those has a bound.

        Args:
            messages: the conversation, oldest first.
            tools: what the model is told that it may call; none are offered when empty.
            may_call: whether it may call them in this answer. Where it may not, they are sent all
                the same, so that the request begins like the one before and can be cached.
            still_trying: called once when the endpoint has been tried again for so long that
                whoever waits is to be told.

        Raises:
            LlmError: no usable answer, see bot.llm.errors for the kinds.
        """
        body_for = partial(request_body, self._model, messages, tools, may_call=may_call)
        long_wait = LongWait(self._retry.silent_seconds, still_trying)
        with counted("answer"), self.reach.noting(), long_wait:
            completion = await self._answer(body_for, long_wait)
        if completion.usage is not None:
            LLM_TOKENS.labels("prompt").inc(completion.usage.prompt_tokens)
            LLM_TOKENS.labels("completion").inc(completion.usage.completion_tokens)
        return completion

    async def models(self) -> tuple[str, ...]:
        """Return the ids of the models that the endpoint offers; tried once.

        Raises:
            LlmError: no usable answer.
        """
        return tuple(entry.id for entry in (await self._listing()).data)

    async def time(self) -> datetime | None:
        """Return what time it is at the endpoint, by its answer's `Date` (RFC 9110, 6.6.1).

        None: it does not say. Whole seconds; asked once.

        Raises:
            LlmError: no usable answer.
        """
        async with self._models_answer() as response:
            said = response.headers.get("date", "")
        try:
            return parsedate_to_datetime(said).astimezone(UTC)
        except ValueError:
            return None

    async def sees_images(self) -> bool | None:
        """Return whether the endpoint's list says that the model takes images; tried once.

        None: it says nothing about that.

        Raises:
            LlmError: no usable answer.
        """
        entries = (await self._listing()).data
        return next((entry.sees_images for entry in entries if entry.id == self._model), None)

    async def _listing(self) -> ModelList:
        async with self._models_answer() as response:
            body = await bounded_body(response, MAX_MODEL_LIST_BYTES)
        if not response.is_success:
            raise refusal_from_http(response.status_code, body).as_error()
        if _is_web_page(response):
            raise LlmUnreachable(WEB_PAGE, final=False)
        try:
            return ModelList.model_validate_json(body)
        except ValidationError as error:
            raise LlmBroken("The endpoint's list of models could not be understood.") from error

    @contextlib.asynccontextmanager
    async def _models_answer(self) -> AsyncIterator[httpx.Response]:
        """Ask for the list of models; what comes is read inside the block, within its bound."""
        request = httpx.Request("GET", self._models_url, headers=self._headers)
        try:
            async with asyncio.timeout(MODELS_SECONDS), sent(self._transport, request) as response:
                self.reach.reached()
                yield response
        except (TimeoutError, httpx.ReadTimeout):
            raise LlmTimeout("The endpoint sent no list of models in time.") from None
        except httpx.TransportError as error:
            raise self.reach.lost(error) from error

    async def _answer(self, body_for: Callable[..., bytes], long_wait: LongWait) -> Completion:
        """Attempt until an answer comes, a failure is final or the time for retries is over."""
        give_up_at = unreached_until = math.inf
        failures = broken = 0
        while True:
            try:
                await self._wait_for_place()
                try:
                    give_up_at = min(give_up_at, time.monotonic() + self._retry.bound_seconds)
                    return await self._attempt(body_for)
                finally:
                    self._slots.release()
            except _TryAgain as again:
                error, after_seconds = again.error, again.after_seconds
            except (LlmBroken, LlmUnavailable) as broke:  # after the first byte of an answer
                if isinstance(broke, LlmUnreachable) and broke.final:
                    raise
                error, after_seconds = broke, None
                broken += 1
            failures += 1
            left = give_up_at - time.monotonic()
            if isinstance(error, LlmUnreachable):
                unreached_until = min(
                    unreached_until, time.monotonic() + self._retry.unreached_seconds
                )
                left = min(left, unreached_until - time.monotonic())
            if left <= 0 or broken == MAX_BROKEN_ANSWERS:
                raise error from None
            pause = min(left, self._retry.pause(failures, after_seconds))
            long_wait.begin()
            self.reach.note(error)
            LLM_RETRIES.inc()
            log.warning(
                "llm.retry",
                attempt=failures,
                delay_seconds=round(pause, 3),
                error=type(error).__name__,
                host=self.reach.host,
                reason=error.reason,
            )
            await asyncio.sleep(pause)

    async def _wait_for_place(self) -> None:
        """Take one of the places at the endpoint; counted is only who has to wait for it."""
        if not self._slots.locked():
            await self._slots.acquire()
            return
        with LLM_WAITING.track_inprogress():
            await self._slots.acquire()

    async def _attempt(self, body_for: Callable[..., bytes]) -> Completion:
        """Ask as streamed as the endpoint allows, and remember what it allows."""
        streaming = self._streaming
        while True:
            try:
                completion = await self._ask(body_for, streaming)
            except _Refused as refused:
                simpler = refused.refusal.simpler_streaming(streaming)
                if simpler is None:
                    raise refused.refusal.as_error() from None
                streaming = simpler
            else:
                self._streaming = max(streaming, self._streaming)
                return completion

    async def _ask(self, body_for: Callable[..., bytes], streaming: Streaming) -> Completion:
        attested = self._admission is not None and await self._admission.admit()
        sealing = await self._encryption.begin() if self._encryption is not None else None
        make_body = partial(body_for, streaming, attested=attested, sealing=sealing)
        # On a thread: each of perhaps thousands of messages is encrypted on its own.
        body = make_body() if sealing is None else await asyncio.to_thread(make_body)
        request = self._request(body, attested=attested, sealing=sealing)
        reader: AnswerReader = EventStream()
        response_sha256 = None
        asked_at = time.monotonic()
        try:
            async with (
                asyncio.timeout(self._total_seconds) as bound,
                sent(self._transport, request) as response,
            ):
                self.reach.reached()
                if not response.is_success:
                    raise await _refusal(response)
                if _is_web_page(response):
                    raise LlmUnreachable(WEB_PAGE, final=False)
                reader = _reader_for(response, sealing)
                response_sha256 = await _read(response, reader, bound, asked_at)
        except (TimeoutError, httpx.ReadTimeout):
            if not reader.done:
                raise LlmTimeout("The endpoint did not finish its answer in time.") from None
        except httpx.TransportError as error:
            if not reader.begun:
                lost = self.reach.lost(error)
                is_final = isinstance(lost, LlmUnreachable) and lost.final
                raise (lost if is_final else _TryAgain(lost)) from error
        completion = reader.completion()
        exchange = _exchange(reader.completion_id, body, response_sha256)
        return replace(completion, exchange=exchange)

    def _request(self, body: bytes, *, attested: bool, sealing: Sealing | None) -> httpx.Request:
        headers = dict(self._headers)
        if attested:
            # An endpoint that answers under another name adds a warning of its own to the answer,
            # which breaks its hash; it refuses instead.
            headers["x-no-aliasing"] = "true"
        if sealing is not None:
            headers |= sealing.headers
        return httpx.Request("POST", self._completions_url, headers=headers, content=body)


def _headers(endpoint: Endpoint) -> httpx.Headers:
    return httpx.Headers(
        {
            **endpoint.headers,
            "accept": "text/event-stream, application/json",
            "content-type": "application/json",
        }
    )


def _is_web_page(response: httpx.Response) -> bool:
    """Whether it is meant for a browser, as where an address lacks its `/v1`."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.startswith("text/html")


def _reader_for(response: httpx.Response, sealing: Sealing | None) -> AnswerReader:
    """An endpoint that cannot stream may answer with a whole document, whatever was asked."""
    if response.headers.get("content-type", "").startswith("application/json"):
        return WholeBody(sealing)
    return EventStream(sealing)


async def _read(
    response: httpx.Response, reader: AnswerReader, bound: asyncio.Timeout, asked_at: float
) -> str:
    """Feed the reader, and return the SHA-256 of the whole body, also of what it does not need."""
    digest = hashlib.sha256()
    pieces = response.aiter_raw()
    is_first = True
    async for piece in pieces:
        if is_first:
            LLM_FIRST_BYTE_SECONDS.observe(time.monotonic() - asked_at)
            is_first = False
        digest.update(piece)
        for start in range(0, len(piece), FED_AT_ONCE_BYTES):
            if start:
                await asyncio.sleep(0)  # many events at once keep the event loop from nobody
            reader.feed(piece[start : start + FED_AT_ONCE_BYTES])
        if reader.done:
            bound.reschedule(asyncio.get_running_loop().time() + AFTER_THE_END_SECONDS)
            break
    async for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()


def _exchange(completion_id: str, body: bytes, response_sha256: str | None) -> Exchange | None:
    """Return the hashes of what went and came; None where one of them, or the name, is missing."""
    if response_sha256 is None or not completion_id:
        return None
    return Exchange(completion_id, hashlib.sha256(body).hexdigest(), response_sha256)


async def _refusal(response: httpx.Response) -> Exception:
    refusal = refusal_from_http(response.status_code, await bounded_body(response, MAX_ERROR_BYTES))
    if not refusal.is_temporary:
        return _Refused(refusal)
    after = retry_after_seconds(response.headers.get("retry-after"), datetime.now(UTC))
    return _TryAgain(refusal.as_error(), after)
