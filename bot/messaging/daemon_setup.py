"""Linking and registering through signal-cli's own daemon."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final, Self, TypeVar

from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from bot.errors import SignalTimeout
from bot.messaging.json_rpc import JsonRpcConnection, JsonRpcError, parse_address
from bot.messaging.registration import LINK_URI, NUMBER, REQUEST_SECONDS, registration_error
from bot.messaging.signal_answers import VERSION

LINK_SECONDS: Final = 300.0
"""Signal itself gives up a link code that nobody scans, sooner than this."""

T = TypeVar("T")


class _StartedLink(BaseModel):
    uri: str = Field(alias="deviceLinkUri", pattern=LINK_URI)


class _Linked(BaseModel):
    number: str = Field(pattern=NUMBER)


class _Account(BaseModel):
    number: str | None = None


_STARTED: Final = TypeAdapter(_StartedLink)
_LINKED: Final = TypeAdapter(_Linked)
_ACCOUNTS: Final = TypeAdapter(list[_Account])


class DaemonSetup:
    """Asks the daemon; made by `connect`."""

    def __init__(self, connection: JsonRpcConnection) -> None:
        self._connection = connection

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str) -> AsyncIterator[Self]:
        """Connect for the time of the block.

        Raises:
            SignalUnavailable: nobody listens there.
        """
        async with JsonRpcConnection.connect(parse_address(url), _ignore, _ignore) as connection:
            yield cls(connection)

    async def version(self) -> str:
        """Return signal-cli's version."""
        return (await self._ask(VERSION, "version", {})).version

    async def accounts(self) -> frozenset[str]:
        """Return the numbers of the accounts that signal-cli has."""
        found = await self._ask(_ACCOUNTS, "listAccounts", {})
        return frozenset(account.number for account in found if account.number)

    async def start_link(self, device_name: str) -> str:
        """Return a link that a phone scans within some minutes."""
        return (await self._ask(_STARTED, "startLink", {})).uri

    async def finish_link(self, uri: str, device_name: str) -> str:
        """Wait for the phone and return the number of its account."""
        params = {"deviceLinkUri": uri, "deviceName": device_name}
        return (await self._ask(_LINKED, "finishLink", params, seconds=LINK_SECONDS)).number

    async def register(self, number: str, *, captcha: str | None, voice: bool) -> None:
        """Have Signal send a code to a number, by SMS or by a call."""
        params: dict[str, Any] = {"account": number, "voice": voice}
        if captcha is not None:
            params["captcha"] = captcha
        await self._call("register", params)

    async def verify(self, number: str, code: str, *, pin: str | None) -> None:
        """Give Signal the code, and the PIN of a registration lock."""
        params = {"account": number, "verificationCode": code}
        if pin is not None:
            params["pin"] = pin
        await self._call("verify", params)

    async def _ask(
        self,
        answer: TypeAdapter[T],
        method: str,
        params: dict[str, Any],
        *,
        seconds: float = REQUEST_SECONDS,
    ) -> T:
        try:
            return answer.validate_python(await self._call(method, params, seconds=seconds))
        except ValidationError:
            raise SignalTimeout("signal-cli gave an answer that cannot be read.") from None

    async def _call(
        self, method: str, params: dict[str, Any], *, seconds: float = REQUEST_SECONDS
    ) -> object:
        try:
            return await self._connection.call(method, params, seconds=seconds)
        except JsonRpcError as failure:
            raise registration_error(failure.message) from None


def _ignore(*_: object) -> None:
    """Notifications and garbage on a connection that only asks."""
