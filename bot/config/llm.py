"""The models' endpoints."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    field_validator,
    model_validator,
)

from tools.settings import BearerToken, HttpUrl, Section, comma_separated

Dialect = Literal["openai", "anthropic", "bedrock", "gemini", "ollama"]

DEFAULT: Final = "default"
"""The name of the model of `LLM__MODEL` next to further models."""

NEAR_AI: Final = "https://cloud-api.near.ai/v1"

BASE_URLS: Final[Mapping[str, str]] = {
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com/v1beta",
    "ollama": "http://127.0.0.1:11434",
}
"""Default addresses of other dialects; Bedrock's address depends on the region."""


def _base_url(value: str) -> str:
    """Refuse an address that ends in the path of the chat service."""
    if value.endswith("/completions"):
        raise ValueError("must not contain /chat/completions; at most servers it ends with /v1")
    return value


def _region(value: str) -> str:
    if not re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d{1,2}", value):
        raise ValueError("must be an AWS region, such as eu-central-1")
    return value


def _model_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,31}", value):
        raise ValueError("needs a name of letters, digits and underscores, up to 32")
    if value == DEFAULT:
        raise ValueError("is the name of LLM__MODEL itself; choose another")
    return value


def bedrock_url(region: str) -> str:
    """Return Bedrock's address in a region (China has its own suffix)."""
    suffix = "amazonaws.com.cn" if region.startswith("cn-") else "amazonaws.com"
    return f"https://bedrock-runtime.{region}.{suffix}"


ModelName = Annotated[str, AfterValidator(_model_name)]


class ModelSettings(Section):
    """A model and its endpoint."""

    dialect: Dialect = "openai"
    base_url: Annotated[HttpUrl, AfterValidator(_base_url)] = NEAR_AI
    api_key: BearerToken | None = None
    model: str
    tool_calling: Literal["auto", "native", "prompt", "off"] = "auto"
    context_tokens: int = Field(32_000, ge=1_000)
    vision: Literal["auto", "on", "off"] = "auto"
    region: Annotated[str, AfterValidator(_region)] | None = None
    access_key_id: BearerToken | None = None
    secret_access_key: SecretStr | None = None
    session_token: BearerToken | None = None

    @model_validator(mode="before")
    @classmethod
    def _at_its_usual_address(cls, values: Any) -> Any:
        """Fill in the usual address of a dialect."""
        if not isinstance(values, Mapping) or values.get("base_url"):
            return values
        dialect, region = values.get("dialect"), values.get("region")
        if dialect == "bedrock" and region:
            return {**values, "base_url": bedrock_url(str(region))}
        usual = BASE_URLS.get(str(dialect))
        return values if usual is None else {**values, "base_url": usual}

    @model_validator(mode="after")
    def _bedrock_is_complete(self) -> Self:
        if self.dialect != "bedrock":
            if self.region or self.access_key_id or self.secret_access_key or self.session_token:
                raise ValueError(
                    "REGION, ACCESS_KEY_ID, SECRET_ACCESS_KEY and SESSION_TOKEN are for Bedrock"
                )
            return self
        if self.region is None:
            raise ValueError("DIALECT=bedrock needs REGION, such as eu-central-1")
        if bool(self.access_key_id) != bool(self.secret_access_key):
            raise ValueError("ACCESS_KEY_ID and SECRET_ACCESS_KEY come together")
        if bool(self.api_key) == bool(self.access_key_id):
            raise ValueError(
                "DIALECT=bedrock needs API_KEY, or ACCESS_KEY_ID and SECRET_ACCESS_KEY"
            )
        return self


INHERITED: Final = (
    "dialect", "base_url", "api_key",
    "region", "access_key_id", "secret_access_key", "session_token",
)  # fmt: skip
"""Fields that a further model takes from the default one, if it sets none of them."""


class LlmSettings(ModelSettings):
    """The default model, further models, and settings for all of them."""

    model: str = "openai/gpt-oss-120b"
    timeout_seconds: float = Field(
        120, gt=0, allow_inf_nan=False, description="without a byte from the endpoint"
    )
    max_concurrency: int = Field(32, ge=1, le=10_000)
    transcription_model: str | None = None
    transcription_url: Annotated[HttpUrl, AfterValidator(_base_url)] | None = None
    transcription_key: BearerToken | None = None
    speech_model: str | None = None
    speech_url: Annotated[HttpUrl, AfterValidator(_base_url)] | None = None
    speech_key: BearerToken | None = None
    speech_voice: str = "alloy"
    models: dict[ModelName, ModelSettings] = Field(default_factory=dict)
    fallback: Annotated[tuple[str, ...], BeforeValidator(comma_separated)] = ()

    @model_validator(mode="before")
    @classmethod
    def _at_the_same_endpoint(cls, values: Any) -> Any:
        """Give further models without an endpoint the endpoint of the default model."""
        if not isinstance(values, Mapping) or not isinstance(values.get("models"), Mapping):
            return values
        shared = {name: values[name] for name in INHERITED if values.get(name)}
        models = dict(values["models"])
        for name, model in models.items():
            if isinstance(model, Mapping) and not any(map(model.get, INHERITED)):
                models[name] = {**shared, **model}
        return {**values, "models": models}

    @field_validator("fallback", mode="after")
    @classmethod
    def _each_once(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name.lower() for name in names))

    @model_validator(mode="after")
    def _voices_are_complete(self) -> Self:
        listens = self.transcription_model, self.transcription_url, self.transcription_key
        speaks = self.speech_model, self.speech_url, self.speech_key
        for what, (model, url, key) in (("TRANSCRIPTION", listens), ("SPEECH", speaks)):
            if (url or key) and not model:
                raise ValueError(f"{what}_URL and {what}_KEY are nothing without {what}_MODEL")
            if key and not url:
                raise ValueError(f"{what}_KEY is for {what}_URL, which is not set")
        return self

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.dialect != "openai":
            if "model" not in self.model_fields_set:
                raise ValueError(f"DIALECT={self.dialect} needs MODEL, the name of a model there")
            if self.transcription_model and not self.transcription_url:
                raise ValueError(
                    "TRANSCRIPTION_MODEL needs DIALECT=openai, as only that API listens, or"
                    " TRANSCRIPTION_URL"
                )
            if self.speech_model and not self.speech_url:
                raise ValueError(
                    "SPEECH_MODEL needs DIALECT=openai, as only that API speaks, or SPEECH_URL"
                )
        for name in self.fallback:
            if name != DEFAULT and name not in self.models:
                raise ValueError(
                    "FALLBACK names an unknown model; LLM__MODELS__NAME__MODEL defines one"
                )
        return self

    @property
    def key(self) -> str | None:
        """The bearer token for the endpoint; None if not set."""
        return self.api_key.get_secret_value() if self.api_key is not None else None

    def at(self, url: str | None, key: SecretStr | None) -> "LlmSettings":
        """Return the settings for another endpoint of OpenAI's API; without an address, these."""
        if url is None:
            return self
        return self.model_copy(update={"dialect": "openai", "base_url": url, "api_key": key})

    def of(self, name: str) -> "LlmSettings":
        """Return the settings as they would be if a further model were the default one."""
        if name == DEFAULT:
            return self
        return self.model_copy(update=dict(self.models[name]))
