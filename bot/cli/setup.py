"""`signal-tee-bot setup`: from nothing to a first answer on one's own phone, in one sitting.

It tries each answer at once, and keeps it in `.env.setup` until `.env` is complete. After an
interruption, the next run continues there.
"""

import asyncio
import re
import secrets
from argparse import Namespace
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bot import app
from bot.cli.account_setup import open_setup
from bot.cli.check import listed_tools
from bot.cli.console import Console, agrees, choose
from bot.cli.encrypt import KEY_BYTES
from bot.cli.env import DRAFT_FILE, ENV_FILE, Draft, read_key
from bot.cli.link import link
from bot.cli.model_findings import ONE_WORD_SECONDS, with_tools
from bot.cli.neighbours import neighbours
from bot.cli.pair import who_is
from bot.cli.register import register
from bot.cli.signal_cli import install_signal_cli
from bot.cli.store_errors import explained
from bot.config.llm import BASE_URLS, NEAR_AI
from bot.config.loading import load_settings
from bot.config.settings import Settings, phone_number
from bot.errors import BotError, SettingsError, first_of
from bot.foundation import Start
from bot.llm.client import open_client
from bot.llm.errors import (
    LlmError,
    LlmTimeout,
    LlmUnauthorized,
    LlmUnavailable,
    LlmUnreachable,
)
from bot.llm.refusals import WEB_PAGE
from bot.observability import logs
from bot.signal.errors import SignalError
from bot.signal.installation import home_of
from bot.signal.registration import AccountSetup
from bot.signal.spawned import PROGRAM, found_program
from bot.signal.trouble import AccountTrouble
from bot.store import store_key
from conversation_store.backup import is_there
from conversation_store.connections import StoreError
from conversation_store.pairings import open_pairing_book
from tools.sandbox.pool import SandboxPolicy

BEGIN: Final = """\
This sets up the bot: which model answers, which Signal account it has, and who may write to it. \
Each answer is tried before the next question. Ctrl-C interrupts; run setup again to continue.
"""
GO_ON: Final = (
    f"Continuing an interrupted setup. To start over, delete {DRAFT_FILE} and run setup again."
)
BROKEN_OFF: Final = f"\nInterrupted. {DRAFT_FILE} has your answers: run setup again to continue."
NOTHING_YET: Final = "\nInterrupted; nothing was answered yet."
LEFT_AS_IT_IS: Final = (
    "It stays as it is. Edit .env by hand; signal-tee-bot check tries it, signal-tee-bot run runs"
    " the bot."
)
CHANGE_IT: Final = (
    "There is a .env already. Change it? Settings not asked about here stay as they are."
)
KEEP: Final = "Keep {what}?"
WRITTEN: Final = """
All of it is in .env, which only you may read. Keep a copy of its STORE__KEY.
The model may search the web with DuckDuckGo, without a key. For Brave or a SearXNG of your \
own, see docs/TOOLS.md."""
KEEP_RUNNING: Final = """
To keep the bot running:
  - on a server with systemd, or in containers: docs/DEPLOY.md has the commands for both;
  - here and now: signal-tee-bot run.
signal-tee-bot check says what does not work.
"""
NO_ADMIN: Final = (
    "The bot has no admin yet. Write to it from your own phone: it answers with a code. Then run"
    " signal-tee-bot pair approve CODE --admin, which lets you in and makes you an admin."
)
UNATTENDED: Final = {
    "model_url": "--model-url",
    "model": "--model",
    "number": "--number",
}
"""Options that `--yes` requires."""


def run(arguments: Namespace) -> None:
    """Set up the bot."""
    logs.configure(level="critical", log_format="console")  # the console says what happens
    console = Console()
    try:
        if arguments.yes:
            asyncio.run(set_up_unattended(arguments, console))
        else:
            asyncio.run(set_up(arguments, console))
    except KeyboardInterrupt:
        console.say(BROKEN_OFF if DRAFT_FILE.exists() else NOTHING_YET)
        raise


