"""The trusted execution environment, and proof of the model."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from bot.config.values import HttpUrl, Section


class AttestationSettings(Section):
    """The trusted execution environment."""

    dstack_socket: Path = Path("/var/run/dstack.sock")
    pccs_url: HttpUrl = "https://pccs.phala.network"
    key_origin: Literal["generated-in-tee", "imported"] = "imported"
    model_policy: Literal["off", "warn", "require"] = "warn"
    model_pins: str | None = Field(None, description="a file, or its JSON")
    e2ee: bool = False

    @model_validator(mode="after")
    def _a_key_to_encrypt_to(self) -> Self:
        if self.e2ee and self.model_policy == "off":
            raise ValueError("has E2EE, which needs MODEL_POLICY=warn or require to find the key")
        return self

    @property
    def has_agent(self) -> bool:
        """Whether there is a guest agent's socket that may be looked at."""
        try:
            return self.dstack_socket.is_socket()
        except OSError:
            return False
