"""The model's endpoint: one request in, one whole answer out.

An endpoint that has not answered once since the start may have a wrong address: it is tried for a
few seconds only. One that has answered, or says that it is busy, is worth the patience of
`RetryPolicy`.

The answer is streamed where the endpoint can stream, so that a silent endpoint is told from a
slow one, and only a whole answer leaves. So a request may be tried again also after an answer has
begun and broken off; only a few times, as the model has worked for each.
dialects: bot.llm.dialects; errors: bot.llm.errors.
"""

import asyncio
import contextlib
import math
import ssl
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import lru_cache
from http import HTTPStatus
from typing import Final, TypeVar
from urllib.parse import urlsplit

import httpx
import structlog

from bot.http_client import new_tls_context
from bot.llm.attested import Admission, Encryption
from bot.llm.counting import counted
from bot.llm.dialect import AnswerReader, Asked, Dialect, ListedModel, Parameter, WireRequest
from bot.llm.dialects.openai.dialect import OpenAi
from bot.llm.endpoint import Endpoint
from bot.llm.errors import (
    LlmBroken,
    LlmError,
    LlmRejected,
    LlmTimeout,
    LlmUnavailable,
    LlmUnreachable,
)
from bot.llm.failures import EndpointRefusal, refusal_from_http
from bot.llm.learnt import Learnt
from bot.llm.messages import Completion, ModelRequest, ToolSpec
from bot.llm.reach import ENDS_WITH_V1, Reach
from bot.llm.receiving import exchange_of, received
from bot.llm.retry import LongWait, RetryPolicy, retry_after_seconds
from bot.llm.roles import without_system_role
from bot.llm.transport import AiohttpTransport, bounded_body, sent
from bot.observability.metrics import (
    LLM_RETRIES,
    LLM_TOKENS,
    LLM_WAITING,
)
from conversation_store.models import Message, Role

