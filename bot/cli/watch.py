"""`signal-tee-bot watch`: ask a bot for its proof from a second account, and report each change."""

import asyncio
import json
import re
import secrets
import time
from argparse import Namespace
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bot.attestation.bundle import MAX_BUNDLE_BYTES, Bundle
from bot.attestation.errors import MalformedEvidence
from bot.attestation.report import FILE_NAME, conclusion
from bot.attestation.trust import REAL, Trust
from bot.attestation.verification import BundleReport
from bot.cli.account_setup import started
from bot.cli.exit_codes import CHANGED, FAILED, OK
from bot.cli.verify import report_on
from bot.config.settings import StoreSettings
from bot.errors import BotError, SettingsError
from bot.observability import logs
from bot.signal.events import Incoming, IncomingMessage
from bot.signal.messenger import Messenger
from bot.signal.signal_daemon import SignalDaemon
from conversation_store.models import ChatId

ANSWER_SECONDS: Final = 300.0
"""For a proof: the bot asks its enclave and its model's machines."""
CONNECT_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.05
CHALLENGE_BYTES: Final = 12
UNITS: Final = {"m": 60, "h": 3_600, "d": 86_400}
_EVERY: Final = re.compile(r"([1-9]\d{0,3})([mhd])")

COMPARED: Final = {
    "version": "version of the bot",
    "commit": "its source",
    "compose_hash": "its configuration",
    "app_id": "its place in the TEE's key service",
    "instance_id": "its machine",
    "key_provider": "the key service",
    "key_provider_id": "identity of the key service",
    "aci": "Signal account",
    "safety_number_half": "Signal key",
    "policy": "its policy",
    "model": "the model",
}
"""Facts of a proof that stay the same as long as nobody changes anything."""


def run(arguments: Namespace) -> int:
    """Watch a bot, and return the exit code."""
    logs.configure(level="error", log_format="console")
    return asyncio.run(watch(arguments))


async def watch(
    request: Namespace, *, trust: Trust = REAL, clock: Callable[[], float] = time.time
) -> int:
    """Ask for proofs, once or until interrupted; print a line for each and for each change."""
    pause = _seconds(request.every)
    if request.bundle is None and not (request.number and request.account):
        raise SettingsError("NUMBER and --account: are required, or --bundle and --challenge")
    if request.bundle is not None and not request.challenge:
        raise SettingsError("--challenge: is required with --bundle")
    while True:
        try:
            code = await _look(request, trust, clock)
        except (BotError, MalformedEvidence) as error:
            _say(clock, f"Not proven. {error}")
            code = FAILED
        if pause is None:
            return code
        await asyncio.sleep(pause)


async def _look(request: Namespace, trust: Trust, clock: Callable[[], float]) -> int:
    """Get one proof, check it, and compare it with the last one."""
    challenge = request.challenge or secrets.token_urlsafe(CHALLENGE_BYTES)
    number = request.safety_number
    if request.bundle is not None:
        content = await asyncio.to_thread(_content, request.bundle)
    else:
        content, seen = await asked(request, challenge)
        number = number or seen
    asks = Namespace(**{**vars(request), "challenge": challenge, "safety_number": number})
    report = await report_on(Bundle.parse(content), asks, trust=trust, clock=clock)
    if not report.passed:
        _say(clock, f"Not proven. {conclusion(report)}")
        return FAILED
    now, before = _compared(report), _state(request.state)
    changes = [] if before is None else _changes(before, now)
    for change in changes:
        _say(clock, f"Changed: {change}")
    what = "the first proof is kept" if before is None else "as before"
    _say(clock, f"Proven: {'see above' if changes else what}.")
    _keep(request.state, now)
    return CHANGED if changes else OK


