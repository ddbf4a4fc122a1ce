"""The command lines of Phala Cloud and dstack, as `signal-tee-bot deploy` uses them.

Secrets reach them in a file alone, which exists only while they run. Everything that they print is
a stranger's word: it is compared with the release, and the proof at the end relies on none of it.
"""

import asyncio
import hashlib
import json
import os
import re
import shlex
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bot.attestation.app_compose import configuration_problems, read_app_compose
from bot.attestation.errors import MalformedEvidence
from bot.attestation.event_log import parse_event_log
from bot.attestation.release import Release
from bot.attestation.strict_json import decode
from bot.errors import BotError

CALL_SECONDS: Final = 600.0
UP_SECONDS: Final = 900.0
MAX_SHOWN: Final = 300
COMPOSE: Final = "dstack-compose.yaml"
APP_COMPOSE: Final = "app-compose.json"
RELEASE: Final = "release.json"
SECRETS: Final = "secrets.env"
REGISTERS: Final = ("mrtd", "rtmr0", "rtmr1", "rtmr2")
NO_SCRIPT: Final = ("", hashlib.sha256(b"").hexdigest())
AS_PUBLISHED: Final = "as published"

_PHALA_REMEDIES: Final = {
    "Authentication required|API token is required|Invalid API key": "Run `phala login` first.",
    "ERR-01-004": "Choose another --name, or delete the machine that has this one.",
    "ERR-02-01[03]": "Choose with --image a system that Phala Cloud has and the release measures.",
    "ERR-02-015|ERR-04-00[23]": "Delete a machine that you do not need, or ask for a higher limit.",
    "ERR-02-": "Wait for a free machine, or choose another --size that the release measures.",
    "ERR-04-001": "Add money to your account at Phala Cloud first.",
    "ERR-05-002": "Wait a minute, and start again.",
    "ERR-06-006|ERR-03-005": "Use an account that may start machines: `phala login`.",
}
_DSTACK_REMEDIES: Final = {
    "untrusted signer|EOFError": "Trust the key service's key first: `vmm-cli.py kms add KEY`.",
    "Unauthorized|Basic auth credentials": "Put the token of dstack's VMM into DSTACK_VMM_TOKEN.",
    "Connection refused|No such file": "Put the address of dstack's VMM into DSTACK_VMM_URL.",
}
"""Remedies for refusals, by a pattern for their text; the first match counts."""
_UNKNOWN: Final = "Put that right, and start again."

_BY_HAND: Final = """\
There is no {cli} here. {install} Or run these commands by hand:

cd {folder}
(umask 077 && nano {secrets})   # a line for each, also those that stay empty: {lines}
{creation}
# Put the captcha into {secrets}, later the code (docs/VERIFY.md, "Register inside"). After each,
# with the machine's id in place of MACHINE:
{updates}
rm {secrets}
# Send !verify and words of your own to the bot, save the file of its answer, and check it:
signal-tee-bot verify signal-tee-bot-proof.json --release ../{release} --challenge "your words"
"""

_STAYS: Final = """\
The machine {machine} still exists, and may cost money. Delete it ({removal}), or go on by hand \
(docs/VERIFY.md, "Register inside")."""
_PERHAPS: Final = "Look at {platform} whether a machine exists all the same: it may cost money."


class Value(NamedTuple):
    """A value that the platform shows, and the right ones."""

    name: str
    shown: str
    right: Container[str]


class Refused(BotError):
    """The platform did not do what it was asked for."""


