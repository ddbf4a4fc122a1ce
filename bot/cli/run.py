"""`signal-tee-bot run`: the daemon."""

import asyncio
from argparse import Namespace

from bot.errors import BotError, SettingsError, first_of
from bot.observability.process import ignore_early_hangups


def run(_: Namespace) -> bool:
    """Run the daemon until it is told to stop, and return whether it worked.

    Raises:
        SettingsError: settings are wrong.
    """
    ignore_early_hangups()  # imports take a while
    import structlog

    from bot import app
    from bot.cli.console import complain
    from bot.cli.store_errors import said
    from bot.config.loading import load_settings
    from bot.observability import logs
    from conversation_store.connections import StoreError

    logs.configure(level="info", log_format="auto")
    logs.capture_uncaught()
    settings = load_settings()
    logs.configure(level=settings.log.level, log_format=settings.log.format)
    reason: BaseException | None = None
    worked = True
    try:
        asyncio.run(app.run_until_signalled(settings))
    except* (BotError, StoreError) as group:
        reason = first_of(group)
    except* Exception as group:
        # The last boundary: a traceback may quote what people wrote.
        structlog.get_logger().error("app.bug", exc_info=group)
        worked = False
    if isinstance(reason, SettingsError):
        raise reason
    if reason is not None:
        complain(said(reason, settings) if isinstance(reason, StoreError) else str(reason))
    return reason is None and worked