async def asked(request: Namespace, challenge: str) -> tuple[bytes, str | None]:
    """Send `!verify` from the second account; return the file that comes back.

    Returns:
        also the safety number of that chat, by the second account's signal-cli.
    """
    received = asyncio.Queue[IncomingMessage]()

    async def deliver(events: Sequence[Incoming]) -> None:
        for event in events:
            if isinstance(event, IncomingMessage):
                received.put_nowait(event)

    async with _signal_cli_of(request) as address:
        messenger: Messenger = SignalDaemon(address, request.account)
        running = asyncio.create_task(messenger.run(deliver))
        asking = asyncio.create_task(_ask(messenger, request.number, challenge, received))
        try:
            await asyncio.wait([asking, running], return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                await running  # raises why there is no connection
            return await asking
        finally:
            asking.cancel()
            running.cancel()
            await asyncio.gather(asking, running, return_exceptions=True)


@asynccontextmanager
async def _signal_cli_of(request: Namespace) -> AsyncIterator[str]:
    """Provide the address of the second account's signal-cli."""
    if request.signal != "spawn:":
        yield request.signal
        return
    with TemporaryDirectory(prefix="signal-tee-bot-") as folder:
        async with started(Path(folder) / "socket", StoreSettings().path) as address:
            yield address


async def _ask(
    messenger: Messenger, number: str, challenge: str, received: asyncio.Queue[IncomingMessage]
) -> tuple[bytes, str | None]:
    await _connected(messenger)
    await messenger.send(ChatId.direct(number), f"!verify {challenge}")
    return await _proof(messenger, number, received)


async def _connected(messenger: Messenger) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(CONNECT_SECONDS):
            while not messenger.connected:  # noqa: ASYNC110 - a transport has no event for it
                await asyncio.sleep(POLL_SECONDS)
            return
    raise BotError(
        messenger.trouble or "--signal: no connection to signal-cli. Does it run at that address?"
    )


async def _proof(
    messenger: Messenger, number: str, received: asyncio.Queue[IncomingMessage]
) -> tuple[bytes, str | None]:
    """Wait for the bot's message with the proof, and return the file."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            while True:
                message = await received.get()
                if number not in {message.author.number, message.author.aci}:
                    continue
                for file in message.files:
                    if file.name == FILE_NAME:
                        content = await messenger.fetch_file(
                            message.chat, file, max_bytes=MAX_BUNDLE_BYTES
                        )
                        peer = await messenger.peer_identity(message.author.aci)
                        return content, peer.safety_number if peer else None
    except TimeoutError:
        raise BotError(
            f"The bot sent no proof within {ANSWER_SECONDS:g} seconds. Does it run, and may the"
            " second account write to it?"
        ) from None


def _compared(report: BundleReport) -> dict[str, str | None]:
    return {name: report.facts.get(name) for name in COMPARED}


def _changes(before: Mapping[str, object], now: Mapping[str, str | None]) -> list[str]:
    return [
        f"{COMPARED[name]}: {before.get(name) or 'none'} before, {value or 'none'} now"
        for name, value in now.items()
        if before.get(name) != value
    ]


def _state(file: Path) -> dict[str, object] | None:
    try:
        kept = json.loads(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        raise SettingsError(f"--state: {file} cannot be read; delete it to begin anew") from None
    return kept if isinstance(kept, dict) else None


def _keep(file: Path, facts: Mapping[str, str | None]) -> None:
    try:
        file.write_text(json.dumps(facts, indent=2))
    except OSError as error:
        raise SettingsError(f"--state: {file}: {error.strerror}") from None


def _content(file: Path) -> bytes:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BUNDLE_BYTES + 1)
    except OSError as error:
        raise SettingsError(f"--bundle: {file}: {error.strerror}") from None


def _seconds(every: str | None) -> int | None:
    if every is None:
        return None
    found = _EVERY.fullmatch(every)
    if found is None:
        raise SettingsError("--every: must be a number with m, h or d, such as 1d")
    return int(found[1]) * UNITS[found[2]]


def _say(clock: Callable[[], float], words: str) -> None:
    print(f"{datetime.fromtimestamp(clock(), UTC):%Y-%m-%d %H:%M} UTC  {words}", flush=True)
