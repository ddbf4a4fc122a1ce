"""Sections of the settings for the tools, and the kinds of values in them."""

import re
import shlex
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    SecretStr,
    model_validator,
)

MAX_RESULT_BYTES: Final = 16_384

SIBLINGS: Final[Mapping[str, tuple[str, ...]]] = {
    "remember": ("recall", "forget"),
    "remind": ("schedule", "list_reminders", "cancel_reminder", "set_timezone"),
    "read_file": (
        "list_files", "write_file", "edit_file", "delete_file", "search_files", "edit_notebook",
        "send_file",
    ),
}  # fmt: skip
"""Tools that are disabled together with the first one."""

COMMANDS: Final = "commands"
"""The source of the tools that run commands."""
COMMAND_TOOLS: Final = ("run_command", "run_python")

FILE_TOOLS: Final = frozenset({"read_file", *SIBLINGS["read_file"], *COMMAND_TOOLS})
"""Tools that see the files of a chat's workspace."""

BY_NEED: Final = (
    "calculate", "web_search", "web_fetch", "date_time", "remind", "remember", "get_weather",
    "read_file", "list_files", "write_file", "send_file", "run_python", "run_command", "ask_user",
    "edit_file", "search_files", "cancel_reminder", "list_reminders", "recall", "search_chat",
    "forget", "set_timezone", "todo", "schedule", "delegate", "react", "delete_file",
    "propose_plan", "catch_up", "edit_notebook",
)  # fmt: skip
"""All built-in tools, the most needed first: a small context has no room for all of them."""

NEED_OF_OTHERS: Final = BY_NEED.index("cancel_reminder")
"""Place of the tools of MCP servers in that order."""

TOOL_NAMES: Final = frozenset(BY_NEED)

WORKSPACE: Final = "workspace"
"""The source of all tools that work with files."""
RESERVED_NAMES: Final = TOOL_NAMES | {WORKSPACE, COMMANDS}
"""Names of sources of built-in tools."""


# Kinds of values, also for the other sections of the settings ------------------------------------


class Section(BaseModel):
    """Part of the settings: frozen, and closed to unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def comma_separated(value: object) -> object:
    """Split a text at its commas, without the spaces around the items."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


@contextmanager
def expecting(message: str) -> Iterator[None]:
    """Replace the text of a ValueError of urllib or shlex, because it quotes the value."""
    try:
        yield
    except ValueError:
        raise ValueError(message) from None


def http_url(value: str) -> str:
    """Return the address without a final slash; raises ValueError."""
    with expecting("must be an http:// or https:// address"):
        url = urlsplit(value)
        port = url.port
    if url.scheme not in {"http", "https"} or not url.hostname or not _is_visible_ascii(value):
        raise ValueError("must be an http:// or https:// address")
    if port == 0 or not _is_name_or_ip(url.hostname):
        raise ValueError("must name a host, and a port from 1 to 65535 if any")
    return value.rstrip("/")


def _is_name_or_ip(host: str) -> bool:
    if ":" not in host and not re.fullmatch(r"[\d.]+", host):
        return True
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _bearer_token(value: SecretStr) -> SecretStr:
    if not _is_visible_ascii(value.get_secret_value()):
        raise ValueError("must be ASCII without spaces or line breaks, as it goes into a header")
    return value


def _is_visible_ascii(value: str) -> bool:
    return re.fullmatch(r"[!-~]+", value) is not None


HttpUrl = Annotated[str, AfterValidator(http_url)]

BearerToken = Annotated[SecretStr, AfterValidator(_bearer_token)]


# Sections ----------------------------------------------------------------------------------------

GEOCODING_URL: Final = "https://geocoding-api.open-meteo.com/v1/search"
FORECAST_URL: Final = "https://api.open-meteo.com/v1/forecast"


class WeatherSettings(Section):
    """`get_weather`; other addresses than Open-Meteo's are the operator's own server."""

    enabled: bool = True
    geocoding_url: HttpUrl = GEOCODING_URL
    forecast_url: HttpUrl = FORECAST_URL


SearchEngine = Literal["brave", "duckduckgo", "searxng"]


class WebSearchSettings(Section):
    """`web_search`; `url` replaces the provider's own address, and SearXNG has none."""

    enabled: bool = True
    provider: SearchEngine | None = None
    api_key: BearerToken | None = None
    url: HttpUrl | None = None
    max_results: int = Field(5, ge=1, le=10)

    @property
    def engine(self) -> SearchEngine:
        """The provider; by default Brave with a key, and DuckDuckGo without."""
        return self.provider or ("brave" if self.api_key else "duckduckgo")


def _mcp_url(value: str) -> str:
    if value.startswith("unix:/") and not value.startswith("unix://"):
        return value
    try:
        return http_url(value)
    except ValueError as error:
        raise ValueError(f"{error}, or unix:/path/to/socket") from None


def _command_line(value: object) -> object:
    if not isinstance(value, str):
        return value
    with expecting("must be a command line; a quotation mark is missing"):
        return tuple(shlex.split(value))


