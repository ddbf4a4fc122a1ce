"""The dstack guest agent: what makes this machine's quotes and keys, on a Unix socket.

Three of its calls are spoken, as JSON over HTTP/1.1. The SDK would bring some 70 MB into the image
that people have to trust, and it lets an environment variable redirect it; here the path of the
socket is the only way to an agent. (dstack, guest-agent/rpc/proto/agent_rpc.proto)
"""

import re
import ssl
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Final, TypeVar

from pydantic import BaseModel, BeforeValidator, Json, ValidationError

from bot.attestation.errors import AgentError, EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import HttpAnswer, open_http
from bot.attestation.quote import parse_quote

CALL_SECONDS: Final = 10.0
QUOTE_SECONDS: Final = 30.0
"""A quote goes through the host's quoting enclave, which serves every machine there."""

MAX_ANSWER_BYTES: Final = 1024 * 1024
REPORT_DATA_BYTES: Final = 64
KEY_BYTES: Final = 32


NONSENSE: Final = "The dstack guest agent answers something that is no answer."


def _from_hex(value: object) -> bytes:
    if isinstance(value, str) and re.fullmatch(r"(?:[0-9a-fA-F]{2})+", value):
        return bytes.fromhex(value)
    raise ValueError("must be bytes in hexadecimal")


_Hex = Annotated[bytes, BeforeValidator(_from_hex)]


class _TcbInfo(BaseModel):
    app_compose: str


class AgentInfo(BaseModel, frozen=True):
    """What the agent says about this machine.

    Attributes:
        tcb_info: JSON within the agent's JSON; holds app-compose.json exactly as it was measured.
        key_provider_info: where its keys come from, as the agent's JSON; may be empty.
    """

    tcb_info: Json[_TcbInfo]
    key_provider_info: str = ""

    @property
    def app_compose(self) -> str:
        """app-compose.json, exactly as it was measured."""
        return self.tcb_info.app_compose


class AgentQuote(BaseModel, frozen=True):
    """A quote over the report data that was asked for.

    Attributes:
        quote: of Intel TDX.
        event_log: what was extended into the RTMRs, as the agent's JSON.
        report_data: what the agent says that it made the quote over.
        vm_config: what the machine was started with, as the agent's JSON; may be empty.
    """

    quote: _Hex
    event_log: str
    report_data: _Hex
    vm_config: str = ""


class _Key(BaseModel):
    key: _Hex


class DstackAgent:
    """Asks the guest agent. Every call is a connection of its own, so an agent may restart.

    Args:
        socket: path of the agent's Unix socket.
        call_seconds: for one call.
        quote_seconds: for a quote.
    """

    def __init__(
        self,
        socket: Path,
        *,
        call_seconds: float = CALL_SECONDS,
        quote_seconds: float = QUOTE_SECONDS,
    ) -> None:
        self._socket = socket
        self._call_seconds = call_seconds
        self._quote_seconds = quote_seconds

    async def info(self) -> AgentInfo:
        """Ask what this machine runs.

        Raises:
            AgentError: the agent is not there, does not answer, or answers nonsense.
        """
        return _read(AgentInfo, await self._call("Info"))

    async def quote(self, report_data: bytes) -> AgentQuote:
        """Ask for a quote.

        Args:
            report_data: 64 bytes that the quote then vouches for.

        Raises:
            AgentError: the agent is not there, does not answer, or answers nonsense, which a quote
                over other report data also is.
            ValueError: the report data has another length; the agent would pad it in silence.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report data has {REPORT_DATA_BYTES} bytes")
        answer = _read(
            AgentQuote,
            await self._call(
                "GetQuote", {"report_data": report_data.hex()}, seconds=self._quote_seconds
            ),
        )
        if not answer.report_data == _quoted(answer.quote) == report_data:
            raise AgentError(
                "The dstack guest agent made its quote over something else than was asked."
            )
        return answer

    async def key(self, path: str) -> bytes:
        """Ask for the application's key of a path: 32 bytes, the same ones as long as it exists.

        Nothing but the path selects the key: use one path for each use.

        Raises:
            AgentError: the agent is not there, does not answer, or answers nonsense.
        """
        key = _read(_Key, await self._call("GetKey", {"path": path})).key
        if len(key) != KEY_BYTES:
            raise AgentError(NONSENSE)
        return key

    async def _call(
        self,
        method: str,
        arguments: Mapping[str, str] = MappingProxyType({}),
        *,
        seconds: float | None = None,
    ) -> bytes:
        if not self._is_there():
            raise AgentError("There is no dstack guest agent: its socket is not there.")
        answer = await self._post(method, dict(arguments), seconds or self._call_seconds)
        if answer.status != HTTPStatus.OK:
            raise AgentError(f"The dstack guest agent refused {method} (HTTP {answer.status}).")
        return answer.body

    def _is_there(self) -> bool:
        try:
            return self._socket.is_socket()
        except OSError:
            return False

    async def _post(self, method: str, arguments: dict[str, str], seconds: float) -> HttpAnswer:
        no_tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            async with open_http(tls=no_tls, socket=self._socket) as http:
                return await http.ask(
                    "POST",
                    f"http://dstack/{method}",
                    seconds=seconds,
                    max_bytes=MAX_ANSWER_BYTES,
                    json=arguments,
                )
        except EvidenceUnavailable as error:
            raise AgentError(f"The dstack guest agent is of no use: {error}.") from None


_Model = TypeVar("_Model", bound=BaseModel)


def _read(model: type[_Model], body: bytes) -> _Model:
    try:
        return model.model_validate_json(body)
    except ValidationError:
        raise AgentError(NONSENSE) from None


def _quoted(quote: bytes) -> bytes:
    try:
        return parse_quote(quote).report_data
    except MalformedEvidence:
        raise AgentError(NONSENSE) from None
