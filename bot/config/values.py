"""The base of all sections, and kinds of values that several use."""

import re
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, SecretStr

EXAMPLE_NUMBER: Final = "+4915112345678"

_UNSEEN: Final = frozenset({"Cf", "Pd", "Zs"})
"""Marks of direction, dashes, spaces: categories of Unicode."""


class Section(BaseModel):
    """Part of the settings: frozen, and closed to unknown names."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


def comma_separated(value: object) -> object:
    """Return the items of a text that lists them, without the spaces around them."""
    if isinstance(value, str):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value


@contextmanager
def expecting(message: str) -> Iterator[None]:
    """Replace a ValueError of urllib or shlex, whose text quotes the value, by this message."""
    try:
        yield
    except ValueError:
        raise ValueError(message) from None


def http_url(value: str) -> str:
    """Return the address without a final slash, or raise a ValueError with what is expected."""
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


def phone_number(value: str) -> str:
    """Return a number as +4915112345678, however a phone shows it: `+49 (1511) 234-5678`.

    Raises:
        ValueError: it is no number in international form.
    """
    # A number that is copied from a phone has invisible marks around it.
    plain = "".join(
        c for c in value if c not in " ()-./" and unicodedata.category(c) not in _UNSEEN
    )
    if not re.fullmatch(r"\+[1-9][0-9]{6,14}", plain):
        raise ValueError(f"must be a number in international form, such as {EXAMPLE_NUMBER}")
    return plain


def _bearer_token(value: SecretStr) -> SecretStr:
    if not _is_visible_ascii(value.get_secret_value()):
        raise ValueError("must be ASCII without spaces or line breaks, as it goes into a header")
    return value


def _is_visible_ascii(value: str) -> bool:
    return re.fullmatch(r"[!-~]+", value) is not None


PhoneNumber = Annotated[str, AfterValidator(phone_number)]

HttpUrl = Annotated[str, AfterValidator(http_url)]

BearerToken = Annotated[SecretStr, AfterValidator(_bearer_token)]
