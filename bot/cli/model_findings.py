"""Findings of `check` about the model: its answers, its abilities and its proof."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Final

from bot.attestation.trust import Trust
from bot.chat.prompt import fitting
from bot.cli.basic_findings import PART_SECONDS, Finding, clock, failed, ok, warning
from bot.config.settings import Settings
from bot.errors import BotError, SettingsError
from bot.llm.answering import ToolCalling
from bot.llm.client import LlmClient, RetryPolicy, open_client
from bot.llm.errors import (
    LlmContextTooLong,
    LlmError,
    LlmRejected,
    LlmTimeout,
    LlmToolsRefused,
    LlmUnauthorized,
)
from bot.llm.messages import BYTES_PER_TOKEN, ModelRequest
from bot.llm.rearranged import with_tools_as_text
from bot.llm.speech import Speaker
from bot.models import open_endpoint, voice_problem, voice_settings
from conversation_store.models import Message, Role
from tools.base import Tool

MODEL_PROOF_SECONDS: Final = 60.0
ENDPOINT_SECONDS: Final = 8.0
"""For the list of models. A person at the terminal waits no longer for a server that hangs."""
ONE_WORD_SECONDS: Final = 120.0
"""A model on a small machine may have to be loaded first, and to read all tools."""

MAX_LISTED: Final = 9
"""Models that are named when the wanted one is missing."""

HANGS: Final = (
    "{host}: It gave no answer within {seconds:g} s. Restart the server, or"
    " wait until it has loaded its model. Does LLM__BASE_URL name this server?"
)
ONE_WORD: Final = "Say one word."

IMPATIENT: Final = RetryPolicy(bound_seconds=4.0, unreached_seconds=3.0)
"""A person at the terminal prefers a quick error, and can try again."""


async def model(settings: Settings) -> AsyncIterator[Finding]:
    """Ask the endpoint what it offers."""
    async with open_client(settings.llm) as client:
        try:
            async with _explained(client, ENDPOINT_SECONDS):
                names = await client.models()
                about = await client.about()
        except BotError as error:
            yield failed("llm", str(error))
            return
        yield ok("llm", "The endpoint answers.")
        if settings.llm.model in names:
            yield ok("model", f"{settings.llm.model} is known there.")
        else:
            yield await _unlisted("model", settings.llm.model, client, names)
    yield _images(settings, listed=about.sees_images if about else None)
    yield await _voice_notes(settings, names)
    yield await _speech(settings)
    for finding in clock(client.time):
        yield finding


async def with_tools(settings: Settings, tools: Sequence[Tool]) -> Finding:
    """Ask the model for one word, with its tools, and say how much of its context they take.

    An error gives the reason and names the setting.
    """
    llm = settings.llm
    async with open_client(llm) as client, _explained(client, ONE_WORD_SECONDS):
        context = min(llm.context_tokens, await client.context_tokens() or llm.context_tokens)
        shown = fitting(tools, context)
        try:
            await _ask_for_one_word(client, shown, llm.tool_calling)
        except LlmContextTooLong as error:
            if error.context_tokens is None or error.context_tokens >= context:
                raise
            context = error.context_tokens
            shown = fitting(tools, context)
            await _ask_for_one_word(client, shown, llm.tool_calling)
    left_out = [tool.name for tool in tools if tool not in shown]
    if left_out:
        return warning(
            "tools",
            f"The tools need {_tokens(tools):,} tokens, and a third of the model's context is"
            f" {context // 3:,}, so these are left out: {', '.join(left_out)}. See"
            " LLM__CONTEXT_TOKENS and TOOLS__DISABLED.",
        )
    take = f"{len(shown)} tools, which take {_tokens(shown):,} of {context:,} tokens"
    return ok("tools", f"The model answers a question with {take}.")


def _tokens(tools: Sequence[Tool]) -> int:
    return sum(tool.spec.size for tool in tools) // BYTES_PER_TOKEN


async def _ask_for_one_word(
    client: LlmClient, tools: Sequence[Tool], tool_calling: ToolCalling
) -> None:
    specs = () if tool_calling == "off" else tuple(tool.spec for tool in tools)
    request = ModelRequest((Message(Role.USER, ONE_WORD),), specs)
    if tool_calling != "prompt":
        try:
            await client.complete(request.messages, specs, patience=IMPATIENT)
        except LlmToolsRefused:
            if tool_calling == "native":
                raise
        else:
            return
    await client.complete(with_tools_as_text(request).messages, patience=IMPATIENT)


@asynccontextmanager
async def _explained(client: LlmClient, seconds: float) -> AsyncIterator[None]:
    """Bound requests to an endpoint, and name its host when they fail."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except (TimeoutError, LlmTimeout):
        raise BotError(HANGS.format(host=client.reach.host, seconds=seconds)) from None
    except LlmError as error:
        raise BotError(client.reach.explained(error)) from None


