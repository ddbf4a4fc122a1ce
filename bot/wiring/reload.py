"""Settings that change while the bot runs: read anew, checked as a whole, applied in one step.

`LIVE` is the list of what can change and of how it is done. Whatever else differs is named in the
log and waits for the next start. What was accepted before is still answered, whoever may no longer
talk after it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
from pydantic import BaseModel

from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.config.sources import DELIMITER
from bot.errors import SettingsError
from bot.observability import logs
from bot.wiring.adjustable import Adjustable
from bot.wiring.endpoint import api_key
from bot.wiring.parts import access_rules, acknowledgements

log = structlog.get_logger()

Apply = Callable[[Adjustable, Settings], None]


def _log_level(_: Adjustable, settings: Settings) -> None:
    logs.set_level(settings.log.level)


def _access(parts: Adjustable, settings: Settings) -> None:
    rules = access_rules(settings)
    parts.access.rules = rules
    parts.group_permissions.admins = parts.notices.admins = settings.access.admins
    parts.loop_guard.messages_per_minute = rules.messages_per_minute


def _retention(parts: Adjustable, settings: Settings) -> None:
    parts.store.retention_days = settings.store.retention_days


def _tools(parts: Adjustable, settings: Settings) -> None:
    parts.tool_loop.max_tool_calls = settings.tools.max_tool_calls
    parts.executor.timeout_seconds = settings.tools.timeout_seconds
    parts.tool_limits.per_person = settings.tools.calls_per_minute
    parts.tool_limits.per_bot = settings.tools.calls_per_minute_total


def _key(parts: Adjustable, settings: Settings) -> None:
    for user in parts.endpoint.key_users:
        user.use_key(api_key(settings))


def _system_prompt(parts: Adjustable, settings: Settings) -> None:
    parts.prompt.begin_with(settings.bot.system_prompt)


def _manners(parts: Adjustable, settings: Settings) -> None:
    parts.presence.ack_reaction, parts.presence.read_receipts = acknowledgements(settings)
    parts.batching.settle_seconds = settings.bot.settle_seconds


LIVE: Final[Mapping[str, Apply]] = {
    "LOG__LEVEL": _log_level,
    "ACCESS__POLICY": _access,
    "ACCESS__ALLOWED": _access,
    "ACCESS__ADMINS": _access,
    "ACCESS__GROUPS": _access,
    "ACCESS__MESSAGES_PER_MINUTE": _access,
    "STORE__RETENTION_DAYS": _retention,
    "TOOLS__MAX_TOOL_CALLS": _tools,
    "TOOLS__TIMEOUT_SECONDS": _tools,
    "TOOLS__CALLS_PER_MINUTE": _tools,
    "TOOLS__CALLS_PER_MINUTE_TOTAL": _tools,
    "LLM__API_KEY": _key,
    "BOT__SYSTEM_PROMPT": _system_prompt,
    "BOT__ACK_REACTION": _manners,
    "BOT__READ_RECEIPTS": _manners,
    "BOT__SETTLE_SECONDS": _manners,
}
"""What can change while the bot runs, and how each of it is applied."""


class Reload:
    """Reads the settings anew and applies what can change.

    Args:
        settings: those that the bot was started with.
        parts: what they are applied to.
    """

    def __init__(self, settings: Settings, parts: Adjustable) -> None:
        self._running = settings
        self._parts = parts

    async def __call__(self) -> None:
        """Read, check, and apply; settings of which one is wrong change nothing and are logged."""
        try:
            wanted = await asyncio.to_thread(load_settings)
        except SettingsError as error:
            for problem in error.problems:
                setting, _, reason = problem.partition(": ")
                log.error("settings.refused", setting=setting, reason=reason)
            return
        differing = _differing(self._running, wanted)
        changed = [name for name in differing if self._is_live(name, wanted)]
        self._running = _with(self._running, wanted, changed)
        # One step of the event loop: no message meets half of it.
        for apply in dict.fromkeys(LIVE[name] for name in changed):
            apply(self._parts, self._running)
        log.info("settings.reloaded", setting=changed)
        for name in differing:
            if name not in changed:
                log.warning("settings.need_restart", setting=name)

    def _is_live(self, name: str, wanted: Settings) -> bool:
        if name == "STORE__RETENTION_DAYS":
            # Where the bot makes proofs, they say what it was started with.
            return not self._parts.makes_proofs
        if name == "TOOLS__MAX_TOOL_CALLS":
            # A bot that was started without any call has opened no tools.
            return bool(self._running.tools.max_tool_calls) and bool(wanted.tools.max_tool_calls)
        return name in LIVE


def _differing(running: Settings, wanted: Settings) -> list[str]:
    """Return the names of the settings that have another value, as the environment has them."""
    before, after = dict(_values(running)), dict(_values(wanted))
    return [name for name, value in after.items() if value != before[name]]


def _values(section: BaseModel, *path: str) -> Iterator[tuple[str, object]]:
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _values(value, *path, name)
        else:
            yield DELIMITER.join((*path, name)).upper(), value


def _with(running: Settings, wanted: Settings, names: list[str]) -> Settings:
    """Return the running settings with some of the wanted ones in their place."""
    sections: dict[str, BaseModel] = {}
    for name in names:
        section, field = name.lower().split(DELIMITER)
        value = getattr(getattr(wanted, section), field)
        before = sections.get(section, getattr(running, section))
        sections[section] = before.model_copy(update={field: value})
    return running.model_copy(update=sections)
