"""The client of one model's endpoint: one request in, one whole answer out.

An endpoint that has not answered once since the start may have a wrong address, so the client
retries for a few seconds only. Otherwise it retries for as long as `RetryPolicy` says.

The answer is streamed if the endpoint can stream, because that distinguishes a silent endpoint from
a slow one. Only whole answers leave the client, so it can also retry after an answer broke off. It
does so only a few times, because the model works for each.
"""

import asyncio
import contextlib
import hashlib
import math
import random
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Annotated, Final, Literal, Self, TypeVar
from urllib.parse import urlsplit

import httpx2
import structlog
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from bot.backoff import Backoff
from bot.config.llm import LlmSettings
from bot.llm.api import (
    BYTE_ORDER_MARK,
    UNREADABLE,
    Answer,
    Api,
    Asked,
    Block,
    ListedModel,
    Parameter,
    Sealing,
    parsed_json,
)
from bot.llm.errors import (
    LlmBroken,
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmTimeout,
    LlmUnavailable,
    LlmUnreachable,
)
from bot.llm.messages import Completion, ModelRequest
from bot.llm.openai import OpenAi
from bot.llm.refusals import WEB_PAGE, refusal_from_http
from bot.observability.metrics import (
    LLM_FIRST_BYTE_SECONDS,
    LLM_REQUESTS,
    LLM_RETRIES,
    LLM_SECONDS,
    LLM_TOKENS,
    LLM_WAITING,
)
from conversation_store.models import Message, NewExchange
from tools import ledger
from tools.base import ToolSpec
from tools.http import (
    AiohttpTransport,
    HopelessConnection,
    PassingTrouble,
    Request,
    Response,
    bounded_body,
    new_tls_context,
)

if TYPE_CHECKING:
    from conversation_store.store import ConversationStore

log = structlog.get_logger()

AVOIDED: Final = Backoff(first_seconds=15.0, longest_seconds=300.0)
"""How long to avoid an endpoint after one failure, two, ..."""

SEE_BASE_URL: Final = "See LLM__BASE_URL."
PERHAPS_PLAIN: Final = "If it speaks plain HTTP, LLM__BASE_URL must begin with http://."
PERHAPS_TLS: Final = "If it speaks TLS, LLM__BASE_URL must begin with https://."


@dataclass(frozen=True, slots=True)
class RetryPolicy(Backoff):
    """How long and how often a request is tried again.

    Attributes:
        bound_seconds: from the first attempt to the start of the last one.
        unreached_seconds: the same from the first failure, at an endpoint that has never answered:
            its address may be wrong, or its server is just starting.
        silent_seconds: how long the model may say nothing until the waiting person is told.
        answer_seconds: time limit of one attempt, from the request to the last byte of its answer.
    """

    first_seconds: float = 0.5
    longest_seconds: float = 10.0
    bound_seconds: float = 150.0
    unreached_seconds: float = 5.0
    silent_seconds: float = 20.0
    answer_seconds: float = 600.0

    def pause(self, failures: int, retry_after_seconds: float | None) -> float:
        """Return the seconds to wait after some failures; jitter spreads many clients."""
        if retry_after_seconds is None:
            return self.seconds(failures)
        return retry_after_seconds + random.uniform(0, self.first_seconds)  # noqa: S311  # no secret


class Reach:
    """Knows whether an endpoint can be reached.

    Attributes:
        host: with the port if the address names one; never the part before an `@`.
        trouble: host and reason of the last failure; None after an answered request.
        speaks_http: whether the address has answered in HTTP.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        self.host = url.netloc.rpartition("@")[2]
        self.trouble: str | None = None
        self._is_plain = url.scheme == "http"
        self.speaks_http = False
        self._failures = 0
        self._avoided_until = -math.inf

    @property
    def is_avoided(self) -> bool:
        """Whether to prefer another endpoint, so that time-outs do not slow every turn."""
        return time.monotonic() < self._avoided_until

    def explained(self, error: LlmError) -> str:
        """Return the host with the reason of the error."""
        return f"{self.host}: {error.reason}"

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep and log the reason of a failure inside the block; success ends the trouble."""
        try:
            yield
        except LlmContextTooLong:
            raise  # this says nothing about the endpoint
        except LlmError as error:
            self.trouble = self.explained(error)
            name = type(error).__name__
            log.warning("llm.failed", error=name, host=self.host, reason=error.reason)
            if isinstance(error, LlmUnavailable | LlmTimeout):
                self._failures += 1
                self._avoided_until = time.monotonic() + AVOIDED.seconds(self._failures)
            raise
        if self.trouble is not None:
            log.info("llm.answers_again", host=self.host)
        self.trouble = None
        self._failures, self._avoided_until = 0, -math.inf

    def lost(self, error: httpx2.TransportError) -> LlmUnavailable:
        """Return the error for a request without any HTTP answer."""
        reason = str(error)
        if isinstance(error, HopelessConnection):
            return LlmUnreachable(f"{reason} {SEE_BASE_URL}", is_final=True)
        if self.speaks_http or isinstance(error, PassingTrouble):
            return LlmUnavailable(reason)
        # A TLS server closes a plain connection; a plain server may keep waiting for more bytes.
        advice, is_slow = SEE_BASE_URL, isinstance(error, httpx2.ConnectTimeout)
        if is_slow and not self._is_plain:
            advice = PERHAPS_PLAIN
        elif self._is_plain and isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
            advice = PERHAPS_TLS
        return LlmUnreachable(f"{reason} {advice}", is_final=is_slow)


