"""`signal-tee-bot run`: the daemon."""

import asyncio
from argparse import Namespace
from typing import TYPE_CHECKING

from bot.cli.exit_codes import FAILED, OK, WRONG_SETTINGS
from bot.errors import BotError, SettingsError
from bot.observability.process import ignore_early_hangups

if TYPE_CHECKING:
    from bot.config.settings import Settings


def run(_: Namespace) -> int:
    """Run the daemon until it is told to stop; return the exit code."""
    ignore_early_hangups()  # imports take a while
    import structlog

    from bot import app
    from bot.config.loading import load_settings
    from bot.observability import logs
    from conversation_store.connections import StoreError

    logs.configure(level="info", log_format="auto")
    logs.capture_uncaught()
    settings = load_settings()
    logs.configure(level=settings.log.level, log_format=settings.log.format)
    code = OK
    try:
        asyncio.run(app.run_until_signalled(settings))
    except* SettingsError as group:
        code = _report(group, WRONG_SETTINGS, settings)
    except* StoreError as group:
        code = _report(group, FAILED, settings)
    except* BotError as group:
        code = _report(group, FAILED, settings)
    except* Exception as group:
        # The last boundary: a traceback may quote what people wrote.
        structlog.get_logger().error("app.bug", exc_info=group)
        code = FAILED
    return code


def _report(group: BaseExceptionGroup[Exception], code: int, settings: "Settings") -> int:
    """Print in one line what ended the daemon, and return the exit code."""
    from bot.cli.console import complain
    from bot.cli.store_errors import said
    from conversation_store.connections import StoreError

    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    complain(said(error, settings) if isinstance(error, StoreError) else str(error))
    return code
