"""The command line. Everything heavy is imported late, so that `--version` answers at once."""

import argparse
import asyncio
import errno
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TextIO

from bot import __version__
from bot.errors import BotError, SettingsError

OK: Final = 0
FAILED: Final = 1
WRONG_SETTINGS: Final = 2
INTERRUPTED: Final = 130

CANNOT_WRITE: Final = frozenset({errno.EDQUOT, errno.EFBIG, errno.EIO, errno.ENOSPC})

PCCS_URL: Final = "https://pccs.phala.network"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 fine, 1 failed, 2 wrong settings."""
    try:
        try:
            return _outcome(arguments)
        finally:
            _flush_log()
            if sys.stdout is not None:
                sys.stdout.flush()  # what cannot be written should fail here and not at exit
    except BrokenPipeError:
        _leave(sys.stdout)  # whoever read it has seen enough
        return FAILED
    except OSError as error:
        if error.errno not in CANNOT_WRITE or error.filename is not None:
            raise
        _leave(sys.stdout)
        print(f"signal-tee-bot: the output cannot be written: {error.strerror}", file=sys.stderr)
        return FAILED


def _outcome(arguments: Sequence[str] | None) -> int:
    chosen = _parser().parse_args(arguments)
    from bot.process.hardening import harden

    try:
        harden()
        result: int = chosen.run(chosen)
    except SettingsError as error:
        print("\n".join(error.problems), file=sys.stderr)
        return WRONG_SETTINGS
    except BotError as error:
        print(f"signal-tee-bot: {error}", file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    return result


def _flush_log() -> None:
    """Do without a log that cannot be written: it makes nothing fail, the exit neither."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except OSError:
        _leave(sys.stderr)


