"""Link or register the bot's account, through either Signal side.

`DaemonSetup` and `RestSetup` have the same methods. Each raises a SignalError if it fails;
RegistrationRefused has Signal's reason. Both programs give reasons as sentences, and most share one
error code. So the bot reads the sentences, those of signal-cli 0.13 and 0.14.
"""

import asyncio
import json
import math
import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final, Self
from urllib.parse import quote

import aiohttp

from bot.signal.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.signal.json_rpc import UNREADABLE, JsonRpcConnection, JsonRpcError, text_in
from bot.signal.trouble import AccountTrouble, trouble_in
from tools.http import new_session, whole_body

REQUEST_SECONDS: Final = 90.0
"""Time limit of a request; a registration asks several Signal servers one after the other."""
CONNECT_SECONDS: Final = 10.0
DAEMON_LINK_SECONDS: Final = 300.0
"""Signal itself drops an unused link code sooner."""
REST_LINK_SECONDS: Final = 90.0
"""The server does not tell when an unused link code has expired."""
POLL_SECONDS: Final = 1.0
MAX_ANSWER_BYTES: Final = 2**20
SECONDS_PER_MINUTE: Final = 60

_LINK: Final = re.compile(r"sgnl://linkdevice\?[!-~]{1,500}")
_NUMBER: Final = re.compile(r"\+[1-9]\d{6,14}", re.ASCII)
"""Links and numbers are printed on a terminal, so nothing else is accepted."""


class Reason(StrEnum):
    """Reason why linking or registering failed, as a sentence for the operator."""

    CAPTCHA_NEEDED = "Signal wants a captcha solved first."
    CAPTCHA_REJECTED = (
        "Signal did not take the captcha. Each can be used once, for some minutes, and must be"
        " solved on the machine or network that registers."
    )
    VOICE_TOO_EARLY = (
        "Signal calls only after an SMS was tried: register without --voice, wait a minute, then"
        " register again with it."
    )
    NEW_CODE_NEEDED = "That code is no longer good; register again for a new one."
    PIN_NEEDED = "The number has a registration lock."
    PIN_REJECTED = "That is not the PIN."
    PIN_LOST = (
        "The number has a registration lock, and Signal has deleted its PIN after too many wrong"
        " ones. It can be registered when seven days have passed without use."
    )
    OUTDATED = "Signal no longer takes this version of signal-cli; install a newer one."
    DROPPED = "Signal has dropped this account."
    ALREADY_HERE = "This signal-cli has that account already; nothing was changed."
    LINK_EXPIRED = "The code has expired."
    ONE_ACCOUNT_ONLY = "This signal-cli serves one account only; start it without -a."
    REFUSED = (
        "Signal did not accept that, and does not say why. Try again later, or with --voice; an old"
        " signal-cli is refused as well."
    )


class RegistrationRefused(SignalRejected):
    """Signal refused to link or register.

    Args:
        remaining: hours until a registration lock ends, or tries left for its PIN, if known.
    """

    def __init__(self, reason: Reason, remaining: int | None = None) -> None:
        super().__init__(reason.value)
        self.reason = reason
        self.remaining = remaining


_REASONS: Final = (
    (r"invalid captcha|captcha (not accepted|rejected|has invalid)", Reason.CAPTCHA_REJECTED),
    (r"captcha", Reason.CAPTCHA_NEEDED),
    (r"requesting voice verification", Reason.VOICE_TOO_EARLY),
    (r"invalid pin", Reason.PIN_REJECTED),
    (r"pin data has been deleted", Reason.PIN_LOST),
    (r"locked with a pin", Reason.PIN_NEEDED),
    (r"already exists", Reason.ALREADY_HERE),
    (r"timed out, please try again|unknown device link uri", Reason.LINK_EXPIRED),
    (r"StatusCode: 40[49]|MustRequestNewCode|NoSuchSession", Reason.NEW_CODE_NEEDED),
    (r"method not implemented", Reason.ONE_ACCOUNT_ONLY),
)
_NO_NETWORK: Final = re.compile(
    r"UnknownHost|PushNetwork|Connect(ion)?Exception|SocketTimeout|NoRouteToHost|connection closed"
    r"|broken pipe|(read|write|dial) tcp",
    re.IGNORECASE,
)
_RATE_LIMIT: Final = re.compile(r"rate.?limit|\[429\]|StatusCode: 429", re.IGNORECASE)
_NEXT_ATTEMPT: Final = re.compile(r"may be tried at (\d{13})")
_REMAINING: Final = re.compile(r"(?:until reset|tries remaining): (\d{1,4})\b")


