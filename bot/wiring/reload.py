"""Settings that change while the bot runs: read anew, checked as a whole, applied in one step.

`LIVE` lists what can change. Whatever else differs is named in the log and waits for the next
start. Messages that were accepted before are still answered, whoever may no longer talk after it.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import structlog
from pydantic import BaseModel

from bot.config.llm import ModelSettings
from bot.config.loading import load_settings
from bot.config.settings import Settings
from bot.config.sources import DELIMITER
from bot.config.values import EXAMPLE_NUMBER
from bot.errors import SettingsError

log = structlog.get_logger()

Apply = Callable[[Settings], None]

LIVE: Final = frozenset(
    {
        "LOG__LEVEL",
        "ACCESS__POLICY",
        "ACCESS__ALLOWED",
        "ACCESS__ADMINS",
        "ACCESS__GROUPS",
        "ACCESS__MESSAGES_PER_MINUTE",
        "ACCESS__TOKENS_PER_DAY",
        "ACCESS__QUORUM",
        "STORE__RETENTION_DAYS",
        "TOOLS__MAX_TOOL_CALLS",
        "TOOLS__TIMEOUT_SECONDS",
        "TOOLS__CALLS_PER_MINUTE",
        "TOOLS__CALLS_PER_MINUTE_TOTAL",
        "LLM__API_KEY",
        "BOT__SYSTEM_PROMPT",
        "BOT__ACK_REACTION",
        "BOT__READ_RECEIPTS",
        "BOT__SETTLE_SECONDS",
        "BOT__STEERING",
    }
)
"""What can change while the bot runs."""


class Reload:
    """Reads the settings anew and applies what can change.

    Args:
        settings: those that the bot was started with.
        makes_proofs: whether the bot makes proofs, which state the retention it was started with.
    """

    def __init__(self, settings: Settings, *, makes_proofs: bool) -> None:
        self._running = settings
        self._makes_proofs = makes_proofs
        self._parts: list[Apply] = []

    def register(self, *apply: Apply) -> None:
        """Have these called with the settings after each change, whichever has changed."""
        self._parts.extend(apply)

    async def __call__(self) -> None:
        """Read, check, and apply; if any setting is wrong, log it and change nothing."""
        try:
            wanted = await asyncio.to_thread(load_settings)
        except SettingsError as error:
            for problem in error.problems:
                setting, _, reason = problem.partition(": ")
                # The log withholds whatever has a number in it, an example too.
                shown = reason.replace(EXAMPLE_NUMBER, "+…")
                log.error("settings.refused", setting=setting, reason=shown)
            return
        differing = _differing(self._running, wanted)
        waiting = {name: self._waits_because(name, wanted) for name in differing}
        changed = [name for name, because in waiting.items() if because is None]
        self._running = _with(self._running, wanted, changed)
        # One step of the event loop: no message meets half of it.
        for apply in self._parts if changed else ():
            apply(self._running)
        log.info("settings.reloaded", setting=changed)
        for name, because in waiting.items():
            if because is not None:
                log.warning("settings.need_restart", setting=name, reason=because)

    def _waits_because(self, name: str, wanted: Settings) -> str | None:
        """Return why a change waits for the next start; None where it does not."""
        if name == "STORE__RETENTION_DAYS" and self._makes_proofs:
            return "proofs state the retention that the bot was started with"
        calls = (self._running.tools.max_tool_calls, wanted.tools.max_tool_calls)
        if name == "TOOLS__MAX_TOOL_CALLS" and not all(calls):
            return "tools are opened and closed with the bot"
        if name == "LLM__MODELS" and _without_keys(self._running) == _without_keys(wanted):
            return None
        return None if name in LIVE else "it is read only at the start"


def _without_keys(settings: Settings) -> Mapping[str, ModelSettings]:
    """Return the further models without their keys, which may change at any time."""
    models = settings.llm.models
    return {name: model.model_copy(update={"api_key": None}) for name, model in models.items()}


def _differing(running: Settings, wanted: Settings) -> list[str]:
    """Return the environment names of the settings whose values differ."""
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
    """Return the running settings with the named ones replaced by what is wanted."""
    sections: dict[str, BaseModel] = {}
    for name in names:
        section, field = name.lower().split(DELIMITER)
        value = getattr(getattr(wanted, section), field)
        before = sections.get(section, getattr(running, section))
        sections[section] = before.model_copy(update={field: value})
    return running.model_copy(update=sections)