async def set_up(arguments: Namespace, console: Console) -> None:
    """Ask for missing values, try them, write `.env`, and make the first person an admin."""
    console.say(BEGIN)
    if (words := neighbours()) is not None:
        console.say(f"{words}\n")
    draft = Draft.begun()
    if draft is not None:
        console.say(GO_ON)
    elif ENV_FILE.exists():
        if not await agrees(console, CHANGE_IT):
            console.say(LEFT_AS_IT_IS)
            return
        draft = Draft.read(ENV_FILE)
        await _ask_what_stays(console, draft, arguments)
    else:
        draft = Draft({})
    _take(draft, arguments)
    if not (draft["LLM__MODEL"] and await _still_answers(console, draft)):
        await ask_for_model(console, draft)
    await ask_for_signal_cli(console, draft)
    if not (draft["SIGNAL__PHONE_NUMBER"] and await _still_has_account(console, draft)):
        await ask_for_account(console, draft)
    _finish(draft)
    console.say(WRITTEN)
    if not draft["ACCESS__ADMINS"]:
        await meet_the_first(console)
    draft.end()
    console.say(KEEP_RUNNING)


async def set_up_unattended(arguments: Namespace, console: Console) -> None:
    """Try what the options say, and write `.env`; ask nothing."""
    missing = [option for name, option in UNATTENDED.items() if getattr(arguments, name) is None]
    if missing:
        raise SettingsError(*(f"{option}: is required with --yes" for option in missing))
    if ENV_FILE.exists() and not arguments.force:
        raise SettingsError("--force: is required to replace .env; the old file is kept next to it")
    draft = Draft.read(ENV_FILE) if ENV_FILE.exists() else Draft({})
    _take(draft, arguments)
    await try_model(console, draft.settings())
    with named_address(draft):
        await try_signal_cli(console, draft.settings())
        await try_account(console, draft.settings())
    _finish(draft)
    draft.end()
    console.say(WRITTEN)
    if not draft["ACCESS__ADMINS"] and not draft["ACCESS__NOTE_TO_SELF"]:
        console.say(NO_ADMIN)
    console.say(KEEP_RUNNING)


async def _ask_what_stays(console: Console, draft: Draft, arguments: Namespace) -> None:
    """Ask whether to keep the model and the account of an earlier `.env`."""
    model, number = draft["LLM__MODEL"], draft["SIGNAL__PHONE_NUMBER"]
    if model and not arguments.model and not await agrees(console, KEEP.format(what=model)):
        draft.keep(LLM__MODEL="")
    if number and not arguments.number and not await agrees(console, KEEP.format(what=number)):
        draft.keep(SIGNAL__PHONE_NUMBER="", ACCESS__ADMINS="")


def _take(draft: Draft, arguments: Namespace) -> None:
    """Take the settings that options give; send a key only to the server that it was made for."""
    key_file = arguments.key_file
    options = {
        "LLM__BASE_URL": arguments.model_url,
        "LLM__MODEL": arguments.model,
        "LLM__API_KEY": read_key("--key-file", key_file) if key_file else None,
        "SIGNAL__URL": arguments.signal,
        "SIGNAL__PHONE_NUMBER": arguments.number,
        "ACCESS__ADMINS": arguments.admin,
    }
    given = {name: value for name, value in options.items() if value is not None}
    if "LLM__BASE_URL" in given and "LLM__API_KEY" not in given:
        draft.forget_key_of_another(given["LLM__BASE_URL"])
    draft.keep(**given)


async def _still_answers(console: Console, draft: Draft) -> bool:
    try:
        await try_model(console, draft.settings())
    except BotError as error:
        console.say(str(error))
        return False
    return True


def _finish(draft: Draft) -> None:
    """Write `.env`, with a key for a store that is still to be made."""
    if not draft["STORE__KEY"] and not is_there(draft.settings().store.path):
        draft.keep(STORE__KEY=secrets.token_hex(KEY_BYTES))
    draft.write()


STATUS_SECONDS: Final = 20.0

NO_SIGNAL_CLI: Final = (
    f"\nThe bot needs {PROGRAM}, which speaks to Signal, and there is none on this machine. Shall"
    " it be downloaded now (110 MB, checked by its SHA-256, kept next to the store)?"
)
OTHER_ADDRESS: Final = (
    f"The address of {PROGRAM} (unix:/path/to/socket, tcp://host:port or http://host:port), or"
    " Enter to try again:"
)
MIN_VERSIONS: Final = {"signal-cli": (0, 13), "signal-cli-rest-api": (0, 101)}
"""The oldest tested versions; Signal itself refuses versions that are some months old."""

WHICH: Final = "\nWhich number is the bot's?"
ITS_OWN: Final = "A number of its own, which receives one SMS or call now"
OF_A_PHONE: Final = "The number of a spare phone that has Signal already (scan a code)"
MINE: Final = "My own: it answers in my Note to Self, and nowhere else (scan a code)"


