"""What the tools may ask for on the network. Every outgoing request goes through here.

A URL is checked by `checked`, an address by `is_public`: not the name, but the address that was
looked up and is then connected to, without a second lookup in which the answer could have changed.
"""

import asyncio
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final, NoReturn

import httpcore
import httpx

from tools.errors import ToolError
from tools.web.lookup import Lookup
from tools.web.stream import BoundedStream

MAX_URL: Final = 2_048
MAX_HOST: Final = 253  # RFC 1035, 2.3.4
MAX_ADDRESSES_TRIED: Final = 4
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

# IANA gives out unicast addresses from 2000::/3 only; of these, the special-purpose ones. All the
# others (loopback, mapped IPv4, unique local, link-local, multicast…) lie outside.
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
_NOBODYS: Final[Mapping[int, IPAddress]] = {
    4: IPv4Address("192.0.2.1"),
    6: IPv6Address("2001:db8::1"),
}
"""Addresses that no machine has."""
_NAT64: Final = IPv6Network("64:ff9b::/96")  # an IPv4 address in its last 32 bits (RFC 6052)


class AddressRefused(ToolError):
    """This is no address that a tool may ask for."""


def is_public(address: IPAddress) -> bool:
    """Tell whether an address belongs to a host of the public internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _SPECIAL_IPV4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    return address in _UNICAST_IPV6 and not any(address in network for network in _SPECIAL_IPV6)


def may_be_asked(address: IPAddress) -> bool:
    """Tell whether a tool may connect to an address: public, and not one of this machine's own.

    Behind a public address of its own a machine may have services that it offers to nobody else.
    """
    return is_public(address) and not is_own(address)


def is_own(address: IPAddress) -> bool:
    """Tell whether an address is one of this machine's interfaces."""
    # Where the system binds anything (ip_nonlocal_bind), this tells nothing.
    return _can_bind(address) and not _can_bind(_NOBODYS[address.version])


def _can_bind(address: IPAddress) -> bool:
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as made:
            made.bind((str(address), 0))
    except OSError:
        return False
    return True


def checked(url: str) -> httpx.URL:
    """Parse a URL that a request may be sent to; the fragment is dropped.

    Raises:
        AddressRefused: it is not an address, or can be read in two ways; the text says what to do.
    """
    _check_characters(url)
    try:
        parsed = httpx.URL(url)
        host = parsed.raw_host.decode("ascii")
    except (httpx.InvalidURL, ValueError):
        raise AddressRefused("This is not a valid web address.") from None
    if parsed.scheme not in DEFAULT_PORTS:
        raise AddressRefused("An address must begin with http:// or https://.")
    if parsed.userinfo:
        raise AddressRefused("The address holds a user name or password; leave it out.")
    if parsed.port is not None and not 0 < parsed.port < 65_536:
        raise AddressRefused("The address has a port that does not exist.")
    return parsed.copy_with(host=_checked_host(host), fragment=None)


def redirected(url: httpx.URL, location: str) -> httpx.URL:
    """Return where a checked URL's answer redirects to, checked as any other.

    Raises:
        AddressRefused: nothing may be asked for there.
    """
    _check_characters(location)
    try:
        target = str(url.join(location))
    except (httpx.InvalidURL, ValueError):
        raise AddressRefused("The page redirects to what is no web address.") from None
    following = checked(target)
    if url.scheme == "https" and following.scheme == "http":
        raise AddressRefused("The page redirects from https to http, which is not followed.")
    return following


def origin_of(url: httpx.URL) -> Origin:
    """Return the origin of a checked URL; the port is never left out."""
    return url.scheme, url.raw_host.decode("ascii"), url.port or DEFAULT_PORTS[url.scheme]


def _check_characters(url: str) -> None:
    if len(url) > MAX_URL:
        raise AddressRefused(f"The address is longer than {MAX_URL:,} characters.")
    if "\\" in url or any(character.isspace() or not character.isprintable() for character in url):
        raise AddressRefused(
            "The address holds spaces, backslashes or control characters; write them as %20 etc."
        )


