"""Every metric of the program. No label says anything about a person.

The values of labels are fixed, and every series exists from the start: Prometheus misses the first
event of a series that appears with it. Only tools have names from outside, a bounded number.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import product
from typing import TYPE_CHECKING, Final, TypeVar

import structlog
from prometheus_client import (
    PROCESS_COLLECTOR,
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

from conversation_store.connections import StoreError

if TYPE_CHECKING:
    from conversation_store.store import ConversationStore
    from conversation_store.upkeep import StoreSizes

log = structlog.get_logger()

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

PREFIX: Final = "signal_tee_bot"
LAG_EVERY_SECONDS: Final = 1.0
SIZES_SECONDS: Final = 2.0
"""How long a scrape waits for the store's sizes; after that it gets the previous ones."""
MAX_SERIES: Final = 1_024
"""Of one metric."""
MAX_TOOLS: Final = 64
"""Counted by name; a server may offer new tools all the time."""

_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOOL_SECONDS = (0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60)
_ROUNDS = (0, 1, 2, 3, 5, 8, 13, 100)
_WRITES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
_TOKENS = "prompt completion"
_REQUESTS = "answer transcription speech"

# Otherwise every counter and histogram has a second series with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]


def _counter(name: str, documentation: str, **labels: str) -> Counter:
    """Make a counter; the values of each label are separated by blanks."""
    return _with_series(Counter(name, documentation, labels, namespace=PREFIX), labels)


def _gauge(name: str, documentation: str, **labels: str) -> Gauge:
    return _with_series(Gauge(name, documentation, labels, namespace=PREFIX), labels)


def _histogram(name: str, documentation: str, buckets: Sequence[float], **labels: str) -> Histogram:
    histogram = Histogram(name, documentation, labels, namespace=PREFIX, buckets=buckets)
    return _with_series(histogram, labels)


def _with_series(metric: Metric, labels: Mapping[str, str]) -> Metric:
    for values in product(*map(str.split, labels.values())) if labels else ():
        metric.labels(*values)
    # Looking up a series takes longer than counting.
    metric.labels = lru_cache(maxsize=MAX_SERIES)(metric.labels)  # type: ignore[method-assign]
    return metric


# What comes in ------------------------------------------------------------------------------------

FRAMES = _counter(
    "signal_frames",
    "Frames from the Signal side by kind; the messages among them also count by their fate",
    kind="message edit reaction delete typing receipt timer group_update sync call story poll pin"
    " own empty other_account other_chat untrusted_identity undecryptable error broken",
)
INTAKE = _counter(
    "received_messages",
    "Messages, edits, deletions, reactions and votes by what the intake did with them",
    fate="accepted urgent edit deletion reaction vote overheard duplicate not_admitted"
    " rate_limited mailbox_full loop lost",
)
SIGNAL_QUEUE = _gauge("signal_queue_length", "Messages that were read and are not stored yet")
SIGNAL_CONNECTED = _gauge("signal_connected", "1 while messages can come in and go out")
SIGNAL_STUCK = _gauge(
    "signal_gateway_stuck",
    "1 after signal-cli-rest-api kept a request without an answer, until it answers again",
)
SIGNAL_UNANSWERED = _counter(
    "signal_gateway_unanswered",
    "Requests to signal-cli-rest-api that ran late and gave their place to the next",
    kind="probe question sign_of_life text group file change",
)
SIGNAL_RECONNECTS = _counter("signal_connections_lost", "Lost connections to the Signal side")
SIGNAL_CLI_AGE = _gauge(
    "signal_cli_age_days", "Days since the release of the signal-cli in use; -1 if it is unknown"
)
SIGNAL_CLI_RESTARTS = _counter(
    "signal_cli_restarts",
    "Restarts of the bot's own signal-cli (SIGNAL__URL=spawn:): it had ended or was silent",
    reason="ended silent",
)

# What is answered ---------------------------------------------------------------------------------

