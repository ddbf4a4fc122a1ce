"""The command line. Everything heavy is imported late, so that `--version` answers at once."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bot import __version__
from bot.errors import BotError, SettingsError

OK: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
INTERRUPTED: Final = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 failed, 2 wrong settings."""
    chosen = _parser().parse_args(arguments)
    try:
        result: int = chosen.run(chosen)
    except SettingsError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return WRONG_SETTINGS
    except BotError as error:
        print(f"signal-tee-bot: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough; nothing may be written to it at exit either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    return result


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="signal-tee-bot",
        description="A Signal assistant that answers every message exactly once.",
        epilog="Settings come from the environment, .env and secret files: see .env.example.",
    )
    parser.add_argument("--version", action="version", version=f"signal-tee-bot {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    run = commands.add_parser("run", help="be the daemon")
    run.set_defaults(run=_run)

    demo = commands.add_parser("demo", help="the whole bot on loopback; the terminal is the phone")
    demo.add_argument(
        "--say", nargs="+", action="extend", metavar="TEXT", help="send these, print, and exit"
    )
    demo.set_defaults(run=_demo)

    check = commands.add_parser("check", help="look at every part and say how to mend it")
    check.set_defaults(run=_check)

    backup = commands.add_parser("backup", help="copy the store, also while the bot runs")
    backup.add_argument("file", type=Path, metavar="FILE")
    backup.set_defaults(run=_backup)
    return parser


def _run(_: argparse.Namespace) -> int:
    import structlog

    from bot import app
    from bot.config import load_settings
    from bot.observability import logs
    from conversation_store.errors import StoreError

    settings = load_settings()
    logs.configure(level=settings.log.level, log_format=settings.log.format)
    failed = False
    try:
        asyncio.run(app.run_until_signalled(settings))
    except* StoreError as group:
        failed = _report("STORE__PATH: ", group)
    except* BotError as group:
        failed = _report("", group)
    except* Exception as group:
        # The last boundary: a traceback would tell what people wrote, where an error quotes it.
        structlog.get_logger().error("app.bug", exc_info=group)
        failed = True
    return FAILED if failed else OK


def _report(part: str, group: BaseExceptionGroup[Exception]) -> bool:
    """Say in one line what ended the daemon."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    print(f"{part}{error}", file=sys.stderr)
    return True


def _demo(arguments: argparse.Namespace) -> int:
    from bot.demo.run import run_demo

    return asyncio.run(run_demo(arguments.say or ()))


def _check(_: argparse.Namespace) -> int:
    from bot.check import check
    from bot.config import load_settings

    return OK if asyncio.run(check(load_settings())) else FAILED


def _backup(arguments: argparse.Namespace) -> int:
    from bot.config import load_settings
    from conversation_store.errors import StoreError
    from conversation_store.store import backup

    store = load_settings().store
    try:
        backup(store.path, store.key.get_secret_value() if store.key else None, arguments.file)
    except StoreError as error:
        print(f"backup: {error}", file=sys.stderr)
        return FAILED
    print(f"Copied to {arguments.file}")
    return OK