TRUSTED_SECONDS: Final = 30 * 86_400.0
"""How long learnt facts count; after that, the server may have changed."""
MIN_CONTEXT_TOKENS: Final = 1_000
"""A model that reads less is useless, so smaller numbers count as mistakes."""


class Facts(BaseModel):
    """Facts about an endpoint and its model.

    Attributes:
        at: seconds since 1970, when the last of them was learnt.
        tool_calling: how to tell the model of tools; None until it is known.
        proven: whether the endpoint has ever been proven.
        context_tokens: how much the model reads; None until the endpoint has said so.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    at: float
    omitted: Annotated[frozenset[Parameter], Field(max_length=len(Parameter))] = frozenset()
    tool_calling: Literal["native", "prompt"] | None = None
    proven: bool = False
    context_tokens: Annotated[int | None, Field(ge=MIN_CONTEXT_TOKENS)] = None


@dataclass(eq=False)
class Learnt:
    """Keeps the facts about an endpoint and its model.

    Attributes:
        store: keeps them; None: they end with this process.
        clock: seconds since 1970.
        doubts: questions after which it was unclear whether the endpoint shows tools to the model.
    """

    store: "ConversationStore | None" = None
    key: str = ""
    _: KW_ONLY
    clock: Callable[[], float] = time.time
    facts: Facts = field(default=Facts(at=0.0), init=False)
    doubts: int = field(default=0, init=False)

    async def resume(self) -> None:
        """Load the facts of an earlier process, unless they are too old."""
        kept = await self.store.get_metadata(self.key) if self.store is not None else None
        if kept is None:
            return
        try:
            found = Facts.model_validate_json(kept)
        except ValidationError:
            return  # another version stored them
        if self.clock() - found.at < TRUSTED_SECONDS:
            self.facts = found

    async def note(self, **news: object) -> None:
        """Set some of the facts; store them if they have changed."""
        facts = self.facts.model_copy(update=news)
        if facts == self.facts:
            return
        self.facts = facts = facts.model_copy(update={"at": self.clock()})
        omitted = " ".join(sorted(facts.omitted))
        log.info("llm.learnt", kind=omitted, state=facts.tool_calling or "unknown")
        if self.store is not None:
            await self.store.set_metadata(self.key, facts.model_dump_json())


def retry_after_seconds(value: str, now: datetime | None = None) -> float | None:
    """Return the seconds of a `Retry-After` header, which may be a date; None if it is wrong."""
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


MODELS_SECONDS: Final = 15.0
CONTEXT_SECONDS: Final = 3.0
"""How long the first answer waits to learn how much the model reads."""
MODELS_CONNECTIONS: Final = 2
MAX_BROKEN_ANSWERS: Final = 3
"""Broken answers per request, because each costs as much as a whole one."""
MAX_ERROR_BYTES: Final = 64 * 1024
MAX_MODEL_LIST_BYTES: Final = 8 * 1024 * 1024
AFTER_THE_END_SECONDS: Final = 1.0
"""How long to wait after the answer for the end of the HTTP body, to reuse the connection."""
FED_AT_ONCE_BYTES: Final = 32 * 1024
"""Bytes parsed before other tasks may run; a socket may deliver several times as much."""

DEFAULT_RETRY: Final = RetryPolicy()

T = TypeVar("T")


def open_transport(llm: LlmSettings, *, tls: ssl.SSLContext | None = None) -> AiohttpTransport:
    """Return a transport for the endpoint; needs a running loop; the caller closes it.

    Args:
        tls: None trusts the usual certificate authorities; plain http gets no context at all.
    """
    if tls is None and urlsplit(llm.base_url).scheme == "https":
        tls = new_tls_context()
    return AiohttpTransport(
        max_connections=llm.max_concurrency + MODELS_CONNECTIONS,
        silence_seconds=llm.timeout_seconds,
        tls=tls,
    )


def api_of(llm: LlmSettings) -> Api:
    """Return the API of a model's endpoint; import only this API, to save memory."""
    match llm.dialect:
        case "openai":
            return OpenAi(llm)
        case "anthropic":
            from bot.llm.anthropic import Anthropic  # noqa: PLC0415

            return Anthropic(llm)
        case "bedrock":
            from bot.llm.bedrock import Bedrock  # noqa: PLC0415

            return Bedrock(llm)
        case "gemini":
            from bot.llm.gemini import Gemini  # noqa: PLC0415

            return Gemini(llm)
        case "ollama":
            from bot.llm.ollama import Ollama  # noqa: PLC0415

            return Ollama(llm)


