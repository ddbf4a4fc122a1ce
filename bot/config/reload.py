"""Reload settings while the bot runs: read and check all of them, then apply them in one step.

`LIVE` lists the settings that can change. The log names other changed settings, which wait for the
next start. Messages accepted before the reload are still answered.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

import structlog
from pydantic import BaseModel

from bot.config.llm import ModelSettings
from bot.config.loading import DELIMITER, load_settings
from bot.config.settings import EXAMPLE_NUMBER, Settings
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
        "STORE__RETENTION_DAYS",
        "TOOLS__MAX_TOOL_CALLS",
        "TOOLS__TIMEOUT_SECONDS",
        "TOOLS__CALLS_PER_MINUTE",
        "TOOLS__CALLS_PER_MINUTE_TOTAL",
        "LLM__API_KEY",
        "BOT__SYSTEM_PROMPT",
        "BOT__ACK_REACTION",
        "BOT__READ_RECEIPTS",
    }
)
"""Settings that can change while the bot runs."""


@dataclass(eq=False, repr=False, slots=True)
class Reload:
    """Reads the settings again and applies the changes to running parts.

    Attributes:
        makes_proofs: whether the bot makes proofs, which state the retention it started with.
    """

    settings: Settings
    _: KW_ONLY
    makes_proofs: bool
    _parts: list[Apply] = field(default_factory=list, init=False)

    def register(self, *apply: Apply) -> None:
        """Add functions to call with the settings after each change."""
        self._parts.extend(apply)

    async def __call__(self) -> None:
        """Read, check, and apply; if any setting is wrong, log it and change nothing."""
        try:
            wanted = await asyncio.to_thread(load_settings)
        except SettingsError as error:
            for problem in error.problems:
                setting, _, reason = problem.partition(": ")
                # The log withholds texts with a phone number, even an example.
                shown = reason.replace(EXAMPLE_NUMBER, "+…")
                log.error("settings.refused", setting=setting, reason=shown)
            return
        before = dict(_values(self.settings))
        differing = [name for name, value in _values(wanted) if value != before[name]]
        waiting = {name: self._waits_because(name, wanted) for name in differing}
        changed = [name for name, because in waiting.items() if because is None]
        self.settings = _with(self.settings, wanted, changed)
        # In one step of the event loop, so all messages see either all or no changes.
        for apply in self._parts if changed else ():
            apply(self.settings)
        log.info("settings.reloaded", setting=changed)
        for name, because in waiting.items():
            if because is not None:
                log.warning("settings.need_restart", setting=name, reason=because)

    def _waits_because(self, name: str, wanted: Settings) -> str | None:
        """Return the reason why a change waits for the next start, or None."""
        if name == "STORE__RETENTION_DAYS" and self.makes_proofs:
            return "proofs state the retention that the bot was started with"
        in_use = self.settings.tools.in_use and wanted.tools.in_use
        if name == "TOOLS__MAX_TOOL_CALLS" and not in_use:
            return "tools are opened and closed with the bot"
        if name == "LLM__MODELS" and _without_keys(self.settings) == _without_keys(wanted):
            return None
        return None if name in LIVE else "it is read only at the start"


def _without_keys(settings: Settings) -> Mapping[str, ModelSettings]:
    """Return the further models without their keys, which may change at any time."""
    models = settings.llm.models
    return {name: model.model_copy(update={"api_key": None}) for name, model in models.items()}


def _values(section: BaseModel, *path: str) -> Iterator[tuple[str, object]]:
    """Yield the environment names of settings, with their values."""
    for name in type(section).model_fields:
        value = getattr(section, name)
        if isinstance(value, BaseModel):
            yield from _values(value, *path, name)
        else:
            yield DELIMITER.join((*path, name)).upper(), value


def _with(running: Settings, wanted: Settings, names: list[str]) -> Settings:
    """Return the running settings with the named ones replaced."""
    for name in names:
        section, field = name.lower().split(DELIMITER)
        value = getattr(getattr(wanted, section), field)
        changed = getattr(running, section).model_copy(update={field: value})
        running = running.model_copy(update={section: changed})
    return running
