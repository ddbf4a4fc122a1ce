"""Programs that offer tools over the Model Context Protocol."""

import re
import shlex
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from bot.config.values import BearerToken, Section, comma_separated, expecting, http_url
from tools.catalog import CATALOG


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


def _server_name(value: str) -> str:
    if not re.fullmatch(r"[a-z0-9][a-z0-9_]{0,31}", value):
        raise ValueError("needs a name of letters, digits and underscores, up to 32")
    if value in CATALOG:
        raise ValueError("has the name of a built-in tool; choose another")
    return value


class McpServerSettings(Section):
    """One MCP server: a command to start, or the URL of a running one."""

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


class McpSettings(Section):
    """MCP servers by names that the operator chooses."""

    servers: dict[Annotated[str, AfterValidator(_server_name)], McpServerSettings] = Field(
        default_factory=dict
    )
