"""The dstack guest agent: makes this machine's quotes and keys, on a Unix socket.

Three of its calls are used, as JSON over HTTP/1.1. The SDK would bring some 70 MB into the image
that people have to trust, and it lets an environment variable redirect it. Here only the path of
the socket leads to an agent. (dstack, guest-agent/rpc/proto/agent_rpc.proto)
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from pydantic import BaseModel, Json, ValidationError

from bot.attestation.errors import AgentError, EvidenceUnavailable, MalformedEvidence
from bot.attestation.http import open_http
from bot.attestation.quote import parse_quote
from bot.attestation.strict_json import HexBytes
from bot.errors import SettingsError

CALL_SECONDS: Final = 10.0
QUOTE_SECONDS: Final = 30.0
"""A quote goes through the host's quoting enclave, which serves every machine there."""

MAX_ANSWER_BYTES: Final = 1024 * 1024
REPORT_DATA_BYTES: Final = 64
KEY_BYTES: Final = 32

NONSENSE: Final = "The dstack guest agent answers nonsense."


class _TcbInfo(BaseModel):
    app_compose: str


class AgentInfo(BaseModel, frozen=True):
    """The agent's information about this machine.

    Attributes:
        tcb_info: JSON within the agent's JSON.
        key_provider_info: source of the machine's keys, as the agent's JSON; may be empty.
    """

    tcb_info: Json[_TcbInfo]
    key_provider_info: str = ""

    @property
    def app_compose(self) -> str:
        """app-compose.json, exactly as it was measured."""
        return self.tcb_info.app_compose


class AgentQuote(BaseModel, frozen=True):
    """A TDX quote with its event log; `vm_config` is the agent's JSON and may be empty."""

    quote: HexBytes
    event_log: str
    report_data: HexBytes
    vm_config: str = ""


class _Key(BaseModel):
    key: HexBytes


_Model = TypeVar("_Model", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class DstackAgent:
    """Asks the guest agent. Every call has its own connection, so the agent may restart.

    Every call raises AgentError if the agent is missing, does not answer, or answers nonsense.
    """

    socket: Path

    async def info(self) -> AgentInfo:
        """Ask what this machine runs."""
        return await self._call(AgentInfo, "Info", {}, CALL_SECONDS)

    async def quote(self, report_data: bytes) -> AgentQuote:
        """Ask for a quote over 64 bytes; a quote over other bytes is nonsense.

        Raises:
            ValueError: the report data has another length; the agent would pad it in silence.
        """
        if len(report_data) != REPORT_DATA_BYTES:
            raise ValueError(f"report data has {REPORT_DATA_BYTES} bytes")
        arguments = {"report_data": report_data.hex()}
        answer = await self._call(AgentQuote, "GetQuote", arguments, QUOTE_SECONDS)
        try:
            quoted = parse_quote(answer.quote).report_data
        except MalformedEvidence:
            raise AgentError(NONSENSE) from None
        if not answer.report_data == quoted == report_data:
            raise AgentError("The dstack guest agent made its quote over other data than asked.")
        return answer

    async def key(self, path: str) -> bytes:
        """Ask for the application's key of a path: always the same 32 bytes.

        Only the path selects the key: use one path for each use.
        """
        key = (await self._call(_Key, "GetKey", {"path": path}, CALL_SECONDS)).key
        if len(key) != KEY_BYTES:
            raise AgentError(NONSENSE)
        return key

    async def _call(
        self, model: type[_Model], method: str, arguments: Mapping[str, str], seconds: float
    ) -> _Model:
        if not self._has_socket():
            raise AgentError("There is no dstack guest agent: its socket is missing.")
        try:
            async with open_http(socket=self.socket) as http:
                answer = await http.ask(
                    "POST",
                    f"http://dstack/{method}",
                    seconds=seconds,
                    max_bytes=MAX_ANSWER_BYTES,
                    json=dict(arguments),
                )
        except EvidenceUnavailable as error:
            raise AgentError(f"The dstack guest agent is of no use: {error}.") from None
        if answer.status != 200:
            raise AgentError(f"The dstack guest agent refused {method} (HTTP {answer.status}).")
        try:
            return model.model_validate_json(answer.body)
        except ValidationError:
            raise AgentError(NONSENSE) from None

    def _has_socket(self) -> bool:
        try:
            return self.socket.is_socket()
        except OSError:
            return False


# The store's key

STORE_KEY_PATH: Final = "signal-bot/db/v1"
MAX_NAME_CHARS: Final = 32


class _KeyProviderInfo(BaseModel):
    name: str


async def derive_store_key(agent: DstackAgent, *, may_be_lost: bool) -> str:
    """Return the key of the conversation store, in hexadecimal.

        K = HKDF-SHA256(GetKey("signal-bot/db/v1"), no salt, info "sqlcipher", 32 bytes)

    GetKey is bound to the application, not to its code: the key survives an upgrade, and anyone who
    can get an upgrade approved can read the store.

    Args:
        may_be_lost: whether to accept a key that does not survive.

    Raises:
        SettingsError: the key would be lost, and it may not be.
        AgentError: names the setting.
    """
    try:
        if not may_be_lost:
            _require_key_service((await agent.info()).key_provider_info)
        application_key = await agent.key(STORE_KEY_PATH)
    except AgentError as error:
        raise AgentError(f"STORE__KEY_SOURCE: {error}") from None
    return HKDF(SHA256(), KEY_BYTES, salt=None, info=b"sqlcipher").derive(application_key).hex()


def _require_key_service(key_provider_info: str) -> None:
    try:
        name = _KeyProviderInfo.model_validate_json(key_provider_info).name
    except ValidationError:
        name = "unknown"
    if name != "kms":
        raise SettingsError(
            "STORE__KEY_SOURCE: dstack would not keep the key, and every conversation could be lost"
            f" at a restart or an upgrade: its key provider is {name[:MAX_NAME_CHARS]!a}. Run it"
            " with a key provider of the kind kms, or set STORE__KEY_MAY_BE_LOST=true."
        )
