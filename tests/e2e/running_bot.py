"""The whole bot in this process, between a Signal side and a model on loopback."""

import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from bot import app
from bot.attestation.trust import REAL, Trust
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.foundation import Start
from bot.observability.systemd import ServiceManager
from tests.fakes.openai_server import OpenAiServer, Step, echo, openai_server
from tests.fakes.signal_side import BOT, Sent, SignalSide

WAIT_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class World:
    """Both sides of a bot and its folder, which outlive the bot."""

    signal: SignalSide
    model: OpenAiServer
    folder: Path

    def settings(self, **overrides: Mapping[str, object]) -> Settings:
        """Return settings for a bot of this world."""
        sections: dict[str, dict[str, object]] = {
            "signal": {"url": f"unix:{self.signal.path}", "phone_number": BOT.number},
            "llm": {"base_url": self.model.base_url, "model": "fake", "max_concurrency": 1_000},
            "store": {"path": self.folder / "store.db"},
            "access": {"policy": "open", "messages_per_minute": 1_000},
            "attestation": {"dstack_socket": self.folder / "no-dstack.sock"},
            "health": {"listen": ""},
        }
        for section, values in overrides.items():
            sections.setdefault(section, {}).update(values)
        return load_settings(sections)

    def answers(self) -> list[str]:
        """Return the texts that the bot sent, without progress messages."""
        return [sent.text for sent in self.signal.sent if not sent.text.startswith("🔧")]

    def shown(self) -> str:
        """Return how the last progress message reads."""
        return [sent.text for sent in self.signal.sent if sent.text.startswith("🔧")][-1]

    async def answer(self) -> Sent:
        """Return the next message of the bot, without progress messages."""
        while True:
            sent = await self.signal.next_sent()
            if not sent.text.startswith("🔧"):
                return sent

    async def answer_to(self, words: str | None, **more: Any) -> Sent:
        """Say something, and return the answer."""
        await self.signal.say(words, **more)
        return await self.answer()

    async def asked(self, words: str | None = "hello", **more: Any) -> str:
        """Say something, and return the text of the answer."""
        return (await self.answer_to(words, **more)).text

    async def reacted(self, emoji: str, target: int, **more: Any) -> str:
        """React to a message, and return the text of the answer."""
        await self.signal.react(emoji, target, **more)
        return (await self.answer()).text

    async def let_think(self, words: str | None, *, requests: int = 1, **more: Any) -> int:
        """Say something, and wait until the model has had so many requests; return when."""
        timestamp = await self.signal.say(words, **more)
        await self.model.wait_for_requests(requests)
        return timestamp

    def told(self, request: int = -1) -> str:
        """Return the last message of a request to the model."""
        content = self.model.requests[request]["messages"][-1]["content"]
        assert isinstance(content, str)
        return content

    def results(self) -> list[str]:
        """Return the results of tools in the last request to the model."""
        messages = self.model.requests[-1]["messages"]
        return [message["content"] for message in messages if message["role"] == "tool"]


@asynccontextmanager
async def world(handler: Step = echo) -> AsyncIterator[World]:
    """Provide a Signal side, a model and a folder."""
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        folder = Path(name)
        async with (
            SignalSide.listen(folder / "signal.sock") as signal,
            openai_server(handler) as model,
        ):
            yield World(signal, model, folder)


@asynccontextmanager
async def running_bot(
    settings: Settings,
    *,
    grace_seconds: float = app.BOUNDS.grace_seconds,
    stuck_seconds: float = app.BOUNDS.stuck_seconds,
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
    manager: ServiceManager = app.NO_MANAGER,
) -> AsyncIterator[asyncio.Task[None]]:
    """Run the bot inside the block, then shut it down in order."""
    told_to_stop, ready = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        bot = tasks.create_task(
            app.run(
                Start(settings, trust, clock),
                told_to_stop=told_to_stop,
                ready=ready.set,
                manager=manager,
                bounds=app.Bounds(grace_seconds, stuck_seconds=stuck_seconds),
            )
        )
        async with asyncio.timeout(WAIT_SECONDS):
            await ready.wait()
        try:
            yield bot
        finally:
            told_to_stop.set()


@asynccontextmanager
async def story(
    handler: Step = echo,
    settings: Callable[..., Settings] = World.settings,
    /,
    **overrides: Any,
) -> AsyncIterator[World]:
    """Provide a world, and run a bot in it with these settings."""
    async with world(handler) as here, running_bot(settings(here, **overrides)):
        yield here


async def kill(bot: asyncio.Task[None]) -> None:
    """End the bot without its shutdown; only its disk remains."""
    bot.cancel()
    await asyncio.wait({bot}, timeout=WAIT_SECONDS)


@asynccontextmanager
async def killed_bot(
    settings: Settings, *, clock: Callable[[], float] = time.time
) -> AsyncIterator[None]:
    """Run the bot inside the block, then kill it."""
    async with running_bot(settings, clock=clock) as bot:
        yield
        await kill(bot)
