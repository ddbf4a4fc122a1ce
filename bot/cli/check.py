"""`signal-tee-bot check`: one line for each part, and how to fix it.

It takes no message from Signal, sends nothing, makes no file, and writes to the store only what
opening it writes. It does not disturb a running bot.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import sys
import textwrap
from argparse import Namespace
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Final

from bot.attestation.trust import REAL, Trust
from bot.chat.own_tools import LISTED, offer_own_tools
from bot.cli import basic_findings, model_findings
from bot.cli.account_setup import signal_cli_at
from bot.cli.basic_findings import PART_SECONDS, Finding, failed, ok, warning
from bot.cli.store_errors import said
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError
from bot.observability import logs
from bot.signal.errors import SignalError, SignalRejected, SignalTimeout, SignalUnavailable
from bot.signal.messenger import Messenger
from bot.signal.releases import LOG_DAYS, age_days, age_words
from bot.signal.transport import accounts_folder, make_messenger
from bot.signal.trouble import trouble_of_missing
from bot.store import store_key
from conversation_store.backup import is_there, upgrade_is_due
from conversation_store.connections import StoreError, StoreLocked
from conversation_store.pairings import open_pairing_book
from conversation_store.store import open_store
from tools.catalog import open_tools
from tools.commands import try_jail
from tools.display import visible
from tools.registry import Registry, probe
from tools.sandbox.errors import ToolUnavailable, WorkError
from tools.sandbox.pool import Sandbox, SandboxPolicy
from tools.sandbox.walls import ESSENTIAL, Wall
from tools.settings import COMMANDS, McpServer
from tools.workspace.workspaces import Workspaces

DEVICES_SECONDS: Final = 10.0
CONNECTED_POLL_SECONDS: Final = 0.05
ASKED: Final = frozenset({"llm", "model"})
"""Parts without which the model is not asked a question with tools."""
ANSWER_SECONDS: Final = PART_SECONDS + model_findings.ONE_WORD_SECONDS

VERDICT_COLUMNS: Final = 8
PART_COLUMNS: Final = 16
COLOURS: Final = {
    "ok": "\x1b[32m",
    "warning": "\x1b[33m",
    "failed": "\x1b[31m",
}
PLAIN: Final = "\x1b[0m"


def run(arguments: Namespace) -> bool:
    """Check every part, and return whether nothing failed."""
    try:
        settings = load_settings()
    except SettingsError as error:
        if arguments.json:
            print(document([failed("settings", problem) for problem in error.problems]))
        raise
    return asyncio.run(check(settings, as_json=arguments.json))


async def check(settings: Settings, *, as_json: bool = False) -> bool:
    """Print the findings, as lines or as one document; return whether nothing failed."""
    logs.configure(level="error", log_format="console")
    logging.disable()  # the libraries' logs: the report has what matters
    found = []
    async for finding in findings(settings):
        found.append(finding)
        if not as_json:
            print(_line(finding), flush=True)
    if as_json:
        print(document(found))
    return not _any_failed(found)


def document(found: Sequence[Finding]) -> str:
    """Return findings as JSON: `{"ok": bool, "findings": [{"part", "verdict", "words"}]}`."""
    findings = [asdict(finding) for finding in found]
    return json.dumps({"ok": not _any_failed(found), "findings": findings}, ensure_ascii=False)


def _any_failed(found: Iterable[Finding]) -> bool:
    return any(finding.verdict == "failed" for finding in found)


def _line(finding: Finding) -> str:
    """Return one line; on a terminal it is wrapped and coloured (no-color.org)."""
    line = f"{finding.verdict:<{VERDICT_COLUMNS}} {finding.part:<{PART_COLUMNS}} {finding.words}"
    if sys.stdout is None or not sys.stdout.isatty():
        return line
    indent = " " * (VERDICT_COLUMNS + PART_COLUMNS + 2)
    width = max(shutil.get_terminal_size().columns, 2 * len(indent))
    shown = textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False)
    if os.environ.get("NO_COLOR"):
        return shown
    verdict = f"{COLOURS[finding.verdict]}{finding.verdict}{PLAIN}"
    return verdict + shown.removeprefix(finding.verdict)


def _announce(part: str, seconds: float) -> None:
    """Tell a person at a terminal what is waited for."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"Asking {part} (up to {seconds:g} s)…", file=sys.stderr, flush=True)


