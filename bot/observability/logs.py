"""Logs: dotted events with key/values from an allow-list, on stderr, one line each.

Messages, numbers, names, ids and secrets of people never reach a log:

- Keys that are not on the list are dropped.
- A chat or a person appears as a `LogId` or not at all.
- A value that is long or looks like an identifier is withheld.
- An exception is logged by its type and the places in the code that it passed, not by its text.
- A warning or error of a library is logged by the library's name.

The same holds for texts that Python itself would write to stderr (`capture_uncaught`).
"""

import logging
import re
import secrets
import sys
import threading
import time
import traceback
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from bot.errors import first_of

LogFormat = Literal["auto", "json", "console"]

ALLOWED_KEYS: Final = frozenset(
    {
        "event", "level", "timestamp", "logger",
        "attempt", "attempts", "backend", "bytes", "chat", "code", "commit", "count", "deleted",
        "delay_seconds", "duration_ms", "error", "fate", "finish_reason", "host", "kind", "limit",
        "model", "outcome", "part", "person", "pid", "port", "reason", "running", "seconds",
        "setting", "signal", "state", "status", "tool", "turn", "version", "waiting", "where",
    }
)  # fmt: skip
ID_KEYS: Final = frozenset({"chat", "person"})
WITHHELD: Final = "withheld"
MAX_VALUE_CHARACTERS: Final = 300
MAX_PLACES: Final = 8
SALT_NAME: Final = "log_salt"
SALT_BYTES: Final = 32
ID_BYTES: Final = 4
"""Enough to distinguish the chats of one bot, and short enough to search for."""

_EVENT: Final = re.compile(r"[a-z0-9_]+(\.[a-z0-9_]+)+")
_IDENTIFIER: Final = re.compile(
    r"\d{7,}"  # a phone number, a timestamp of a message, a safety number
    r"|[0-9a-f]{8}-[0-9a-f]{4}-"  # a uuid
    r"|[0-9a-z+/]{32,}",  # a key or a group's id, in hexadecimal or base64
    re.IGNORECASE,
)


class LogId(str):
    """Eight hexadecimal characters that stand for a chat or a person.

    A keyed hash (BLAKE2b, RFC 7693) whose key is a random salt of this install, kept in its store.
    The log shows which lines belong to one conversation, also across restarts. The salt keeps
    readers of the log from finding a number by hashing candidates.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Trouble:
    """A logged warning or error: its event, its error type or reason, and `time.monotonic`."""

    event: str
    kind: str
    at: float


class _Process:
    """State of the log of this process."""

    salt: bytes | None = None
    trouble: Trouble | None = None


def use_salt(known: str | None) -> str:
    """Use the install's salt, or a new one, and return it; before, chats and people have no ids."""
    salt = known or secrets.token_hex(SALT_BYTES)
    _Process.salt = bytes.fromhex(salt)
    return salt


def chat_id(chat: str) -> LogId | None:
    """Return the id of a chat, or None before `use_salt`."""
    return _log_id(chat, b"chat")


def person_id(person: str) -> LogId | None:
    """Return the id of a person, by ACI or number, or None before `use_salt`."""
    return _log_id(person, b"person")


def _log_id(value: str, kind: bytes) -> LogId | None:
    if _Process.salt is None:
        return None
    digest = blake2b(value.encode(), digest_size=ID_BYTES, key=_Process.salt, person=kind)
    return LogId(digest.hexdigest())


def configure(*, level: str, log_format: LogFormat) -> None:
    """Set up logging for the whole process; `auto` is JSON unless stderr is a terminal."""
    console = log_format == "console" or (log_format == "auto" and sys.stderr.isatty())
    renderer: Processor = (
        structlog.dev.ConsoleRenderer() if console else structlog.processors.JSONRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            _describe_exception,
            _drop_unknown_keys,
            withhold_values,
            structlog.processors.add_log_level,
            _remember_trouble,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            renderer,
        ],
        logger_factory=_StderrLogger,
        cache_logger_on_first_use=False,  # so that the level can change; costs 2 µs a line
    )
    set_level(level)
    logging.basicConfig(handlers=[_LibraryHandler()], level=logging.WARNING, force=True)


def set_level(level: str) -> None:
    """Log from this level on (`debug`, `info`, `warning`, `error`)."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(level))


def capture_uncaught() -> None:
    """Log warnings and uncaught exceptions, which Python would write to stderr with their text.

    Covers all threads and finalizers. asyncio's own logger covers exceptions of forgotten tasks.
    """
    sys.excepthook = lambda _, error, __: _log_uncaught(error)
    threading.excepthook = lambda failure: _log_uncaught(failure.exc_value)
    sys.unraisablehook = lambda failure: _log_uncaught(failure.exc_value)
    logging.captureWarnings(capture=True)
    logging.raiseExceptions = False


def last_trouble() -> Trouble | None:
    """Return the last warning or error, for `!status`."""
    return _Process.trouble


def _describe_exception(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace an exception by its type and its places in the code."""
    found = event.pop("exc_info", None)
    if found is True:
        found = sys.exc_info()
    exception = found[1] if isinstance(found, tuple) else found
    if isinstance(exception, BaseException):
        exception = first_of(exception)
        event["error"] = type(exception).__name__
        event["where"] = [
            f"{frame.f_code.co_name}:{line}"
            for frame, line in list(traceback.walk_tb(exception.__traceback__))[-MAX_PLACES:]
        ]
    return event


def _drop_unknown_keys(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    return {
        key: value
        for key, value in event.items()
        if key in ALLOWED_KEYS and (key not in ID_KEYS or isinstance(value, LogId))
    }


def withhold_values(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace values that are long, nested, or look like an identifier."""
    harmless = {key: _harmless(value) for key, value in event.items()}
    if not _EVENT.fullmatch(str(harmless["event"])):
        harmless["event"] = WITHHELD
    return harmless


def _harmless(value: object) -> object:
    if value is None or isinstance(value, bool | int | float | LogId):
        return value
    if isinstance(value, list | tuple):
        return [one if _is_harmless(one) else WITHHELD for one in value]
    return value if _is_harmless(value) else WITHHELD


def _is_harmless(value: object) -> bool:
    return (
        isinstance(value, str)
        and len(value) <= MAX_VALUE_CHARACTERS
        and _IDENTIFIER.search(value) is None
    )


def _remember_trouble(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    if event["level"] in {"warning", "error", "critical"}:
        kind = str(event.get("error") or event.get("reason") or "")
        _Process.trouble = Trouble(str(event["event"]), kind, time.monotonic())
    return event


class _StderrLogger:
    """Writes lines to stderr; if stderr is full or closed, the bot runs without a log."""

    def __init__(self, *_: object) -> None:
        """Ignore the arguments that structlog gives to every logger."""

    def msg(self, line: str) -> None:
        try:
            sys.stderr.write(f"{line}\n")
            sys.stderr.flush()
        except (OSError, ValueError):
            return

    debug = info = warning = error = critical = exception = msg


class _LibraryHandler(logging.Handler):
    """Logs the library's name and the exception, but not the message, which may quote anything."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger()
        say = log.error if record.levelno >= logging.ERROR else log.warning
        say("library.warning", logger=record.name, exc_info=record.exc_info)


def _log_uncaught(error: BaseException | None) -> None:
    structlog.get_logger().error("app.uncaught", exc_info=error)
