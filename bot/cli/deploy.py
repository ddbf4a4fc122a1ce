"""`signal-tee-bot deploy`: put a published release into an enclave, up to its first proof.

The platform's own command line does the work, and its answers are compared with the release. The
last step checks a proof on this computer, without trust in the platform or the bot.
"""

import asyncio
import hashlib
import json
import re
import shutil
import signal
from argparse import Namespace
from collections.abc import Iterable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from bot.attestation.app_compose import read_app_compose, variables_of
from bot.attestation.errors import MalformedEvidence
from bot.attestation.release import Release, with_slot_values
from bot.attestation.trust import REAL, Trust
from bot.cli.arguments import PCCS_URL
from bot.cli.console import Console
from bot.cli.deploy_platforms import APP_COMPOSE, COMPOSE, RELEASE, Dstack, Phala, Platform
from bot.cli.verify import verify
from bot.errors import BotError, SettingsError
from bot.observability import logs

MAX_TRIES: Final = 3
CAPTCHA: Final = "SIGNAL_CAPTCHA"
CODE: Final = "SIGNAL_CODE"
_SECRET: Final = re.compile(r"\w+(KEY|PASSWORD|SECRET|TOKEN)")
_PLAIN: Final = re.compile(r"[!%&(-\[\]-_a-~]*")
"""Values that all readers of such a file take as they are: without white space and "#$'`\\."""

_REGISTER: Final = """\
The machine runs. Register its number with Signal; a captcha is valid for a few minutes only:
  1. open https://signalcaptchas.org/registration/generate.html and solve it;
  2. copy the link of "Open Signal" (right click, copy link; it begins with signalcaptcha://);
  3. paste it here at once."""
_NO_SMS: Final = "Then the captcha was too old, or Signal wants another one. Solve it again."
_NO_ANSWER: Final = "Then the code was wrong or too old. Solve a captcha for another one."
_PROVE: Final = """\
Send this to the bot from your phone, and save the file of its answer on this computer:

!verify {words}
"""
_FAILED: Final = (
    "The bot is not proven, but it keeps running. Do not share its number until a proof succeeds."
)


def run(arguments: Namespace) -> bool:
    """Deploy a release, and return whether its bot is proven."""
    logs.configure(level="error", log_format="console")  # the console says what happens
    for ending in (signal.SIGHUP, signal.SIGTERM):  # as Ctrl-C, so that the secrets are deleted
        signal.signal(ending, signal.default_int_handler)
    return asyncio.run(deploy(arguments, Console()))


async def deploy(
    order: Namespace,
    console: Console,
    *,
    trust: Trust = REAL,
    pccs: str = PCCS_URL,
    look_seconds: float = Platform.look_seconds,
) -> bool:
    """Make a machine, compare it with the release, register its account, and check its proof."""
    release, app_compose = rendered(order)
    fields = read_app_compose(app_compose)
    kind = Phala if order.platform == "phala" else Dstack
    program = shutil.which(getattr(order, "vmm_cli", None) or kind.cli)
    with TemporaryDirectory(prefix="signal-tee-bot-") as empty:  # a phala.toml would count, too
        folder = Path(empty) if program else order.release / "to-deploy"
        _write(folder, {APP_COMPOSE: app_compose, COMPOSE: fields["docker_compose_file"]})
        platform = kind(program or "", folder, order, release, app_compose)
        platform.look_seconds = look_seconds
        if program is None:
            console.draw(platform.by_hand(variables_of(fields)))
            return False
        await platform.prepare()
        secrets = await _secrets(console, variables_of(fields))
        console.say(f"Making the machine at {platform.name}…")
        try:
            await platform.create(secrets)
            await platform.started()
            console.say(f"What {platform.name} shows of it is what the release says.\n")
            request = Namespace(release=order.release / RELEASE, pccs=pccs)
            return await _register_and_prove(platform, console, secrets, request, trust)
        except BaseException:
            console.say(platform.left_over())
            raise