async def findings(settings: Settings, *, trust: Trust = REAL) -> AsyncIterator[Finding]:
    """Check one part after the other."""
    admins = settings.access.admins | await _paired_admins(settings)
    for finding in (
        basic_findings.version(),
        *basic_findings.environment(),
        ok("settings", "Every setting is understood."),
        basic_findings.file_rights(settings),
        basic_findings.access(settings),
        *basic_findings.group_admins(settings, admins),
        *basic_findings.safety_numbers(settings, admins),
        await _store(settings),
        *basic_findings.disk(settings),
    ):
        yield finding
    _announce("signal-cli, SIGNAL__URL", PART_SECONDS)
    async for finding in _signal(settings):
        yield finding
    for finding in (*basic_findings.attachments(settings), *basic_findings.profile(settings)):
        yield finding
    _announce("the model's endpoint, LLM__BASE_URL", model_findings.ENDPOINT_SECONDS)
    answers = True
    async for finding in model_findings.model(settings):
        answers = answers and (finding.part not in ASKED or finding.verdict == "ok")
        yield finding
    for finding in await model_findings.further_models(settings):
        yield finding
    _announce("tools and MCP servers, and the model with them", ANSWER_SECONDS)
    async for finding in tools(settings, asks=answers):
        yield finding
    _announce("for evidence, and for what it is checked with", model_findings.MODEL_PROOF_SECONDS)
    yield await model_findings.attestation(settings, trust)
    yield await model_findings.model_proof(settings, trust)
    yield await basic_findings.health_address(settings)
    yield basic_findings.descriptors(settings)


async def _paired_admins(settings: Settings) -> frozenset[str]:
    """Return the ACIs of admins who were let in by a code."""
    try:
        if settings.access.policy != "pairing" or not is_there(settings.store.path):
            return frozenset()
        with open_pairing_book(settings.store.path, await store_key(settings)) as book:
            return frozenset(person.person for person in book.people() if person.admin)
    except (BotError, StoreError):
        return frozenset()  # the finding about the store says so


async def _store(settings: Settings) -> Finding:
    path = settings.store.path
    try:
        key = await store_key(settings)
        if not is_there(path):
            return basic_findings.new_store(settings, encrypted=key is not None)
        if upgrade_is_due(path, key):
            return ok("store", "From an earlier version. The next start upgrades it.")
        async with open_store(path, key=key):
            pass  # Opening it reads, writes and commits.
        return basic_findings.encryption(settings, "Works", encrypted=key is not None)
    except BotError as error:
        return failed("store", str(error))
    except StoreLocked:
        return ok("store", "In use by the running bot.")
    except StoreError as error:
        return failed("store", f"{said(error, settings)}.")


async def _signal(settings: Settings) -> AsyncIterator[Finding]:
    try:
        async with asyncio.timeout(PART_SECONDS), signal_cli_at(settings) as address:
            messenger = make_messenger(settings, address)
            status = await messenger.account_status()
            linked = await _linked_devices(settings, messenger) if status.registered else None
    except (BotError, TimeoutError) as error:
        yield failed("signal", _no_answer(settings, error))
        return
    yield _signal_side(settings, status.server)
    if linked is None:
        number = settings.signal.phone_number
        yield failed("account", trouble_of_missing(accounts_folder(settings), number))
    elif messenger.trouble is not None:
        yield failed("account", messenger.trouble)
    else:
        yield ok("account", "Registered.")
        yield linked