class Platform(ABC):
    """A platform that runs enclaves, by its command line.

    Args:
        program: its command line.
        folder: has the files to deploy; the program runs there.
        app_compose: of the release, with the operator's values in the slots.
    """

    name: str
    cli: str
    install: str
    remedies: Mapping[str, str]
    machine = "MACHINE"
    is_made = False
    look_seconds = 10.0

    def __init__(
        self, program: str, folder: Path, order: Namespace, release: Release, app_compose: str
    ) -> None:
        self._program, self._folder, self._order = Path(program).absolute(), folder, order
        self._release, self._app_compose = release, app_compose

    @property
    @abstractmethod
    def creation(self) -> list[str]:
        """The command that makes the machine."""

    @property
    @abstractmethod
    def updates(self) -> list[list[str]]:
        """The commands that give it other secrets, and start it again."""

    @property
    @abstractmethod
    def removal(self) -> list[str]:
        """The command that deletes it."""

    @abstractmethod
    async def prepare(self) -> None:
        """Refuse a command line or a person who cannot make the machine."""

    @abstractmethod
    async def create(self, secrets: Mapping[str, str]) -> None:
        """Make the machine."""

    @abstractmethod
    async def update(self, secrets: Mapping[str, str]) -> None:
        """Give it other secrets, and start it again."""

    @abstractmethod
    async def is_up(self) -> bool:
        """Return whether its start is over, with or without the bot."""

    @abstractmethod
    async def values(self) -> list[Value]:
        """Return the values that the platform shows for the machine."""

    async def started(self) -> None:
        """Wait for the end of the machine's start, and compare its values with the release."""
        await self.until(self.is_up)
        for name, shown, right in await self.values():
            if shown not in right:
                said = harmless(shown) or "none"
                raise Refused(f"{name} is not that of the release: {self.name} shows {said}.")

    def left_over(self) -> str:
        """Say what an ended deployment leaves."""
        if not self.is_made:
            return _PERHAPS.format(platform=self.name)
        removal = shlex.join([self.cli, *self.removal])
        return _STAYS.format(machine=self.machine, removal=removal)

    def by_hand(self, names: Iterable[str]) -> str:
        """Return the commands that a person without the command line is to run."""
        return _BY_HAND.format(
            cli=self.cli,
            install=self.install,
            release=RELEASE,
            folder=shlex.quote(str(self._folder)),
            secrets=SECRETS,
            lines=" ".join(f"{name}=" for name in names),
            creation=shlex.join([self.cli, *self.creation]),
            updates="\n".join(shlex.join([self.cli, *update]) for update in self.updates),
        )

    async def call(self, arguments: Sequence[str], secrets: Mapping[str, str] | None = None) -> str:
        """Run the command line, and return its output."""
        file = self._folder / SECRETS
        try:
            if secrets is not None:
                with os.fdopen(
                    os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "w"
                ) as f:
                    f.writelines(f"{name}={value}\n" for name, value in secrets.items())
            output, errors, code = await self._run(arguments)
        finally:
            file.unlink(missing_ok=True)
        if code != 0 or answer_in(output).get("success") is False:
            raise Refused(self._refusal(f"{errors}\n{output}"))
        return output

    async def until(self, is_so: Callable[[], Awaitable[bool]]) -> None:
        """Look again and again until the machine is in a state."""
        try:
            async with asyncio.timeout(UP_SECONDS):
                while not await is_so():  # noqa: ASYNC110 - the platform tells nobody
                    await asyncio.sleep(self.look_seconds)
        except TimeoutError:
            raise Refused(f"{self.name} does not say in time that the machine runs.") from None

    async def _run(self, arguments: Sequence[str]) -> tuple[str, str, int | None]:
        pipe, nothing = asyncio.subprocess.PIPE, asyncio.subprocess.DEVNULL
        try:
            process = await asyncio.create_subprocess_exec(
                self._program, *arguments, cwd=self._folder, stdin=nothing, stdout=pipe, stderr=pipe
            )
        except OSError as error:
            raise Refused(f"{self._program} does not start: {error.strerror}.") from None
        try:
            async with asyncio.timeout(CALL_SECONDS):
                output, errors = await process.communicate()
        except TimeoutError:
            raise Refused(f"{self.cli} does not end. Look at the state of {self.name}.") from None
        finally:
            if process.returncode is None:
                process.kill()
        return output.decode(errors="replace"), errors.decode(errors="replace"), process.returncode

    def _refusal(self, printed: str) -> str:
        """Return a sentence with the platform's words, and one with the remedy."""
        said = answer_in(printed)
        words = [str(said[key]) for key in ("error_code", "error", "message") if said.get(key)]
        if not words:
            lines = [
                line
                for line in printed.splitlines()
                if re.search("error|exception", line, re.IGNORECASE)
            ]
            words = lines[-1:] or printed.split("\n")[:1]
        remedy = next(
            (do for why, do in self.remedies.items() if re.search(why, printed)), _UNKNOWN
        )
        return f"{self.name} refuses: {harmless(': '.join(words))}. {remedy}"

    def app_compose_value(self, shown: str) -> Value:
        """Return the first difference between an app-compose.json and the published one."""
        try:
            fields = read_app_compose(shown)
            problem = next(configuration_problems(fields), AS_PUBLISHED)
            if problem == AS_PUBLISHED:
                self._release.choices(fields)
                ours = read_app_compose(self._app_compose)["docker_compose_file"]
                if fields["docker_compose_file"] != ours:
                    problem = "a slot has another value than you gave it"
        except MalformedEvidence as error:
            problem = str(error)
        return Value(APP_COMPOSE, problem, [AS_PUBLISHED])