class McpServer(Section):
    """MCP server: a command to start, or the URL of a running server."""

    command: Annotated[tuple[str, ...], BeforeValidator(_command_line)] = ()
    env: dict[str, SecretStr] = Field(default_factory=dict)
    url: Annotated[str, AfterValidator(_mcp_url)] | None = None
    token: BearerToken | None = None
    timeout_seconds: float = Field(30, gt=0, le=600)
    tools: Annotated[frozenset[str], BeforeValidator(comma_separated)] = frozenset()

    @model_validator(mode="after")
    def _one_way_to_it(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("needs COMMAND or URL, and not both")
        if self.token and not (self.url or "").startswith("http"):
            raise ValueError("has a TOKEN, which is for an http URL; a command gets ENV__NAME")
        return self

    @property
    def environment(self) -> dict[str, str]:
        """The variables; names of settings ignore case, these are upper case by custom."""
        return {name.upper(): value.get_secret_value() for name, value in self.env.items()}

    @property
    def headers(self) -> dict[str, str]:
        """The headers that are sent with every request to the URL."""
        token = self.token and self.token.get_secret_value()
        return {"Authorization": f"Bearer {token}"} if token else {}


@dataclass(frozen=True, slots=True)
class SharedFolder:
    """A folder of the machine that admins see in each of their workspaces, as `shared/NAME`.

    Attributes:
        writable: files in it may be changed, after a yes.
    """

    path: Path
    writable: bool = False


def _shared_folder(value: object) -> object:
    """Parse a path; `:rw` after it makes the folder writable."""
    if not isinstance(value, str):
        return value
    path, _, mode = value.rpartition(":")
    if mode != "rw" or not path:
        return SharedFolder(Path(value).absolute())
    return SharedFolder(Path(path).absolute(), writable=True)


def _folder_name(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_-]{1,40}", name):
        raise ValueError("may have letters, digits, hyphens and underscores, at most 40")
    return name.lower()


class WorkspaceSettings(Section):
    """A folder for each chat, and the tools that work in it."""

    for_: Literal["admins", "everyone", "nobody"] = Field("admins", alias="for")
    path: Path | None = None
    quota_mb: int = Field(200, ge=1, le=100_000, description="of all files of a chat")
    max_files: int = Field(5_000, ge=1, le=20_000, description="of a chat, with its folders")
    max_read_bytes: int = Field(2**20, ge=1_024, le=8 * 2**20, description="of a file in one call")
    folders: dict[
        Annotated[str, AfterValidator(_folder_name)],
        Annotated[SharedFolder, BeforeValidator(_shared_folder)],
    ] = Field(default_factory=dict)

    @property
    def quota_bytes(self) -> int:
        """The bound of all files of a chat."""
        return self.quota_mb * 2**20


Approval = Literal["ask", "never"]


class CommandSettings(Section):
    """Commands that run in a workspace."""

    enabled: bool = True
    approval: Approval = "ask"
    timeout_seconds: float = Field(30, gt=0, le=300, description="unless the model names another")
    memory_mb: int = Field(512, ge=64, le=65_536, description="of all processes of a command")
    max_output_bytes: int = Field(102_400, ge=1_024, le=2**20)


MAX_ROUNDS: Final = 16
"""How often the model may call tools in a turn, unless a setting says otherwise."""


class ToolSettings(Section):
    """A tool without settings of its own."""

    enabled: bool = True


class ToolsSettings(Section):
    """The tools that the model may call."""

    enabled: bool = True
    disabled: Annotated[frozenset[str], BeforeValidator(comma_separated)] = frozenset()
    max_tool_calls: int = Field(MAX_ROUNDS, ge=0, le=100)
    timeout_seconds: float = Field(10, gt=0, le=600)
    calls_per_minute: int = Field(60, ge=1)
    calls_per_minute_total: int = Field(600, ge=1)
    calculator: ToolSettings = ToolSettings()
    weather: WeatherSettings = WeatherSettings()
    web_search: WebSearchSettings = WebSearchSettings()
    web_fetch: ToolSettings = ToolSettings()
    workspace: WorkspaceSettings = WorkspaceSettings()
    commands: CommandSettings = CommandSettings()

    @property
    def in_use(self) -> bool:
        """Whether the model may call any tool."""
        return self.enabled and self.max_tool_calls > 0

    @property
    def withheld(self) -> frozenset[str]:
        """The names of the tools that the model does not get."""
        if not self.in_use:
            return TOOL_NAMES
        enabled = {
            "calculate": self.calculator.enabled,
            "get_weather": self.weather.enabled,
            "web_search": self.web_search.enabled,
            "web_fetch": self.web_fetch.enabled,
            **dict.fromkeys((COMMANDS, *COMMAND_TOOLS), self.commands.enabled),
        }
        siblings = (SIBLINGS.get(name, ()) for name in self.disabled)
        return self.disabled.union(*siblings, (name for name, on in enabled.items() if not on))
