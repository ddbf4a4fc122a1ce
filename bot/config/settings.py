"""All settings as one frozen tree; it refuses unknown names."""

from typing import Literal

from pydantic import Field
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NestedSecretsSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from bot.config.access import AccessSettings
from bot.config.attestation import AttestationSettings
from bot.config.bot import BotSettings
from bot.config.llm import LlmSettings
from bot.config.mcp import McpSettings
from bot.config.service import HealthSettings, LogSettings
from bot.config.signal import SignalSettings
from bot.config.sources import DELIMITER, as_written, meant_for_us, secret_folders
from bot.config.store import StoreSettings
from bot.config.tools import ToolsSettings
from bot.process.hardening import moved_variables


class Settings(BaseSettings):
    """All settings. Made by `load_settings`."""

    model_config = SettingsConfigDict(
        env_nested_delimiter=DELIMITER,
        env_file=".env",
        env_file_encoding="utf-8-sig",
        enable_decoding=False,
        extra="ignore",
        frozen=True,
        hide_input_in_errors=True,
    )

    signal: SignalSettings
    llm: LlmSettings = LlmSettings()
    bot: BotSettings = BotSettings()
    store: StoreSettings = StoreSettings()
    tools: ToolsSettings = ToolsSettings()
    mcp: McpSettings = McpSettings()
    access: AccessSettings = AccessSettings()
    attestation: AttestationSettings = AttestationSettings()
    health: HealthSettings = HealthSettings()
    log: LogSettings = LogSettings()
    sandbox: Literal["required", "available"] | None = Field(
        None, description="the kernel's walls around sandboxes; required in a TEE"
    )

    @property
    def sandbox_required(self) -> bool:
        """Whether a sandbox without its essential walls may run nothing."""
        if self.sandbox is None:
            return self.attestation.has_agent
        return self.sandbox == "required"

    @property
    def commands_have_network(self) -> bool:
        """Whether commands of admins reach the internet; never where proofs are made."""
        return self.tools.commands.network and not self.attestation.has_agent

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the sources; the first that knows a setting wins."""
        secrets = NestedSecretsSettingsSource(
            file_secret_settings,
            secrets_dir=list(secret_folders()),
            secrets_nested_delimiter=DELIMITER,
        )
        if isinstance(env_settings, EnvSettingsSource):
            moved = {name.lower(): value for name, value in moved_variables().items()}
            env_settings.env_vars = {**env_settings.env_vars, **moved}
        for source in (env_settings, dotenv_settings, secrets):
            if isinstance(source, EnvSettingsSource):
                source.env_vars = meant_for_us(source.env_vars)
                source.decode_complex_value = as_written  # type: ignore[assignment, method-assign]
        return init_settings, env_settings, dotenv_settings, secrets


class GivenSettings(Settings):
    """Settings without any source but the given values."""

    model_config = SettingsConfigDict(extra="forbid")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the library's signature
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the given values."""
        return (init_settings,)
