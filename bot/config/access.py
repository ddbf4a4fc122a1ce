"""Who may talk to the bot."""

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from bot.config.values import EXAMPLE_NUMBER, Section, comma_separated, expecting, phone_number


def _person(value: str) -> str:
    if re.fullmatch(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}", value):
        return value.lower()
    with expecting(f"must be numbers ({EXAMPLE_NUMBER}) or ACI uuids, separated by commas"):
        return phone_number(value)


People = Annotated[
    frozenset[Annotated[str, AfterValidator(_person)]], BeforeValidator(comma_separated)
]


class AccessSettings(Section):
    """Who may talk to the bot."""

    policy: Literal["open", "allowlist", "pairing"] = "pairing"
    allowed: People = frozenset()
    admins: People = frozenset()
    groups: Literal["mention", "always", "off"] = "mention"
    messages_per_minute: int = Field(20, ge=1)
    tokens_per_day: int = Field(0, ge=0, description="of each person; 0 = no bound")
    note_to_self: bool = False
    quorum: int = Field(
        1, ge=1, le=10, description="admins whose yes a dangerous call in a group needs"
    )
