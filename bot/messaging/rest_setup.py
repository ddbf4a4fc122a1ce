"""Linking and registering through signal-cli-rest-api."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Annotated, Any, Final, Self, TypeVar
from urllib.parse import quote

import aiohttp
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

from bot.errors import SignalTimeout, SignalUnavailable
from bot.http_client import new_session, whole_body
from bot.messaging.registration import (
    LINK_URI,
    NUMBER,
    REQUEST_SECONDS,
    Reason,
    RegistrationRefused,
    registration_error,
)
from bot.messaging.rest_answers import ABOUT

CONNECT_SECONDS: Final = 10.0
MAX_ANSWER_BYTES: Final = 2**20
LINK_SECONDS: Final = 90.0
"""The server does not tell when a link code that nobody scanned has expired."""
POLL_SECONDS: Final = 1.0

T = TypeVar("T")


class _StartedLink(BaseModel):
    uri: str = Field(alias="device_link_uri", pattern=LINK_URI)


_STARTED: Final = TypeAdapter(_StartedLink)
_ACCOUNTS: Final = TypeAdapter(list[Annotated[str, Field(pattern=NUMBER)]])


class RestSetup:
    """Asks the server; made by `connect`.

    Args:
        session: for the requests, with the server's address.
        link_seconds: how long to wait for a phone to scan one code.
    """

    def __init__(self, session: aiohttp.ClientSession, *, link_seconds: float) -> None:
        self._session = session
        self._link_seconds = link_seconds
        self._known: frozenset[str] | None = None

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str, *, link_seconds: float = LINK_SECONDS) -> AsyncIterator[Self]:
        """Have a session for the time of the block."""
        bounds = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with new_session(bounds, base_url=f"{url}/") as session:
            yield cls(session, link_seconds=link_seconds)

    async def version(self) -> str:
        """Return the version of signal-cli-rest-api."""
        return (await self._ask(ABOUT, "GET", "v1/about")).version

    async def accounts(self) -> frozenset[str]:
        """Return the numbers of the accounts that signal-cli has."""
        found = await self._ask(_ACCOUNTS, "GET", "v1/accounts")
        return frozenset(found)

    async def start_link(self, device_name: str) -> str:
        """Return a link that a phone scans within some minutes."""
        if self._known is None:
            self._known = await self.accounts()
        path = f"v1/qrcodelink/raw?device_name={quote(device_name, safe='')}"
        return (await self._ask(_STARTED, "GET", path)).uri

    async def finish_link(self, uri: str, device_name: str) -> str:
        """Wait for the phone and return the number of its account.

        The server links in the background and tells nobody; the account that is new is the one.
        """
        known = self._known or frozenset()
        try:
            async with asyncio.timeout(self._link_seconds):
                # The server has nothing else to tell by.
                while not (new := await self.accounts() - known):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise RegistrationRefused(Reason.LINK_EXPIRED) from None
        return min(new)

    async def register(self, number: str, *, captcha: str | None, voice: bool) -> None:
        """Have Signal send a code to a number, by SMS or by a call."""
        body = {"captcha": captcha or "", "use_voice": voice}
        await self._call("POST", f"v1/register/{number}", body)

    async def verify(self, number: str, code: str, *, pin: str | None) -> None:
        """Give Signal the code, and the PIN of a registration lock."""
        path = f"v1/register/{number}/verify/{quote(code, safe='')}"
        await self._call("POST", path, {"pin": pin or ""})

    async def _ask(self, answer: TypeAdapter[T], verb: str, path: str) -> T:
        try:
            return answer.validate_json(await self._call(verb, path))
        except ValidationError:
            raise SignalTimeout("signal-cli-rest-api gave an answer that cannot be read.") from None

    async def _call(self, verb: str, path: str, body: dict[str, Any] | None = None) -> bytes:
        try:
            async with self._session.request(verb, path, json=body) as response:
                # SignalTimeout, for the request did arrive.
                too_big = SignalTimeout("signal-cli-rest-api gave an answer that is too big.")
                answer = await whole_body(response, MAX_ANSWER_BYTES, too_big)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise SignalUnavailable(
                "signal-cli-rest-api cannot be reached. See SIGNAL__URL."
            ) from None
        except (TimeoutError, aiohttp.ClientError):
            raise SignalTimeout("signal-cli-rest-api gave no answer.") from None
        if response.status == HTTPStatus.BAD_REQUEST:
            raise registration_error(answer.decode(errors="replace"))
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise SignalUnavailable(f"signal-cli-rest-api answered with status {response.status}.")
        return answer
