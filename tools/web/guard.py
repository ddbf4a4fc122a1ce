"""The addresses and URLs that a tool may ask for.

`checked` judges a URL before a request, and `may_be_asked` each address right before a connection
to it is opened (see `tools.web.client`): a name that changes its address in between gains nothing.
"""

import socket
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

import httpx2

from tools.base import ToolError

MAX_URL: Final = 2_048
MAX_HOST: Final = 253  # RFC 1035, 2.3.4
DEFAULT_PORTS: Final = {"http": 80, "https": 443}

IPAddress = IPv4Address | IPv6Address
Permits = Callable[[IPAddress], bool]
Origin = tuple[str, str, int]
"""Scheme, host and port."""

# IANA's registry of special-purpose IPv4 addresses (RFC 6890), multicast (RFC 5771), and one more.
_SPECIAL_IPV4: Final = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network (RFC 791)
            "10.0.0.0/8",  # private (RFC 1918)
            "100.64.0.0/10",  # shared, behind carriers' NAT (RFC 6598)
            "127.0.0.0/8",  # loopback (RFC 1122)
            "169.254.0.0/16",  # link-local, with the metadata services of clouds (RFC 3927)
            "172.16.0.0/12",  # private (RFC 1918)
            "192.0.0.0/24",  # protocol assignments (RFC 6890)
            "192.0.2.0/24",  # documentation (RFC 5737)
            "192.31.196.0/24",  # AS112 (RFC 7535)
            "192.52.193.0/24",  # AMT (RFC 7450)
            "192.88.99.0/24",  # relays of 6to4 (RFC 7526)
            "192.168.0.0/16",  # private (RFC 1918)
            "192.175.48.0/24",  # AS112 (RFC 7534)
            "198.18.0.0/15",  # benchmarking (RFC 2544)
            "198.51.100.0/24",  # documentation (RFC 5737)
            "203.0.113.0/24",  # documentation (RFC 5737)
            "224.0.0.0/4",  # multicast (RFC 5771)
            "240.0.0.0/4",  # reserved, and broadcast (RFC 1112, RFC 919)
            "168.63.129.16/32",  # Azure's platform, public by its looks only
        ),
    )
)

# IANA assigns unicast addresses from 2000::/3 only; these are its special-purpose ones. All others
# (loopback, mapped IPv4, unique local, link-local, multicast…) lie outside of it.
_UNICAST_IPV6: Final = IPv6Network("2000::/3")
_SPECIAL_IPV6: Final = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments, among them Teredo and ORCHID (RFC 2928)
            "2001:db8::/32",  # documentation (RFC 3849)
            "2002::/16",  # 6to4 (RFC 3056)
            "2620:4f:8000::/48",  # AS112 (RFC 7534)
            "3fff::/20",  # documentation (RFC 9637)
        ),
    )
)
_UNUSED: Final[Mapping[int, IPAddress]] = {
    4: IPv4Address("192.0.2.1"),
    6: IPv6Address("2001:db8::1"),
}
"""Addresses that no machine has."""
_NAT64: Final = IPv6Network("64:ff9b::/96")  # an IPv4 address in its last 32 bits (RFC 6052)


class AddressRefused(ToolError):
    """A tool may not ask for this address."""


def is_public(address: IPAddress) -> bool:
    """Return whether an address belongs to a host of the public internet.

    Python's `is_global` calls about 20 of these networks public, depending on its version.
    """
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def may_be_asked(address: IPAddress) -> bool:
    """Return whether an address is public and does not belong to this machine.

    A machine may have services at its public address that its firewall hides from others.
    """
    return is_public(address) and not is_own(address)


def is_own(address: IPAddress) -> bool:
    """Return whether an address belongs to one of this machine's interfaces."""
    # With ip_nonlocal_bind the system binds any address, which says nothing.
    return _can_bind(address) and not _can_bind(_UNUSED[address.version])


def _can_bind(address: IPAddress) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as made:
            made.bind((str(address), 0))
    except OSError:
        return False
    return True


def checked(url: str) -> httpx2.URL:
    """Parse a URL that a request may be sent to; the fragment is dropped.

    Raises:
        AddressRefused: it is not an address, or programs disagree about its meaning; the text
            gives the remedy.
    """
    _check_characters(url)
    try:
        parsed = httpx2.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx2.InvalidURL, ValueError):
        raise AddressRefused("This is not a valid web address.") from None
    if parsed.scheme not in DEFAULT_PORTS:
        raise AddressRefused("An address must begin with http:// or https://.")
    if parsed.userinfo:
        raise AddressRefused("The address holds a user name or password; leave it out.")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise AddressRefused("The address has a port that does not exist.")
    return parsed.copy_with(host=_checked_host(host), fragment=None)


def redirected(url: httpx2.URL, location: str) -> httpx2.URL:
    """Return the checked target of a redirect.

    Raises:
        AddressRefused: as `checked`, or the redirect leads from https to http.
    """
    _check_characters(location)
    try:
        target = str(url.join(location))
    except (httpx2.InvalidURL, ValueError):
        raise AddressRefused("The page redirects to what is no web address.") from None
    following = checked(target)
    if url.scheme == "https" and following.scheme == "http":
        raise AddressRefused("The page redirects from https to http, which is not followed.")
    return following


def origin_of(url: httpx2.URL) -> Origin:
    """Return the origin of a checked URL, always with a port."""
    return url.scheme, url.raw_host.decode("ascii"), url.port or DEFAULT_PORTS[url.scheme]


def _check_characters(url: str) -> None:
    if len(url) > MAX_URL:
        raise AddressRefused(f"The address is longer than {MAX_URL:,} characters.")
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        raise AddressRefused(
            "The address holds spaces, backslashes or control characters; write them as %20 etc."
        )


def _checked_host(host: str) -> str:
    """Return a host in its canonical notation."""
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > MAX_HOST or not all(labels) or "%" in host:
        raise AddressRefused("The address has no valid host name.")
    if not (":" in host or labels[-1].isdigit() or labels[-1].lower().startswith("0x")):
        return host
    try:
        return str(ip_address(host))
    except ValueError:  # only some programs accept 127.1, 0177.0.0.1, 2130706433 and so on
        raise AddressRefused(
            "The address has a number in place of a host name that is no plain IP address."
        ) from None
