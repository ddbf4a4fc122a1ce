"""What the model may call."""

import re
from pathlib import Path
from typing import Annotated, Final, Literal

from pydantic import AfterValidator, Field

from bot.config.values import BearerToken, HttpUrl, Section
from tools.settings import FORECAST_URL, GEOCODING_URL

_FOLDER_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")


class ToolSettings(Section):
    """A tool without settings of its own."""

    enabled: bool = True


class WeatherSettings(Section):
    """The tool `get_weather`; other addresses are for a self-hosted Open-Meteo."""

    enabled: bool = True
    geocoding_url: HttpUrl = GEOCODING_URL
    forecast_url: HttpUrl = FORECAST_URL


class WebSearchSettings(Section):
    """The tool `web_search`."""

    enabled: bool = True
    provider: Literal["brave", "duckduckgo"] = "brave"
    api_key: BearerToken | None = None
    url: HttpUrl | None = None
    max_results: int = Field(5, ge=1, le=10)


def _folder_name(name: str) -> str:
    """Return the name that people see; raises ValueError."""
    if not _FOLDER_NAME.fullmatch(name):
        raise ValueError("may have letters, digits, hyphens and underscores, at most 40")
    return name.lower()


class WorkspaceSettings(Section):
    """A folder for each chat, and the tools that work in it."""

    for_: Literal["admins", "everyone", "nobody"] = Field("admins", alias="for")
    path: Path | None = None
    quota_mb: int = Field(200, ge=1, le=100_000)
    max_files: int = Field(5_000, ge=1, le=20_000)
    max_read_bytes: int = Field(2**20, ge=1_024, le=8 * 2**20)
    folders: dict[Annotated[str, AfterValidator(_folder_name)], str] = Field(default_factory=dict)


class CommandSettings(Section):
    """Commands that run in a workspace."""

    enabled: bool = True
    approval: Literal["ask", "dangerous", "never"] = "ask"
    timeout_seconds: float = Field(30, gt=0, le=300)
    memory_mb: int = Field(512, ge=64, le=65_536)
    max_output_bytes: int = Field(102_400, ge=1_024, le=2**20)
    network: bool = False


class RemindersSettings(Section):
    """Reminders and scheduled questions."""

    enabled: bool = True
    max_per_person: int = Field(100, ge=1, le=10_000)


class ToolsSettings(Section):
    """What the model may call."""

    enabled: bool = True
    max_tool_calls: int = Field(5, ge=0, le=100)
    timeout_seconds: float = Field(10, gt=0, le=600)
    calls_per_minute: int = Field(60, ge=1)
    calls_per_minute_total: int = Field(600, ge=1)
    audit_arguments: Literal["hash", "keep"] = "hash"
    calculator: ToolSettings = ToolSettings()
    current_time: ToolSettings = ToolSettings()
    weather: WeatherSettings = WeatherSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    web_fetch: ToolSettings = ToolSettings()
    memory: ToolSettings = ToolSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    commands: CommandSettings = CommandSettings()
    reminders: RemindersSettings = RemindersSettings()
    helpers: ToolSettings = ToolSettings()
