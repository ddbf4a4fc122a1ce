"""The model's endpoint."""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from bot.config.values import BearerToken, HttpUrl, Section


def _base_url(value: str) -> str:
    """Refuse the address of a service in place of that of the server."""
    if value.endswith("/completions"):
        raise ValueError("must end before /chat/completions, at most servers with /v1")
    return value


class LlmSettings(Section):
    """The model's endpoint."""

    base_url: Annotated[HttpUrl, AfterValidator(_base_url)] = "https://cloud-api.near.ai/v1"
    api_key: BearerToken | None = None
    model: str = "openai/gpt-oss-120b"
    timeout_seconds: float = Field(
        120, gt=0, allow_inf_nan=False, description="without a byte from the endpoint"
    )
    max_concurrency: int = Field(32, ge=1, le=10_000)
    context_tokens: int = Field(32_000, ge=1_000)
    vision: Literal["auto", "on", "off"] = "auto"
    transcription_model: str | None = None
