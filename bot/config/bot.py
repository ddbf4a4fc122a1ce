"""How the bot presents itself."""

from pathlib import Path
from typing import Annotated, Final

from pydantic import AfterValidator, Field

from bot.config.values import Section

EYES: Final = "\U0001f440"

MAX_EMOJI_CHARACTERS: Final = 10

MAX_PROFILE_NAME_CHARACTERS: Final = 26

MAX_PROFILE_ABOUT_CHARACTERS: Final = 140
"""Limits of Signal's apps for a name and for the line below it."""


def _reaction(value: str | None) -> str | None:
    """Read an emoji, or a yes, which means 👀."""
    if value is None or value.casefold() in {"false", "no", "off", "0"}:
        return None
    if value.casefold() in {"true", "yes", "on", "1"}:
        return EYES
    if value.isascii() or len(value) > MAX_EMOJI_CHARACTERS:
        raise ValueError("must be one emoji, such as 👀, or true or false")
    return value


class BotSettings(Section):
    """How the bot presents itself."""

    system_prompt: str | None = None
    profile_name: Annotated[str, Field(max_length=MAX_PROFILE_NAME_CHARACTERS)] | None = None
    profile_about: Annotated[str, Field(max_length=MAX_PROFILE_ABOUT_CHARACTERS)] | None = None
    profile_picture: Path | None = None
    ack_reaction: Annotated[str | None, AfterValidator(_reaction)] = None
    read_receipts: bool = False
    steering: bool = True
    settle_seconds: float = Field(1.5, ge=0, le=30, allow_inf_nan=False)
