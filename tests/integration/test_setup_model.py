"""`setup` and the APIs that models speak, as their strict servers play them."""

import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bot.cli.console import Console
from bot.cli.env import Draft
from bot.cli.setup import ON_THIS_MACHINE, ask_for_model
from tests.contract.dialects.anthropic import HARNESS as CLAUDE
from tests.contract.dialects.anthropic import server as claude_server
from tests.contract.dialects.ollama import server, text
from tests.fakes.openai_server import MODEL

DEFAULT_CONTEXT_TOKENS = 32_000


@contextmanager
def typing(words: str) -> Iterator[tuple[Console, io.StringIO]]:
    reading, writing = os.pipe()
    screen = io.StringIO()
    os.write(writing, words.encode())
    os.close(writing)
    try:
        yield Console(reading, screen), screen
    finally:
        os.close(reading)


async def test_ollama_is_found_and_spoken_to_in_its_own_api(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with server() as running:
        running.context_tokens = DEFAULT_CONTEXT_TOKENS
        running.handler = text("Hi.")
        # The port that it listens on by default may be taken on the machine that runs this.
        monkeypatch.setitem(ON_THIS_MACHINE, "Ollama", ("ollama", running.base_url))
        draft = Draft({})
        with typing("1\n") as (console, screen):
            await ask_for_model(console, draft)
    assert f"Ollama on this machine: {MODEL}" in screen.getvalue()
    assert (draft["LLM__DIALECT"], draft["LLM__BASE_URL"]) == ("ollama", running.base_url)
    assert draft["LLM__MODEL"] == MODEL


async def test_a_service_is_asked_in_its_own_api_with_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with claude_server() as running:
        running.handler = CLAUDE.text("Hi.")
        monkeypatch.setattr(
            "bot.cli.setup.BASE_URLS", {"anthropic": running.base_url, "gemini": "http://x"}
        )
        monkeypatch.setattr("bot.cli.setup.ON_THIS_MACHINE", {})
        draft = Draft({})
        with typing("3\nsecret-key\n") as (console, screen):
            await ask_for_model(console, draft)
    assert "3. Claude, at Anthropic" in screen.getvalue()
    assert draft["LLM__DIALECT"] == "anthropic"
    assert draft["LLM__API_KEY"] == "secret-key"
    assert "secret-key" not in screen.getvalue()