class Phala(Platform):
    """Phala Cloud, by `phala` of npm."""

    name = "Phala Cloud"
    cli = "phala"
    install = "Install it (`npm install --global phala`), run `phala login`, and start again."
    remedies = _PHALA_REMEDIES
    app_id = ""
    _fixed: Final = (
        *("--json", "--compose", COMPOSE, "--no-dev-os", "--no-pre-launch-script"),
        *("--no-public-logs", "--no-public-sysinfo", "-e", SECRETS),
    )

    @property
    def creation(self) -> list[str]:
        order = self._order
        chosen = ["--name", order.name, "--image", order.image, "--instance-type", order.size]
        return ["deploy", *chosen, "--kms", "phala", "--secure-time", *self._fixed]

    @property
    def updates(self) -> list[list[str]]:
        return [["deploy", "--cvm-id", self.machine, *self._fixed, "--wait"]]

    @property
    def removal(self) -> list[str]:
        return ["cvms", "delete", self.machine, "--yes"]

    async def prepare(self) -> None:
        if "--no-pre-launch-script" not in await self.call(["deploy", "--help"]):
            raise Refused(
                "This phala has no --no-pre-launch-script, without which the host may read along."
                " Update it: `npm install --global phala@latest`."
            )
        if not answer_in(await self.call(["status", "--json"])).get("username"):
            raise Refused("You are not logged in to Phala Cloud. Run `phala login` first.")

    async def create(self, secrets: Mapping[str, str]) -> None:
        made = answer_in(await self.call(self.creation, secrets))
        self.machine, self.app_id = str(made.get("vm_uuid")), _hex(made.get("app_id"))
        self.is_made = True

    async def update(self, secrets: Mapping[str, str]) -> None:
        [update] = self.updates
        await self.call(update, secrets)

    async def is_up(self) -> bool:
        machine = answer_in(await self.call(["cvms", "get", self.machine, "--json"]))
        if machine.get("in_progress") is not False:
            return False
        try:
            return (await self._attestation()).get("is_online") is True
        except Refused:  # as long as nothing in the machine answers
            return False

    async def values(self) -> list[Value]:
        machine = answer_in(await self.call(["cvms", "get", self.machine, "--json"]))
        measured = (await self._attestation()).get("tcb_info") or {}
        app_compose = str(measured.get("app_compose"))
        compose_hash = hashlib.sha256(app_compose.encode()).hexdigest()
        noted = {e.name: e.payload for e in parse_event_log(measured.get("event_log") or [])}
        provider = decode(noted.get("key-provider", b"{}"), "the key provider's event")
        key_service = provider.get("id") if isinstance(provider, dict) else None
        system = machine.get("os") or {}
        image = noted.get("os-image-hash", b"").hex()
        registers = [" ".join(getattr(os_, name) for name in REGISTERS) for os_ in self._release.os]
        shown = " ".join(str(measured.get(name)) for name in REGISTERS)
        return [
            self.app_compose_value(app_compose),
            Value(
                "pre_launch_script", _hex(machine.get("pre_launch_script_hash") or ""), NO_SCRIPT
            ),
            Value("compose hash", _hex(machine.get("compose_hash")), [compose_hash]),
            Value("measured compose hash", noted.get("compose-hash", b"").hex(), [compose_hash]),
            Value("app id", _hex(machine.get("app_id")), [self.app_id]),
            Value("measured app id", noted.get("app-id", b"").hex(), [self.app_id]),
            Value("OS image (is_dev)", str(system.get("is_dev")), ["False"]),
            Value("OS image hash", _hex(system.get("os_image_hash")), [image]),
            Value("OS measurement", shown, registers),
            Value("key service (KMS)", str(key_service), self._release.kms_ids),
        ]

    async def _attestation(self) -> dict[str, Any]:
        return answer_in(await self.call(["cvms", "attestation", self.machine, "--json"]))


