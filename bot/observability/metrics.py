"""Every metric of the program in one place. No label says anything about a person.

The values of labels are fixed, and every series exists from the start: Prometheus misses the first
event of a series that appears with it. Only tools have names from outside, a bounded number.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Final, TypeVar

from prometheus_client import (
    Counter,
    Gauge,
    Histogram,
    disable_created_metrics,
    generate_latest,
)

Metric = TypeVar("Metric", Counter, Gauge, Histogram)

PREFIX: Final = "signal_tee_bot"

MAX_TOOLS: Final = 64
"""Tools that are counted by name; a server may offer new ones all the time."""

_QUICK = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)
_TOOL_SECONDS = (0.01, 0.05, 0.25, 1, 2.5, 5, 10, 30, 60)

# Otherwise every counter and histogram has a second series with its creation time.
disable_created_metrics()  # type: ignore[no-untyped-call]


def _counter(name: str, documentation: str, **labels: Iterable[str]) -> Counter:
    return _with_series(Counter(name, documentation, labels, namespace=PREFIX), labels)


def _gauge(name: str, documentation: str, **labels: Iterable[str]) -> Gauge:
    return _with_series(Gauge(name, documentation, labels, namespace=PREFIX), labels)


def _histogram(
    name: str, documentation: str, buckets: Sequence[float], **labels: Iterable[str]
) -> Histogram:
    histogram = Histogram(name, documentation, labels, namespace=PREFIX, buckets=buckets)
    return _with_series(histogram, labels)


def _with_series(metric: Metric, labels: Mapping[str, Iterable[str]]) -> Metric:
    for values in product(*labels.values()) if labels else ():
        metric.labels(*values)
    return metric


# What comes in ------------------------------------------------------------------------------------

FRAMES = _counter(
    "signal_frames",
    "Frames from the Signal side by kind; what becomes of the messages among them is their fate",
    kind=(
        *("message", "edit", "reaction", "delete", "typing", "receipt", "timer", "group_update"),
        *("sync", "call", "story", "poll", "pin", "sticker", "own", "empty", "other_account"),
        *("other_chat", "untrusted_identity", "undecryptable", "error", "broken"),
    ),
)
INTAKE = _counter(
    "received_messages",
    "Messages, edits, deletions, reactions and votes by what became of them at the door",
    fate=(
        *("accepted", "urgent", "edit", "deletion", "reaction", "vote", "overheard", "duplicate"),
        *("not_admitted", "rate_limited", "mailbox_full", "loop", "overflow", "lost"),
    ),
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
    kind=("probe", "question", "sign_of_life", "text", "group", "file", "change"),
)
SIGNAL_RECONNECTS = _counter(
    "signal_connections_lost", "Connections to the Signal side that were lost"
)
SIGNAL_CLI_RESTARTS = _counter(
    "signal_cli_restarts",
    "Starts of the bot's own signal-cli (SIGNAL__URL=spawn:) after the first, by why: it had ended,"
    " or it lived and did not answer",
    reason=("ended", "silent"),
)

# What is answered ---------------------------------------------------------------------------------

TURNS = _counter(
    "turns",
    "Turns of the conversation by how they ended",
    outcome=("answered", "failed", "stopped", "bug"),
)
FIRST_SIGN_SECONDS = _histogram(
    "first_sign_seconds",
    "From receiving a message to the first sign of life that Signal took: typing, a reaction,"
    " a read receipt, progress, or the answer",
    _SECONDS,
)
ANSWER_SECONDS = _histogram(
    "answer_seconds",
    "From receiving a message to Signal having taken the whole answer",
    _SECONDS,
    kind=("conversation", "command"),
)
TURN_ROUNDS = _histogram(
    "turn_rounds", "How often the model called tools in a turn", (0, 1, 2, 3, 5, 8, 13, 100)
)
TURN_TOKENS = _counter(
    "turn_tokens",
    "Tokens of turns with and without tools",
    tools=("yes", "no"),
    kind=("prompt", "completion"),
)
RUNNING_TURNS = _gauge("running_turns", "Turns in progress")
SUSPENDED_TURNS = _gauge("suspended_turns", "Turns that wait on disk for people's answers")
WAITING_JOBS = _gauge(
    "waiting_jobs", "Work that waits in the mailboxes of all chats", lane=("ordinary", "urgent")
)
APPROVALS = _counter(
    "approvals",
    "Questions before calls with side effects, and how they were answered",
    outcome=("asked", "yes", "no", "silence"),
)

REMINDERS = _counter(
    "reminders",
    "Reminders whose time has come: said, said late, asked (a scheduled question), stopped after"
    " nothing came of it three times, or passed over because their person may not talk to the bot,"
    " or the bot may not write there",
    outcome=("on_time", "late", "asked", "stopped", "passed_over"),
)

# What goes out ------------------------------------------------------------------------------------

SENDS = _counter(
    "signal_sends",
    "Attempts to send a message, by outcome",
    outcome=(
        *("sent", "unavailable", "passed_over", "timeout", "rate_limited", "untrusted"),
        *("rejected", "failed"),
    ),
)
SEND_SECONDS = _histogram(
    "signal_send_duration_seconds", "Duration of sends that went out", _SECONDS
)
GIVEN_UP = _counter("messages_given_up", "Messages that nobody will get: they were tried for long")

# The model ----------------------------------------------------------------------------------------

LLM_REQUESTS = _counter(
    "llm_requests",
    "Answers and transcriptions asked of the model, by outcome; further attempts are retries",
    asked_for=("answer", "transcription"),
    outcome=(
        *("ok", "unavailable", "timeout", "broken", "rejected", "context_too_long"),
        *("unauthorized", "not_attested", "cancelled", "failed"),
    ),
)
LLM_SECONDS = _histogram(
    "llm_request_duration_seconds",
    "Duration of requests that were answered, with waiting for a place and with retries",
    _SECONDS,
    asked_for=("answer", "transcription"),
)
LLM_FIRST_BYTE_SECONDS = _histogram(
    "llm_first_byte_seconds", "From sending a request to the first byte of its answer", _SECONDS
)
LLM_ENDPOINT_UP = _gauge(
    "llm_endpoint_up",
    "Whether a model's endpoint answered when it was last asked",
    model=("default",),
)
LLM_WAITING = _gauge("llm_requests_waiting", "Requests that wait for one of the places")
LLM_RETRIES = _counter("llm_retries", "Requests to the model that were tried again")
LLM_FAILOVERS = _counter("llm_failovers", "Turns that went on with another model")
EARLY_REQUESTS = _counter(
    "llm_early_requests",
    "Requests made while a person might still be writing",
    outcome=("used", "discarded"),
)
LLM_TOKENS = _counter(
    "llm_tokens", "Tokens as the endpoint counted them", kind=("prompt", "completion")
)

# Tools --------------------------------------------------------------------------------------------

TOOL_CALLS = Counter(
    "tool_calls", "Tool calls by tool and outcome", ("tool", "outcome"), namespace=PREFIX
)
TOOL_SECONDS = Histogram(
    "tool_duration_seconds",
    "Duration of tool calls",
    ("tool",),
    namespace=PREFIX,
    buckets=_TOOL_SECONDS,
)

# What is proven -----------------------------------------------------------------------------------

MODEL_VERIFICATIONS = _counter(
    "model_verifications",
    "Verifications of the model by what came out",
    outcome=("verified", "failed", "unavailable", "not_offered"),
)
MODEL_VERIFIED_UNTIL = _gauge(
    "model_verified_until_timestamp_seconds",
    "Unix time at which the model's proof expires, 0 without one",
)
MODEL_PROOF_REQUIRED = _gauge(
    "model_proof_required", "1 where nothing is sent to a model that has proven nothing"
)
SIGNATURES = _counter(
    "answer_signatures",
    "Signatures of answers by what they said",
    outcome=("proven", "wrong", "missing", "unattested"),
)
WAITING_SIGNATURES = _gauge("waiting_signatures", "Answers whose signature is not checked yet")
IN_TEE = _gauge("in_tee", "1 where the bot's own machine makes quotes of closed hardware")
OWN_PROOFS = _counter(
    "own_proofs",
    "Proofs that the bot made of itself, by its own check of them",
    outcome=("passed", "incomplete", "failed", "not_made"),
)

# The store ----------------------------------------------------------------------------------------

COMMIT_SECONDS = _histogram("store_commit_duration_seconds", "From a batch to the disk", _QUICK)
COMMIT_WRITES = _histogram(
    "store_commit_writes", "Writes in one commit", (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
)
STORE_WRITABLE = _gauge("store_writable", "1 while the disk takes what is to be stored")
STORE_BYTES = _gauge(
    "store_bytes",
    "Size of the store: the file, what of it is free to be used again, and the log beside it",
    part=("file", "free", "log"),
)
DISK_FREE_BYTES = _gauge("store_disk_free_bytes", "What is left on the disk of the store")
UNANSWERED = _gauge("unanswered_messages", "Stored messages that owe an answer")
OLDEST_UNANSWERED_SECONDS = _gauge(
    "oldest_unanswered_message_seconds", "Age of the oldest of them, 0 without one"
)
UNSENT = _gauge("unsent_messages", "Messages of the bot that are stored and not sent yet")

# The process --------------------------------------------------------------------------------------

BUILD_INFO = Gauge(
    "build_info", "1, with what this bot was built of", ("version", "commit"), namespace=PREFIX
)
LOOP_LAG_SECONDS = _histogram(
    "event_loop_lag_seconds", "How late the event loop comes to what is due", _QUICK
)
TASKS = _gauge("tasks", "Tasks of the event loop")


class BoundedNames:
    """Names from outside as values of a label: after the first `most`, all others are `other`."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: set[str] = set()

    def label(self, name: str) -> str:
        """Return the label that counts a name."""
        if name not in self._known and len(self._known) >= self._most:
            return "other"
        self._known.add(name)
        return name


_tools = BoundedNames(MAX_TOOLS)


def count_commit(writes: int, seconds: float) -> None:
    """Count a commit of the store with its number of writes and its duration."""
    COMMIT_WRITES.observe(writes)
    COMMIT_SECONDS.observe(seconds)


def count_tool_call(tool: str, outcome: str, seconds: float) -> None:
    """Count a call of a tool that exists, not of one that the model made up."""
    label = _tools.label(tool)
    TOOL_CALLS.labels(label, outcome).inc()
    TOOL_SECONDS.labels(label).observe(seconds)


def exposition() -> bytes:
    """Return all metrics in Prometheus's text format."""
    return generate_latest()
