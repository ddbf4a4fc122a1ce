"""Where the Signal side is and which account is the bot's."""

import re
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field

from bot.config.values import Section, expecting


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


def _phone_number(value: str) -> str:
    if not re.fullmatch(r"\+[1-9]\d{6,14}", value):
        raise ValueError("must be a number in international form, such as +4915112345678")
    return value


class SignalSettings(Section):
    """Where the Signal side is and which account is the bot's."""

    url: Annotated[str, AfterValidator(_signal_url)] = "spawn:"
    phone_number: Annotated[str, AfterValidator(_phone_number)]
    trust: Literal["tofu", "always", "verified"] = "tofu"
    data_dir: Path | None = Field(None, description="signal-cli's own folder")
