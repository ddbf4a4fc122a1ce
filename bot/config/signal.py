"""Where the Signal side is and which account is the bot's."""

from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from bot.config.values import PhoneNumber, Section, expecting


def _signal_url(value: str) -> str:
    expected = "must be spawn:, unix:/path/to/socket, tcp://host:port or http://host:port"
    with expecting(expected):
        url = urlsplit(value)
        fits = {
            "spawn": value == "spawn:",
            "unix": url.path.startswith("/") and not url.netloc,
            "tcp": bool(url.hostname and url.port) and not url.path,
            "http": bool(url.hostname) and url.port != 0,
            "https": bool(url.hostname) and url.port != 0,
        }
    if not fits.get(url.scheme, False):
        raise ValueError(expected)
    return value.rstrip("/")


class SignalSettings(Section):
    """Where the Signal side is and which account is the bot's."""

    url: Annotated[str, AfterValidator(_signal_url)] = "spawn:"
    phone_number: PhoneNumber
    trust: Literal["tofu", "always", "verified"] = "tofu"
    data_dir: Path | None = Field(None, description="signal-cli's own folder")