def _no_answer(settings: Settings, error: Exception) -> str:
    """Return the trouble of the Signal side, and the remedy."""
    over_http = settings.signal.url.startswith("http")
    if isinstance(error, SignalTimeout):
        program = "signal-cli-rest-api" if over_http else "signal-cli"
        return (
            f"{program} takes requests at SIGNAL__URL and does not answer: it is stuck. Restart it."
        )
    if isinstance(error, SignalRejected) or not isinstance(error, SignalError | TimeoutError):
        return str(error)  # signal-cli-rest-api is too old; signal-cli is missing, or ends
    if settings.signal.url == "spawn:":
        return (
            f"signal-cli was started, and does not answer within {PART_SECONDS:g} s. Run"
            " signal-cli --version to see why."
        )
    program = (
        "signal-cli-rest-api (MODE=json-rpc)"
        if over_http
        else "signal-cli (signal-cli daemon --socket /path --receive-mode manual)"
    )
    return f"No answer at SIGNAL__URL. Is {program} running there?"


def _signal_side(settings: Settings, server: str) -> Finding:
    if not settings.signal.url.startswith("http"):
        today = datetime.now(UTC).date()
        words = " ".join(filter(None, (f"{server} answers.", age_words(server, today))))
        is_old = (age_days(server, today) or 0) >= LOG_DAYS
        return warning("signal", words) if is_old else ok("signal", words)
    return warning(
        "signal",
        f"{server} answers. It loses messages if many come at once, and while the bot is down:"
        " signal-cli's own daemon (SIGNAL__URL=unix:/path) does not.",
    )


async def _linked_devices(settings: Settings, messenger: Messenger) -> Finding:
    """Say which other devices have the account's key."""
    part = "linked devices"
    count = await _count_linked_devices(messenger)
    if count is None:
        return warning(
            part, "Signal does not list the account's devices now; the bot's proof needs them."
        )
    if count == 0:
        return ok(part, "None: nothing but the bot has the account's key.")
    words = f"{count}, with the account's key: what is written to the bot is read there as well"
    if not settings.attestation.has_agent:
        return ok(part, f"{words}.")
    words += ", so the bot's proof fails. See signal-cli listDevices and removeDevice."
    return warning(part, words)


async def _count_linked_devices(messenger: Messenger) -> int | None:
    """Ask over a connection that receives no messages; None without a reply."""
    await messenger.stop_receiving()
    async with asyncio.TaskGroup() as tasks:
        connection = tasks.create_task(messenger.run(_take_nothing))
        try:
            async with asyncio.timeout(DEVICES_SECONDS):
                while True:  # until there is a connection
                    with suppress(SignalUnavailable):
                        return (await messenger.own_identity()).linked_devices
                    await asyncio.sleep(CONNECTED_POLL_SECONDS)
        except (SignalError, TimeoutError):
            return None
        finally:
            connection.cancel()


async def _take_nothing(_: object) -> None:
    """Never called: this connection receives nothing."""


# Tools

MAX_LAST_LINE_CHARACTERS: Final = 300
_ESCAPES: Final = re.compile(r"\x1b\[[\d;]*m")
_SAYS_NOTHING: Final = re.compile(
    r"[\W_]*|hint: .*|Node\.js v.*|\s+at .*|\s+'.*"
    r"|\s+(address|code|errno|path|port|requireStack|syscall|url): .*"
    r"|npm (error|ERR!) (404( Note.*| tarball.*)?|A complete log.*)"
)
"""Lines that uv, Node and npm write below the reason."""


@asynccontextmanager
async def listed_tools(
    settings: Settings, sandboxes: SandboxPolicy, servers: Mapping[str, McpServer]
) -> AsyncIterator[Registry]:
    """Provide the tools of a bot; do not call the tools that need its parts."""
    workspaces = None
    if settings.tools.workspace.for_ != "nobody":
        # This makes no folder, so any name will do.
        folder = settings.workspaces_folder
        workspaces = Workspaces(folder, settings.tools.workspace, str, sandboxes)
    async with open_tools(
        settings.tools, sandboxes, servers=servers, workspaces=workspaces, keeps_last_words=True
    ) as registry:
        offer_own_tools(settings, registry, LISTED)
        yield registry


