"""signal-cli-rest-api where the bot's account is still to be linked or registered."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Self

from aiohttp import web

from tests.fakes.json_rpc_server import Refusal
from tests.fakes.registering import Registrar
from tests.fakes.signal_side import BOT


class RegisteringRestApi:
    """signal-cli-rest-api, with or without the account.

    Attributes:
        registrar: the state of Signal's server for the account.
        url: where it listens.
    """

    def __init__(self, url: str) -> None:
        self.registrar = Registrar(BOT.number)
        self.url = url

    @classmethod
    @asynccontextmanager
    async def open(cls, _path: Path) -> AsyncIterator[Self]:
        app = web.Application(middlewares=[_refusals])
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1)
        side = cls("")
        app.router.add_get("/v1/accounts", side._list_accounts)
        app.router.add_get("/v1/qrcodelink/raw", side._start_link)
        app.router.add_post("/v1/register/{number}", side._register)
        app.router.add_post("/v1/register/{number}/verify/{code}", side._verify)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        side.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        try:
            yield side
        finally:
            await runner.cleanup()

    async def _list_accounts(self, _: web.Request) -> web.Response:
        registrar = self.registrar
        # The real server finishes the link in the background and cannot be asked for the result.
        if registrar.linked.is_set() and registrar.shown > registrar.expiring:
            registrar.registered = True
        return web.json_response([registrar.number] if registrar.registered else [])

    async def _start_link(self, request: web.Request) -> web.Response:
        assert request.query["device_name"]
        return web.json_response({"device_link_uri": self.registrar.start_link()})

    async def _register(self, request: web.Request) -> web.Response:
        assert request.match_info["number"] == self.registrar.number
        asked = await request.json()
        self.registrar.register({name: value for name, value in asked.items() if value})
        return web.Response(status=201)

    async def _verify(self, request: web.Request) -> web.Response:
        assert request.match_info["number"] == self.registrar.number
        asked = await request.json() if request.can_read_body else {}
        self.registrar.verify(request.match_info["code"], asked.get("pin") or None)
        return web.Response(status=201)


@web.middleware
async def _refusals(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Answer as the real server does: its own words around signal-cli's, status 400."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return web.json_response({"error": refusal.message}, status=400)
