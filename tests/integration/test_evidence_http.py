"""HTTP to services of evidence: what is left of a request that nobody waits for any more."""

import asyncio
import contextlib
import gc
import sys
from typing import Any

import pytest

from bot.attestation.errors import EvidenceUnavailable
from bot.attestation.http import open_http
from tests.fakes.certificates import Authority
from tests.fakes.openai_server import OpenAiServer

STEPS = 60
"""Passes of the event loop that a request over TLS takes at most, until its answer is there."""


async def passes(count: int) -> None:
    """Let the event loop go round so often."""
    for _ in range(count):
        await asyncio.sleep(0)


async def test_a_request_that_is_cancelled_at_any_moment_leaves_no_connection_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    left_behind: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", left_behind.append)
    authority = Authority()
    server = OpenAiServer(tls=authority.issue().context())
    await server.start()
    gc.freeze()  # what was there before needs not be looked at sixty times
    try:
        for count in range(1, STEPS):
            async with (
                open_http(tls=authority.client_context()) as http,
                asyncio.TaskGroup() as tasks,
            ):
                question = http.ask(
                    "GET",
                    f"{server.base_url}/models",
                    seconds=5.0,
                    max_bytes=10_000,
                )
                asking = tasks.create_task(_ignoring_trouble(question))
                await passes(count)
                asking.cancel()
            gc.collect()
    finally:
        gc.unfreeze()
        await server.stop()
    assert left_behind == []
    assert server.connections > 0


async def _ignoring_trouble(question: Any) -> None:
    with contextlib.suppress(EvidenceUnavailable):
        await question
