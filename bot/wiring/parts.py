"""Single parts, made from the settings; `check` uses them without running a bot."""

import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final

from pydantic import SecretStr

from bot.attestation.trust import REAL, Trust
from bot.chat.media import WORDS_BYTES
from bot.config.mcp import McpServerSettings
from bot.config.settings import Settings
from bot.dispatch.incoming.access import AccessRules
from bot.llm.estimate import BYTES_PER_TOKEN
from bot.llm.learnt import Learnt
from bot.messaging.messenger import Messenger
from bot.messaging.spawned import START_SECONDS, SpawnedSignalCli, socket_path
from bot.wiring.endpoint import OpenEndpoint, has_to_prove, open_unproven
from conversation_store.store import ConversationStore
from tools.catalog import CATALOG, COMMANDS
from tools.results import MIN_LIMIT_BYTES
from tools.settings import (
    MAX_RESULT_BYTES,
    CommandApproval,
    CommandSettings,
    McpServer,
    SearchProvider,
    SharedFolder,
    ToolSettings,
    WeatherSettings,
    WebSearchSettings,
    WorkspaceSettings,
)


@asynccontextmanager
async def open_endpoint(
    settings: Settings,
    *,
    trust: Trust = REAL,
    clock: Callable[[], float] = time.time,
    learnt: Learnt | None = None,
) -> AsyncIterator[OpenEndpoint]:
    """Open the model's endpoint, with proof of who can read along if the settings ask for it.

    Args:
        settings: of the bot.
        trust: only tests give another than the real one.
        clock: seconds since 1970, for the age of proofs.
        learnt: of the model so far.
    """
    if has_to_prove(settings):
        # Imported here: a bot that asks for no proof saves 13 MB of cryptography.
        from bot.wiring.attested_endpoint import open_attested  # noqa: PLC0415

        async with open_attested(settings, trust, clock=clock, learnt=learnt) as attested:
            yield attested
    else:
        async with open_unproven(settings, learnt) as unproven:
            yield unproven


async def store_key(settings: Settings) -> str | None:
    """Return the key of the store from its source in the settings.

    Raises:
        AgentError: the guest agent gives none.
        SettingsError: it gives one that would be lost.
    """
    if settings.store.key_source == "setting":
        return _secret(settings.store.key)
    from bot.attestation.dstack import DstackAgent  # noqa: PLC0415 - as above
    from bot.attestation.store_key import derive_store_key  # noqa: PLC0415

    agent = DstackAgent(settings.attestation.dstack_socket)
    return await derive_store_key(agent, may_be_lost=settings.store.key_may_be_lost)


WORKSPACE_KEY: Final = "workspace_key"
WORKSPACE_KEY_BYTES: Final = 32
NAME_BYTES: Final = 16

CALCULATOR: Final = ("calculate", "convert_units", "shift_date", "date_difference")
"""The tools that `TOOLS__CALCULATOR__ENABLED` switches."""


def tool_settings(settings: Settings) -> ToolSettings:
    """Return which tools are wanted: none if the model may not call any."""
    wanted = settings.tools
    if not wanted.enabled or wanted.max_tool_calls == 0:
        return ToolSettings(disabled=frozenset(CATALOG))
    switches = {
        **dict.fromkeys(CALCULATOR, wanted.calculator.enabled),
        "current_time": wanted.current_time.enabled,
        "get_weather": wanted.weather.enabled,
        "web_search": wanted.web_search.enabled,
        "web_fetch": wanted.web_fetch.enabled,
        COMMANDS: wanted.commands.enabled,
    }
    return ToolSettings(
        disabled=frozenset(name for name, on in switches.items() if not on),
        weather=WeatherSettings(wanted.weather.geocoding_url, wanted.weather.forecast_url),
        web_search=WebSearchSettings(
            provider=SearchProvider(wanted.web_search.provider),
            api_key=_secret(wanted.web_search.api_key),
            url=wanted.web_search.url,
            max_results=wanted.web_search.max_results,
        ),
        mcp_servers=tuple(
            _mcp_server(name, server) for name, server in sorted(settings.mcp.servers.items())
        ),
        workspaces=_workspace_settings(settings),
        commands=_command_settings(settings),
        result_limit_bytes=result_limit(settings.llm.context_tokens),
    )


def _workspace_settings(settings: Settings) -> WorkspaceSettings | None:
    """Return how large workspaces are, and where; None where nobody has one."""
    wanted = settings.tools.workspace
    if wanted.for_ == "nobody":
        return None
    return WorkspaceSettings(
        path=wanted.path or settings.store.path.parent / "workspaces",
        everyone=wanted.for_ == "everyone",
        quota_bytes=wanted.quota_mb * 2**20,
        max_files=wanted.max_files,
        max_read_bytes=wanted.max_read_bytes,
        shared=tuple(_shared(name, place) for name, place in sorted(wanted.folders.items())),
    )


