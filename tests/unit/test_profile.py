"""The bot's profile: set once for each change, with a real store and a Signal side in memory."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest
import structlog

from bot.backoff import Backoff
from bot.chat.profile import keep_profile, wanted_profile
from bot.errors import SettingsError
from bot.signal.account import Profile
from bot.signal.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from conversation_store.models import MAX_ATTACHMENT_BYTES
from conversation_store.store import open_store
from tests.fakes.partial_messenger import PartialMessenger

PNG: Final = b"\x89PNG\r\n\x1a\n and more"
PROFILE: Final = Profile("Tee", "I answer.", PNG)
SOON: Final = Backoff(0.001, 0.002)


class Phone(PartialMessenger):
    """Shows what was set; fails as often as it is told to."""

    def __init__(self, failures: Sequence[SignalError] = ()) -> None:
        self.shown: list[Profile] = []
        self._failures = list(failures)

    async def set_profile(self, profile: Profile) -> None:
        if self._failures:
            raise self._failures.pop(0)
        self.shown.append(profile)


async def start(store: Path, phone: Phone, profile: Profile) -> None:
    """Apply the profile as a start of the bot does."""
    async with open_store(store) as facts:
        await keep_profile(phone, facts, profile, SOON)


async def test_a_profile_is_set_once_and_again_when_the_settings_change(tmp_path: Path) -> None:
    phone, store = Phone(), tmp_path / "store.db"
    await start(store, phone, PROFILE)
    await start(store, phone, PROFILE)
    assert phone.shown == [PROFILE]
    for changed in (Profile("Coffee", "I answer.", PNG), Profile("Coffee", None, PNG), PROFILE):
        await start(store, phone, changed)
        assert phone.shown[-1] == changed
    assert len(phone.shown) == 4


async def test_profile_is_retried_until_signal_can_be_reached(tmp_path: Path) -> None:
    phone = Phone(
        [
            SignalUnavailable(""),
            SignalTimeout(""),
            SignalRateLimited("", retry_after_seconds=0.001),
            SignalUnavailable(""),
        ]
    )
    await start(tmp_path / "store.db", phone, PROFILE)
    assert phone.shown == [PROFILE]


async def test_a_rate_limit_is_waited_for_as_long_as_signal_asks(tmp_path: Path) -> None:
    phone = Phone([SignalRateLimited("", retry_after_seconds=3_600.0)])
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.1):
            await start(tmp_path / "store.db", phone, PROFILE)
    assert phone.shown == []


async def test_a_refusal_is_logged_and_retried_at_the_next_start(tmp_path: Path) -> None:
    phone, name_only = Phone([SignalRejected("")]), Profile("Tee")
    with structlog.testing.capture_logs() as logs:
        await start(tmp_path / "store.db", phone, name_only)
    [entry] = logs
    assert (entry["log_level"], entry["setting"]) == ("warning", "BOT__PROFILE_PICTURE")
    assert "Tee" not in str(entry)
    await start(tmp_path / "store.db", phone, name_only)
    assert phone.shown == [name_only]


@pytest.mark.parametrize(
    "content",
    [None, b"", b"LLM__API_KEY=secret", PNG + bytes(MAX_ATTACHMENT_BYTES)],
    ids=["missing", "empty", "no picture", "too big"],
)
def test_an_unusable_picture_is_a_wrong_setting(content: bytes | None, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    if content is not None:
        picture.write_bytes(content)
    with pytest.raises(SettingsError, match=r"^BOT__PROFILE_PICTURE: ") as wrong:
        wanted_profile(name=None, about=None, picture=picture)
    assert "secret" not in str(wrong.value)
