"""`signal-tee-bot ready`: whether the running bot is ready, for a container's health check.

It asks `/readyz` at `HEALTH__LISTEN`, so an image needs no shell and no HTTP client.
"""

import asyncio
import json
from argparse import Namespace
from typing import Final

from bot.config.loading import load_settings
from bot.errors import BotError, SettingsError
from bot.observability.health_client import ask

ASK_SECONDS: Final = 8.0
"""`/readyz` itself takes up to five seconds if a part does not answer."""


def run(_: Namespace) -> bool:
    """Ask the running bot, and return whether it is ready."""
    return asyncio.run(ready(load_settings().health.listen))


async def ready(listen: str, *, seconds: float = ASK_SECONDS) -> bool:
    """Print how each part of the bot at `HEALTH__LISTEN` is, and return whether it is ready."""
    if not listen:
        raise SettingsError("HEALTH__LISTEN: is empty, so there is nothing to ask")
    try:
        async with asyncio.timeout(seconds):
            answer = await ask(listen, "/readyz")
    except TimeoutError:
        raise BotError(f"No answer at HEALTH__LISTEN within {seconds:g} seconds.") from None
    except OSError:
        raise BotError("Nobody answers at HEALTH__LISTEN; is the bot running?") from None
    try:
        readiness = json.loads(answer)
        for name, part in sorted(readiness["checks"].items()):
            print(f"{'ok' if part['ok'] else 'failed':<8} {name:<16} {part['detail']}")
        return readiness["ok"] is True
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        raise BotError("What answers at HEALTH__LISTEN is not this bot.") from None
