"""The arguments of `signal-tee-bot` and its commands.

argparse, with examples at the end of each help, and the right name for a misspelt one.
"""

import argparse
import re
import sys
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Final, NoReturn

from bot import __version__
from bot.cli.exit_codes import WRONG_SETTINGS

PCCS_URL: Final = "https://pccs.phala.network"

_NOT_KNOWN: Final = re.compile(r"(?<=invalid choice: ')[^']+|(?<=unrecognized arguments: )-\S+")
"""An unknown command or option in a message of argparse."""


class CommandParser(argparse.ArgumentParser):
    """The parser of a command."""

    def __init__(self, *, examples: Sequence[str] = (), **settings: Any) -> None:
        self.examples = tuple(examples)
        self.arguments: list[argparse.Action] = []
        self.commands: Mapping[str, CommandParser] = {}
        super().__init__(**settings)

    def add_argument(self, *args: Any, **settings: Any) -> argparse.Action:
        """Add an option or a positional argument, as argparse does."""
        added = super().add_argument(*args, **settings)
        self.arguments.append(added)
        return added

    def add_switch(self, name: str, help_: str) -> None:
        """Add an option without a value."""
        self.add_argument(name, action="store_true", help=help_)

    def has_commands(self, *, title: str, metavar: str, dest: str) -> None:
        """Demand one of the commands that are added next."""
        self._below = self.add_subparsers(
            title=title, required=True, metavar=metavar, dest=dest, parser_class=CommandParser
        )
        self.commands = self._below.choices

    def command(self, name: str, help_: str, *examples: str, does: str = "") -> "CommandParser":
        """Add a command.

        Args:
            help_: a few words for the list of commands.
            does: whole sentences for its own help; default: `help_`.
        """
        description = does or f"{help_[0].upper()}{help_[1:]}."
        return self._below.add_parser(name, help=help_, description=description, examples=examples)

    def error(self, message: str) -> NoReturn:
        """End with the usage and a message that names the right command or option."""
        chosen = next((self.commands[one] for one in sys.argv[1:] if one in self.commands), None)
        if chosen is not None and chosen is not self:
            chosen.error(message)
        for wrong in _NOT_KNOWN.findall(message):
            if near := get_close_matches(wrong, list(_known_names(self)), n=1):
                message = f"there is no {wrong}; did you mean {near[0]}?"
                break
        else:
            message = f"{message}; see {self.prog} --help"
        from bot.cli.console import complain  # noqa: PLC0415 - right command lines start sooner

        self.print_usage(sys.stderr)
        complain(f"{self.prog}: error: {message}")
        self.exit(WRONG_SETTINGS)

    def format_help(self) -> str:
        """Return the help, with the examples at its end."""
        lines = textwrap.indent("\n".join((*self.examples, "")), "  ")
        title = "examples" if len(self.examples) > 1 else "example"
        return f"{super().format_help()}\n{title}:\n{lines}" if lines else super().format_help()


