"""A dstack guest agent on a Unix socket: quotes of a soft TDX machine, keys of a soft KMS.

    agent = SoftAgent(SoftTdx())
    async with serving(agent, folder / "dstack.sock") as socket:
        ...  # DstackAgent(socket); agent.fault = silent

Speaks JSON over HTTP/1.1 as far as the bot does: Info, GetQuote, GetKey, Version. `agent.fault`
takes the place of every answer; `agent.recorded` is a GetQuote answer to every question.
The quotes are signed by a test root, the measurements are invented, no KMS took part.
"""

import asyncio
import hashlib
import json
import os
import socket as sockets
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final

from aiohttp import web
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tests.fakes.soft_tdx import SoftTdx

RUNTIME_EVENT: Final = 0x08000001
REPORT_DATA_SIZE: Final = 64
KMS_ROOT: Final = b"\x07" * 32
PINNED_IMAGE: Final = "registry.example/library/bot@sha256:" + "ab" * 32
COMPOSE: Final = json.dumps(
    {
        "manifest_version": 2,
        "name": "signal-tee-bot",
        "runner": "docker-compose",
        "docker_compose_file": f"services:\n  bot:\n    image: {PINNED_IMAGE}\n",
    }
)

Json = dict[str, Any]
Fault = Callable[[], Awaitable[web.Response]]


