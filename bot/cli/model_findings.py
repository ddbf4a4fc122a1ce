"""Findings of `check` about the model: whether it answers, what it accepts, what is proven."""

import asyncio
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Final

from bot.attestation.trust import Trust
from bot.cli import machine
from bot.cli.finding import Finding, failed, ok, warning
from bot.config.settings import Settings
from bot.errors import SettingsError
from bot.llm.client import LlmClient
from bot.llm.errors import LlmError, LlmRejected, LlmUnauthorized
from bot.llm.retry import RetryPolicy
from bot.wiring.endpoint import has_to_prove, open_client
from bot.wiring.models import settings_of
from bot.wiring.parts import open_endpoint
from conversation_store.models import Message, Role

PART_SECONDS: Final = 20.0
MODEL_PROOF_SECONDS: Final = 60.0
ONE_WORD_SECONDS: Final = 60.0
"""A model on a small machine may have to be loaded first."""

ONE_WORD: Final = "Say one word."

IMPATIENT: Final = RetryPolicy(bound_seconds=4.0, unreached_seconds=3.0)
"""Whoever sits before the terminal wants to know why not, and can try again."""


async def model(settings: Settings) -> AsyncIterator[Finding]:
    """Ask the endpoint what it offers."""
    async with open_client(settings) as client:
        try:
            async with asyncio.timeout(PART_SECONDS):
                names = await client.models()
                sees = await client.sees_images()
                time = await client.time()
        except LlmError as error:
            yield failed("llm", client.reach.explained(error))
            return
        except TimeoutError:
            yield failed("llm", "The endpoint does not answer in time. See LLM__BASE_URL.")
            return
        yield ok("llm", "The endpoint answers.")
        if settings.llm.model in names:
            yield _listed("model", settings.llm.model, "LLM__MODEL", names)
        else:
            yield await _unlisted("model", settings.llm.model, client)
    yield _images(settings, listed=sees)
    yield _voice_notes(settings, names)
    for finding in machine.clock(time):
        yield finding


async def trouble_with(settings: Settings) -> str | None:
    """Return why the model does not say one word, and which setting to look at; None if it does."""
    async with open_client(settings) as client:
        try:
            async with asyncio.timeout(ONE_WORD_SECONDS):
                await client.complete((Message(Role.USER, ONE_WORD),), patience=IMPATIENT)
        except LlmError as error:
            return client.reach.explained(error)
        except TimeoutError:
            return f"{client.reach.host}: It does not answer in time. See LLM__BASE_URL."
    return None


async def further_models(settings: Settings) -> list[Finding]:
    """Ask the endpoints of all further models, at the same time."""
    async with asyncio.TaskGroup() as tasks:
        asked = [tasks.create_task(_further(settings, name)) for name in settings.llm.models]
    return [*(task.result() for task in asked), *_fallbacks(settings)]


async def _further(settings: Settings, name: str) -> Finding:
    own, part = settings_of(settings, name), f"model {name}"
    async with open_client(own) as client:
        try:
            async with asyncio.timeout(PART_SECONDS):
                names = await client.models()
        except LlmError as error:
            return failed(part, _of(name, client.reach.explained(error)))
        except TimeoutError:
            return failed(part, _of(name, "It does not answer in time. See LLM__BASE_URL."))
        if own.llm.model in names:
            return ok(part, f"{own.llm.model} is known at {client.reach.host}.")
        found = await _unlisted(part, own.llm.model, client)
        return replace(found, words=_of(name, found.words))


def _of(name: str, advice: str) -> str:
    """Return advice about the default model's settings as that about those of another."""
    return advice.replace("LLM__", f"LLM__MODELS__{name.upper()}__")