TOTAL_SECONDS: Final = 600.0
"""One answer from the request to its last byte, however steadily it trickles."""
MODELS_SECONDS: Final = 15.0
MODELS_CONNECTIONS: Final = 2
MAX_BROKEN_ANSWERS: Final = 3
"""How many answers may break off or make no sense; each costs what a whole one does."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_MODEL_LIST_BYTES: Final = 8 * 1024 * 1024

DEFAULT_RETRY: Final = RetryPolicy()

WEB_PAGE: Final = f"It answers with a web page. {ENDS_WITH_V1}"

__all__ = ["Endpoint", "LlmClient", "open_transport"]

Said = TypeVar("Said")

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
    """Asks the model of one endpoint.

    Args:
        transport: sends the requests, see `open_transport`; closed by whoever made it. There is no
            `httpx.AsyncClient` around it: its redirects, cookies and hooks are not for an endpoint,
            and cost 0.4 ms a request.
        endpoint: which model, and where.
        dialect: what is spoken there; None: OpenAI's.
        retry: when to try again.
        total_seconds: bound of one attempt, from the request to the last byte.
        admission: asked before everything that is sent of a conversation; None admits all.
        encryption: of what is said, to the model; None sends it as it is.
        learnt: what the endpoint refuses, from earlier runs too.

    Attributes:
        reach: what is known of the way to the endpoint.
    """

    def __init__(
        self,
        transport: httpx.AsyncBaseTransport,
        endpoint: Endpoint,
        dialect: Dialect | None = None,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        total_seconds: float = TOTAL_SECONDS,
        admission: Admission | None = None,
        encryption: Encryption | None = None,
        learnt: Learnt | None = None,
    ) -> None:
        self._transport = transport
        self._dialect = dialect or OpenAi(endpoint)
        if encryption is not None and not self._dialect.seals:
            raise ValueError("this dialect sends nothing encrypted")
        self._retry = retry
        self._total_seconds = total_seconds
        self._admission = admission
        self._encryption = encryption
        self._slots = asyncio.Semaphore(endpoint.max_concurrency)
        self._learnt = learnt or Learnt()
        self.reach = Reach(endpoint.base_url)

    @property
    def busy(self) -> bool:
        """Whether another request would have to wait for a place at the endpoint."""
        return self._slots.locked()

    def use_key(self, api_key: str | None) -> None:
        """Take another key, from the next request on."""
        self._dialect.use_key(api_key)

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        may_call: bool = True,
        still_trying: Callable[[], None] = _tell_nobody,
        patience: RetryPolicy | None = None,
    ) -> Completion:
        """Return the model's whole answer.

        Waits for its turn among `max_concurrency` requests first; that wait ends because each of
        those has a bound.

        Args:
            messages: the conversation, oldest first.
            tools: what the model is told that it may call, see `ModelRequest`.
            may_call: whether it may call them in this answer.
            still_trying: called once when the endpoint has been tried again for so long that
                whoever waits is to be told.
            patience: when to try this request again; None: as all others.

        Raises:
            LlmError: no usable answer, see bot.llm.errors for the kinds.
        """
        request = ModelRequest(messages, tools, may_call)
        retry = patience or self._retry
        long_wait = LongWait(retry.silent_seconds, still_trying)
        with counted("answer"), self.reach.noting(), long_wait:
            completion = await self._answer(request, retry, long_wait)
        if completion.usage is not None:
            LLM_TOKENS.labels("prompt").inc(completion.usage.prompt_tokens)
            LLM_TOKENS.labels("completion").inc(completion.usage.completion_tokens)
        return completion

    async def models(self) -> tuple[str, ...]:
        """Return the ids of the models that the endpoint offers; tried once.

        Raises:
            LlmError: no usable answer.
        """
        body = await self._told(self._dialect.listing())
        return tuple(model.id for model in _understood(self._dialect.listed, body))

    async def about(self) -> ListedModel | None:
        """Return what the endpoint says that its model can do; tried once.

        None: it does not know the model.

        Raises:
            LlmError: no usable answer.
        """
        try:
            body = await self._told(self._dialect.lookup())
        except LlmRejected as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return None
            raise
        return _understood(self._dialect.looked_up, body)

    async def sees_images(self) -> bool | None:
        """Return whether the endpoint says that its model takes images; tried once.

        None: it says nothing about that.

        Raises:
            LlmError: no usable answer.
        """
        model = await self.about()
        return model.sees_images if model is not None else None

    async def time(self) -> datetime | None:
        """Return what time it is at the endpoint, by its answer's `Date` (RFC 9110, 6.6.1).

        None: it does not say. Whole seconds; asked once.

        Raises:
            LlmError: no usable answer.
        """
        async with self._asked_about(self._dialect.listing()) as response:
            said = response.headers.get("date", "")
        try:
            return parsedate_to_datetime(said).astimezone(UTC)
        except ValueError:
            return None

    async def _told(self, request: WireRequest) -> bytes:
        """Return what the endpoint answers to a question about itself."""
        async with self._asked_about(request) as response:
            body = await bounded_body(response, MAX_MODEL_LIST_BYTES)
        if not response.is_success:
            raise refusal_from_http(response.status_code, body).as_error()
        if _is_web_page(response):
            raise LlmUnreachable(WEB_PAGE, final=False)
        return body

    @contextlib.asynccontextmanager
    async def _asked_about(self, request: WireRequest) -> AsyncIterator[httpx.Response]:
        """Ask the endpoint about itself; what comes is read inside the block, within its bound."""
        try:
            async with (
                asyncio.timeout(MODELS_SECONDS),
                sent(self._transport, _http(request)) as response,
            ):
                self.reach.reached()
                yield response
        except (TimeoutError, httpx.ReadTimeout):
            raise LlmTimeout("The endpoint sent no list of models in time.") from None
        except httpx.TransportError as error:
            raise self.reach.lost(error) from error

    async def _answer(
        self, request: ModelRequest, retry: RetryPolicy, long_wait: LongWait
    ) -> Completion:
        """Attempt until an answer comes, a failure is final or the time for retries is over."""
        give_up_at = unreached_until = math.inf
        failures = broken = 0
        while True:
            try:
                await self._wait_for_place()
                try:
                    give_up_at = min(give_up_at, time.monotonic() + retry.bound_seconds)
                    return await self._attempt(request)
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
                unreached_until = min(unreached_until, time.monotonic() + retry.unreached_seconds)
                left = min(left, unreached_until - time.monotonic())
            if left <= 0 or broken == MAX_BROKEN_ANSWERS:
                raise error from None
            pause = min(left, retry.pause(failures, after_seconds))
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

    async def _attempt(self, request: ModelRequest) -> Completion:
        """Ask without what the endpoint refuses, and remember what that is."""
        omitted = self._learnt.omitted
        while True:
            asked = _asked(request, omitted)
            try:
                completion = await self._ask(asked)
            except _Refused as refused:
                parameter = refused.refusal.refused(self._refusable(asked))
                if parameter is None:
                    raise refused.refusal.as_error() from None
                omitted |= {parameter}
            else:
                await self._learnt.omit(omitted)
                return completion

    def _refusable(self, asked: Asked) -> Collection[Parameter]:
        """Return what an endpoint may refuse of this request."""
        refusable = self._dialect.parameters(asked)
        if any(message.role is Role.SYSTEM for message in asked.request.messages):
            return {*refusable, Parameter.SYSTEM_ROLE}
        return refusable

    async def _ask(self, asked: Asked) -> Completion:
        attested = self._admission is not None and await self._admission.admit()
        sealing = await self._encryption.begin() if self._encryption is not None else None
        asked = replace(asked, attested=attested, sealing=sealing)
        # On a thread: each of perhaps thousands of messages is encrypted on its own.
        wire = self._dialect.put
        request = wire(asked) if sealing is None else await asyncio.to_thread(wire, asked)
        reader: AnswerReader | None = None
        response_sha256 = None
        asked_at = time.monotonic()
        try:
            async with (
                asyncio.timeout(self._total_seconds) as bound,
                sent(self._transport, _http(request)) as response,
            ):
                self.reach.reached()
                if not response.is_success:
                    raise await self._refusal(response, asked)
                if _is_web_page(response):
                    raise LlmUnreachable(WEB_PAGE, final=False)
                reader = self._dialect.reader(response.headers.get("content-type", ""), sealing)
                response_sha256 = await received(response, reader, bound, asked_at)
        except (TimeoutError, httpx.ReadTimeout):
            if reader is None or not reader.done:
                raise LlmTimeout("The endpoint did not finish its answer in time.") from None
        except httpx.TransportError as error:
            if reader is None or not reader.begun:
                lost = self.reach.lost(error)
                is_final = isinstance(lost, LlmUnreachable) and lost.final
                raise (lost if is_final else _TryAgain(lost)) from error
        completion = reader.completion()
        exchange = exchange_of(reader.completion_id, request.body or b"", response_sha256)
        return replace(completion, exchange=exchange)

    async def _refusal(self, response: httpx.Response, asked: Asked) -> Exception:
        body = await bounded_body(response, MAX_ERROR_BYTES)
        refusal = refusal_from_http(response.status_code, body)
        if not refusal.is_temporary or refusal.refused(self._refusable(asked)):
            return _Refused(refusal)
        after = retry_after_seconds(response.headers.get("retry-after"), datetime.now(UTC))
        return _TryAgain(refusal.as_error(), after)


def _asked(request: ModelRequest, omitted: frozenset[Parameter]) -> Asked:
    """Return a request without what the endpoint refuses."""
    if Parameter.SYSTEM_ROLE in omitted:
        request = replace(request, messages=without_system_role(request.messages))
    return Asked(request, omitted)


_parsed = lru_cache(maxsize=64)(httpx.URL)
"""An endpoint's few addresses; parsing one takes as long as a line of its answer."""


def _http(request: WireRequest) -> httpx.Request:
    method = "GET" if request.body is None else "POST"
    url = _parsed(request.url)
    return httpx.Request(method, url, headers=request.headers, content=request.body)


def _understood(read: Callable[[bytes], Said], body: bytes) -> Said:
    try:
        return read(body)
    except (ValueError, RecursionError) as error:
        raise LlmBroken("The endpoint's list of models could not be understood.") from error


def _is_web_page(response: httpx.Response) -> bool:
    """Whether it is meant for a browser, as where an address lacks its `/v1`."""
    content_type: str = response.headers.get("content-type", "")
    return content_type.startswith("text/html")
