"""How operators watch the running bot: its health and its log."""

from typing import Annotated, Literal

from pydantic import AfterValidator

from bot.config.values import Section


def _listen_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    if value and (not host or not port.isdecimal() or int(port) > 65535):
        raise ValueError("must be host:port, such as 127.0.0.1:8081, or empty")
    return value


class HealthSettings(Section):
    """Where health and metrics are served."""

    listen: Annotated[str, AfterValidator(_listen_address)] = "127.0.0.1:8081"


class LogSettings(Section):
    """The level and the format of the log."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"