class Dstack(Platform):
    """Own dstack, by its `vmm-cli.py`, which does not show the OS hash or the key service."""

    name = "dstack"
    cli = "vmm-cli.py"
    install = "Name the one of your dstack with --vmm-cli, and start again."
    remedies = _DSTACK_REMEDIES

    @property
    def creation(self) -> list[str]:
        order = self._order
        size = ["--vcpu", order.cpus, "--memory", order.memory]
        chosen = ["--name", order.name, "--image", order.image, "--compose", APP_COMPOSE, *size]
        return ["deploy", *chosen, *self._keys]

    @property
    def updates(self) -> list[list[str]]:
        update = ["update-env", self.machine, *self._keys]
        return [update, ["stop", self.machine], ["start", self.machine]]

    @property
    def removal(self) -> list[str]:
        return ["remove", self.machine]

    @property
    def _keys(self) -> list[str]:
        return ["--env-file", SECRETS, "--kms-url", self._order.kms_url]

    async def prepare(self) -> None:
        images = await self.call(["lsimage", "--json"])
        if json.dumps(self._order.image) not in images:
            raise Refused(
                "The image is not found. Choose with --image one of `vmm-cli.py lsimage`."
            )

    async def create(self, secrets: Mapping[str, str]) -> None:
        made = re.search(
            r"^Created VM with ID: (\S+)$", await self.call(self.creation, secrets), re.MULTILINE
        )
        if made is None:
            raise Refused("vmm-cli.py did not name the new machine. Run `vmm-cli.py lsvm`.")
        self.machine, self.is_made = made[1], True

    async def update(self, secrets: Mapping[str, str]) -> None:
        update, stop, start = self.updates
        await self.call(update, secrets)
        await self.call(stop)
        await self.until(self._is_stopped)
        await self.call(start)

    async def is_up(self) -> bool:
        machine = await self._info()
        boot_error = str(machine.get("boot_error") or "")
        # Without an account the bot's containers do not all start.
        if boot_error and "containers" not in boot_error:
            raise Refused(f"The machine does not start: {harmless(boot_error)}.")
        is_booted = bool(boot_error) or machine.get("boot_progress") == "done"
        return machine.get("status") == "running" and is_booted

    async def values(self) -> list[Value]:
        machine = await self._info()
        configuration = machine.get("configuration") or {}
        shown = str(configuration.get("compose_file"))
        compose_hash = hashlib.sha256(self._app_compose.encode()).hexdigest()
        return [
            self.app_compose_value(shown),
            Value("compose hash", hashlib.sha256(shown.encode()).hexdigest(), [compose_hash]),
            Value("app id", _hex(machine.get("app_id")), [compose_hash[:40]]),
            Value("OS image", str(configuration.get("image")), [self._order.image]),
        ]

    async def _is_stopped(self) -> bool:
        return (await self._info()).get("status") in ("stopped", "exited")

    async def _info(self) -> dict[str, Any]:
        return answer_in(await self.call(["info", self.machine, "--json"]))


def answer_in(output: str) -> dict[str, Any]:
    """Return the JSON object after lines of other text; empty if there is none."""
    begin = re.search(r"^\{", output, re.MULTILINE)
    try:
        found, _ = json.JSONDecoder().raw_decode(output[begin.start() :]) if begin else ({}, 0)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def harmless(text: str) -> str:
    """Return a stranger's words on one line, without a full stop at its end."""
    line = "".join(c if c.isprintable() else " " for c in text.strip())
    return line[:MAX_SHOWN].rstrip(". ")


def _hex(value: object) -> str:
    return str(value).lower().removeprefix("0x")
