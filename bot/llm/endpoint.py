"""Where models are asked."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bot import __version__


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Which model, where, and how hard it may be pushed.

    Attributes:
        base_url: up to and including `/v1`.
        model: the model's name there.
        api_key: bearer token; None sends none.
        timeout_seconds: without a byte from the endpoint.
        max_concurrency: requests in flight; more wait their turn.
    """

    base_url: str
    model: str
    api_key: str | None = field(default=None, repr=False)
    timeout_seconds: float = 120.0
    max_concurrency: int = 32

    @property
    def headers(self) -> Mapping[str, str]:
        """What every request to it says."""
        headers = {"accept-encoding": "identity", "user-agent": f"signal-tee-bot/{__version__}"}
        if self.api_key:
            headers["authorization"] = f"Bearer {self.api_key}"
        return headers

    def url(self, path: str) -> str:
        """Return the address of one of its services, such as `chat/completions`."""
        return f"{self.base_url.rstrip('/')}/{path}"
