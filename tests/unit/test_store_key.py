"""The store's key from the machine: when it stays the same, and when it is refused."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from bot.attestation.dstack import DstackAgent, derive_store_key
from bot.errors import SettingsError
from tests.fakes.dstack_agent import COMPOSE, SoftAgent, serving
from tests.fakes.soft_tdx import SoftTdx

APP_ID: Final = b"\x2a" * 20
UPGRADED: Final = COMPOSE.replace('"bot', '"bot-v2')
PLATFORM: Final = SoftTdx()


@asynccontextmanager
async def machine(
    folder: Path, *, app_id: bytes = APP_ID, app_compose: str = COMPOSE
) -> AsyncIterator[tuple[SoftAgent, DstackAgent]]:
    """Boot a machine; its agent is another process's each time."""
    soft = SoftAgent(PLATFORM, app_compose, app_id=app_id)
    async with serving(soft, folder / "dstack.sock") as socket:
        yield soft, DstackAgent(socket)


async def key_of(folder: Path, *, app_id: bytes = APP_ID, app_compose: str = COMPOSE) -> str:
    async with machine(folder, app_id=app_id, app_compose=app_compose) as (_, agent):
        return await derive_store_key(agent, may_be_lost=False)


async def test_the_key_survives_a_restart_and_an_upgrade(tmp_path: Path) -> None:
    key = await key_of(tmp_path)
    assert len(bytes.fromhex(key)) == 32
    assert await key_of(tmp_path) == key
    assert await key_of(tmp_path, app_compose=UPGRADED) == key


async def test_the_key_is_the_specified_one_and_not_the_applications_own(tmp_path: Path) -> None:
    """HKDF-SHA256 (RFC 5869) with the standard library, over what GetKey gives for the path."""
    async with machine(tmp_path) as (soft, agent):
        application_key = await agent.key("signal-bot/db/v1")
        key = await derive_store_key(agent, may_be_lost=False)
    assert soft.requests[-1] == ("GetKey", {"path": "signal-bot/db/v1"})
    assert key == _hkdf_sha256(application_key, b"sqlcipher").hex()


@pytest.mark.parametrize("provider", ["none", "local-sgx", "", "KMS"])
async def test_a_key_that_would_be_lost_is_refused_unless_it_may_be(
    tmp_path: Path, provider: str
) -> None:
    async with machine(tmp_path) as (soft, agent):
        soft.key_provider_info = json.dumps({"name": provider, "id": "00"})
        with pytest.raises(SettingsError) as refusal:
            await derive_store_key(agent, may_be_lost=False)
        assert [method for method, _ in soft.requests] == ["Info"]
        accepted = await derive_store_key(agent, may_be_lost=True)
    sentence = str(refusal.value)
    assert sentence.startswith("STORE__KEY_SOURCE: ")
    assert sentence.endswith(".")
    assert "STORE__KEY_MAY_BE_LOST=true" in sentence
    assert f"its key provider is {provider!r}" in sentence
    assert len(bytes.fromhex(accepted)) == 32


@pytest.mark.parametrize("info", ["", "null", "[]", "{}", "kms", '{"name": ["kms"]}'])
async def test_a_machine_that_names_no_key_provider_is_refused(tmp_path: Path, info: str) -> None:
    async with machine(tmp_path) as (soft, agent):
        soft.key_provider_info = info
        with pytest.raises(SettingsError, match="its key provider is 'unknown'"):
            await derive_store_key(agent, may_be_lost=False)


def _hkdf_sha256(key: bytes, info: bytes) -> bytes:
    import hmac

    extracted = hmac.digest(bytes(32), key, "sha256")
    return hmac.digest(extracted, info + b"\x01", "sha256")
