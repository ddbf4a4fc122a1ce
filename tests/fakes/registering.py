"""A Signal side where the bot's account is still to be linked or registered."""

import asyncio
from collections import deque
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Final, Self

from tests.fakes.json_rpc_server import Client, Json, Refusal
from tests.fakes.signal_side import BOT, SignalSide

LINK_URI: Final = (
    "sgnl://linkdevice?uuid=Wd3Fh8rGDN1h3RRQ4qM0rw%3D%3D"
    "&pub_key=BW3Fh8rGDN1h3RRQ4qM0rwWd3Fh8rGDN1h3RRQ4qM0%2Bw%2F"
)
CODE: Final = "123456"
PIN: Final = "8642"
CAPTCHA: Final = "signalcaptcha://signal-hcaptcha.site.registration.token"

CAPTCHA_REQUIRED: Final = (
    "Captcha required for verification, use --captcha CAPTCHA\nTo get the token, go to"
    " https://signalcaptchas.org/registration/generate.html\nAfter solving the captcha,"
    ' right-click on the "Open Signal" link and copy the link.'
)
INVALID_CAPTCHA: Final = "Invalid captcha given."
WRONG_CODE: Final = "Verify error: StatusCode: 400"
LOCKED: Final = (
    "Verification failed! This number is locked with a pin. Hours remaining until reset: 167\n"
    "Use '--pin PIN_CODE' to specify the registration lock PIN"
)
LINK_TIMED_OUT: Final = "Link request timed out, please try again."
OFFLINE: Final = (
    "Failed to register: java.net.UnknownHostException: chat.signal.org (PushNetworkException)"
)
USER_ERROR: Final = -1
IO_ERROR: Final = -3


class Registrar:
    """State of Signal's server for the number, the same for both programs.

    Attributes:
        number: the account's.
        registered: whether this machine has the account.
        wants_captcha, wants_pin: whether Signal demands them before it registers.
        pin: of the lock.
        refusals: code and text for the next refused requests, in order.
        asked: each request and its parameters, in order.
        expiring: how many link codes expire before one is scanned.
        linked: set once the phone has scanned.
        shown: how many link codes were given out.
    """

    def __init__(self, number: str) -> None:
        self.number = number
        self.registered = False
        self.wants_captcha = False
        self.wants_pin = False
        self.pin = PIN
        self.refusals: deque[tuple[int, str]] = deque()
        self.asked: list[tuple[str, Json]] = []
        self.expiring = 0
        self.linked = asyncio.Event()
        self.shown = 0

    def start_link(self) -> str:
        self._take("startLink", {})
        self.shown += 1
        return LINK_URI

    async def finish_link(self) -> None:
        if self.shown <= self.expiring:
            raise Refusal(USER_ERROR, LINK_TIMED_OUT)
        await self.linked.wait()
        self.registered = True

    def register(self, params: Json) -> None:
        self._take("register", params)
        if self.registered and not params.get("reregister"):
            raise Refusal(IO_ERROR, "Failed to register: Account is already registered")
        captcha = params.get("captcha")
        if self.wants_captcha and captcha is None:
            raise Refusal(USER_ERROR, CAPTCHA_REQUIRED)
        if self.wants_captcha and captcha != CAPTCHA:
            raise Refusal(USER_ERROR, INVALID_CAPTCHA)

    def verify(self, code: str, pin: str | None) -> None:
        self._take("verify", {"code": code, "pin": pin})
        if code != CODE:
            raise Refusal(IO_ERROR, WRONG_CODE)
        if self.wants_pin and pin is None:
            raise Refusal(USER_ERROR, LOCKED)
        if self.wants_pin and pin != self.pin:
            tries = 10 - sum(1 for name, params in self.asked if params.get("pin"))
            raise Refusal(USER_ERROR, f"Verification failed! Invalid pin, tries remaining: {tries}")
        self.registered = True

    def _take(self, name: str, params: Json) -> None:
        self.asked.append((name, params))
        if self.refusals:
            raise Refusal(*self.refusals.popleft())


class RegisteringSignalCli(SignalSide):
    """signal-cli's daemon, with or without the account.

    Attributes:
        registrar: the state of Signal's server for the account.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.registrar = Registrar(BOT.number)
        self._methods |= {
            "startLink": self._start_link,
            "finishLink": self._finish_link,
            "register": self._register,
            "verify": self._verify,
        }

    @classmethod
    def open(cls, path: Path) -> AbstractAsyncContextManager[Self]:
        return cls.listen(path)

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    async def _list_accounts(self, client: Client, params: Json) -> object:
        return await super()._list_accounts(client, params) if self.registrar.registered else []

    async def _list_identities(self, client: Client, params: Json) -> object:
        self._require_account()
        return await super()._list_identities(client, params)

    async def _subscribe(self, client: Client, params: Json) -> object:
        self._require_account()
        return await super()._subscribe(client, params)

    def _require_account(self) -> None:
        if not self.registrar.registered:
            raise Refusal(-32602, "Specified account does not exist")

    async def _start_link(self, _client: Client, _params: Json) -> object:
        return {"deviceLinkUri": self.registrar.start_link()}

    async def _finish_link(self, _client: Client, params: Json) -> object:
        assert params["deviceLinkUri"] == LINK_URI
        assert params["deviceName"]
        await self.registrar.finish_link()
        return {"number": self.registrar.number}

    async def _register(self, _client: Client, params: Json) -> object:
        assert params.pop("account") == self.registrar.number
        self.registrar.register(params)
        return {}

    async def _verify(self, _client: Client, params: Json) -> object:
        assert params["account"] == self.registrar.number
        self.registrar.verify(params["verificationCode"], params.get("pin"))
        await self.meets("")
        return {}