async def further_models(settings: Settings) -> list[Finding]:
    """Ask the endpoints of all further models, at the same time."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_further(settings, name)) for name in settings.llm.models]
    return [*(task.result() for task in asked), *_fallbacks(settings)]


async def _further(settings: Settings, name: str) -> Finding:
    own, part = settings.llm.of(name), f"model {name}"
    async with open_client(own) as client:
        try:
            async with _explained(client, ENDPOINT_SECONDS):
                names = await client.models()
        except BotError as error:
            return failed(part, _of(name, str(error)))
        if own.model in names:
            return ok(part, f"{own.model} is known at {client.reach.host}.")
        found = await _unlisted(part, own.model, client, names)
        return replace(found, words=_of(name, found.words))


def _of(name: str, advice: str) -> str:
    """Turn advice about the default model's settings into advice about those of another model."""
    return advice.replace("LLM__", f"LLM__MODELS__{name.upper()}__")


def _fallbacks(settings: Settings) -> Iterator[Finding]:
    """Say which models never stand in, because they cannot prove what is required."""
    if settings.attestation.model_policy != "require":
        return
    for name in settings.llm.fallback:
        if not settings.with_default_model(name).model_has_to_prove:
            yield warning(
                "fallback",
                f"{name} never stands in for another model: ATTESTATION__MODEL_POLICY=require, and"
                " it cannot prove who reads along there. See LLM__FALLBACK.",
            )


def _offered(names: Collection[str]) -> str:
    """Return a clause about the models that there are; empty if none is listed."""
    listed = ", ".join(sorted(names)[:MAX_LISTED])
    more = " and more" if len(names) > MAX_LISTED else ""
    return f"; there are {listed}{more}" if names else ""