class SoftAgent:
    """Soft confidential machine: measurements of its boot, and answers of its agent.

    Attributes:
        mr_td: its measurement.
        os_image_hash: of the image that it says it booted.
        event_log: grows by `emit`.
        key_provider_info: the source of keys in the answer of Info.
        recorded: a GetQuote answer to every question.
        fault: takes the place of every answer.
        requests: methods in the order in which they were called, with their arguments.
    """

    def __init__(
        self,
        platform: SoftTdx,
        app_compose: str = COMPOSE,
        *,
        app_id: bytes | None = None,
        key_provider: str = "kms",
    ) -> None:
        self.app_compose: Final = app_compose
        self.compose_hash: Final = hashlib.sha256(app_compose.encode()).digest()
        self.app_id: Final = app_id or self.compose_hash[:20]
        self.instance_id: Final = os.urandom(20)
        self.mr_td: Final = b"\x11" * 48
        self.os_image_hash: Final = b"\x0d" * 32
        self.key_provider_info = json.dumps({"name": key_provider, "id": "aa" * 32})
        self.recorded: Mapping[str, str] | None = None
        self.fault: Fault | None = None
        self.requests: list[tuple[str, Json]] = []
        self._platform = platform
        self.event_log: Final = [*_firmware_events(), *self._boot_events()]

    @property
    def mr_config_id(self) -> bytes:
        """The V1 form: 01 || compose hash || 15 zero bytes."""
        return b"\x01" + self.compose_hash + bytes(15)

    def emit(self, name: str, payload: bytes) -> None:
        """Append a runtime event after boot, as any container with the socket can."""
        self.event_log.append(runtime_event(name, payload))

    def rtmrs(self) -> tuple[bytes, bytes, bytes, bytes]:
        """Replay the event log into the four registers."""
        registers = [bytes(48)] * 4
        for event in self.event_log:
            extended = registers[event["imr"]] + bytes.fromhex(event["digest"])
            registers[event["imr"]] = hashlib.sha384(extended).digest()
        first, second, third, fourth = registers
        return first, second, third, fourth

    def quote(self, report_data: bytes) -> dict[str, str]:
        """Return an answer to GetQuote: the report data is padded with zeros, never hashed."""
        if len(report_data) > REPORT_DATA_SIZE:
            raise ValueError("Report data is too long")
        padded = report_data.ljust(REPORT_DATA_SIZE, b"\0")
        quote = self._platform.quote(padded, self.mr_td, self.rtmrs(), self.mr_config_id)
        return {
            "quote": quote.hex(),
            "event_log": json.dumps(self.event_log),
            "report_data": padded.hex(),
            "vm_config": json.dumps({"os_image_hash": self.os_image_hash.hex(), "cpu_count": 2}),
            "attestation": "",
        }

    def application(self) -> web.Application:
        methods: dict[str, Callable[[Json], Json]] = {
            "Info": self._info,
            "GetQuote": self._get_quote,
            "GetKey": self._key,
        }
        application = web.Application()
        for name, answer in methods.items():
            application.router.add_post(f"/{name}", self._handler(name, answer))
        return application

    def _handler(
        self, name: str, answer: Callable[[Json], Json]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def handle(request: web.Request) -> web.Response:
            arguments = json.loads(await request.read())
            self.requests.append((name, arguments))
            if self.fault is not None:
                return await self.fault()
            try:
                return web.json_response(answer(arguments))
            except (KeyError, ValueError) as error:
                return web.json_response({"error": str(error)}, status=400)

        return handle

    def _get_quote(self, arguments: Json) -> Json:
        if self.recorded is not None:
            return dict(self.recorded)
        return self.quote(bytes.fromhex(arguments["report_data"]))

    def _key(self, arguments: Json) -> Json:
        """Only the path selects the key, and only KMS root and app id decide about its bytes."""
        app_key = _derived(KMS_ROOT, self.app_id + b"app-key")
        key = _derived(app_key, arguments["path"].encode())
        return {"key": key.hex(), "signature_chain": ["00" * 65, "00" * 65]}

    def _info(self, _: Json) -> Json:
        """Return what the bot reads."""
        tcb_info = {"compose_hash": self.compose_hash.hex(), "app_compose": self.app_compose}
        return {
            "app_id": self.app_id.hex(),
            "tcb_info": json.dumps(tcb_info),
            "key_provider_info": self.key_provider_info,
        }

    def _boot_events(self) -> Iterator[Json]:
        yield runtime_event("system-preparing", b"")
        yield runtime_event("app-id", self.app_id)
        yield runtime_event("compose-hash", self.compose_hash)
        yield runtime_event("instance-id", self.instance_id)
        yield runtime_event("boot-mr-done", b"")
        yield runtime_event("os-image-hash", self.os_image_hash)
        yield runtime_event("key-provider", self.key_provider_info.encode())
        yield runtime_event("storage-fs", b"zfs")
        yield runtime_event("system-ready", b"")


@asynccontextmanager
async def serving(agent: SoftAgent, socket: Path) -> AsyncIterator[Path]:
    runner = web.AppRunner(agent.application(), handler_cancellation=True, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.UnixSite(runner, str(socket)).start()
        yield socket
    finally:
        await runner.cleanup()
        _remove(socket)


@contextmanager
def abandoned_socket(socket: Path) -> Iterator[Path]:
    """Leave a socket file without a listener, as a killed process does."""
    with sockets.socket(sockets.AF_UNIX) as left:
        left.bind(str(socket))
        yield socket
    socket.unlink()


async def silent() -> web.Response:
    await asyncio.Event().wait()
    raise AssertionError("nobody sets this event")


def says(body: bytes, *, status: int = 200) -> Fault:
    async def answer() -> web.Response:
        return web.Response(status=status, body=body, content_type="application/json")

    return answer


def _remove(socket: Path) -> None:
    socket.unlink(missing_ok=True)


def runtime_event(name: str, payload: bytes = b"") -> Json:
    """A V1 event of RTMR3: digest = SHA384(LE32(type) ":" name ":" payload)."""
    content = struct.pack("<I", RUNTIME_EVENT) + b":" + name.encode() + b":" + payload
    return {
        "imr": 3,
        "event_type": RUNTIME_EVENT,
        "digest": hashlib.sha384(content).hexdigest(),
        "event": name,
        "event_payload": payload.hex(),
    }


def _firmware_events() -> Iterator[Json]:
    for index in range(3):
        yield {
            "imr": index,
            "event_type": 1,
            "digest": hashlib.sha384(b"boot%d" % index).hexdigest(),
            "event": "",
            "event_payload": "",
        }


def _derived(key: bytes, info: bytes) -> bytes:
    return HKDF(hashes.SHA256(), 32, salt=b"RATLS", info=info).derive(key)
