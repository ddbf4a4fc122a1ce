"""The model that `setup` asks for: found on this machine or named, and tried with one word."""

import asyncio
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from bot.cli.choices import choose
from bot.cli.console import Console
from bot.cli.model_findings import trouble_with
from bot.cli.setup_draft import Draft
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError
from bot.llm.client import LlmClient, open_transport
from bot.llm.errors import LlmError
from bot.wiring.endpoint import llm_endpoint

LOOK_SECONDS: Final = 2.0
LIST_SECONDS: Final = 20.0
MAX_LISTED: Final = 9
"""Models that are offered as a list; of more, one is named."""

ON_THIS_MACHINE: Final = {
    "llama.cpp": "http://127.0.0.1:8080/v1",
    "Ollama": "http://127.0.0.1:11434/v1",
}
"""Where these servers listen by default."""

NEAR_AI: Final = "https://cloud-api.near.ai/v1"
NEAR_AI_MODEL: Final = "openai/gpt-oss-120b"

WHICH: Final = "\nWhich model is to answer?"
PRIVATE: Final = "NEAR AI: in a TEE, proven to you by !verify (a key from cloud.near.ai)"
COMPATIBLE: Final = "OpenAI, or any server that speaks its protocol"
KEY: Final = "API key (it is not shown; Enter for none):"


@dataclass(frozen=True, slots=True)
class _Server:
    name: str
    url: str
    models: tuple[str, ...]


async def ask_for_model(console: Console, draft: Draft) -> None:
    """Ask which model, and try it, until one answers.

    Raises:
        BotError: the input has ended.
    """
    while True:
        answers = await _endpoint(console)
        try:
            draft.settings(**answers)  # before it is asked for its models
            answers["LLM__MODEL"] = await _model(console, draft, answers)
            await try_model(console, draft.settings(**answers))
        except SettingsError as error:
            console.say("\n".join(error.problems))
        except BotError as error:
            console.say(str(error))
        else:
            draft.keep(**answers)
            return


async def _endpoint(console: Console) -> dict[str, str]:
    found = await _servers_here()
    here = [f"{one.name} on this machine: {', '.join(one.models[:3])}" for one in found]
    chosen = await choose(console, WHICH, [*here, PRIVATE, COMPATIBLE])
    if chosen < len(found):
        return {"LLM__BASE_URL": found[chosen].url, "LLM__API_KEY": ""}
    url = NEAR_AI
    if chosen > len(found):
        url = await console.ask("Address, such as https://api.openai.com/v1:")
    return {"LLM__BASE_URL": url, "LLM__API_KEY": await console.ask(KEY, secret=True)}


async def try_model(console: Console, settings: Settings) -> None:
    """Have a model say one word.

    Raises:
        BotError: it does not; the text says why.
    """
    console.say(f"Asking {settings.llm.model} for one word…")
    if trouble := await trouble_with(settings):
        raise BotError(trouble)
    console.say("It answers.")


async def _model(console: Console, draft: Draft, answers: dict[str, str]) -> str:
    """Ask which of an endpoint's models; what it does not list can be named as well."""
    names = await _models_at(draft.settings(**answers), LIST_SECONDS)
    if len(names) == 1:
        return names[0]
    if 1 < len(names) <= MAX_LISTED:
        return names[await choose(console, "Which of its models?", names)]
    usual = NEAR_AI_MODEL if NEAR_AI_MODEL in names or not names else names[0]
    if names:
        console.say(f"It has {len(names)} models: {', '.join(names)}")
    return await console.ask(f"Model [{usual}]:") or usual


async def _servers_here() -> list[_Server]:
    async def look(name: str, url: str) -> _Server:
        if not await _listens(url):
            return _Server(name, url, ())
        settings = Draft({"LLM__BASE_URL": url}).settings()
        return _Server(name, url, tuple(await _models_at(settings, LOOK_SECONDS)))

    async with asyncio.TaskGroup() as tasks:
        looks = [tasks.create_task(look(*one)) for one in ON_THIS_MACHINE.items()]
    return [look.result() for look in looks if look.result().models]


async def _listens(url: str) -> bool:
    address = urlsplit(url)
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            _, writer = await asyncio.open_connection(address.hostname, address.port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


async def _models_at(settings: Settings, seconds: float) -> list[str]:
    """Return the models that an endpoint lists; none where it does not answer in time."""
    endpoint = llm_endpoint(settings)
    async with open_transport(endpoint) as transport:
        try:
            async with asyncio.timeout(seconds):
                return sorted(await LlmClient(transport, endpoint).models())
        except (LlmError, TimeoutError):
            return []