async def _unlisted(part: str, model: str, client: LlmClient, names: Collection[str]) -> Finding:
    """Ask a model for one word: endpoints answer with some models that they do not list."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            await client.complete((Message(Role.USER, ONE_WORD),), patience=IMPATIENT)
    except (LlmRejected, LlmUnauthorized):
        return failed(
            part,
            f"{model} is not listed there, and refused. See LLM__MODEL{_offered(names)}.",
        )
    except (LlmError, TimeoutError):
        return warning(part, f"{model} is not listed there, and did not answer. See LLM__MODEL.")
    return ok(part, f"{model} is not listed there, but answers.")


def _images(settings: Settings, *, listed: bool | None) -> Finding:
    """Report whether the model is shown images, and the source of that."""
    mode = settings.llm.vision
    if mode == "on" and listed is False:
        return warning(
            "images",
            "Shown to the model, although the endpoint says that it sees none. See LLM__VISION.",
        )
    if mode == "off" or (mode == "auto" and listed is False):
        return ok("images", "Not shown to the model; people are told so.")
    if mode == "on" or listed:
        return ok("images", "Shown to the model.")
    return ok(
        "images",
        "The endpoint does not say whether the model sees them; the first one is a try. See"
        " LLM__VISION.",
    )


async def _voice_notes(settings: Settings, names: Collection[str]) -> Finding:
    llm = settings.llm
    part, model = "voice notes", llm.transcription_model
    if model is None:
        return ok(part, "Not listened to; people are told so. See LLM__TRANSCRIPTION_MODEL.")
    if problem := await voice_problem(settings, "TRANSCRIPTION"):
        return failed(part, problem)
    if llm.transcription_url is not None:
        async with open_client(voice_settings(llm, "TRANSCRIPTION")) as client:
            try:
                async with _explained(client, ENDPOINT_SECONDS):
                    names = await client.models()
            except BotError as error:
                return failed(part, f"{error} See LLM__TRANSCRIPTION_URL.")
    if model in names:
        return ok(part, f"{model} is known there.")
    if not names:
        return warning(part, "The endpoint lists no models.")
    return warning(
        part, f"{model} is not listed there. See LLM__TRANSCRIPTION_MODEL{_offered(names)}."
    )


async def _speech(settings: Settings) -> Finding:
    """Let the voice say a word, and report whether phones play that."""
    llm, part = settings.llm, "speech"
    if llm.speech_model is None:
        return ok(part, "Answers are not spoken. See LLM__SPEECH_MODEL.")
    if problem := await voice_problem(settings, "SPEECH"):
        return failed(part, problem)
    async with open_client(voice_settings(llm, "SPEECH")) as client:
        try:
            async with asyncio.timeout(PART_SECONDS):
                await Speaker(client, llm.speech_model, llm.speech_voice).speak("Hello.")
        except LlmError as error:
            return failed(part, f"{client.reach.explained(error)} See LLM__SPEECH_MODEL and _URL.")
        except TimeoutError:
            return failed(part, f"{client.reach.host}: It takes too long. See LLM__SPEECH_URL.")
    return ok(part, "It speaks, and phones play that.")


async def attestation(settings: Settings, trust: Trust) -> Finding:
    """Report whether the machine makes quotes, and what is missing for a proof."""
    if not settings.attestation.has_agent:
        return warning(
            "attestation", "Not in a trusted execution environment, so nothing is proven."
        )
    from bot.attestation.proof import can_quote, left_to_the_operator  # noqa: PLC0415 - as in bot.store

    if not await can_quote(settings, trust=trust):
        return failed(
            "attestation",
            "The dstack guest agent makes no quotes of genuine, closed hardware. See"
            " ATTESTATION__DSTACK_SOCKET.",
        )
    if problem := await left_to_the_operator(settings):
        return failed(
            "attestation",
            f"The bot's proof fails: {problem}. See docs/VERIFY.md, What a configuration may hold.",
        )
    if settings.attestation.key_origin == "imported":
        return warning(
            "attestation",
            "Quotes are made, but the Signal account's key counts as made elsewhere, which the"
            " proof says. See ATTESTATION__KEY_ORIGIN.",
        )
    return ok("attestation", "Quotes are made: people in Signal can ask for the proof.")


async def model_proof(settings: Settings, trust: Trust) -> Finding:
    """Verify the model's evidence now, with the pins that are there now."""
    part = "model proof"
    try:
        async with open_endpoint(settings, trust=trust) as endpoint, asyncio.TaskGroup() as tasks:
            verifying = tasks.create_task(endpoint.proof.keep_verified())
            with suppress(TimeoutError):
                async with asyncio.timeout(MODEL_PROOF_SECONDS):
                    await endpoint.proof.settled()
            verifying.cancel()
            proof = endpoint.proof
    except SettingsError as error:
        return failed(part, str(error))
    if proof.proven:
        return ok(part, proof.summary())
    verdict = failed if settings.attestation.model_policy == "require" else warning
    return verdict(part, f"{proof.summary()} See ATTESTATION__MODEL_POLICY.")
