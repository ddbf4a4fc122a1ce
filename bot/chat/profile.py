"""The bot's public name, the line below it and its picture, taken from the settings.

The store keeps a hash of the last profile. So the bot sets the profile once for each change of the
settings, not at every start. Changes by hand stay until the settings change.
"""

import hashlib
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from bot.backoff import Backoff
from bot.errors import SettingsError
from bot.signal.account import Profile
from bot.signal.errors import SignalError, SignalRateLimited, SignalTimeout, SignalUnavailable
from bot.signal.messenger import Messenger
from conversation_store.models import MAX_ATTACHMENT_BYTES
from conversation_store.store import ConversationStore

METADATA_NAME: Final = "profile"
RETRY: Final = Backoff(first_seconds=1.0, longest_seconds=300.0)

PICTURES: Final = (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"RIFF", b"GIF8")
"""Magic bytes of the image formats that phones display. Anything else must never become the
public avatar."""

log = structlog.get_logger()


async def keep_profile(
    messenger: Messenger, store: ConversationStore, profile: Profile, retry: Backoff = RETRY
) -> None:
    """Set the profile if it has changed; retry until that succeeds. Never set an empty one."""
    picture = None if profile.picture is None else hashlib.sha256(profile.picture).hexdigest()
    wanted = hashlib.sha256(repr((profile.name, profile.about, picture)).encode()).hexdigest()
    if profile == Profile() or await store.get_metadata(METADATA_NAME) == wanted:
        return
    try:
        await retry.retry(
            partial(messenger.set_profile, profile),
            on=(SignalUnavailable, SignalTimeout, SignalRateLimited),
            asked=lambda error: error.retry_after_seconds,
        )
    except SignalError:
        log.warning(
            "profile.refused",
            setting="BOT__PROFILE_PICTURE",
            reason="signal-cli-rest-api sets a name and a picture only together: set both",
        )
        return
    await store.set_metadata(METADATA_NAME, wanted)
    log.info("profile.set")


def wanted_profile(*, name: str | None, about: str | None, picture: Path | None) -> Profile:
    """Return the profile from the settings; SettingsError if the picture is unreadable."""
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