def _leave(stream: TextIO) -> None:
    """Let nothing be written to it at exit either."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


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
    check.add_argument(
        "--json",
        action="store_true",
        help='for programs: {"ok", "findings": [{"part", "verdict", "words"}]} on stdout, also'
        " where settings are wrong (exit 2)",
    )
    check.set_defaults(run=_check)

    ready = commands.add_parser("ready", help="ask the running bot whether all of it is well")
    ready.set_defaults(run=_ready)

    pair = commands.add_parser("pair", help="who may talk, under ACCESS__POLICY=pairing")
    pair.set_defaults(run=_pair)
    actions = pair.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    actions.add_parser("list", help="who waits with which code, and who was let in")
    approve = actions.add_parser("approve", help="let somebody in")
    approve.add_argument("code", metavar="CODE", help="what the bot told that person")
    revoke = actions.add_parser("revoke", help="let somebody in no more")
    revoke.add_argument("who", metavar="WHO", help="a number, an ACI, or the beginning of one")

    link = commands.add_parser("link", help="share a phone's Signal account, by a QR code")
    link.set_defaults(run=_link)

    register = commands.add_parser("register", help="give a number a Signal account, the bot's")
    register.add_argument("number", nargs="?", metavar="NUMBER", help="such as +4915112345678")
    register.add_argument("--voice", action="store_true", help="have Signal call, not write")
    register.add_argument(
        "--captcha", metavar="LINK", help="signalcaptcha://…, solved already; else SIGNAL_CAPTCHA"
    )
    register.add_argument(
        "--code", metavar="DIGITS", help="Signal has sent it already; else SIGNAL_CODE"
    )
    register.add_argument(
        "--unattended",
        action="store_true",
        help="wait for signal-cli, and do nothing when the account is there already",
    )
    register.set_defaults(run=_register)

    verify = commands.add_parser("verify", help="check a proof, with no trust in the bot")
    _add_verify_arguments(verify)
    verify.set_defaults(run=_verify)

    attest = commands.add_parser("attest", help="look at evidence, and pin what it shows")
    attest.set_defaults(run=_attest)
    subjects = attest.add_subparsers(title="of", required=True, metavar="WHAT", dest="subject")
    model = subjects.add_parser("model", help="pins for ATTESTATION__MODEL_PINS")
    model.add_argument(
        "--output", type=Path, default=Path("model-pins.json"), metavar="FILE", help="for the pins"
    )
    model.add_argument("--force", action="store_true", help="replace a file that is there")

    release = commands.add_parser("release", help="make what a TEE runs and what people compare")
    _add_release_arguments(release)
    release.set_defaults(run=_release)

    backup = commands.add_parser("backup", help="copy the store, also while the bot runs")
    backup.add_argument("file", type=Path, metavar="FILE")
    backup.set_defaults(run=_backup)

    restore = commands.add_parser("restore", help="go back to a copy, while no bot runs")
    restore.add_argument("file", type=Path, metavar="FILE")
    restore.set_defaults(run=_restore)
    return parser


def _add_verify_arguments(verify: argparse.ArgumentParser) -> None:
    verify.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file from the chat")
    verify.add_argument(
        "--challenge", required=True, metavar="TEXT", help="what you sent after !verify"
    )
    verify.add_argument("--safety-number", metavar='"60 digits"', help="of your chat with the bot")
    verify.add_argument("--release", type=Path, metavar="FILE", help="the published release")
    verify.add_argument(
        "--collateral",
        type=Path,
        action="append",
        metavar="FILE",
        help="what Intel says about a platform, one file each; then nothing is fetched",
    )
    verify.add_argument("--pccs", default=PCCS_URL, metavar="URL", help="else fetch it here")
    verify.add_argument("--json", action="store_true", help="for programs")


def _add_release_arguments(release: argparse.ArgumentParser) -> None:
    release.add_argument("directory", type=Path, metavar="DIRECTORY", help="for the files; is made")
    release.add_argument(
        "--image",
        action="append",
        default=[],
        metavar="NAME=REFERENCE",
        help="for a place that the compose file leaves open; ends in @sha256:…",
    )
    release.add_argument(
        "--os",
        action="append",
        required=True,
        metavar="LABEL=FILE",
        help="what the system measures on one kind of machine, as dstack-mr prints it",
    )
    release.add_argument(
        "--kms-id", action="append", required=True, metavar="HEX", help="a key service's id"
    )
    release.add_argument(
        "--model-pins", type=Path, metavar="FILE", help="as signal-tee-bot attest model makes it"
    )
    release.add_argument("--commit", metavar="HEX", help="of the source; else of this program")
    release.add_argument(
        "--compose", type=Path, metavar="FILE", help="else deploy/dstack-compose.yaml"
    )
    release.add_argument(
        "--app-compose", type=Path, metavar="FILE", help="another tool has made of the compose file"
    )


def _run(_: argparse.Namespace) -> int:
    from bot.process import sighup

    sighup.ignore_at_first()
    import structlog

    from bot import app
    from bot.config import load_settings
    from bot.observability import logs
    from conversation_store.errors import StoreError

    logs.configure(level="info", log_format="auto")
    logs.capture_uncaught()
    settings = load_settings()
    logs.configure(level=settings.log.level, log_format=settings.log.format)
    code = OK
    try:
        asyncio.run(app.run_until_signalled(settings))
    except* SettingsError as group:
        code = _report("", group, WRONG_SETTINGS)
    except* StoreError as group:
        code = _report("STORE__PATH: ", group, FAILED)
    except* BotError as group:
        code = _report("", group, FAILED)
    except* Exception as group:
        # The last boundary: a traceback would tell what people wrote, where an error quotes it.
        structlog.get_logger().error("app.bug", exc_info=group)
        code = FAILED
    return code


def _report(part: str, group: BaseExceptionGroup[Exception], code: int) -> int:
    """Say in one line what ended the daemon, and return the exit code."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    print(f"{part}{error}", file=sys.stderr)
    return code


def _demo(arguments: argparse.Namespace) -> int:
    from bot.demo.run import run_demo

    return asyncio.run(run_demo(arguments.say or ()))


def _check(arguments: argparse.Namespace) -> int:
    from bot.check import check, wrong_settings
    from bot.config import load_settings

    try:
        settings = load_settings()
    except SettingsError as error:
        if arguments.json:
            print(wrong_settings(error.problems))
        raise
    return OK if asyncio.run(check(settings, as_json=arguments.json)) else FAILED


def _ready(_: argparse.Namespace) -> int:
    from bot.config import load_settings
    from bot.ready import ready

    return OK if asyncio.run(ready(load_settings().health.listen)) else FAILED


