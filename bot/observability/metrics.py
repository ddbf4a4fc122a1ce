"""Every metric of the program in one place. No label says anything about a person."""

from prometheus_client import Counter, Gauge, Histogram, generate_latest

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)

FRAMES = Counter("signal_frames", "Frames from Signal by kind", ["kind"])
INTAKE = Counter("intake_messages", "Messages by what became of them at the door", ["fate"])
SIGNAL_CONNECTED = Gauge("signal_connected", "1 while messages can come in and go out")
SIGNAL_RECONNECTS = Counter("signal_reconnects", "Connections to the Signal side that were lost")
SENDS = Counter("signal_sends", "Messages to Signal by outcome of the attempt", ["outcome"])
TURNS = Counter("turns", "Finished turns by outcome", ["outcome"])
TURN_SECONDS = Histogram("turn_seconds", "From storing a message to its answer", buckets=_SECONDS)
TURN_ROUNDS = Histogram(
    "turn_rounds", "How often the model called tools in a turn", buckets=(0, 1, 2, 3, 5, 8, 13, 100)
)
TURN_TOKENS = Counter("turn_tokens", "Tokens of turns with and without tools", ["tools", "kind"])
RUNNING_TURNS = Gauge("running_turns", "Turns in progress")
WAITING_JOBS = Gauge("waiting_jobs", "Messages that wait in a mailbox")
LLM_REQUESTS = Counter("llm_requests", "Requests to the model by outcome", ["outcome"])
LLM_RETRIES = Counter("llm_retries", "Requests to the model that were tried again")
LLM_TOKENS = Counter("llm_tokens", "Tokens as the endpoint counted them", ["kind"])
TOOL_CALLS = Counter("tool_calls", "Tool calls by tool and outcome", ["tool", "outcome"])
TOOL_SECONDS = Histogram("tool_seconds", "Duration of tool calls", ["tool"], buckets=_SECONDS)
SIGNATURES = Counter("answer_signatures", "Signatures of answers by what they said", ["outcome"])
MODEL_VERIFICATIONS = Counter(
    "model_verifications", "Verifications of the model by what came out", ["outcome"]
)
MODEL_VERIFIED_UNTIL = Gauge(
    "model_verified_until_seconds", "Unix time at which the model's proof expires, 0 without one"
)
APPROVALS = Counter("approvals", "Questions before calls with side effects", ["outcome"])


def exposition() -> bytes:
    """Return all metrics in Prometheus's text format."""
    return generate_latest()