def _shared(name: str, place: str) -> SharedFolder:
    """Return a folder of the machine; `:rw` behind its path lets files in it be changed."""
    path, _, mode = place.rpartition(":")
    if mode != "rw" or not path:
        return SharedFolder(name, Path(place).absolute())
    return SharedFolder(name, Path(path).absolute(), writable=True)


def _command_settings(settings: Settings) -> CommandSettings:
    """Return what commands may take."""
    wanted = settings.tools.commands
    limit = result_limit(settings.llm.context_tokens)
    room = max(MIN_LIMIT_BYTES, limit - MIN_LIMIT_BYTES)  # with a frame and an exit code around it
    return CommandSettings(
        approval=CommandApproval(wanted.approval),
        timeout_seconds=wanted.timeout_seconds,
        memory_bytes=wanted.memory_mb * 2**20,
        max_output_bytes=min(wanted.max_output_bytes, room),
        network=settings.commands_have_network,
    )


async def workspace_names(store: ConversationStore) -> Callable[[str], str]:
    """Return what names the folder of a chat: a keyed hash, so that the name tells nothing.

    The key is random, made once and kept in the store. BLAKE2b: RFC 7693.
    """
    known = await store.get_metadata(WORKSPACE_KEY)
    if known is None:
        known = secrets.token_hex(WORKSPACE_KEY_BYTES)
        await store.set_metadata(WORKSPACE_KEY, known)
    key = bytes.fromhex(known)
    return lambda chat: blake2b(chat.encode(), digest_size=NAME_BYTES, key=key).hexdigest()


def _mcp_server(name: str, server: McpServerSettings) -> McpServer:
    token = _secret(server.token)
    return McpServer(
        name=name,
        command=server.command,
        # Names of settings ignore case; environment variables are upper case by custom.
        environment={key.upper(): value.get_secret_value() for key, value in server.env.items()},
        url=server.url,
        headers={"Authorization": f"Bearer {token}"} if token else {},
        timeout_seconds=server.timeout_seconds,
        tools=server.tools,
    )


def _secret(value: SecretStr | None) -> str | None:
    return value.get_secret_value() if value is not None else None


def spawned_signal_cli(settings: Settings) -> SpawnedSignalCli | None:
    """Return the signal-cli that the bot has to start; None if one runs elsewhere."""
    if settings.signal.url != "spawn:":
        return None
    return SpawnedSignalCli(socket_path(settings.store.path), data_dir=settings.signal.data_dir)


def make_messenger(settings: Settings, at: str | None = None) -> Messenger:
    """Return the transport that `SIGNAL__URL` names.

    Args:
        settings: of the bot.
        at: where signal-cli listens, where that is not at its usual place.
    """
    signal, note_to_self = settings.signal, settings.access.note_to_self
    if signal.url.startswith(("http://", "https://")):
        # Imported here: signalbot costs 0.7 s and 25 MB that the daemon transport does not need.
        from bot.messaging.signal_rest import SignalRest  # noqa: PLC0415

        return SignalRest(signal.url, signal.phone_number, note_to_self=note_to_self)
    from bot.messaging.signal_daemon import SignalDaemon  # noqa: PLC0415

    spawned = spawned_signal_cli(settings)
    return SignalDaemon(
        at or (signal.url if spawned is None else spawned.url),
        signal.phone_number,
        data_dir=signal.data_dir if spawned is None else spawned.data_dir,
        note_to_self=note_to_self,
        start_seconds=0.0 if spawned is None else START_SECONDS,
    )


def access_rules(settings: Settings) -> AccessRules:
    """Return who may talk; in the note to self only the account's owner does."""
    wanted = settings.access
    return AccessRules(
        policy="open" if wanted.note_to_self else wanted.policy,
        allowed=wanted.allowed,
        admins=wanted.admins,
        owner=settings.signal.phone_number if wanted.note_to_self else None,
        groups=wanted.groups,
        messages_per_minute=wanted.messages_per_minute,
        tokens_per_day=wanted.tokens_per_day,
    )


def acknowledgements(settings: Settings) -> tuple[str | None, bool]:
    """Return the emoji for every new message, and whether messages are marked as read."""
    if settings.access.note_to_self:  # the owner needs no signs about notes to self
        return None, False
    return settings.bot.ack_reaction, settings.bot.read_receipts


def words_limit(context_tokens: int) -> int:
    """Return the bytes of text that files of one turn may have: a quarter of the context."""
    return min(WORDS_BYTES, context_tokens * BYTES_PER_TOKEN // 4)


def result_limit(context_tokens: int) -> int:
    """Return the bytes that a tool's result may have: an eighth of the context."""
    eighth = context_tokens * BYTES_PER_TOKEN // 8
    return min(MAX_RESULT_BYTES, max(MIN_LIMIT_BYTES, eighth))