async def ask_for_signal_cli(console: Console, draft: Draft) -> None:
    """Find a signal-cli that answers, on this machine or at an address; keep only that."""
    url = draft["SIGNAL__URL"] or "spawn:"
    while True:
        try:
            await _offer_to_install(console, url, draft.settings())
            await try_signal_cli(console, draft.settings(SIGNAL__URL=url))
        except SettingsError as error:
            console.say(str(error))
        except (BotError, OSError) as error:
            console.say(f"{_named(url)}: {error}")
        else:
            draft.keep(SIGNAL__URL=url)
            return
        url = await console.ask(OTHER_ADDRESS) or url


async def _offer_to_install(console: Console, url: str, settings: Settings) -> None:
    """Install signal-cli if there is none and the person agrees."""
    is_missing = url == "spawn:" and found_program(home_of(settings.store.path)) is None
    if is_missing and await agrees(console, NO_SIGNAL_CLI):
        await install_signal_cli(settings, console)


def _named(url: str) -> str:
    return f"{PROGRAM} on this machine" if url == "spawn:" else url


@contextmanager
def named_address(draft: Draft) -> Iterator[None]:
    """Name the address of signal-cli in errors about it."""
    try:
        yield
    except SettingsError:
        raise
    except SignalError as error:
        raise BotError(f"{_named(draft['SIGNAL__URL'] or 'spawn:')}: {error}") from None


async def try_signal_cli(console: Console, settings: Settings) -> None:
    """Ask signal-cli for its version, and say it; BotError if it is too old."""
    over_http = settings.signal.url.startswith("http")
    program = "signal-cli-rest-api" if over_http else PROGRAM
    try:
        async with open_setup(settings, console) as setup, asyncio.timeout(STATUS_SECONDS):
            version = await setup.version()
    except TimeoutError:
        raise BotError(f"{program} gave no answer within {STATUS_SECONDS:g} seconds.") from None
    found = tuple(map(int, re.findall(r"\d+", version)[:2]))
    if found < MIN_VERSIONS[program]:
        raise BotError(
            f"{program} {version} is too old: at least"
            f" {'.'.join(map(str, MIN_VERSIONS[program]))} is needed. Install the newest release."
        )
    console.say(f"{program} {version} answers.")


async def ask_for_account(console: Console, draft: Draft) -> None:
    """Take an account that signal-cli has, or make one, until there is one."""
    async with open_setup(draft.settings(), console) as setup:
        for number in sorted(await setup.accounts()):
            if await agrees(console, f"signal-cli has the account {number}. Is it the bot's?"):
                draft.keep(SIGNAL__PHONE_NUMBER=number)
                return
        while True:
            try:
                draft.keep(**await _new_account(console, setup))
            except SignalError as error:
                console.say(f"That did not work: {error}")
            else:
                return


async def _new_account(console: Console, setup: AccountSetup) -> dict[str, str]:
    match await choose(console, WHICH, [ITS_OWN, OF_A_PHONE, MINE]):
        case 0:
            number = await _number(console)
            await register(setup, console, number)
            return {"SIGNAL__PHONE_NUMBER": number}
        case 1:
            return {"SIGNAL__PHONE_NUMBER": await link(setup, console)}
        case _:
            number = await link(setup, console)
            return {"SIGNAL__PHONE_NUMBER": number, "ACCESS__NOTE_TO_SELF": "true"}


async def _number(console: Console) -> str:
    while True:
        try:
            return phone_number(await console.ask("The number, such as +49 1511 2345678:"))
        except ValueError as error:
            console.say(f"The number {error}.")


async def try_account(console: Console, settings: Settings) -> None:
    """Ask signal-cli for the account."""
    number = settings.signal.phone_number
    try:
        async with open_setup(settings, console) as setup, asyncio.timeout(STATUS_SECONDS):
            if number not in await setup.accounts():
                raise BotError(AccountTrouble.ABSENT)
    except TimeoutError:
        raise BotError("SIGNAL__URL: signal-cli does not answer in time. Restart it.") from None
    console.say(f"Signal: {number} is registered.")


async def _still_has_account(console: Console, draft: Draft) -> bool:
    try:
        await try_account(console, draft.settings())
    except BotError as error:
        console.say(str(error))
        return False
    return True


LOOK_SECONDS: Final = 0.5

