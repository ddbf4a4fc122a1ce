"""The look-alike of signal-cli with the faults that only tests need."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

from bot.signal.frames import Account
from tests.fakes.json_rpc_server import MAX_LINE_BYTES, Client, Json, LostReply, Refusal
from tests.fakes.signal_side import SignalSide

FIXTURE_ACCOUNT = Account(number="+4915100000000", aci="9d578c56-e167-564c-8fb4-cdda901237d9")
"""The account that tests/fixtures/signal_frames.json was written for."""


class FallingSilent(SignalSide):
    """Signal as the bot sees it, with a signal-cli that may fall silent.

    Attributes:
        silent: ignore all requests; those that began before go on.
    """

    silent = False

    async def _call(self, client: Client, name: str, params: Json) -> object:
        if self.silent:
            raise LostReply
        return await super()._call(client, name, params)


class SignalCli(FallingSilent):
    """Over a Unix socket.

    Attributes:
        fates: the delivery result for each recipient of a message.
        identities: the answers of listIdentities about the account itself, with a filter by number
            and without.
        lists_devices: whether listDevices is answered.
        lacks: methods that this version does not have.
        told: false answers, by method.
        asked: every method that was called.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path, account=FIXTURE_ACCOUNT)
        self.fates: Sequence[str] = ["SUCCESS"]
        self.identities: tuple[list[Json], list[Json]] | None = None
        self.lists_devices = True
        self.lacks: set[str] = set()
        self.told: dict[str, object] = {}
        self.asked: list[str] = []

    @property
    def url(self) -> str:
        return f"unix:{self.path}"

    async def _call(self, client: Client, name: str, params: Json) -> object:
        self.asked.append(name)
        if self.silent:
            return await super()._call(client, name, params)
        if name in self.lacks:
            raise Refusal(-32601, "Method not implemented")
        if name in self.told:
            return self.told[name]
        return await super()._call(client, name, params)

    async def _list_identities(self, client: Client, params: Json) -> object:
        if self.identities is None:
            return await super()._list_identities(client, params)
        filtered, everybody = self.identities
        return filtered if "number" in params else everybody

    async def _list_devices(self, client: Client, params: Json) -> object:
        if not self.lists_devices:
            await self._announce()
            raise Refusal(-3, "Failed to get linked devices: [403]")
        return await super()._list_devices(client, params)

    def _fates(self) -> Sequence[str]:
        return self.fates


class TcpSignalCli(SignalCli):
    """signal-cli over TCP on loopback; it keeps its port across restarts."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._port = 0

    @property
    def url(self) -> str:
        return f"tcp://127.0.0.1:{self._port}"

    async def reserve_port(self) -> None:
        await self.come_back()
        await self.go_away()

    async def _open_server(self) -> asyncio.Server:
        server = await asyncio.start_server(
            self._rpc.serve, "127.0.0.1", self._port, limit=MAX_LINE_BYTES
        )
        self._port = server.sockets[0].getsockname()[1]
        return server
