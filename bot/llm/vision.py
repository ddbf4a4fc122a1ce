"""Whether the model sees images: as the operator says, as its endpoint says, or as it turns out."""

import time
from collections.abc import Callable
from typing import Final, Literal, Protocol

import structlog

from bot.llm.errors import LlmContextTooLong, LlmError, LlmRejected

REFUSED_SECONDS: Final = 3_600.0
"""How long a model that has refused an image counts as one that cannot see."""

_REFUSING: Final = frozenset({400, 404, 413, 415, 422})
"""Statuses of endpoints that take no images; OpenRouter's is 404, a small proxy's 413."""

VisionMode = Literal["auto", "on", "off"]

log = structlog.get_logger()


class ModelListing(Protocol):
    """Knows what a model takes. Implemented by `bot.llm.client.LlmClient`."""

    async def sees_images(self) -> bool | None:
        """Return whether it takes images, None where nobody says; raises LlmError."""
        ...


class Vision:
    """What is known of the model's eyes.

    Args:
        mode: `on` and `off` are the operator's word; `auto` asks the endpoint's list of models once
            and tries where that says nothing.
        listing: where that list is.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        mode: VisionMode,
        listing: ModelListing,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._mode = mode
        self._listing = listing
        self._clock = clock
        self._listed: bool | None = None
        self._asked = False
        self._blind_until = -REFUSED_SECONDS

    async def can_see(self) -> bool:
        """Return whether images are to be sent to the model; within the bound of a listing."""
        if self._mode != "auto":
            return self._mode == "on"
        if self._clock() < self._blind_until:
            return False
        if not self._asked:
            await self._ask()
        return self._listed is not False

    def refused(self) -> None:
        """Take note that the model has refused images, and the same request without them not.

        The operator's word stands against it.
        """
        self._blind_until = self._clock() + REFUSED_SECONDS
        log.warning("vision.refused", seconds=REFUSED_SECONDS)

    async def _ask(self) -> None:
        try:
            self._listed = await self._listing.sees_images()
        except LlmError as error:
            log.info("vision.unknown", error=type(error).__name__)
        else:
            self._asked = True


def may_be_about_images(error: LlmError) -> bool:
    """Whether a request with images may have been refused because of them."""
    if isinstance(error, LlmContextTooLong):
        return False
    return isinstance(error, LlmRejected) and error.status in _REFUSING