def _fallbacks(settings: Settings) -> Iterator[Finding]:
    """Say which models never stand in, because they cannot prove what is required."""
    if settings.attestation.model_policy != "require":
        return
    for name in settings.llm.fallback:
        if not has_to_prove(settings_of(settings, name)):
            yield warning(
                "fallback",
                f"{name} never stands in for another model: ATTESTATION__MODEL_POLICY=require, and"
                " it cannot prove who reads along there. See LLM__FALLBACK.",
            )


async def _unlisted(part: str, model: str, client: LlmClient) -> Finding:
    """Ask a model for one word: endpoints answer with some models that they do not list."""
    try:
        async with asyncio.timeout(PART_SECONDS):
            await client.complete((Message(Role.USER, ONE_WORD),), patience=IMPATIENT)
    except (LlmRejected, LlmUnauthorized):
        return failed(
            part,
            f"{model} is not listed there, and refused. See LLM__MODEL; !models lists them.",
        )
    except (LlmError, TimeoutError):
        return warning(part, f"{model} is not listed there, and did not answer. See LLM__MODEL.")
    return ok(part, f"{model} is not listed there, but answers.")


def _listed(part: str, model: str, setting: str, names: Collection[str]) -> Finding:
    """Say whether the endpoint lists a model."""
    if model in names:
        return ok(part, f"{model} is known there.")
    if not names:
        return warning(part, "The endpoint lists no models.")
    return warning(part, f"{model} is not listed there. See {setting}; !models lists them.")


def _images(settings: Settings, *, listed: bool | None) -> Finding:
    """Say whether the model is shown images, and who says so."""
    mode = settings.llm.vision
    if mode == "on" and listed is False:
        return warning(
            "images", "Shown to the model, which sees none as the endpoint says. See LLM__VISION."
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


def _voice_notes(settings: Settings, names: Collection[str]) -> Finding:
    model = settings.llm.transcription_model
    if model is None:
        return ok(
            "voice notes", "Not listened to; people are told so. See LLM__TRANSCRIPTION_MODEL."
        )
    return _listed("voice notes", model, "LLM__TRANSCRIPTION_MODEL", names)


async def attestation(settings: Settings, trust: Trust) -> Finding:
    """Say whether the machine makes quotes, and what a proof would lack."""
    if not settings.attestation.has_agent:
        return warning("attestation", "Not in a trusted execution environment; !verify says so.")
    from bot.wiring.prover import can_quote, left_to_the_operator  # noqa: PLC0415 - as in bot.wiring.parts

    if not await can_quote(settings, trust=trust):
        return failed(
            "attestation",
            "The dstack guest agent makes no quotes of genuine, closed hardware. See"
            " ATTESTATION__DSTACK_SOCKET.",
        )
    if problem := await left_to_the_operator(settings):
        return failed(
            "attestation",
            f"!verify fails: {problem}. See docs/VERIFY.md, What a configuration may hold.",
        )
    if settings.attestation.key_origin == "imported":
        return warning(
            "attestation",
            "Quotes are made, but the Signal account's key counts as made elsewhere, which !verify"
            " says. See ATTESTATION__KEY_ORIGIN.",
        )
    return ok("attestation", "Quotes are made; ask !verify in Signal.")


async def model_proof(settings: Settings, trust: Trust) -> Finding:
    """Verify the model's evidence now, with the pins that are there now."""
    try:
        return await _verified_model(settings, trust)
    except SettingsError as error:
        return failed("model proof", str(error))


async def _verified_model(settings: Settings, trust: Trust) -> Finding:
    async with open_endpoint(settings, trust=trust) as endpoint, asyncio.TaskGroup() as tasks:
        verifying = tasks.create_task(endpoint.keep_verified())
        with suppress(TimeoutError):
            async with asyncio.timeout(MODEL_PROOF_SECONDS):
                await endpoint.settled()
        verifying.cancel()
        if endpoint.proof.proven:
            return ok("model proof", endpoint.proof.summary())
        verdict = failed if settings.attestation.model_policy == "require" else warning
        return verdict("model proof", f"{endpoint.proof.summary()} See ATTESTATION__MODEL_POLICY.")