WRITE: Final = """
The bot runs. Write anything to {number} from your own phone. The bot answers with a code, which \
need not be typed: this terminal knows it.
"""
WRITE_TO_YOURSELF: Final = """
The bot runs. Write something into your Note to Self on the phone: it answers there.
"""
ADMIN_ALREADY: Final = "\nThe bot runs. {who} is the admin already."
EXPIRED: Final = (
    "That code has expired. Run signal-tee-bot setup again, and then write to the bot again."
)
DONE: Final = "Now ask it something. Press Enter here when you are done: the bot stops then."


async def meet_the_first(console: Console) -> None:
    """Run the bot, and make the first person who writes an admin, after a question."""
    settings = load_settings()
    async with _running_bot(settings):
        if settings.access.note_to_self:
            console.say(WRITE_TO_YOURSELF)
        elif settings.access.policy == "pairing":
            await _admit(console, settings)
        await console.ask(DONE)


async def _admit(console: Console, settings: Settings) -> None:
    """Ask about each person who writes, until one of them becomes the admin."""
    key = await store_key(settings)
    refused: set[str] = set()
    with suppress(StoreError), open_pairing_book(settings.store.path, key) as book:
        admin = next((person for person in book.people() if person.admin), None)
        if admin is not None:
            console.say(ADMIN_ALREADY.format(who=who_is(admin)))
            return
    console.say(WRITE.format(number=settings.signal.phone_number))
    while True:
        with suppress(StoreError), open_pairing_book(settings.store.path, key) as book:
            for request in book.waiting():
                if request.code in refused:
                    continue
                if await agrees(console, f"{who_is(request)} has written. Is that the admin?"):
                    if book.approve(request.code, admin=True) is None:
                        raise BotError(EXPIRED)
                    return
                refused.add(request.code)
        await asyncio.sleep(LOOK_SECONDS)


@asynccontextmanager
async def _running_bot(settings: Settings) -> AsyncIterator[None]:
    """Run the daemon during a block; if it ends by itself, the block ends with its error."""
    told_to_stop = asyncio.Event()
    try:
        async with asyncio.TaskGroup() as tasks:
            running = tasks.create_task(app.run(Start(settings), told_to_stop=told_to_stop))
            try:
                yield
            finally:
                told_to_stop.set()
                await asyncio.wait([running])  # also after Ctrl-C, it stops in order
    except BaseExceptionGroup as ended:
        if isinstance(error := first_of(ended), BotError | StoreError):
            with explained(settings):
                raise error from None
        # A traceback may quote what people wrote.
        raise BotError("The bot has ended by itself. signal-tee-bot run says why.") from None


# The model

LIST_SECONDS: Final = 8.0
MAX_LISTED: Final = 9
"""Maximum of a numbered list of models; for more models, people type the name."""

ON_THIS_MACHINE: Final = {
    "llama.cpp": ("openai", "http://127.0.0.1:8080/v1"),
    "Ollama": ("ollama", "http://127.0.0.1:11434"),
}
"""API and default address of each server.

Ollama silently cuts a long prompt, unless its own API is told how much the model reads.
"""

NOT_CHOSEN_YET: Final = "not-chosen-yet"

NEAR_AI_MODEL: Final = "openai/gpt-oss-120b"

WHICH_MODEL: Final = "\nWhich model is to answer?"
PRIVATE: Final = "NEAR AI: in a TEE, proven to you by !verify (a key from cloud.near.ai)"
COMPATIBLE: Final = "OpenAI, or any server that speaks its protocol"
SERVICES: Final = {
    "Claude, at Anthropic (a key from console.anthropic.com)": "anthropic",
    "Gemini, at Google (a key from aistudio.google.com)": "gemini",
}
"""API of each service; each has one address."""
OPENAI: Final = "https://api.openai.com/v1"

ADDRESS: Final = "Address, such as {url} (Enter: back to the list):"
KEY: Final = "API key (it is not shown; Enter for none):"


@dataclass(frozen=True, slots=True)
class Offer:
    """A kind of model to choose.

    Attributes:
        words: for the list.
        dialect: its API.
        url: its address; None if people type it.
        example: of an address.
        has_key: whether it may want a key.
    """

    words: str
    dialect: str
    url: str | None = None
    example: str = OPENAI
    has_key: bool = True


