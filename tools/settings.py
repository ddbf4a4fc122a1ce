"""What the tools need to know from outside, as plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final

MAX_RESULT_BYTES: Final = 16_384
GEOCODING_URL: Final = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST_URL: Final = "https://api.open-meteo.com/v1/forecast"


@dataclass(frozen=True, slots=True)
class WeatherSettings:
    """Where Open-Meteo is; an address other than the default is the operator's own server."""

    geocoding_url: str = GEOCODING_URL
    forecast_url: str = FORECAST_URL


class SearchProvider(StrEnum):
    """Who answers `web_search`."""

    BRAVE = "brave"
    DUCKDUCKGO = "duckduckgo"


@dataclass(frozen=True, slots=True)
class WebSearchSettings:
    """How `web_search` searches.

    Attributes:
        provider: who answers.
        api_key: for Brave; kept out of every text this program writes.
        url: in place of the provider's own address.
        max_results: 1 to 10.
    """

    provider: SearchProvider = SearchProvider.BRAVE
    api_key: str | None = field(default=None, repr=False)
    url: str | None = None
    max_results: int = 5


@dataclass(frozen=True, slots=True)
class McpServer:
    """One MCP server: a command that speaks over its standard streams, or the URL of one.

    Attributes:
        name: the prefix of its tools' names, `[a-z0-9_]+`.
        command: program and arguments; empty for a server with a URL.
        environment: variables for the command, beyond the few that any program needs.
        url: of a streamable HTTP endpoint, or `unix:/path` of a socket that stands for a server's
            standard streams; None for a command.
        headers: sent with every request to the URL.
        timeout_seconds: for one call of one of its tools, and for connecting.
        tools: names of those that are used, as the server has them or as they are offered; all of
            them if empty.
    """

    name: str
    command: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout_seconds: float = 30.0
    tools: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder of the machine that admins see in each of their workspaces.

    Attributes:
        name: they see it as `shared/NAME`.
        path: where it is.
        writable: files in it may be changed, after a yes.
    """

    name: str
    path: Path
    writable: bool = False


@dataclass(frozen=True, slots=True)
class WorkspaceSettings:
    """A folder for each chat.

    Attributes:
        path: where they are.
        everyone: whoever may talk to the bot has one; else only its admins.
        quota_bytes: of all files of a chat.
        max_files: of a chat, folders among them.
        max_read_bytes: of one file in one call.
        shared: folders of the machine, for admins.
    """

    path: Path
    everyone: bool = False
    quota_bytes: int = 200 * 2**20
    max_files: int = 5_000
    max_read_bytes: int = 2**20
    shared: tuple[SharedFolder, ...] = ()


class CommandApproval(StrEnum):
    """Which commands a person is asked about."""

    ASK = "ask"
    DANGEROUS = "dangerous"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class CommandSettings:
    """What a command may take.

    Attributes:
        approval: which of them a person is asked about.
        timeout_seconds: where the model names no other time.
        memory_bytes: of all its processes together.
        max_output_bytes: of what it writes, for the model.
        network: those of admins reach the public internet.
    """

    approval: CommandApproval = CommandApproval.ASK
    timeout_seconds: float = 30.0
    memory_bytes: int = 512 * 2**20
    max_output_bytes: int = 102_400
    network: bool = False


@dataclass(frozen=True, slots=True)
class ToolSettings:
    """Which tools are wanted, and what they need.

    Attributes:
        disabled: names of built-in tools that are not wanted.
        weather: for `get_weather`.
        web_search: for `web_search`.
        mcp_servers: each with a name of its own.
        workspaces: folders of chats; None: nobody has one.
        commands: what those that run in them may take.
        result_limit_bytes: what the model is shown of a result, as UTF-8.
    """

    disabled: frozenset[str] = frozenset()
    weather: WeatherSettings = WeatherSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    mcp_servers: tuple[McpServer, ...] = ()
    workspaces: WorkspaceSettings | None = None
    commands: CommandSettings = CommandSettings()
    result_limit_bytes: int = MAX_RESULT_BYTES