def _checked_host(host: str) -> str:
    """Return a host in its one plain notation."""
    host = host.removesuffix(".")
    labels = host.split(".")
    if len(host) > MAX_HOST or not all(labels) or "%" in host:
        raise AddressRefused("The address has no valid host name.")
    if ":" in host:
        return _checked_literal(host)
    if labels[-1].isdigit() or labels[-1].lower().startswith("0x"):
        return _checked_literal(host)
    return host


def _checked_literal(host: str) -> str:
    """Refuse 127.1, 0177.0.0.1, 2130706433 and so on, which only some programs take for hosts."""
    try:
        return str(ip_address(host))
    except ValueError:
        raise AddressRefused(
            "The address has a number in place of a host name that is no plain IP address."
        ) from None


async def permitted_addresses(host: str, *, permits: Permits, lookup: Lookup) -> Sequence[str]:
    """Return the addresses of a host that may be connected to, the best first, and only a few.

    Args:
        host: a name or a literal address.
        permits: tells which addresses may be connected to; it has to permit all of them.
        lookup: finds a name's addresses; asked once.

    Raises:
        AddressRefused: one of its addresses is not permitted.
        ToolError: the name is unknown.
    """
    addresses = [_parsed(address) for address in await _looked_up(host, lookup)]
    if not addresses:
        raise _unknown(host)
    if not all(address is not None and permits(address) for address in addresses):
        raise AddressRefused(f"{host} is not on the public internet, so I may not ask it.")
    return [str(address) for address in addresses[:MAX_ADDRESSES_TRIED]]


async def _looked_up(host: str, lookup: Lookup) -> Sequence[str]:
    if _parsed(host) is not None:
        return (host,)
    try:
        return await lookup(host)
    except OSError as error:
        raise _unknown(host) from error


class GuardedBackend(httpcore.AsyncNetworkBackend):
    """Opens connections to permitted addresses only; TLS is still checked against the name.

    Args:
        permits: tells which addresses may be connected to.
        lookup: finds a name's addresses; asked once for each connection.
    """

    def __init__(self, *, permits: Permits, lookup: Lookup) -> None:
        self._permits = permits
        self._lookup = lookup
        self._sockets = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Look a name up, check every answer, and connect to the first that takes the connection.

        Args:
            host: a name or a literal address.
            port: 1 to 65535.
            timeout: in seconds, for the lookup and all connections together.
            local_address: as httpcore has it.
            socket_options: as httpcore has it.

        Raises:
            AddressRefused: one of its addresses is not permitted.
            ToolError: the name is unknown.
            httpcore.ConnectError: no address took the connection.
            httpcore.ConnectTimeout: no address took it in time.
        """
        try:
            async with asyncio.timeout(timeout):
                addresses = await permitted_addresses(
                    host, permits=self._permits, lookup=self._lookup
                )
                share = None if timeout is None else timeout / len(addresses)
                return BoundedStream(
                    await self._first(addresses, port, share, local_address, socket_options)
                )
        except TimeoutError as error:
            raise httpcore.ConnectTimeout from error

    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> NoReturn:
        """Refuse: a socket file is never on the web.

        Raises:
            AddressRefused: always.
        """
        raise AddressRefused("This is not a web address.")

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)

    async def _first(
        self,
        addresses: Sequence[str],
        port: int,
        timeout: float | None,
        local_address: str | None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one address after the other until one takes the connection."""
        failure: httpcore.ConnectError | httpcore.ConnectTimeout | None = None
        for address in addresses:
            try:
                return await self._sockets.connect_tcp(
                    address, port, timeout, local_address, socket_options
                )
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure or httpcore.ConnectError


def _parsed(address: str) -> IPAddress | None:
    try:
        return ip_address(address)
    except ValueError:
        return None


def _unknown(host: str) -> ToolError:
    return ToolError(f"There is no server named {host}, or its address cannot be found right now.")
