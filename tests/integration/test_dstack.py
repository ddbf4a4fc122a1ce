"""The guest agent over its socket: requests, accepted answers, and errors."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from bot.attestation.dstack import MAX_ANSWER_BYTES, DstackAgent
from bot.attestation.errors import AgentError
from bot.attestation.quote import parse_quote
from tests.fakes.dstack_agent import (
    COMPOSE,
    Fault,
    SoftAgent,
    abandoned_socket,
    says,
    serving,
    silent,
)
from tests.fakes.soft_tdx import SoftTdx

REPORT_DATA: Final = bytes(range(64))


@asynccontextmanager
async def soft_agent(folder: Path, fault: Fault | None = None) -> AsyncIterator[SoftAgent]:
    agent = SoftAgent(SoftTdx())
    agent.fault = fault
    async with serving(agent, folder / "dstack.sock"):
        yield agent


def client(folder: Path) -> DstackAgent:
    return DstackAgent(folder / "dstack.sock")


async def ask_all(agent: DstackAgent) -> list[str]:
    """Make all three calls, each of which must fail, and return the sentences."""
    sentences = []
    for call in (agent.info(), agent.quote(REPORT_DATA), agent.key("a/path")):
        with pytest.raises(AgentError) as refusal:
            await call
        sentences.append(str(refusal.value))
    return sentences


async def test_answers_come_as_they_were_measured(tmp_path: Path) -> None:
    async with soft_agent(tmp_path) as soft:
        answer = await client(tmp_path).quote(REPORT_DATA)
        info = await client(tmp_path).info()
    quote = parse_quote(answer.quote)
    assert (quote.report_data, quote.rtmrs) == (REPORT_DATA, soft.rtmrs())
    assert json.loads(answer.event_log) == soft.event_log
    assert json.loads(answer.vm_config)["os_image_hash"] == soft.os_image_hash.hex()
    assert soft.requests[0] == ("GetQuote", {"report_data": REPORT_DATA.hex()})
    assert info.app_compose == COMPOSE
    assert info.key_provider_info == soft.key_provider_info


@pytest.mark.parametrize("size", [0, 32, 63, 65])
async def test_report_data_that_the_agent_would_pad_or_refuse_is_never_sent(
    tmp_path: Path, size: int
) -> None:
    async with soft_agent(tmp_path) as soft:
        with pytest.raises(ValueError, match="64 bytes"):
            await client(tmp_path).quote(bytes(size))
    assert soft.requests == []


async def test_an_absent_or_dead_agent_is_reported(tmp_path: Path) -> None:
    absent = {"There is no dstack guest agent: its socket is missing."}
    assert set(await ask_all(client(tmp_path))) == absent
    assert set(await ask_all(client(tmp_path / ("x" * 300)))) == absent
    with abandoned_socket(tmp_path / "dstack.sock"):
        sentences = await ask_all(client(tmp_path))
    assert set(sentences) == {"The dstack guest agent is of no use: there is no connection to it."}
    (tmp_path / "dstack.sock").write_text("not a socket")
    assert set(await ask_all(client(tmp_path))) == absent


async def test_a_silent_agent_is_given_up_on_within_the_bound(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("CALL_SECONDS", "QUOTE_SECONDS"):
        monkeypatch.setattr(f"bot.attestation.dstack.{name}", 0.2)
    async with soft_agent(tmp_path, silent), asyncio.timeout(30.0):
        sentences = await ask_all(client(tmp_path))
    assert set(sentences) == {"The dstack guest agent is of no use: no answer in time."}


async def test_an_answer_without_end_is_cut_off(tmp_path: Path) -> None:
    async with soft_agent(tmp_path, says(b" " * (MAX_ANSWER_BYTES + 1))):
        sentences = await ask_all(client(tmp_path))
    assert all("longer than this program reads" in sentence for sentence in sentences)


@pytest.mark.parametrize("status", [201, 302, 500])
async def test_a_refusal_does_not_quote_the_agent(tmp_path: Path, status: int) -> None:
    body = json.dumps({"error": "words of the agent"}).encode()
    async with soft_agent(tmp_path, says(body, status=status)):
        sentences = await ask_all(client(tmp_path))
    assert sentences == [
        f"The dstack guest agent refused {method} (HTTP {status})."
        for method in ("Info", "GetQuote", "GetKey")
    ]


def garbage() -> Iterator[bytes]:
    hexadecimal = "00" * 32
    yield from (b"", b"null", b"[]", b"{}", b"<html>", b"\xff\xfe", b"[" * 100_000)
    yield b'{"error": "words of the agent"}'
    yield json.dumps({"tcb_info": {"app_compose": "an object, not its text"}}).encode()
    yield json.dumps({"tcb_info": "[]", "key": hexadecimal[2:]}).encode()
    yield json.dumps({"tcb_info": "{}", "key": hexadecimal + "0"}).encode()
    yield json.dumps({"tcb_info": "", "key": " ".join(["00"] * 32)}).encode()
    yield json.dumps({"tcb_info": None, "key": "0x" + hexadecimal}).encode()
    quote = {"event_log": "[]", "report_data": REPORT_DATA.hex()}
    yield json.dumps(quote | {"quote": ""}).encode()
    yield json.dumps(quote | {"quote": "00" * 700}).encode()
    yield json.dumps(quote | {"quote": "00" * 20_000}).encode()
    yield json.dumps(quote | {"quote": list(REPORT_DATA)}).encode()


@pytest.mark.parametrize("body", tuple(garbage()))
async def test_nonsense_is_refused_in_plain_words(tmp_path: Path, body: bytes) -> None:
    async with soft_agent(tmp_path, says(body)):
        sentences = await ask_all(client(tmp_path))
    assert set(sentences) == {"The dstack guest agent answers nonsense."}


async def test_quote_over_other_report_data_is_refused(tmp_path: Path) -> None:
    soft = SoftAgent(SoftTdx())
    other = soft.quote(bytes(64))
    async with serving(soft, tmp_path / "dstack.sock"):
        for claimed in (bytes(64), REPORT_DATA):
            soft.recorded = other | {"report_data": claimed.hex()}
            with pytest.raises(AgentError, match="over other data than asked"):
                await client(tmp_path).quote(REPORT_DATA)
        soft.recorded = soft.quote(REPORT_DATA) | {"report_data": bytes(64).hex()}
        with pytest.raises(AgentError, match="over other data than asked"):
            await client(tmp_path).quote(REPORT_DATA)


async def test_no_environment_variable_leads_to_another_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names that dstack's SDK and HTTP libraries obey."""
    impostor = SoftAgent(SoftTdx(), app_compose="another one")
    async with serving(impostor, tmp_path / "impostor.sock") as elsewhere:
        for name in ("DSTACK_SIMULATOR_ENDPOINT", "TAPPD_SIMULATOR_ENDPOINT"):
            monkeypatch.setenv(name, str(elsewhere))
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, "http://127.0.0.1:1")
        async with soft_agent(tmp_path):
            assert (await client(tmp_path).info()).app_compose == COMPOSE
        with pytest.raises(AgentError, match="socket is missing"):
            await client(tmp_path).info()
    assert impostor.requests == []
