"""Whether the endpoint can be reached, and for operators why not.

An endpoint that has not answered once since the start may have a wrong address; one that has is
only away for a while.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final
from urllib.parse import urlsplit

import httpx
import structlog

from bot.llm.errors import LlmContextTooLong, LlmError, LlmUnavailable, LlmUnreachable
from bot.llm.transport import HopelessConnection, PassingTrouble

SEE_BASE_URL: Final = "See LLM__BASE_URL."
ENDS_WITH_V1: Final = "LLM__BASE_URL ends with /v1 at most servers."
"""Said of every wrong address, and of no use where it does."""

PERHAPS_PLAIN: Final = "If it speaks plain HTTP, LLM__BASE_URL must begin with http://."
PERHAPS_TLS: Final = "If it speaks TLS, LLM__BASE_URL must begin with https://."

log = structlog.get_logger()


class Reach:
    """What is known of the way to an endpoint.

    Args:
        base_url: of the endpoint.

    Attributes:
        host: of the endpoint, with its port where the address names one; never what stands
            before an `@`.
        trouble: host and reason of the last failure; None after a request that was answered.
    """

    def __init__(self, base_url: str) -> None:
        url = urlsplit(base_url)
        self.host = url.netloc.rpartition("@")[2]
        self.trouble: str | None = None
        self._has_version = url.path.rstrip("/").endswith("/v1")
        self._is_plain = url.scheme == "http"
        self._reached = False

    def reached(self) -> None:
        """Take note that something there speaks HTTP."""
        self._reached = True

    def explained(self, error: LlmError) -> str:
        """Return where something went wrong, and what."""
        reason = error.reason
        if self._has_version:
            reason = reason.replace(ENDS_WITH_V1, SEE_BASE_URL)
        return f"{self.host}: {reason}"

    def note(self, error: LlmError) -> None:
        """Keep a failure as the present trouble."""
        self.trouble = self.explained(error)

    def failed(self, error: LlmError) -> None:
        """Keep and log why a request failed."""
        self.note(error)
        log.warning("llm.failed", error=type(error).__name__, host=self.host, reason=error.reason)

    @contextmanager
    def noting(self) -> Iterator[None]:
        """Keep and log why a request failed; forget it after one that was answered."""
        try:
            yield
        except LlmContextTooLong:
            raise  # says nothing about the endpoint
        except LlmError as error:
            self.failed(error)
            raise
        if self.trouble is not None:
            log.info("llm.answers_again", host=self.host)
        self.trouble = None

    def lost(self, error: httpx.TransportError) -> LlmUnavailable:
        """Return what it means that no HTTP answer came."""
        reason = str(error)
        if isinstance(error, HopelessConnection):
            return LlmUnreachable(f"{reason} {SEE_BASE_URL}", final=True)
        if self._reached or isinstance(error, PassingTrouble):
            return LlmUnavailable(reason)
        slow = isinstance(error, httpx.ConnectTimeout)
        advice = self._advice_on(error, slow=slow)
        return LlmUnreachable(f"{reason} {advice}", final=slow)

    def _advice_on(self, error: httpx.TransportError, *, slow: bool) -> str:
        """Guess the wrong protocol: TLS servers close plain connections, plain ones may wait."""
        if self._is_plain and isinstance(error, httpx.RemoteProtocolError | httpx.ReadError):
            return PERHAPS_TLS
        return PERHAPS_PLAIN if slow and not self._is_plain else SEE_BASE_URL