@contextlib.asynccontextmanager
async def open_client(llm: LlmSettings) -> AsyncIterator["LlmClient"]:
    """Open a client for questions about the endpoint itself; it sends no conversations."""
    async with open_transport(llm) as transport:
        yield LlmClient(transport, llm)


@contextlib.contextmanager
def counted(asked_for: Literal["answer", "transcription", "speech"]) -> Iterator[None]:
    """Count the request inside the block by outcome; measure its time if it is answered."""
    began = time.monotonic()
    outcome = "cancelled"
    try:
        yield
        outcome = "ok"
        LLM_SECONDS.labels(asked_for).observe(time.monotonic() - began)
    except LlmError as error:
        outcome = error.outcome
        raise
    finally:
        LLM_REQUESTS.labels(asked_for, outcome).inc()


class LlmClient:
    """Asks the model of one endpoint; a question without a usable answer raises LlmError.

    Args:
        transport: sends the requests, see `open_transport`; its creator closes it.
        admit: called before a conversation is sent; returns whether the endpoint is proven, and
            raises LlmNotAttested if nothing may be sent.
        seal: returns fresh keys for one request; LlmNotAttested without a verified key. None
            sends conversations in the clear.
        learnt: facts about the endpoint, from earlier runs too.
    """

    def __init__(
        self,
        transport: AiohttpTransport,
        llm: LlmSettings,
        *,
        retry: RetryPolicy = DEFAULT_RETRY,
        admit: Callable[[], Awaitable[bool]] | None = None,
        seal: Callable[[], Awaitable[Sealing]] | None = None,
        learnt: Learnt | None = None,
    ) -> None:
        self._transport = transport
        self.api = api_of(llm)
        if seal is not None and not self.api.seals:
            raise ValueError("this API sends nothing encrypted")
        self._retry = retry
        self._admit = admit
        self._seal = seal
        self.encrypts = seal is not None
        self._slots = asyncio.Semaphore(llm.max_concurrency)
        self._learnt = learnt or Learnt()
        self.reach = Reach(llm.base_url)
        self._date = ""

    async def complete(
        self,
        messages: Sequence[Message],
        tools: Sequence[ToolSpec] = (),
        *,
        may_call: bool = True,
        still_trying: Callable[[], None] = lambda: None,
        cancelled: Callable[[], None] = lambda: None,
        patience: RetryPolicy | None = None,
    ) -> Completion:
        """Return the model's whole answer.

        Waits for one of `max_concurrency` places first. The wait is bounded, because each request
        is.

        Args:
            messages: see `ModelRequest`, as for `tools` and `may_call`.
            still_trying: called once if the model says nothing for `RetryPolicy.silent_seconds`.
            cancelled: called if the request is cancelled after it has got its place.
            patience: when to try this request again; None: as usual.
        """
        request = ModelRequest(messages, tools, may_call)
        with counted("answer"), self.reach.noting():
            completion = await self._answer(
                request, patience or self._retry, still_trying, cancelled
            )
        if completion.usage is not None:
            LLM_TOKENS.labels("prompt").inc(completion.usage.prompt_tokens)
            LLM_TOKENS.labels("completion").inc(completion.usage.completion_tokens)
        return completion

    @property
    def is_full(self) -> bool:
        """Whether the next request has to wait for a place."""
        return self._slots.locked()

    # Questions about the endpoint; asked once ------------------------------------------------

    async def models(self) -> tuple[str, ...]:
        """Return the ids of the endpoint's models; LlmError without a usable answer."""
        listed = await self.told(*self.api.listing())
        return tuple(model.id for model in listed)

    async def about(self) -> ListedModel | None:
        """Return the endpoint's facts about its model, or None for an unknown model."""
        try:
            return await self.told(*self.api.lookup())
        except LlmRejected as refused:
            if refused.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    async def context_tokens(self) -> int | None:
        """Return how many tokens the model reads; None if its endpoint gives no answer in time."""
        try:
            async with asyncio.timeout(CONTEXT_SECONDS):
                model = await self.about()
                if model is not None and model.at_llama_cpp:
                    return await self.told(*self.api.properties())
        except (LlmError, TimeoutError) as error:
            log.info("llm.not_learnt", error=type(error).__name__)
            return None
        return model.context_tokens if model is not None else None

    @property
    def time(self) -> datetime | None:
        """The `Date` header (RFC 9110, 6.6.1) of the last answer about the endpoint, or None."""
        try:
            return parsedate_to_datetime(self._date).astimezone(UTC)
        except ValueError:
            return None

    async def told(
        self,
        request: Request,
        read: Callable[[Block], T],
        *,
        seconds: float = MODELS_SECONDS,
        max_bytes: int = MAX_MODEL_LIST_BYTES,
    ) -> T:
        """Return the endpoint's answer to anything but a question to the model."""
        body = await self.fetched(request, seconds=seconds, max_bytes=max_bytes)
        _refuse_web_page(body)
        try:
            return read(parsed_json(body))
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            raise LlmBroken(UNREADABLE) from None  # the cause may quote people

    async def fetched(self, request: Request, *, seconds: float, max_bytes: int) -> bytes:
        """Return the body of an answer, cut off after `max_bytes`."""
        try:
            async with asyncio.timeout(seconds), self._transport.sent(request) as response:
                self._date = response.headers.get("date", "")
                await self._check(response)
                return await bounded_body(response, max_bytes)
        except (TimeoutError, httpx2.ReadTimeout):
            raise LlmTimeout("The endpoint did not answer in time.") from None
        except httpx2.TransportError as error:
            raise self.reach.lost(error) from error

    # Questions to the model -------------------------------------------------------------------

    async def _answer(
        self,
        request: ModelRequest,
        retry: RetryPolicy,
        still_trying: Callable[[], None],
        cancelled: Callable[[], None],
    ) -> Completion:
        """Retry until an answer comes, a failure is final or the time for retries is over."""
        give_up_at = unreached_until = math.inf
        failures = broken = 0
        with Silence(retry.silent_seconds, still_trying) as silence:
            while True:
                try:
                    async with self._place():
                        give_up_at = min(give_up_at, time.monotonic() + retry.bound_seconds)
                        try:
                            return await self._attempt(request, silence)
                        except asyncio.CancelledError:
                            cancelled()
                            raise
                except LlmError as failure:
                    error = failure
                failures += 1
                broken += not error.came_first
                left = give_up_at - time.monotonic()
                if isinstance(error, LlmUnreachable):
                    until = time.monotonic() + retry.unreached_seconds
                    unreached_until = min(unreached_until, until)
                    left = min(left, unreached_until - time.monotonic())
                if error.is_final or left <= 0 or broken == MAX_BROKEN_ANSWERS:
                    raise error
                pause = retry.pause(failures, error.after_seconds)
                await self._pause(failures, error, min(left, pause))

    @contextlib.asynccontextmanager
    async def _place(self) -> AsyncIterator[None]:
        """Hold a place at the endpoint; the metric counts only requests that have to wait."""
        waits = self._slots.locked()
        with LLM_WAITING.track_inprogress() if waits else contextlib.nullcontext():
            await self._slots.acquire()
        try:
            yield
        finally:
            self._slots.release()

    async def _pause(self, failures: int, error: LlmError, seconds: float) -> None:
        self.reach.trouble = self.reach.explained(error)
        LLM_RETRIES.inc()
        log.warning(
            "llm.retry",
            attempt=failures,
            delay_seconds=round(seconds, 3),
            error=type(error).__name__,
            host=self.reach.host,
            reason=error.reason,
        )
        await asyncio.sleep(seconds)

    async def _attempt(self, request: ModelRequest, silence: "Silence") -> Completion:
        """Ask; if the endpoint refuses parts of the request, leave them out and remember them."""
        omitted = self._learnt.facts.omitted
        while True:
            try:
                completion = await self._ask(request, omitted, silence)
            except LlmError as error:
                refused = error.refused_parts if error.came_first else ()
                part = next(
                    (one for one in Parameter if one in refused and one not in omitted), None
                )
                if part is None:
                    raise
                omitted |= {part}
            else:
                await self._learnt.note(omitted=omitted)
                return completion

    async def _ask(
        self, request: ModelRequest, omitted: frozenset[Parameter], silence: "Silence"
    ) -> Completion:
        attested = self._admit is not None and await self._admit()
        sealing = await self._seal() if self._seal is not None else None
        asked = Asked(request, omitted, attested, sealing)
        # If sealed, work on a thread: perhaps thousands of messages are encrypted one by one.
        put = self.api.put
        question = put(asked) if sealing is None else await asyncio.to_thread(put, asked)
        size, is_proven = len(question.content), attested or sealing is not None
        ledger.note("model", self.reach.host, self.api.model, size, is_proven=is_proven)
        request_sha256 = hashlib.sha256(question.content).hexdigest()
        sending = self._transport.sent(question)
        del question  # its body may be large, and need not wait for the answer
        answer: Answer | None = None
        response_sha256 = None
        asked_at = time.monotonic()
        try:
            async with (
                asyncio.timeout(self._retry.answer_seconds) as bound,
                sending as response,
            ):
                await self._check(response)
                answer = self.api.reader(sealing)
                response_sha256 = await _received(response, answer, bound, asked_at, silence)
        except (TimeoutError, httpx2.ReadTimeout):
            if answer is None or not answer.done:
                raise LlmTimeout("The endpoint did not finish its answer in time.") from None
        except httpx2.TransportError as error:
            if answer is None or not answer.begun:
                lost = self.reach.lost(error)
                lost.came_first = True
                raise lost from error
        completion = answer.completion()
        if response_sha256 is None or not answer.completion_id:
            return completion
        exchange = NewExchange(answer.completion_id, request_sha256, response_sha256)
        return replace(completion, exchange=exchange)

    async def _check(self, response: Response) -> None:
        """Raise the refusal in a response."""
        self.reach.speaks_http = True
        if not response.is_success:
            body = await bounded_body(response, MAX_ERROR_BYTES)
            wait = retry_after_seconds(response.headers.get("retry-after", ""))
            raise refusal_from_http(response.status, body, wait)


