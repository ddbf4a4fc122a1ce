"""The model's endpoint."""

from typing import Literal

from pydantic import Field

from bot.config.values import BearerToken, HttpUrl, Section


class LlmSettings(Section):
    """The model's endpoint."""

    base_url: HttpUrl = "https://cloud-api.near.ai/v1"
    api_key: BearerToken | None = None
    model: str = "openai/gpt-oss-120b"
    timeout_seconds: float = Field(
        120, gt=0, allow_inf_nan=False, description="without a byte from the endpoint"
    )
    max_concurrency: int = Field(32, ge=1, le=10_000)
    context_tokens: int = Field(32_000, ge=1_000)
    vision: Literal["auto", "on", "off"] = "auto"
    transcription_model: str | None = None
