"""The name, the line below it and the picture that people see of the bot, set from the settings.

What was set is remembered as a hash. So it is set once for each change of the settings, and not at
every start, and what an operator changes by hand stays until the settings change.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bot.backoff import Backoff
from bot.errors import (
    SettingsError,
    SignalError,
    SignalRateLimited,
    SignalTimeout,
    SignalUnavailable,
)
from bot.messaging.account import Profile
from bot.messaging.messenger import Messenger
from conversation_store.models import MAX_ATTACHMENT_BYTES
from conversation_store.store import ConversationStore

METADATA_NAME: Final = "profile"
RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=300.0)

PICTURES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"GIF8")
"""Magic bytes of the image formats that phones display. Anything else must never become the
public avatar."""

log = structlog.get_logger()


class ProfileKeeper:
    """Sets the profile once for each change of it.

    Args:
        channel: to set it by.
        metadata: to remember what was set.
        profile: what to set; an empty one leaves everything as it is.
        retry: between attempts while Signal is out of reach.
    """

    def __init__(
        self,
        channel: Messenger,
        metadata: ConversationStore,
        profile: Profile,
        *,
        retry: Backoff = RETRY,
    ) -> None:
        self._channel = channel
        self._metadata = metadata
        self._profile = profile
        self._retry = retry

    async def run(self) -> None:
        """Set the profile where it is another than what was set last, however long that takes."""
        wanted = _hash(self._profile)
        if self._profile == Profile() or await self._metadata.get_metadata(METADATA_NAME) == wanted:
            return
        if await self._is_set():
            await self._metadata.set_metadata(METADATA_NAME, wanted)
            log.info("profile.set")

    async def _is_set(self) -> bool:
        """Set the profile; False where the Signal side refuses. Twice does no harm."""
        try:
            await self._retry.retry(
                partial(self._channel.set_profile, self._profile),
                on=(SignalUnavailable, SignalTimeout, SignalRateLimited),
                asked=lambda error: error.retry_after_seconds,
            )
        except SignalError:
            log.warning(
                "profile.refused",
                setting="BOT__PROFILE_PICTURE",
                reason="signal-cli-rest-api sets a name and a picture only together: set both",
            )
            return False
        return True


def wanted_profile(*, name: str | None, about: str | None, picture: Path | None) -> Profile:
    """Return what the settings say.

    Raises:
        SettingsError: the picture cannot be read, or is not an image.
    """
    return Profile(name, about, None if picture is None else _read(picture))


def _read(picture: Path) -> bytes:
    try:
        with picture.open("rb") as file:
            data = file.read(MAX_ATTACHMENT_BYTES + 1)
    except OSError as error:
        reason = error.strerror or type(error).__name__
        raise SettingsError(f"BOT__PROFILE_PICTURE: cannot be read: {reason}") from None
    if len(data) > MAX_ATTACHMENT_BYTES or not data.startswith(PICTURES):
        raise SettingsError(
            "BOT__PROFILE_PICTURE: must be a PNG, JPEG, WebP or GIF file of at most 8 MiB"
        )
    return data


def _hash(profile: Profile) -> str:
    """Return a fingerprint of all parts, which tells a missing one from an empty one."""
    digest = hashlib.sha256()
    for part in (profile.name, profile.about, profile.picture):
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"-" if data is None else hashlib.sha256(data).digest())
    return digest.hexdigest()