def _known_names(parser: CommandParser) -> Iterator[str]:
    """Yield the commands below a parser, and the options of all of them."""
    yield from parser.commands
    for one in (parser, *parser.commands.values()):
        for action in one.arguments:
            yield from action.option_strings


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; `command` names the module of this package that runs it."""
    return command_line().parse_args(arguments)


def command_line() -> CommandParser:
    """Return the parser of all commands."""
    parser = CommandParser(
        prog="signal-tee-bot",
        description="A Signal assistant that answers every message exactly once.",
        epilog="Settings come from the environment, .env and secret files: see signal-tee-bot env."
        " `signal-tee-bot COMMAND --help` explains a command.",
        examples=("signal-tee-bot demo", "signal-tee-bot check", "signal-tee-bot run"),
    )
    parser.add_argument(
        "-V", "--version", action="version", version=f"signal-tee-bot {__version__}"
    )
    parser.has_commands(title="commands", metavar="COMMAND", dest="command")
    command = parser.command

    command(
        "run",
        "run the bot until it is told to stop",
        "signal-tee-bot run",
        does="Answer messages until told to stop. SIGTERM or Ctrl-C lets answers in progress"
        " finish, a second one stops at once; SIGHUP reloads the settings.",
    )
    setup = command(
        "setup",
        "set up the bot: model, Signal account, who may write",
        "signal-tee-bot setup",
        "signal-tee-bot setup --yes --model-url http://127.0.0.1:8080/v1 \\\n"
        "    --model qwen --number +4915112345678",
        does="Ask which model answers, which Signal account the bot has and who may write to it,"
        " try each answer at once, and write .env. If interrupted, run it again to continue.",
    )
    _add_setup_arguments(setup)
    command(
        "demo",
        "try the whole bot in this terminal, without account or key",
        "signal-tee-bot demo",
        'signal-tee-bot demo --say "What is 127*43?"',
        does="Run the whole bot on this machine, with the terminal in place of the phone. It needs"
        " no account and no key: an offline assistant answers unless LLM__BASE_URL or LLM__API_KEY"
        " is set.",
    ).add_argument(
        "--say", nargs="+", action="extend", metavar="TEXT", help="send these, print, and exit"
    )
    check = command(
        "check",
        "check every part and say how to fix problems",
        "signal-tee-bot check",
        does="Check settings, store, Signal, model, tools and attestation, and print a line for"
        " each: ok, warning or failed, and how to fix it. It receives and sends no message, also"
        " while the bot runs. The exit code is 0 if nothing failed.",
    )
    check.add_switch(
        "--json",
        'for programs: {"ok", "findings": [{"part", "verdict", "words"}]} on stdout, also'
        " where settings are wrong (exit 2)",
    )
    command(
        "ready",
        "ask the running bot whether it is ready",
        "signal-tee-bot ready",
        does="Ask the running bot, at HEALTH__LISTEN, whether Signal, model and store work. The"
        " exit code is 0 if they do; a container's health check runs this.",
    )

    pair = command(
        "pair",
        "show or change who may talk to the bot",
        "signal-tee-bot pair list",
        "signal-tee-bot pair approve K7MPXQ",
        does="Show or change who may talk under ACCESS__POLICY=pairing, also while the bot runs.",
    )
    pair.has_commands(title="actions", metavar="ACTION", dest="action")
    pair.command(
        "list", "show who waits with which code, and who was let in", "signal-tee-bot pair list"
    )
    approve = pair.command(
        "approve",
        "let a person in",
        "signal-tee-bot pair approve K7MPXQ",
        "signal-tee-bot pair approve --admin K7MPXQ",
    )
    approve.add_argument(
        "code", metavar="CODE", help="the code that the bot gave the person; with --admin also WHO"
    )
    approve.add_switch(
        "--admin",
        "as an admin; WHO (a number, an ACI, or the beginning of one) may be let in already",
    )
    pair.command(
        "revoke",
        "take a person's access away",
        "signal-tee-bot pair revoke +4915112345678",
        "signal-tee-bot pair revoke 7f3c1a52",
    ).add_argument("who", metavar="WHO", help="a number, an ACI, or the beginning of one")

    command(
        "link",
        "use the Signal account of a phone, by a QR code",
        "signal-tee-bot link",
        does="Make the bot a linked device of a phone's Signal account: it shows a QR code, which"
        " you scan with Signal on that phone.",
    )
    register = command(
        "register",
        "register a number with Signal for the bot",
        "signal-tee-bot register +4915112345678",
        "signal-tee-bot register +4915112345678 --voice",
        does="Register a number with Signal for the bot. It asks for what Signal wants: a captcha,"
        " the code of an SMS or a call, a PIN.",
    )
    register.add_argument(
        "number", nargs="*", metavar="NUMBER", help="such as +4915112345678, spaces or not"
    )
    register.add_switch("--voice", "have Signal call instead of sending an SMS")
    register.add_argument(
        "--captcha", metavar="LINK", help="of a captcha that you have solved; else SIGNAL_CAPTCHA"
    )
    register.add_argument(
        "--code", metavar="DIGITS", help="the code, if Signal has sent it already; else SIGNAL_CODE"
    )
    register.add_switch(
        "--unattended", "wait for signal-cli, and do nothing when the account is there already"
    )

    signal_cli = command(
        "signal-cli",
        "install or update signal-cli",
        "signal-tee-bot signal-cli install",
        "signal-tee-bot signal-cli update",
        does="Install signal-cli next to the store, where SIGNAL__URL=spawn: looks for it first, or"
        " update it, also while the bot runs. Signal stops accepting versions that are some months"
        " old. Archives are checked by SHA-256.",
    )
    signal_cli.has_commands(title="actions", metavar="ACTION", dest="action")
    for action, what in (
        ("install", "install the newest release that this bot knows"),
        ("update", "install the newest release, and restart the running bot's signal-cli with it"),
    ):
        signal_cli.command(action, what, f"signal-tee-bot signal-cli {action}").add_argument(
            "--from",
            dest="source",
            metavar="FILE",
            help="an archive that was downloaded elsewhere, or the URL of a mirror",
        )

    signal_cli.command(
        "pin", "show the PIN of the registration lock", "signal-tee-bot signal-cli pin"
    )

    _add_deploy(
        command(
            "deploy",
            "put a release into an enclave, up to its first proof",
            "signal-tee-bot deploy phala release-1.2.0 --image dstack-0.5.9",
            "signal-tee-bot deploy dstack release-1.2.0 --image dstack-0.5.9 \\\n"
            "    --kms-url https://kms.example:12001",
            does="Deploy the files of a release with the platform's own command line, compare what"
            " the platform shows with the release, register the bot's number inside, and check"
            " the first proof on this computer.",
        )
    )

    verify = command(
        "verify",
        "check a proof from the chat, with no trust in the bot",
        'signal-tee-bot verify signal-tee-bot-proof.json --challenge "your own words"',
        does="Check the file that !verify sends, on any computer and without settings: the quote up"
        " to Intel's root, what was measured, your words, the account and the model. It prints a"
        " line for each.",
    )
    _add_verify_arguments(verify)
    watch = command(
        "watch",
        "ask a bot for its proof again and again",
        "signal-tee-bot watch +4915112345678 --account +4915187654321 --every 1d",
        "signal-tee-bot watch --bundle proof.json --challenge words",
        does="Ask a bot for its proof from a second Signal account, check it, and report what is"
        " different from the last time: release, machine, identity. Without --every it asks once."
        " Exit codes: 0 proven and unchanged, 1 not proven, 3 proven and changed.",
    )
    _add_watch_arguments(watch)
    attest = command(
        "attest",
        "check the evidence of the model, and pin its machines",
        "signal-tee-bot attest model",
        does="Check the evidence of the model's endpoint, and write down what it shows now.",
    )
    attest.has_commands(title="of", metavar="WHAT", dest="subject")
    model = attest.command(
        "model",
        "write the file for ATTESTATION__MODEL_PINS",
        "signal-tee-bot attest model --output model-pins.json",
        does="Check the model's evidence and write the machines that it shows to a file, for"
        " ATTESTATION__MODEL_PINS.",
    )
    model.add_argument(
        "--output", type=Path, default=Path("model-pins.json"), metavar="FILE", help="for the pins"
    )
    model.add_switch("--force", "replace a file that is there")

    backup = command(
        "backup",
        "copy the store, also while the bot runs",
        "signal-tee-bot backup /srv/backups/conversations.db",
        does="Make a consistent copy of the store, also while the bot runs; with STORE__KEY it is"
        " encrypted by the same key.",
    )
    backup.add_argument("file", type=Path, metavar="FILE", help="for the copy")
    _add_with_signal(backup, "copy the Signal account as well, encrypted, into this folder")
    command(
        "encrypt",
        "encrypt the store, or change its key, while the bot is stopped",
        "signal-tee-bot encrypt",
        "signal-tee-bot encrypt --old-key-file old-key.txt",
        does="Encrypt the store with STORE__KEY. If it is empty, this makes a key and puts it into"
        " .env. To change the key, change STORE__KEY and run this: it asks for the old key. It also"
        " works before the first start.",
    ).add_argument(
        "--old-key-file", type=Path, metavar="FILE", help="has the key of the store as it is now"
    )
    command(
        "env",
        "print a commented list of all settings",
        "test -e .env || signal-tee-bot env > .env",
        does="Print all settings with their defaults and what they mean, as a file .env.",
    )
    restore = command(
        "restore",
        "go back to a copy of the store, while the bot is stopped",
        "signal-tee-bot restore /srv/backups/conversations.db",
        does="Go back to a copy of the store, while the bot is stopped. No message is answered"
        " twice, and the present store is kept next to it under another name.",
    )
    restore.add_argument("file", type=Path, metavar="FILE", help="a copy that backup has made")
    _add_with_signal(restore, "also the Signal account, from this folder, after a loss")

    completion = command(
        "completion",
        "complete commands with the Tab key of your shell",
        'echo "source <(signal-tee-bot completion bash)" >> ~/.bashrc',
        'echo "source <(signal-tee-bot completion zsh)" >> ~/.zshrc',
        "signal-tee-bot completion fish > ~/.config/fish/completions/signal-tee-bot.fish",
        does="Print a script for your shell; with it, the Tab key completes commands and options.",
    )
    completion.add_argument("shell", choices=("bash", "zsh", "fish"), help="the one you use")
    return parser


def _add_with_signal(command: CommandParser, help_: str) -> None:
    command.add_argument("--with-signal", type=Path, metavar="FOLDER", help=help_)


def _add_setup_arguments(setup: CommandParser) -> None:
    setup.add_argument("--model-url", metavar="URL", help="of the model's endpoint: LLM__BASE_URL")
    setup.add_argument("--model", metavar="NAME", help="of the model: LLM__MODEL")
    setup.add_argument(
        "--key-file", type=Path, metavar="FILE", help="has the key of the endpoint: LLM__API_KEY"
    )
    setup.add_argument("--signal", metavar="URL", help="where signal-cli is: SIGNAL__URL")
    setup.add_argument("--number", metavar="NUMBER", help="the bot's: SIGNAL__PHONE_NUMBER")
    setup.add_argument("--admin", metavar="WHO", help="numbers or ACIs: ACCESS__ADMINS")
    setup.add_switch("--yes", "ask nothing; what is missing is an error")
    setup.add_switch("--force", "with --yes: replace .env; the old file is kept next to it")


def _add_watch_arguments(watch: CommandParser) -> None:
    watch.add_argument("number", nargs="?", metavar="NUMBER", help="of the bot, or its ACI")
    watch.add_argument("--account", metavar="NUMBER", help="of the second account, which asks")
    watch.add_argument(
        "--signal", default="spawn:", metavar="URL", help="of the second account's signal-cli"
    )
    watch.add_argument("--every", metavar="TIME", help="between two proofs: 30m, 12h, 1d")
    watch.add_argument(
        "--state",
        type=Path,
        default=Path("signal-tee-bot-watch.json"),
        metavar="FILE",
        help="for what was proven last",
    )
    watch.add_argument("--bundle", type=Path, metavar="FILE", help="check this proof; ask nobody")
    watch.add_argument("--challenge", metavar="TEXT", help="with --bundle: the words after !verify")
    _add_proof_arguments(watch)


def _add_deploy(deploy: CommandParser) -> None:
    deploy.has_commands(title="platforms", metavar="PLATFORM", dest="platform")
    phala = deploy.command(
        "phala",
        "Phala Cloud, with its command line phala",
        "signal-tee-bot deploy phala release-1.2.0 --image dstack-0.5.9 \\\n"
        "    --set ACCESS__ADMINS=9d0652a3-dcc3-4d11-975f-74d61598733f",
    )
    dstack = deploy.command(
        "dstack",
        "a dstack of your own, with its command line vmm-cli.py",
        "signal-tee-bot deploy dstack release-1.2.0 --image dstack-0.5.9 \\\n"
        "    --kms-url https://kms.example:12001 --vmm-cli dstack/vmm/src/vmm-cli.py",
    )
    for platform in (phala, dstack):
        platform.add_argument("release", type=Path, metavar="FOLDER", help="of the release's files")
        platform.add_argument(
            "--image", required=True, metavar="NAME", help="of the system that the release measures"
        )
        platform.add_argument(
            "--name", default="signal-tee-bot", metavar="NAME", help="of the machine"
        )
        platform.add_argument(
            "--set", action="append", default=[], metavar="NAME=VALUE", help="value for a slot"
        )
    phala.add_argument(
        "--size", default="tdx.medium", metavar="TYPE", help="2 CPUs and 4 GB: tdx.medium"
    )
    dstack.add_argument("--cpus", default="2", metavar="COUNT", help="of the machine")
    dstack.add_argument("--memory", default="4G", metavar="SIZE", help="of the machine")
    dstack.add_argument("--kms-url", required=True, metavar="URL", help="of the key service")
    dstack.add_argument("--vmm-cli", metavar="FILE", help="vmm-cli.py, if it is not in the PATH")


def _add_verify_arguments(verify: CommandParser) -> None:
    verify.add_argument("bundle", type=Path, metavar="BUNDLE", help="the file from the chat")
    verify.add_argument(
        "--challenge", required=True, metavar="TEXT", help="what you sent after !verify"
    )
    verify.add_argument(
        "--keep-collateral", type=Path, metavar="FOLDER", help="for files that --collateral takes"
    )
    verify.add_switch("--json", "the checks as JSON, for programs")
    _add_proof_arguments(verify)


def _add_proof_arguments(verify: CommandParser) -> None:
    verify.add_argument("--safety-number", metavar='"60 digits"', help="of your chat with the bot")
    verify.add_argument("--release", type=Path, metavar="FILE", help="the published release")
    verify.add_argument(
        "--collateral",
        type=Path,
        action="append",
        metavar="FILE",
        help="what Intel says about a platform, a file for each; then nothing is fetched",
    )
    verify.add_argument(
        "--pccs", default=PCCS_URL, metavar="URL", help="where to fetch that otherwise"
    )