class Silence:
    """Tells a waiting person, once, that the model has said nothing for long.

    Bytes that only keep the connection open say nothing.
    """

    def __init__(self, seconds: float, tell: Callable[[], None]) -> None:
        self._seconds = seconds
        self._tell = tell
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._events = 0
        self._timer = self._loop.call_later(seconds, self._look)

    def __enter__(self) -> Self:
        """Return itself; the time is running already."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._timer.cancel()

    def heard(self, events: int) -> None:
        """Note how many events of an answer have come."""
        if events != self._events:
            self._events, self._heard_at = events, self._loop.time()

    def _look(self) -> None:
        left = self._heard_at + self._seconds - self._loop.time()
        if left > 0:
            self._timer = self._loop.call_later(left, self._look)
        else:
            self._tell()


def _refuse_web_page(begun: bytes) -> None:
    """Raise LlmUnreachable if an answer begins like a web page: perhaps the address lacks `/v1`."""
    if begun.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"<"):
        raise LlmUnreachable(WEB_PAGE, is_final=False)


async def _received(
    response: Response,
    answer: Answer,
    bound: asyncio.Timeout,
    asked_at: float,
    silence: Silence,
) -> str:
    """Feed the body to the answer; return the SHA-256 of all of it, even of unneeded bytes."""
    digest = hashlib.sha256()
    pieces = aiter(response)
    is_first = True
    async for piece in pieces:
        if is_first:
            LLM_FIRST_BYTE_SECONDS.observe(time.monotonic() - asked_at)
            is_first = False
            _refuse_web_page(piece)
        digest.update(piece)
        for start in range(0, len(piece), FED_AT_ONCE_BYTES):
            if start:
                await asyncio.sleep(0)  # many events at once must not block the event loop
            answer.feed(piece[start : start + FED_AT_ONCE_BYTES])
        silence.heard(answer.events)
        if answer.done:
            bound.reschedule(asyncio.get_running_loop().time() + AFTER_THE_END_SECONDS)
            break
    async for piece in pieces:
        digest.update(piece)
    return digest.hexdigest()