async def tools(settings: Settings, *, asks: bool = False) -> AsyncIterator[Finding]:
    """Open all tools and try them."""
    servers = settings.mcp.servers if settings.tools.in_use else {}
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    yield await _sandboxes(sandboxes)
    async with listed_tools(settings, sandboxes, servers) as registry:
        with suppress(TimeoutError):
            async with asyncio.timeout(PART_SECONDS):
                await registry.settled.wait()
        troubles = await probe(registry)
        if registry.offered_by(COMMANDS):
            try:
                kind, refused = await try_jail()
            except ToolUnavailable as error:
                registry.withdraw(COMMANDS, str(error))
            else:
                why = f" Not by {'; '.join(refused)}." if refused else ""
                yield ok(COMMANDS, f"Walled off by {kind}, without a network.{why}")
        for finding in _built_in(registry, troubles, servers):
            yield finding
        for name, server in sorted(servers.items()):
            yield _server(name, server, registry)
        if not registry.tools:
            yield warning("tools", "None: the model answers from what it knows.")
        elif asks:
            try:
                yield await model_findings.with_tools(settings, registry.tools)
            except BotError as error:
                yield failed("tools", f"The model answers no question with tools. {error}")


def _built_in(
    registry: Registry, troubles: Mapping[str, str], servers: Collection[str]
) -> Iterator[Finding]:
    of_servers = {tool.name for server in servers for tool in registry.offered_by(server) or ()}
    for tool in registry.tools:
        if trouble := troubles.get(tool.name):
            yield warning(tool.name, f"Does not work now. {trouble}")
        elif tool.name not in of_servers:
            asks = "; asks before each call" if tool.side_effects else ""
            if tool.consent is not None:
                asks = "; TOOLS__COMMANDS__APPROVAL says which calls are asked about"
            yield ok(tool.name, f"Ready{asks}.")
    for name, reason in sorted(registry.absent.items()):
        if name not in servers:
            yield warning(name, reason)


def _server(name: str, server: McpServer, registry: Registry) -> Finding:
    """Say what an MCP server offers, or why it offers nothing and which setting names it."""
    setting = f"MCP__SERVERS__{name.upper()}__"
    see = f"See {setting}{'COMMAND' if server.command else 'URL'}."
    line = last_line(bytes((registry.last_words or {}).get(name, b"")))
    said = f'The last line of its error output: "{line}" ' if line else ""
    offered = registry.offered_by(name)
    if offered is None:
        return warning(
            name,
            f"The MCP server has not answered so far. {said}A first start that downloads something"
            f" may take a while: run check again, or raise {setting}TIMEOUT_SECONDS. {see}",
        )
    if reason := registry.absent.get(name):
        return warning(name, f"{reason} {said}{see}")
    asking = ", ".join(tool.name for tool in offered if tool.side_effects)
    counted = f"Ready. Tools: {len(offered)}; asking before each call: {asking or 'none'}."
    if not offered:
        counted = "The MCP server offers no tools."
    if remark := registry.remarks.get(name):
        return warning(name, f"{counted} {remark}")
    return ok(name, counted) if offered else warning(name, f"{counted} {see}")


def last_line(output: bytes) -> str:
    """Return the last informative line of an output, with invisible characters spelled out."""
    text = _ESCAPES.sub("", output.decode(errors="replace"))
    lines = (line for line in reversed(text.splitlines()) if not _SAYS_NOTHING.fullmatch(line))
    line = visible(next(lines, "").strip())
    if len(line) <= MAX_LAST_LINE_CHARACTERS:
        return line
    return f"{line[: MAX_LAST_LINE_CHARACTERS - 1]}…"


async def _sandboxes(policy: SandboxPolicy) -> Finding:
    """Report missing walls of the kernel around sandboxes, and their consequences."""
    part = "sandboxes"
    try:
        async with Sandbox("tools.sandbox.child", policy=policy) as sandbox:
            await sandbox.call("")
    except ToolUnavailable as error:
        return failed(part, str(error))
    except WorkError:
        return failed(part, "No sandbox can be started.")
    if not policy.missing:
        walls = ", ".join(Wall)
        return ok(part, f"Walled off by the kernel: {walls}.")
    words = f"This machine lacks {', '.join(policy.missing)}"
    if ESSENTIAL.isdisjoint(policy.missing):
        words += "; the other walls hold without it."
    else:
        words += (
            ": code that breaks out of a sandbox can do all that the bot can. With"
            " SANDBOX=required, the bot runs no sandboxes on this machine."
        )
    return warning(part, words)
