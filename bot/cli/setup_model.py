"""The model that `setup` asks for: found on this machine or named, and tried with one word."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bot.cli.check import listed_tools
from bot.cli.console import Console, choose
from bot.cli.env import Draft
from bot.cli.finding import Severity
from bot.cli.model_findings import ONE_WORD_SECONDS, with_tools
from bot.config.llm import BASE_URLS, NEAR_AI
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError
from bot.llm.client import open_client
from bot.llm.errors import LlmError, LlmTimeout, LlmUnavailable, LlmUnreachable
from bot.llm.refusals import WEB_PAGE
from tools.sandbox.pool import SandboxPolicy

LOOK_SECONDS: Final = 2.0
LIST_SECONDS: Final = 20.0
MAX_LISTED: Final = 9
"""Models that are offered as a list; of more, one is named."""

ON_THIS_MACHINE: Final = {
    "llama.cpp": ("openai", "http://127.0.0.1:8080/v1"),
    "Ollama": ("ollama", "http://127.0.0.1:11434"),
}
"""API and default address of each server.

Ollama silently cuts a long prompt, unless its own API is told how much the model reads.
"""

NOT_CHOSEN_YET: Final = "not-chosen-yet"

NEAR_AI_MODEL: Final = "openai/gpt-oss-120b"

WHICH: Final = "\nWhich model is to answer?"
PRIVATE: Final = "NEAR AI: in a TEE, proven to you by !verify (a key from cloud.near.ai)"
COMPATIBLE: Final = "OpenAI, or any server that speaks its protocol"
SERVICES: Final = {
    "Claude, at Anthropic (a key from console.anthropic.com)": "anthropic",
    "Gemini, at Google (a key from aistudio.google.com)": "gemini",
}
"""API of each service; each has one address."""

KEY: Final = "API key (it is not shown; Enter for none):"


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    dialect: str
    url: str
    models: tuple[str, ...]


async def ask_for_model(console: Console, draft: Draft) -> None:
    """Ask which model, and try it, until one answers."""
    url = ""
    while True:
        found = await _servers_here()
        dialect, url = await _address(console, found, tried=url)
        answers = {"LLM__DIALECT": dialect, "LLM__BASE_URL": url, "LLM__API_KEY": ""}
        try:
            draft.settings(**answers, LLM__MODEL=NOT_CHOSEN_YET)
            if url not in {server.url for server in found}:
                if dialect == "openai":
                    answers["LLM__BASE_URL"] = url = await _with_version(console, draft, url)
                answers["LLM__API_KEY"] = await console.ask(KEY, secret=True)
            answers["LLM__MODEL"] = await _model(console, draft, answers)
            await try_model(console, draft.settings(**answers))
        except SettingsError as error:
            console.say("\n".join(error.problems))
        except LlmError as error:
            console.say(f"{urlsplit(url).netloc}: {error.reason}")
        except BotError as error:
            console.say(str(error))
        else:
            draft.keep(**answers)
            return


async def _address(console: Console, found: Sequence[_Server], tried: str) -> tuple[str, str]:
    """Ask for the address of the model; return the API and the address.

    An address that was tried before is offered again.
    """
    here = [f"{one.name} on this machine: {', '.join(one.models[:3])}" for one in found]
    options = [*here, PRIVATE, COMPATIBLE, *SERVICES]
    known = {"", NEAR_AI, *BASE_URLS.values(), *(one.url for one in found)}
    usual = 0 if tried in known else options.index(COMPATIBLE)
    chosen = await choose(console, WHICH, options, usual=usual)
    if chosen < len(found):
        return found[chosen].dialect, found[chosen].url
    if (dialect := SERVICES.get(options[chosen])) is not None:
        return dialect, BASE_URLS[dialect]
    if options[chosen] == PRIVATE:
        return "openai", NEAR_AI
    offered = tried if usual else ""
    hint = f" [{offered}]" if offered else ", such as https://api.openai.com/v1"
    return "openai", await console.ask(f"Address{hint}:") or offered or "none"


async def _with_version(console: Console, draft: Draft, url: str) -> str:
    """Return an address with the `/v1` that most servers need, where only that lists models."""
    try:
        await _listed_at(draft.settings(LLM__BASE_URL=url), LOOK_SECONDS)
    except (LlmUnavailable, LlmTimeout) as error:
        is_page = isinstance(error, LlmUnreachable) and error.reason == WEB_PAGE
        if not is_page:
            raise
    except LlmError:
        pass  # perhaps it wants a key first
    else:
        return url
    versioned = f"{url.rstrip('/')}/v1"
    if not urlsplit(url).path.strip("/"):
        with suppress(LlmError):
            await _listed_at(draft.settings(LLM__BASE_URL=versioned), LOOK_SECONDS)
            console.say(f"Its models are at {versioned}.")
            return versioned
    return url


async def try_model(console: Console, settings: Settings) -> None:
    """Ask a model for one word, with all tools that need no other server."""
    console.say(f"Asking {settings.llm.model} for one word (up to {ONE_WORD_SECONDS:g} s)…")
    sandboxes = SandboxPolicy(required=settings.sandbox_required)
    async with listed_tools(settings, sandboxes, {}, {}) as registry:
        found = await with_tools(settings, registry.tools)
    console.say("It answers.")
    if found.verdict is not Severity.OK:
        console.say(found.words)


async def _model(console: Console, draft: Draft, answers: dict[str, str]) -> str:
    """Ask for one of the endpoint's models; unlisted names are accepted too."""
    settings = draft.settings(**answers, LLM__MODEL=NOT_CHOSEN_YET)
    why = ""
    try:
        names = await _listed_at(settings, LIST_SECONDS)
    except LlmError as error:
        names, why = [], f" {error.reason}"
    if len(names) == 1:
        return names[0]
    if 1 < len(names) <= MAX_LISTED:
        return names[await choose(console, "Which of its models?", names)]
    if not names and answers["LLM__BASE_URL"] != NEAR_AI:
        console.say(f"It lists no models.{why}")
        while not (name := await console.ask("Model:")):
            pass
        return name
    usual = NEAR_AI_MODEL if NEAR_AI_MODEL in names or not names else names[0]
    if names:
        console.say(f"It has {len(names)} models: {', '.join(names)}")
    return await console.ask(f"Model [{usual}]:") or usual


async def _servers_here() -> list[_Server]:
    async def look(name: str, dialect: str, url: str) -> _Server:
        answers = {"LLM__DIALECT": dialect, "LLM__BASE_URL": url, "LLM__MODEL": NOT_CHOSEN_YET}
        models: list[str] = []
        with suppress(LlmError):
            models = await _listed_at(Draft(answers).settings(), LOOK_SECONDS)
        return _Server(name, dialect, url, tuple(models))

    async with asyncio.TaskGroup() as tasks:
        looks = [tasks.create_task(look(n, *where)) for n, where in ON_THIS_MACHINE.items()]
    return [look.result() for look in looks if look.result().models]


async def _listed_at(settings: Settings, seconds: float) -> list[str]:
    """Return the models that an endpoint lists."""
    async with open_client(settings.llm) as client:
        try:
            async with asyncio.timeout(seconds):
                return sorted(await client.models())
        except TimeoutError:
            raise LlmTimeout("It does not answer.") from None
