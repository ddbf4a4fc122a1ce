"""Logs: dotted events with key/values from an allow-list, on stderr.

What a person wrote, numbers, names, ids and keys never reach a log: a key that is not on the
list is dropped, whatever its value, and an exception is logged by its type and the places it
came through, not by its text. Other libraries are silent below warning.
"""

import logging
import sys
import traceback
from typing import Final, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

LogFormat = Literal["auto", "json", "console"]

ALLOWED_KEYS: Final = frozenset(
    {
        "event", "level", "timestamp", "logger",
        "attempt", "attempts", "backend", "bytes", "code", "commit", "count", "deleted",
        "delay_seconds", "duration_ms", "error", "fate", "finish_reason", "kind", "limit", "model",
        "outcome", "part", "pid", "port", "reason", "running", "seconds", "setting", "signal",
        "state", "status", "tool", "turn", "version", "waiting", "where",
    }
)  # fmt: skip


def configure(*, level: str, log_format: LogFormat) -> None:
    """Set up logging for the whole process; called once at start.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        log_format: `json`, `console`, or `auto`: console on a terminal, else JSON.
    """
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer = structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        describe_exception,
        drop_unknown_keys,
    ]
    structlog.configure(
        processors=[*shared, renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=sys.stderr),
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[_name_the_library, *shared],
            processors=[renderer],
        )
    )
    logging.basicConfig(handlers=[handler], level=logging.WARNING, force=True)


def describe_exception(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and its places in the code, never its text.

    Of a group, the first that is no group: the others are mostly its consequences.
    """
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    exception = found[1] if isinstance(found, tuple) else found
    while isinstance(exception, BaseExceptionGroup):
        exception = exception.exceptions[0]
    if isinstance(exception, BaseException):
        event["error"] = type(exception).__name__
        event["where"] = [
            f"{frame.name}:{frame.lineno}"
            for frame in traceback.extract_tb(exception.__traceback__)[-8:]
        ]
    return event


def drop_unknown_keys(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Keep the allow-listed keys only."""
    return {key: value for key, value in event.items() if key in ALLOWED_KEYS}


def _name_the_library(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """A library's message may quote anything: only who spoke is kept."""
    record = event.get("_record")
    event["logger"] = record.name if record is not None else "unknown"
    event["event"] = "library.warning"
    return event
