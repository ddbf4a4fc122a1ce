"""`signal-tee-bot setup`: from nothing to a first answer on one's own phone, in one sitting.

Each answer is tried at once, and remembered in `.env.setup` until all of it is in `.env`: who
breaks off goes on where it was.
"""

import asyncio
import secrets
from argparse import Namespace
from pathlib import Path
from typing import Final

from bot.cli.choices import agrees
from bot.cli.console import Console
from bot.cli.encrypt import KEY_BYTES
from bot.cli.env_file import ENV_FILE
from bot.cli.exit_codes import OK
from bot.cli.setup_account import ask_for_account, ask_for_signal_cli, try_account
from bot.cli.setup_draft import DRAFT_FILE, Draft
from bot.cli.setup_model import ask_for_model, try_model
from bot.cli.setup_people import meet_the_first
from bot.errors import BotError, SettingsError
from bot.observability import logs
from conversation_store.backup import is_there

BEGIN: Final = """\
This sets up the bot: which model answers, which Signal account it has, and who may write to it. \
Each answer is tried before the next question. Ctrl-C breaks off; run it again to go on.
"""
GO_ON: Final = (
    f"Going on where this was broken off. To begin anew, delete {DRAFT_FILE} and run it again."
)
BROKEN_OFF: Final = f"\nBroken off; {DRAFT_FILE} has what was answered. Run it again to go on."
NOTHING_YET: Final = "\nBroken off; nothing was answered yet."
LEFT_AS_IT_IS: Final = (
    "It stays as it is. Edit .env by hand; signal-tee-bot check tries it, signal-tee-bot run runs"
    " the bot."
)
MAKE_ANEW: Final = (
    "There is a .env already. Make it anew, with what it says that is not asked here?"
)
KEEP: Final = "Does {what} stay?"
WRITTEN: Final = "\nAll of it is in .env, which only you may read. Keep a copy of its STORE__KEY."
KEEP_RUNNING: Final = """
To keep the bot running:
  - on a server with systemd, or in containers: docs/DEPLOY.md has the commands for both;
  - here and now: signal-tee-bot run.
What does not work is said by signal-tee-bot check.
"""
NO_ADMIN: Final = (
    "Nobody may write to it yet. Whoever does gets a code; signal-tee-bot pair approve CODE --admin"
    " lets in, and makes an admin."
)
UNATTENDED: Final = {
    "model_url": "--model-url",
    "model": "--model",
    "number": "--number",
}
"""What has to be given where nobody can be asked, and the option that gives it."""


def run(arguments: Namespace) -> int:
    """Set up the bot; return the exit code."""
    logs.configure(level="critical", log_format="console")  # the console says what happens
    console = Console()
    try:
        if arguments.yes:
            asyncio.run(set_up_unattended(arguments, console))
        else:
            asyncio.run(set_up(arguments, console))
    except KeyboardInterrupt:
        if _has_come_to_its_end():
            console.say(KEEP_RUNNING)
            return OK
        console.say(BROKEN_OFF if DRAFT_FILE.exists() else NOTHING_YET)
        raise
    return OK


def _has_come_to_its_end() -> bool:
    """Whether all was answered, and only the last look at the bot was broken off."""
    draft = Draft.begun()
    if draft is None or not ENV_FILE.exists() or not draft["ACCESS__ADMINS"]:
        return False
    is_written = Draft.read(ENV_FILE)["ACCESS__ADMINS"] == draft["ACCESS__ADMINS"]
    if is_written:
        draft.end()
    return is_written


async def set_up(arguments: Namespace, console: Console) -> None:
    """Ask for what is missing, try it, write `.env`, and meet the first person.

    Raises:
        BotError: it cannot go on; the text says why.
    """
    console.say(BEGIN)
    draft = Draft.begun()
    if draft is not None:
        console.say(GO_ON)
    elif ENV_FILE.exists():
        if not await agrees(console, MAKE_ANEW):
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
    if draft["SIGNAL__PHONE_NUMBER"]:
        await try_account(console, draft)
    else:
        await ask_for_account(console, draft)
    _finish(draft)
    console.say(WRITTEN)
    if not draft["ACCESS__ADMINS"]:
        await meet_the_first(console, draft)
    draft.end()
    console.say(KEEP_RUNNING)


async def set_up_unattended(arguments: Namespace, console: Console) -> None:
    """Try what the options say, and write `.env`; ask nothing.

    Raises:
        SettingsError: an option is missing or wrong.
        BotError: something that was tried fails.
    """
    missing = [option for name, option in UNATTENDED.items() if getattr(arguments, name) is None]
    if missing:
        raise SettingsError(*(f"{option}: is required with --yes" for option in missing))
    if ENV_FILE.exists() and not arguments.force:
        raise SettingsError("--force: is required to replace .env, which is kept beside it")
    draft = Draft.read(ENV_FILE) if ENV_FILE.exists() else Draft({})
    _take(draft, arguments)
    await try_model(console, draft.settings())
    await try_account(console, draft)
    _finish(draft)
    draft.end()
    console.say(WRITTEN)
    if not draft["ACCESS__ADMINS"] and not draft["ACCESS__NOTE_TO_SELF"]:
        console.say(NO_ADMIN)
    console.say(KEEP_RUNNING)


async def _ask_what_stays(console: Console, draft: Draft, arguments: Namespace) -> None:
    """Ask whether the model and the account of an earlier `.env` stay; what does not is asked."""
    model, number = draft["LLM__MODEL"], draft["SIGNAL__PHONE_NUMBER"]
    if model and not arguments.model and not await agrees(console, KEEP.format(what=model)):
        draft.keep(LLM__MODEL="")
    if number and not arguments.number and not await agrees(console, KEEP.format(what=number)):
        draft.keep(SIGNAL__PHONE_NUMBER="", ACCESS__ADMINS="")


def _take(draft: Draft, arguments: Namespace) -> None:
    """Take what options say; a key goes only to the server that it was made for."""
    given = _given(arguments)
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


def _given(arguments: Namespace) -> dict[str, str]:
    """Return the settings that options give.

    Raises:
        BotError: the file of the key cannot be read.
    """
    given = {
        "LLM__BASE_URL": arguments.model_url,
        "LLM__MODEL": arguments.model,
        "LLM__API_KEY": _read_key(arguments.key_file) if arguments.key_file else None,
        "SIGNAL__URL": arguments.signal,
        "SIGNAL__PHONE_NUMBER": arguments.number,
        "ACCESS__ADMINS": arguments.admin,
    }
    return {name: value for name, value in given.items() if value is not None}


def _read_key(file: Path) -> str:
    try:
        return file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise BotError(f"--key-file: {file} cannot be read") from error


def _finish(draft: Draft) -> None:
    """Write `.env`, with a key for a store that is still to be made."""
    if not draft["STORE__KEY"] and not is_there(draft.settings().store.path):
        draft.keep(STORE__KEY=secrets.token_hex(KEY_BYTES))
    draft.write()
