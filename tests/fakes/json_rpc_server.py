"""A server for newline-delimited JSON-RPC 2.0 that answers as signal-cli's daemon does.

The requests of a connection run concurrently; answers come in any order.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final

MAX_LINE_BYTES: Final = 32 * 1024 * 1024

Json = dict[str, Any]


class Refusal(Exception):
    """Answer a request with a JSON-RPC error.

    Args:
        code: of the error.
        message: its text.
        data: its details.
    """

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.data = data


class RefusedAfterDelivery(Refusal):
    """The request was carried out; its answer is an error all the same."""


class LostReply(Exception):
    """The request was carried out; its answer gets lost."""


class HangUp(Exception):
    """The request was carried out; the connection breaks before the answer."""


class Client:
    """Connection and its subscriptions."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.subscriptions: set[int] = set()
        self.gone = asyncio.Event()

    def write(self, value: object) -> None:
        self.write_line(json.dumps(value, separators=(",", ":")).encode())

    def write_line(self, line: bytes) -> None:
        """Write a line as it is; a newline is added."""
        if not self._writer.is_closing():
            self._writer.write(line + b"\n")

    async def drain(self) -> None:
        """Wait until the client has read enough; ignore a client that went away."""
        try:
            await self._writer.drain()
        except ConnectionError:
            return

    def abort(self) -> None:
        """Break the connection now; later frames go to the next connection."""
        self.subscriptions.clear()
        self._writer.transport.abort()


Call = Callable[[Client, str, Json], Awaitable[object]]
"""Carries out a method with params; returns its result or raises Refusal, LostReply, HangUp."""


class JsonRpcServer:
    """Serves the connections that an asyncio server accepts.

    Attributes:
        finishes: carry out the requests of a connection that has ended, as signal-cli does.

    Args:
        call: carries out the requests.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        self.finishes = False
        self.clients: set[Client] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection's requests until it ends; unless `finishes`, the rest end with it."""
        client = Client(writer)
        self.clients.add(client)
        requests: set[asyncio.Task[None]] = set()
        try:
            async with asyncio.TaskGroup() as tasks:
                async for line in _lines(reader):
                    request = tasks.create_task(self._handle(client, line))
                    requests.add(request)
                    request.add_done_callback(requests.discard)
                client.subscriptions.clear()
                for request in () if self.finishes else requests:
                    request.cancel()
        finally:
            self.clients.discard(client)
            writer.close()
            client.gone.set()

    async def drop_connections(self) -> None:
        clients = list(self.clients)
        for client in clients:
            client.abort()
        for client in clients:
            await client.gone.wait()

    async def _handle(self, client: Client, line: bytes) -> None:
        try:
            answer = await self._answer_line(client, line)
        except LostReply:
            return
        except HangUp:
            client.abort()
            return
        if answer is not None:
            client.write(answer)
            await client.drain()

    async def _answer_line(self, client: Client, line: bytes) -> object:
        try:
            request = json.loads(line)
        except ValueError:
            return _error(None, Refusal(-32700, "Parse error"))
        return await self._answer(client, request)

    async def _answer(self, client: Client, request: object) -> Json | None:
        if not isinstance(request, dict):
            return _error(None, Refusal(-32600, "unexpected type"))
        request_id = request.get("id")
        try:
            method, params = _checked(request)
            result = await self._call(client, method, params)
        except Refusal as refusal:
            return _error(request_id, refusal)
        if "id" not in request:
            return None
        return {"jsonrpc": "2.0", "result": result, "id": request_id}


def _checked(request: Json) -> tuple[str, Json]:
    """Method and params of a request, or signal-cli's objection to it."""
    if request.get("jsonrpc") != "2.0":
        raise Refusal(-32600, "only jsonrpc version 2.0 is supported")
    if request.get("method") is None:
        raise Refusal(-32600, "method field must be set")
    params = request.get("params")
    if params is None:
        params = {}
    if not isinstance(params, dict):
        raise Refusal(-32600, "Cannot deserialize value of params")
    return str(request["method"]), params


def _error(request_id: object, refusal: Refusal) -> Json:
    error = {"code": refusal.code, "message": refusal.message, "data": refusal.data}
    return {"jsonrpc": "2.0", "error": error, "id": request_id}


async def _lines(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a connection until it ends, however it ends."""
    try:
        async for line in reader:
            yield line
    except (ConnectionError, ValueError):  # broken, or a line over the limit
        return