def _pair(arguments: argparse.Namespace) -> int:
    from bot import pair
    from bot.config import load_settings
    from bot.parts import store_key
    from conversation_store.errors import StoreError
    from conversation_store.pairings import open_pairing_book

    settings = load_settings()
    key = asyncio.run(store_key(settings))
    try:
        with open_pairing_book(settings.store.path, key) as book:
            if arguments.action == "list":
                print(pair.listing(book, settings.access))
            elif arguments.action == "approve":
                print(pair.approve(book, arguments.code, settings.access))
            else:
                print(pair.revoke(book, arguments.who, settings.access))
    except StoreError as error:
        print(f"STORE__PATH: {error}", file=sys.stderr)
        return FAILED
    return OK


def _link(_: argparse.Namespace) -> int:
    from bot.link import run_link
    from bot.observability import logs

    logs.configure(level="error", log_format="console")  # what happens is said
    asyncio.run(run_link())
    return OK


def _register(arguments: argparse.Namespace) -> int:
    from bot.observability import logs
    from bot.register import run_register

    logs.configure(level="error", log_format="console")  # what happens is said
    asyncio.run(
        run_register(
            arguments.number,
            voice=arguments.voice,
            # A container's variable is empty where it is unset.
            captcha=arguments.captcha or os.environ.get("SIGNAL_CAPTCHA") or None,
            code=arguments.code or os.environ.get("SIGNAL_CODE") or None,
            unattended=arguments.unattended,
        )
    )
    return OK


def _verify(arguments: argparse.Namespace) -> int:
    from bot.observability import logs
    from bot.verify import Request, verify

    logs.configure(level="error", log_format="console")  # what services do is in the report
    request = Request(
        bundle=arguments.bundle,
        challenge=arguments.challenge,
        safety_number=arguments.safety_number,
        release=arguments.release,
        collateral=arguments.collateral or (),
        pccs_url=arguments.pccs,
        as_json=arguments.json,
    )
    return OK if asyncio.run(verify(request)) else FAILED


def _attest(arguments: argparse.Namespace) -> int:
    from bot.attest import attest_model
    from bot.config import load_settings
    from bot.observability import logs

    logs.configure(level="error", log_format="console")  # what services do is in the report
    # What makes the pins must not ask for them.
    settings = load_settings({"attestation": {"model_policy": "warn", "model_pins": None}})
    made = asyncio.run(attest_model(settings, arguments.output, force=arguments.force))
    return OK if made else FAILED


def _release(arguments: argparse.Namespace) -> int:
    from bot.release import COMPOSE_FILE, Order, make_release

    order = Order(
        directory=arguments.directory,
        compose=arguments.compose or COMPOSE_FILE,
        images=arguments.image,
        systems=arguments.os,
        kms_ids=arguments.kms_id,
        commit=arguments.commit,
        app_compose=arguments.app_compose,
        model_pins=arguments.model_pins,
    )
    print(make_release(order))
    return OK


def _backup(arguments: argparse.Namespace) -> int:
    from bot.config import load_settings
    from bot.parts import store_key
    from conversation_store.copies import backup
    from conversation_store.errors import StoreError

    settings = load_settings()
    try:
        backup(settings.store.path, asyncio.run(store_key(settings)), arguments.file)
    except StoreError as error:
        print(f"backup: {error}", file=sys.stderr)
        return FAILED
    print(f"Copied to {arguments.file}")
    return OK


def _restore(arguments: argparse.Namespace) -> int:
    from bot.config import load_settings
    from bot.parts import store_key
    from conversation_store.copies import restore
    from conversation_store.errors import StoreError, StoreLocked

    settings = load_settings()
    try:
        restored = restore(settings.store.path, asyncio.run(store_key(settings)), arguments.file)
    except StoreLocked as error:
        print(f"restore: {error}: stop the bot first", file=sys.stderr)
        return FAILED
    except StoreError as error:
        print(f"restore: {error}", file=sys.stderr)
        return FAILED
    print(f"Restored from {arguments.file}")
    if restored.aside is not None:
        print(f"The store before is now {restored.aside}: delete it once it is not needed.")
    if restored.messages or restored.sends:
        print(
            "Not answered or sent again, because that was done after the copy was made:"
            f" {restored.messages} messages that waited, {restored.sends} on their way."
        )
    return OK