def registration_error(message: str) -> SignalError:
    """Return the error that signal-cli's words about a registration mean."""
    if _RATE_LIMIT.search(message):
        return _rate_limited(message)
    if trouble_in(message) is AccountTrouble.OUTDATED:
        return RegistrationRefused(Reason.OUTDATED)
    for pattern, reason in _REASONS:
        if re.search(pattern, message, re.IGNORECASE):
            remaining = _REMAINING.search(message)
            return RegistrationRefused(reason, int(remaining[1]) if remaining else None)
    if _NO_NETWORK.search(message):
        return SignalUnavailable("signal-cli could not reach Signal. Is there a network?")
    return RegistrationRefused(Reason.REFUSED)


def account_error(message: str) -> SignalError:
    """Return the error that signal-cli's words about a request of an account mean."""
    is_dropped = trouble_in(message) is AccountTrouble.DROPPED
    return RegistrationRefused(Reason.DROPPED) if is_dropped else registration_error(message)


def _rate_limited(message: str) -> SignalRateLimited:
    """Return the error, with the wait if signal-cli names the time of the next attempt (ms)."""
    named = _NEXT_ATTEMPT.search(message)
    if named is None:
        return SignalRateLimited(
            "There were too many attempts for now. Signal does not say how long to wait; try again"
            " in some hours, not sooner."
        )
    seconds = max(1.0, int(named[1]) / 1_000 - time.time())
    minutes = math.ceil(seconds / SECONDS_PER_MINUTE)
    wait = "a minute" if minutes == 1 else f"{minutes} minutes"
    return SignalRateLimited(
        f"There were too many attempts for now. Signal takes the next one in {wait}.",
        retry_after_seconds=seconds,
    )


def _list(answer: object) -> list[Any]:
    if not isinstance(answer, list):
        raise SignalTimeout(UNREADABLE)
    return answer


@dataclass
class DaemonSetup:
    """Asks signal-cli's own daemon."""

    connection: JsonRpcConnection

    @classmethod
    @asynccontextmanager
    async def connect(cls, url: str) -> AsyncIterator[Self]:
        """Connect for the time of the block; raises SignalUnavailable."""
        async with JsonRpcConnection.connect(url) as connection:
            yield cls(connection)

    async def version(self) -> str:
        """Return signal-cli's version, as `1.2.3`."""
        return text_in(await self._call("version", {}), "version")

    async def accounts(self) -> frozenset[str]:
        """Return the numbers of the accounts that signal-cli has."""
        found = _list(await self._call("listAccounts", {}))
        named = (one for one in found if isinstance(one, dict) and one.get("number"))
        return frozenset(text_in(account, "number") for account in named)

    async def start_link(self, device_name: str) -> str:
        """Return a link that a phone can scan for some minutes."""
        return text_in(await self._call("startLink", {}), "deviceLinkUri", _LINK)

    async def finish_link(self, uri: str, device_name: str) -> str:
        """Wait for the phone and return the number of its account."""
        params = {"deviceLinkUri": uri, "deviceName": device_name}
        linked = await self._call("finishLink", params, seconds=DAEMON_LINK_SECONDS)
        return text_in(linked, "number", _NUMBER)

    async def ask_as(self, number: str) -> None:
        """Ask Signal for something in the name of an account, to see whether it still exists."""
        await self._call("listDevices", {"account": number}, explain=account_error)

    async def register(
        self, number: str, *, captcha: str | None, voice: bool, anew: bool = False
    ) -> None:
        """Ask Signal to send a code to a number, by SMS or by a call.

        Args:
            anew: register even if signal-cli says that the account is registered.
        """
        params: dict[str, Any] = {"account": number, "voice": voice}
        if anew:
            params["reregister"] = True
        if captcha is not None:
            params["captcha"] = captcha
        await self._call("register", params)

    async def verify(self, number: str, code: str, *, pin: str | None) -> None:
        """Give Signal the code, and the PIN of a registration lock."""
        params = {"account": number, "verificationCode": code}
        if pin is not None:
            params["pin"] = pin
        await self._call("verify", params)

    async def _call(
        self,
        method: str,
        params: dict[str, Any],
        *,
        seconds: float = REQUEST_SECONDS,
        explain: Callable[[str], SignalError] = registration_error,
    ) -> object:
        try:
            return await self.connection.call(method, params, seconds=seconds)
        except JsonRpcError as failure:
            raise explain(failure.message) from None