def rendered(order: Namespace) -> tuple[Release, str]:
    """Return a release, and its app-compose.json with the operator's values in the slots.

    Raises:
        SettingsError: a file cannot be read, or a value has no slot or does not fit it.
    """
    try:
        release = Release.parse((order.release / RELEASE).read_bytes())
        app_compose = (order.release / APP_COMPOSE).read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        files = f"{RELEASE} and {APP_COMPOSE} cannot be read"
        raise SettingsError(f"{order.release}: is not the folder of a release: {files}") from None
    if hashlib.sha256(app_compose.encode()).hexdigest() not in release.compose_hashes:
        raise SettingsError(f"{order.release}: {APP_COMPOSE} is not the one of {RELEASE}")
    values = dict(argument.partition("=")[::2] for argument in order.set)
    try:
        compose = with_slot_values(release.compose_file, values)
    except MalformedEvidence as error:
        raise SettingsError(f"--set: {error}") from None
    if compose == release.compose_file:
        return release, app_compose
    fields = read_app_compose(app_compose) | {"docker_compose_file": compose}
    return release, json.dumps(fields, indent=4, ensure_ascii=False)


def _write(folder: Path, files: Mapping[str, str]) -> None:
    try:
        folder.mkdir(exist_ok=True)
        for name, text in files.items():
            (folder / name).write_bytes(text.encode())
    except OSError as error:
        raise SettingsError(f"{folder}: {error.strerror}") from None


async def _secrets(console: Console, names: Iterable[str]) -> dict[str, str]:
    """Ask for the values that come from outside; those of the registration come later."""
    console.say("Values that only the enclave gets to know; Enter leaves one empty.")
    secrets = {}
    for name in names:
        secrets[name] = "" if name in {CAPTCHA, CODE} else await _plain(console, f"{name}:", name)
    return secrets


async def _plain(console: Console, question: str, name: str) -> str:
    while True:
        value = await console.ask(question, secret=_SECRET.fullmatch(name) is not None)
        if _PLAIN.fullmatch(value):
            return value
        console.say("Please leave out spaces, quotation marks and other characters of shells.")


async def _register_and_prove(
    platform: Platform,
    console: Console,
    secrets: Mapping[str, str],
    request: Namespace,
    trust: Trust,
) -> bool:
    console.say(_REGISTER)
    for _ in range(MAX_TRIES):
        captcha = {CAPTCHA: await _plain(console, "Paste the link here:", CAPTCHA)}
        await platform.update({**secrets, **captcha})
        await platform.started()
        code = await _plain(console, "The code of the SMS; Enter if none comes:", CODE)
        if not code:
            console.say(_NO_SMS)
            continue
        await platform.update({**secrets, **captcha, CODE: code})
        await platform.started()
        words = await console.ask("A few words of your own that nobody can guess:")
        console.say(_PROVE.format(words=words))
        is_proven = await _first_proof(console, words, request, trust)
        if is_proven is not None:
            return is_proven
        console.say(_NO_ANSWER)
    raise BotError("Three captchas did not lead to an account. Wait some hours.")


async def _first_proof(
    console: Console, words: str, request: Namespace, trust: Trust
) -> bool | None:
    """Check the bot's file as `signal-tee-bot verify` does; None if the bot has not answered."""
    while file := await console.ask("The file; Enter if the bot does not answer:"):
        number = await console.ask("The safety number of your chat; Enter to compare it by eye:")
        asked = {"bundle": Path(file), "challenge": words, "safety_number": number or None}
        rest = {"collateral": None, "keep_collateral": None, "json": False}
        try:
            is_proven = await verify(Namespace(**vars(request), **asked, **rest), trust=trust)
        except BotError as error:
            console.say(str(error))
            continue
        if not is_proven:
            console.say(_FAILED)
        return is_proven
    return None
