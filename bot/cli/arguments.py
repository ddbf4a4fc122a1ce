"""The arguments of `signal-tee-bot` and its commands."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from bot import __version__

PCCS_URL: Final = "https://pccs.phala.network"


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; `command` names the module of this package that runs it.

    Raises:
        SystemExit: the message, the help or the version has been printed.
    """
    parser = argparse.ArgumentParser(
        prog="signal-tee-bot",
        description="A Signal assistant that answers every message exactly once.",
        epilog="Settings come from the environment, .env and secret files: see .env.example.",
    )
    parser.add_argument("--version", action="version", version=f"signal-tee-bot {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")

    def command(name: str, help_: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=help_)
        added.set_defaults(command=name)
        return added

    command("run", "be the daemon")
    command("demo", "the whole bot on loopback; the terminal is the phone").add_argument(
        "--say", nargs="+", action="extend", metavar="TEXT", help="send these, print, and exit"
    )
    check = command("check", "look at every part and say how to mend it")
    check.add_argument(
        "--verbose", action="store_true", help="a line for each tool of the MCP servers, too"
    )
    check.add_argument(
        "--json",
        action="store_true",
        help='for programs: {"ok", "findings": [{"part", "verdict", "words"}]} on stdout, also'
        " where settings are wrong (exit 2)",
    )
    command("ready", "ask the running bot whether all of it is well")

    pair = command("pair", "who may talk, under ACCESS__POLICY=pairing")
    actions = pair.add_subparsers(title="actions", required=True, metavar="ACTION", dest="action")
    actions.add_parser("list", help="who waits with which code, and who was let in")
    approve = actions.add_parser("approve", help="let somebody in")
    approve.add_argument("code", metavar="CODE", help="what the bot told that person")
    approve.add_argument(
        "--admin",
        action="store_true",
        help="as an admin; instead of CODE, WHO names somebody who was let in already",
    )
    revoke = actions.add_parser("revoke", help="let somebody in no more")
    revoke.add_argument("who", metavar="WHO", help="a number, an ACI, or the beginning of one")

    command("link", "share a phone's Signal account, by a QR code")
    register = command("register", "give a number a Signal account, the bot's")
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

    _add_verify_arguments(command("verify", "check a proof, with no trust in the bot"))
    attest = command("attest", "look at evidence, and pin what it shows")
    subjects = attest.add_subparsers(title="of", required=True, metavar="WHAT", dest="subject")
    model = subjects.add_parser("model", help="pins for ATTESTATION__MODEL_PINS")
    model.add_argument(
        "--output", type=Path, default=Path("model-pins.json"), metavar="FILE", help="for the pins"
    )
    model.add_argument("--force", action="store_true", help="replace a file that is there")

    _add_release_arguments(command("release", "make what a TEE runs and what people compare"))
    for name, help_ in (
        ("backup", "copy the store, also while the bot runs"),
        ("restore", "go back to a copy, while no bot runs"),
    ):
        command(name, help_).add_argument("file", type=Path, metavar="FILE")
    return parser.parse_args(arguments)


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