TURNS = _counter("turns", "Turns by how they ended", outcome="answered failed stopped bug")
FIRST_SIGN_SECONDS = _histogram(
    "first_sign_seconds",
    "From receiving a message to the first sign of life that Signal took: typing, a reaction,"
    " a read receipt, progress, or the answer",
    _SECONDS,
)
ANSWER_SECONDS = _histogram(
    "answer_seconds",
    "From receiving a message until Signal has the whole answer",
    _SECONDS,
    kind="conversation command",
)
TURN_ROUNDS = _histogram("turn_rounds", "Rounds of tool calls of a turn", _ROUNDS)
TURN_TOKENS = _counter(
    "turn_tokens", "Tokens of turns with and without tools", tools="yes no", kind=_TOKENS
)
RUNNING_TURNS = _gauge("running_turns", "Turns in progress")
SUSPENDED_TURNS = _gauge("suspended_turns", "Turns that wait on disk for people's answers")
WAITING_JOBS = _gauge("waiting_jobs", "Work in the queues of all chats", lane="ordinary urgent")
APPROVALS = _counter(
    "approvals", "Questions before side effects, by outcome", outcome="asked yes no other silence"
)
REMINDERS = _counter(
    "reminders",
    "Due reminders: said, said late, asked (a scheduled question), stopped after three failures,"
    " or passed over because their person may not talk to the bot or the bot may not write there",
    outcome="on_time late asked stopped passed_over",
)

# What goes out ------------------------------------------------------------------------------------

SENDS = _counter(
    "signal_sends",
    "Attempts to send a message, by outcome",
    outcome="sent unavailable passed_over timeout rate_limited unclear untrusted rejected failed",
)
SEND_SECONDS = _histogram("signal_send_duration_seconds", "Duration of successful sends", _SECONDS)
GIVEN_UP = _counter("messages_given_up", "Messages that the bot stopped trying to send")

# The model ----------------------------------------------------------------------------------------

LLM_REQUESTS = _counter(
    "llm_requests",
    "Answers, transcriptions and speech asked of models, by outcome; further attempts are retries",
    asked_for=_REQUESTS,
    outcome="ok unavailable timeout broken rejected context_too_long unauthorized not_attested"
    " cancelled failed",
)
LLM_SECONDS = _histogram(
    "llm_request_duration_seconds",
    "Duration of requests that were answered, with waiting for a place and with retries",
    _SECONDS,
    asked_for=_REQUESTS,
)
LLM_FIRST_BYTE_SECONDS = _histogram(
    "llm_first_byte_seconds", "From a request to the first byte of its answer", _SECONDS
)
LLM_ENDPOINT_UP = _gauge(
    "llm_endpoint_up", "1 if a model's endpoint answered the last probe", model="default"
)
LLM_WAITING = _gauge("llm_requests_waiting", "Requests that wait for one of the places")
LLM_RETRIES = _counter("llm_retries", "Requests to the model that were tried again")
LLM_FAILOVERS = _counter("llm_failovers", "Turns that went on with another model")
LLM_TOKENS = _counter("llm_tokens", "Tokens as the endpoint counted them", kind=_TOKENS)

# Tools --------------------------------------------------------------------------------------------

TOOL_CALLS = Counter(
    "tool_calls", "Tool calls by tool and outcome", ("tool", "outcome"), namespace=PREFIX
)
TOOL_SECONDS = Histogram(
    "tool_duration_seconds", "Duration of tool calls", ("tool",), PREFIX, buckets=_TOOL_SECONDS
)

# What is proven -----------------------------------------------------------------------------------

MODEL_VERIFICATIONS = _counter(
    "model_verifications",
    "Verifications of the model",
    outcome="verified failed unavailable not_offered",
)
MODEL_VERIFIED_UNTIL = _gauge(
    "model_verified_until_timestamp_seconds", "Unix time at which the model's proof expires, or 0"
)
MODEL_PROOF_REQUIRED = _gauge("model_proof_required", "1 if models without a proof get nothing")
SIGNATURES = _counter(
    "answer_signatures", "Signatures of answers", outcome="proven wrong missing unattested"
)
WAITING_SIGNATURES = _gauge("waiting_signatures", "Answers whose signature is not checked yet")
IN_TEE = _gauge("in_tee", "1 if the bot's own machine makes quotes of closed hardware")
OWN_PROOFS = _counter(
    "own_proofs", "Proofs of the bot itself", outcome="passed incomplete failed not_made"
)

