"""Where conversations are kept, and for how long."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from bot.config.values import Section


class StoreSettings(Section):
    """Where conversations are kept, and for how long."""

    path: Path = Path("data/conversations.db")
    key: SecretStr | None = None
    key_source: Literal["setting", "dstack"] = "setting"
    key_may_be_lost: bool = False
    retention_days: int = Field(30, ge=0, le=36_500)

    @model_validator(mode="after")
    def _one_key(self) -> Self:
        if self.key is not None and self.key_source == "dstack":
            raise ValueError(
                "has a KEY, which KEY_SOURCE=dstack derives by itself; set one of them"
            )
        return self
