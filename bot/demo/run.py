"""The whole bot on loopback, with the terminal as the phone: no account, no key.

It is the app of `signal-tee-bot run` with a `Messenger` whose other side is the phone, and with the
offline assistant unless the settings name an endpoint. Its store is deleted at the end.
"""

import asyncio
import shutil
import signal
import sys
import tempfile
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Final

from bot import app
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.demo.assistant import MODEL, serve_assistant
from bot.demo.messenger import BOT_NUMBER, DemoMessenger
from bot.demo.phone import run_phone
from bot.foundation import Start
from bot.observability import logs

START_SECONDS: Final = 20.0
GRACE_SECONDS: Final = 1.0
# A closed terminal and a kill end the demo in order too; otherwise its store would stay behind.
ENDING_SIGNALS: Final = (signal.SIGHUP, signal.SIGTERM)
ENDED: Final = 1
# A conversation that is piped in is faster than any person.
MESSAGES_PER_MINUTE: Final = 10_000

Sections = Mapping[str, Mapping[str, object]]

UNPROVEN: Final[Sections] = {"attestation": {"model_policy": "warn", "e2ee": False}}
"""The offline assistant cannot prove anything, so the demo ignores the operator's policy."""

VOICELESS: Final[Mapping[str, object]] = dict.fromkeys(
    f"{service}_{part}"
    for service in ("transcription", "speech")
    for part in ("model", "url", "key")
)
"""The terminal neither records nor plays sounds."""


async def run_demo(say: Sequence[str]) -> int:
    """Run the demo until there is nothing more to say; return the exit code.

    Args:
        say: messages to send instead of reading the keyboard.

    Raises:
        SettingsError: a setting of the environment or of `.env` is wrong.
    """
    async with AsyncExitStack() as open_parts:
        folder = Path(open_parts.enter_context(tempfile.TemporaryDirectory(prefix="demo-")))
        settings = _settings(folder, UNPROVEN)
        if _names_an_endpoint(settings):
            settings = _settings(folder)
        else:
            base_url = await open_parts.enter_async_context(serve_assistant())
            settings = _settings(folder, _assistant(base_url))
        logs.configure(level="error", log_format="console")
        width = shutil.get_terminal_size().columns
        print(textwrap.fill(_introduction(settings), width), end="\n\n", flush=True)  # noqa: T201
        return await _converse(settings, say)


async def _converse(settings: Settings, say: Sequence[str]) -> int:
    messenger = DemoMessenger()
    told_to_stop, ready = asyncio.Event(), asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(
            app.run(
                Start(settings, messenger=messenger, to_operator=True),
                told_to_stop=told_to_stop,
                ready=ready.set,
                bounds=app.Bounds(grace_seconds=GRACE_SECONDS),
            )
        )
        async with asyncio.timeout(START_SECONDS):
            await ready.wait()
        phone = tasks.create_task(
            run_phone(
                messenger,
                say=say,
                keyboard=sys.stdin.fileno(),
                output=sys.stdout,
                errors=sys.stderr,
            )
        )
        for ending in ENDING_SIGNALS:
            asyncio.get_running_loop().add_signal_handler(ending, phone.cancel)
        await asyncio.wait([phone])
        told_to_stop.set()
    return ENDED if phone.cancelled() else phone.result()


def _settings(folder: Path, more: Sections = MappingProxyType({})) -> Settings:
    """Return the demo's settings; the endpoint and the bot's profile remain the operator's."""
    return load_settings(
        {
            "signal": {"phone_number": BOT_NUMBER, "trust": "tofu"},
            "llm": VOICELESS,
            "store": {"path": folder / "store.db", "key": None, "key_source": "setting"},
            "bot": {"profile_picture": None, "ack_reaction": None},
            "access": {
                "policy": "open",
                "note_to_self": False,
                "messages_per_minute": MESSAGES_PER_MINUTE,
                "tokens_per_day": 0,
            },
            "health": {"listen": ""},
            **more,
        }
    )


def _assistant(base_url: str) -> Sections:
    """Return the settings of the offline assistant, which reads no encrypted messages."""
    return {
        "llm": {"base_url": base_url, "model": MODEL, **VOICELESS},
        **UNPROVEN,
    }


def _names_an_endpoint(settings: Settings) -> bool:
    return bool(settings.llm.model_fields_set & {"base_url", "api_key"})


def _introduction(settings: Settings) -> str:
    if settings.llm.model == MODEL:
        who = (
            "an offline assistant that follows a few rules and is no AI;"
            " set LLM__BASE_URL or LLM__API_KEY to talk to a real model"
        )
    else:
        who = f"{settings.llm.model} at {settings.llm.base_url}"
    return f"signal-tee-bot demo, with the bot on this machine. Behind it: {who}."