# The store ----------------------------------------------------------------------------------------

COMMIT_SECONDS = _histogram("store_commit_duration_seconds", "From a batch to the disk", _QUICK)
COMMIT_WRITES = _histogram("store_commit_writes", "Writes in one commit", _WRITES)
STORE_WRITABLE = _gauge("store_writable", "1 while the disk accepts writes")
STORE_BYTES = _gauge(
    "store_bytes", "Size of the file, its free pages, and its log", part="file free log"
)
DISK_FREE_BYTES = _gauge("store_disk_free_bytes", "Free space on the disk of the store")
UNANSWERED = _gauge("unanswered_messages", "Stored messages that owe an answer")
OLDEST_UNANSWERED_SECONDS = _gauge(
    "oldest_unanswered_message_seconds", "Age of the oldest of them, 0 without one"
)
UNSENT = _gauge("unsent_messages", "Messages of the bot that are stored and not sent yet")

# The process --------------------------------------------------------------------------------------

BUILD_INFO = Gauge(
    "build_info", "1, with what this bot was built of", ("version", "commit"), namespace=PREFIX
)
LOOP_LAG_SECONDS = _histogram("event_loop_lag_seconds", "Delay of due callbacks", _QUICK)
TASKS = _gauge("tasks", "Tasks of the event loop")


_counted_tools: Final[set[str]] = set()


def count_commit(writes: int, seconds: float) -> None:
    """Count a commit of the store with its number of writes and its duration."""
    COMMIT_WRITES.observe(writes)
    COMMIT_SECONDS.observe(seconds)


def count_tool_call(tool: str, outcome: str, seconds: float) -> None:
    """Count a call; `tool` must exist, because models invent names."""
    if tool not in _counted_tools and len(_counted_tools) >= MAX_TOOLS:
        tool = "other"
    else:
        _counted_tools.add(tool)
    TOOL_CALLS.labels(tool, outcome).inc()
    TOOL_SECONDS.labels(tool).observe(seconds)


async def measure_lag() -> None:
    """Measure every second, until cancelled, how late the event loop is."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_EVERY_SECONDS
        await asyncio.sleep(LAG_EVERY_SECONDS)
        LOOP_LAG_SECONDS.observe(max(0.0, loop.time() - due))


def process_figures() -> Mapping[str, float]:
    """Return the figures of this process by prometheus_client's names; empty without /proc."""
    samples = (sample for metric in PROCESS_COLLECTOR.collect() for sample in metric.samples)
    return {sample.name: sample.value for sample in samples}


async def measured(store: "ConversationStore | None" = None) -> bytes:
    """Return all metrics as Prometheus's text, after measuring tasks and the store's sizes."""
    TASKS.set(len(asyncio.all_tasks()))
    if store is not None:
        try:
            async with asyncio.timeout(SIZES_SECONDS):
                _show(await store.upkeep.sizes())
        except (StoreError, TimeoutError) as error:
            log.warning("health.sizes_unknown", error=type(error).__name__)
    # In a thread: with many tools this takes milliseconds, which would hold up the event loop.
    return await asyncio.to_thread(generate_latest)


def _show(sizes: "StoreSizes") -> None:
    STORE_BYTES.labels("file").set(sizes.file_bytes)
    STORE_BYTES.labels("free").set(sizes.free_bytes)
    STORE_BYTES.labels("log").set(sizes.log_bytes)
    DISK_FREE_BYTES.set(sizes.disk_free_bytes)
    UNANSWERED.set(sizes.waiting_messages)
    UNSENT.set(sizes.waiting_sends)
    WAITING_SIGNATURES.set(sizes.waiting_signatures)
    oldest = sizes.oldest_waiting_at
    age = 0.0 if oldest is None else time.time() - oldest / 1_000
    OLDEST_UNANSWERED_SECONDS.set(max(0.0, age))
