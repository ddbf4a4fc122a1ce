"""signalbot's client for sending, on an HTTP session of ours."""

import io

import aiohttp
from aiohttp.client_middlewares import ClientMiddlewareType
from signalbot._client.base import HttpVerb, SessionManager
from signalbot._client.messages import MessagesClient, MessagesURIs
from signalbot.errors import SignalAPIError

from bot.messaging.rest_http import Gate, RestTimeouts, open_session


class Sessions(SessionManager):
    """Gives signalbot an HTTP session of ours."""

    def __init__(self, gate: Gate, bounds: RestTimeouts) -> None:
        super().__init__()
        self._gate = gate
        self._bounds = bounds

    async def get(self) -> aiohttp.ClientSession:
        """Return the session; the first call makes it."""
        if self._session is None:
            self._session = open_session(self._gate, self._bounds)
        return self._session


class Messages(MessagesClient):
    """signalbot's client; what it sends goes out piece by piece, for a file may be in it.

    Args:
        uris: of the server.
        sessions: gives the session.
        gate: for what it sends.
    """

    def __init__(
        self, uris: MessagesURIs, sessions: SessionManager, gate: ClientMiddlewareType
    ) -> None:
        super().__init__(uris, None, sessions)
        self._gate = gate

    async def _request(
        self,
        verb: HttpVerb,
        uri: str,
        *,
        error_cls: type[SignalAPIError],
        payload: str | None = None,
    ) -> aiohttp.ClientResponse:
        """Make a request whose failure is a SignalError already, by the gate."""
        del error_cls
        session = await self._sessions.get()
        body = io.BytesIO((payload or "").encode())
        return await session.request(verb, uri, data=body, middlewares=(self._gate,))