async def ask_for_model(console: Console, draft: Draft) -> None:
    """Ask which model, and try it, until one answers."""
    while True:
        offers = [
            *await _servers_here(),
            Offer(PRIVATE, "openai", NEAR_AI),
            Offer(COMPATIBLE, "openai"),
            *(Offer(words, dialect, BASE_URLS[dialect]) for words, dialect in SERVICES.items()),
            *(
                Offer(f"{name}, at an address of yours", dialect, None, url)
                for name, (dialect, url) in ON_THIS_MACHINE.items()
            ),
        ]
        offer = offers[await choose(console, WHICH_MODEL, [one.words for one in offers])]
        answers = {"LLM__DIALECT": offer.dialect, "LLM__API_KEY": "", "LLM__MODEL": NOT_CHOSEN_YET}
        trying = Draft(draft.values | answers)
        url = offer.url or await _address(console, trying, offer.example)
        if not url:
            continue
        answers["LLM__BASE_URL"] = url
        try:
            if offer.has_key:
                answers["LLM__API_KEY"] = await console.ask(KEY, secret=True)
            answers["LLM__MODEL"] = await _model(console, draft.settings(**answers))
            await try_model(console, draft.settings(**answers))
        except LlmError as error:
            console.say(f"{url}: {error.reason}")
        except BotError as error:
            console.say(str(error))
        else:
            draft.keep(**answers)
            return


async def _address(console: Console, draft: Draft, example: str) -> str:
    """Return the address of a server that answers; empty if people would rather choose again."""
    while url := await console.ask(ADDRESS.format(url=example)):
        try:
            return await _with_version(console, draft, url)
        except LlmError as error:
            console.say(f"{url}: {error.reason}")
        except BotError as error:
            console.say(str(error))
    return ""


async def _with_version(console: Console, draft: Draft, url: str) -> str:
    """Return an address, with the `/v1` that most servers need if only that lists models."""
    try:
        await _listed_at(draft.settings(LLM__BASE_URL=url))
    except (LlmUnavailable, LlmTimeout) as error:
        is_page = isinstance(error, LlmUnreachable) and error.reason == WEB_PAGE
        if not is_page:
            raise
    except LlmError:
        pass  # perhaps it wants a key first
    else:
        return url
    if draft["LLM__DIALECT"] != "openai" or urlsplit(url).path.strip("/"):
        return url
    versioned = f"{url.rstrip('/')}/v1"
    try:
        await _listed_at(draft.settings(LLM__BASE_URL=versioned))
    except LlmUnauthorized:
        return versioned
    except LlmError:
        return url
    console.say(f"Its models are at {versioned}.")
    return versioned


async def try_model(console: Console, settings: Settings) -> None:
    """Ask a model for one word, with all tools that need no other server."""
    console.say(f"Asking {settings.llm.model} for one word (up to {ONE_WORD_SECONDS:g} s)…")
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    async with listed_tools(settings, sandboxes, {}) as registry:
        found = await with_tools(settings, registry.tools)
    console.say("It answers.")
    if found.verdict != "ok":
        console.say(found.words)


async def _model(console: Console, settings: Settings) -> str:
    """Ask for one of the endpoint's models; unlisted names are accepted too."""
    try:
        names = await _listed_at(settings)
    except LlmError as error:
        names = []
        console.say(f"It lists no models. {error.reason}")
    if len(names) == 1:
        return names[0]
    if 1 < len(names) <= MAX_LISTED:
        return names[await choose(console, "Which of its models?", names)]
    if names:
        console.say(f"It has {len(names)} models: {', '.join(names)}")
    usual = NEAR_AI_MODEL if settings.llm.base_url == NEAR_AI else (names or [""])[0]
    return await console.ask(f"Model [{usual}]:" if usual else "Model:") or usual


async def _servers_here() -> list[Offer]:
    """Return the servers that have a model on this machine."""

    async def look(name: str, dialect: str, url: str) -> list[Offer]:
        answers = {"LLM__DIALECT": dialect, "LLM__BASE_URL": url, "LLM__MODEL": NOT_CHOSEN_YET}
        with suppress(LlmError):
            if models := await _listed_at(Draft(answers).settings()):
                words = f"{name} on this machine: {', '.join(models[:3])}"
                return [Offer(words, dialect, url, has_key=False)]
        return []

    async with asyncio.TaskGroup() as tasks:
        looks = [tasks.create_task(look(n, *where)) for n, where in ON_THIS_MACHINE.items()]
    return [offer for look in looks for offer in look.result()]


async def _listed_at(settings: Settings) -> list[str]:
    """Return the models that an endpoint lists."""
    async with open_client(settings.llm) as client:
        try:
            async with asyncio.timeout(LIST_SECONDS):
                return sorted(await client.models())
        except TimeoutError:
            raise LlmTimeout("It does not answer in time.") from None
