"""A bot's health port, asked as Prometheus and a load balancer do."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from structlog.testing import capture_logs

from bot.attestation.trust import REAL, Trust
from bot.config.settings import Settings
from tests.e2e.running_bot import running_bot
from tests.exposition import Exposition

ANY_PORT: Final = "127.0.0.1:0"
"""Address with port 0: the bot takes a free port, without a race."""

HTTP_SECONDS: Final = 6.0


@asynccontextmanager
async def bot_with_health(settings: Settings, *, trust: Trust = REAL) -> AsyncIterator[int]:
    """Run the bot in this process, told to listen at `ANY_PORT`, and yield the port it took."""
    with capture_logs() as said:
        async with running_bot(settings, trust=trust):
            [port] = [line["port"] for line in said if line["event"] == "health.listening"]
            yield port


async def scrape(port: int) -> Exposition:
    status, body = await get(port, "/metrics")
    assert status == 200
    return Exposition(body.decode())


async def readiness(port: int) -> dict[str, tuple[bool, str]]:
    """Return the health of every part from `/readyz`: a flag and words."""
    status, body = await get(port, "/readyz")
    answer = json.loads(body)
    checks = {name: (check["ok"], check["detail"]) for name, check in answer["checks"].items()}
    assert answer["ok"] == all(ok for ok, _ in checks.values())
    assert status == (200 if answer["ok"] else 503)
    return checks


async def get(port: int, path: str) -> tuple[int, bytes]:
    async with asyncio.timeout(HTTP_SECONDS):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n".encode()
        )
        head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
        await writer.wait_closed()
    return int(head.split(b" ")[1]), body