@dataclass
class RestSetup:
    """Asks signal-cli-rest-api; the methods are those of `DaemonSetup`.

    Args:
        session: with the server's address.
        link_seconds: how long to wait for a phone to scan one code.
        known: accounts before the first link attempt.
    """

    session: aiohttp.ClientSession
    link_seconds: float = REST_LINK_SECONDS
    known: frozenset[str] | None = None

    @classmethod
    @asynccontextmanager
    async def connect(
        cls, url: str, *, link_seconds: float = REST_LINK_SECONDS
    ) -> AsyncIterator[Self]:
        bounds = aiohttp.ClientTimeout(total=REQUEST_SECONDS, sock_connect=CONNECT_SECONDS)
        async with new_session(bounds, base_url=f"{url}/") as session:
            yield cls(session, link_seconds=link_seconds)

    async def version(self) -> str:
        return text_in(await self._ask("v1/about"), "version")

    async def accounts(self) -> frozenset[str]:
        numbers = _list(await self._ask("v1/accounts"))
        return frozenset(text_in({"number": number}, "number", _NUMBER) for number in numbers)

    async def start_link(self, device_name: str) -> str:
        if self.known is None:
            self.known = await self.accounts()
        path = f"v1/qrcodelink/raw?device_name={quote(device_name, safe='')}"
        return text_in(await self._ask(path), "device_link_uri", _LINK)

    async def finish_link(self, uri: str, device_name: str) -> str:
        # The server links in the background and reports nothing, so wait for a new account.
        known = self.known or frozenset()
        try:
            async with asyncio.timeout(self.link_seconds):
                while not (new := await self.accounts() - known):  # noqa: ASYNC110
                    await asyncio.sleep(POLL_SECONDS)
        except TimeoutError:
            raise RegistrationRefused(Reason.LINK_EXPIRED) from None
        return min(new)

    async def ask_as(self, number: str) -> None:
        await self._call("GET", f"v1/devices/{number}", explain=account_error)

    async def register(
        self, number: str, *, captcha: str | None, voice: bool, anew: bool = False
    ) -> None:
        body = {"captcha": captcha or "", "use_voice": voice}
        await self._call("POST", f"v1/register/{number}", body)

    async def verify(self, number: str, code: str, *, pin: str | None) -> None:
        path = f"v1/register/{number}/verify/{quote(code, safe='')}"
        await self._call("POST", path, {"pin": pin or ""})

    async def _ask(self, path: str) -> object:
        try:
            return json.loads(await self._call("GET", path))
        except (ValueError, RecursionError):
            raise SignalTimeout(UNREADABLE) from None

    async def _call(
        self,
        verb: str,
        path: str,
        body: dict[str, Any] | None = None,
        *,
        explain: Callable[[str], SignalError] = registration_error,
    ) -> bytes:
        # SignalTimeout, because the request has arrived and may have worked.
        too_big = SignalTimeout("signal-cli-rest-api gave an answer that is too big.")
        try:
            async with self.session.request(verb, path, json=body) as response:
                answer = await whole_body(response, MAX_ANSWER_BYTES, too_big)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            raise SignalUnavailable(
                "signal-cli-rest-api cannot be reached. See SIGNAL__URL."
            ) from None
        except (TimeoutError, aiohttp.ClientError):
            raise SignalTimeout("signal-cli-rest-api gave no answer.") from None
        if response.status == HTTPStatus.BAD_REQUEST:
            raise explain(answer.decode(errors="replace"))
        if response.status >= HTTPStatus.MULTIPLE_CHOICES:
            raise SignalUnavailable(f"signal-cli-rest-api answered with status {response.status}.")
        return answer


AccountSetup = DaemonSetup | RestSetup
