"""Models and tokens: `!model`, `!models`, `!retry` and `!usage`."""

import asyncio
from contextlib import suppress
from typing import Final

from bot.commands.base import CommandContext, Refused, Reply, check_admin, command
from bot.llm.errors import LlmError
from bot.llm.models import Model, Models
from conversation_store.models import Retry

UNKNOWN_MODEL: Final = "There is no model of that name. Send !model to see which there are."
VISION_SECONDS: Final = 0.5
"""Longest wait of `!model` for endpoints to say whether their models see images."""
MAX_SHOWN: Final = 50
NOTHING_TO_RETRY: Final = "There is no question here that I could answer again."
DAYS: Final = 30


@command(
    "model",
    "show the models that can answer here, or choose one",
    allowed="group_admins",
    changes="with_argument",
)
async def model(context: CommandContext) -> str:
    """List the configured models, or choose the model of a chat."""
    models, chat = context.parts.models, context.chat
    if not context.argument:
        return await _listed(models, models.of(chat))
    wanted = _wanted(models, context.argument)
    if wanted is models.of(chat):
        return f"The model {wanted.name} answers here already."
    await models.choose(chat, wanted.name)
    chosen = f"From now on the model {wanted.name} answers here."
    return f"{chosen}\n{wanted.proof.summary()}"


def _wanted(models: Models, argument: str) -> Model:
    """Return the model with a name; raises Refused if it may not answer."""
    found = models.models.get(argument.casefold())
    if found is None:
        raise Refused(UNKNOWN_MODEL)
    if models.proof_required and not found.proof.proven:
        raise Refused(
            f"I send nothing to the model {found.name}, because it has not proven who can read what"
            " I send. Please choose another one."
        )
    return found


async def _listed(models: Models, current: Model) -> str:
    sees: dict[str, bool] = {}

    async def ask(one: Model) -> None:
        sees[one.name] = await one.sees_images()

    with suppress(TimeoutError):
        async with asyncio.timeout(VISION_SECONDS), asyncio.TaskGroup() as tasks:
            for one in models:
                tasks.create_task(ask(one))
    lines = []
    for one in models:
        mark = " ←" * (one is current)
        lines.append(
            f"• {one.name} ({one.settings.model}): {_abilities(one, sees.get(one.name))}{mark}"
        )
    several = len(lines) > 1
    lines.append("Send !model and a name to choose." if several else "There is no other model.")
    return "\n".join(lines)


def _abilities(one: Model, sees_images: bool | None) -> str:
    words = ["tools" if one.traits.takes_tools else "no tools"]
    if sees_images is not None:
        words.append("images" if sees_images else "no images")
    words.append(f"reads {one.traits.context_tokens:,} tokens")
    words.append("proven" if one.proof.proven else "not proven")
    return ", ".join(words)


@command("models", "list the models of my provider")
async def list_models(context: CommandContext) -> str:
    """List the models of the default model's endpoint, and mark the one in use."""
    default = context.parts.models.default
    own = default.settings.model
    try:
        known = await default.client.models()
    except LlmError:
        return f"{own} answers here. I cannot get the list of models right now."
    shown = sorted(known)[:MAX_SHOWN]
    lines = [f"• {name} ← answers here" if name == own else f"• {name}" for name in shown]
    if own not in shown:
        lines.insert(0, f"{own} answers here.")
    if len(known) > MAX_SHOWN:
        lines.append(f"… and {len(known) - MAX_SHOWN} more")
    return "\n".join(lines)


@command("retry", "answer the last question again; with a model's name, by that model")
async def retry(context: CommandContext) -> Reply:
    """Return the question to answer again, or the reason why not."""
    # Include stopped questions: after `!stop`, `!retry` repeats the stopped question.
    question = await context.parts.store.turns.last_question(
        context.chat, context.inbox_id, or_stopped=True
    )
    if question is None or not question.is_kept:
        raise Refused(NOTHING_TO_RETRY)
    await check_admin(context, question.asker)
    wanted = _wanted(context.parts.models, context.argument).name if context.argument else None
    return Reply("", retry=Retry(question, wanted))


@command("usage", "show how many tokens your questions took", changes="never")
async def usage(context: CommandContext) -> str:
    """Show a person's tokens; in private, show admins the sum of all people too."""
    parts, book, person = context.parts, context.parts.store.usage, context.author
    today = sum(one.total for one in (await book.of_person(person.aci, 1)).values())
    lately = await book.of_person(person.aci, DAYS)
    lines = [f"Today: {today:,} tokens."]
    if limit := parts.tokens_per_day(person):
        left, wait = max(0, limit - today), parts.until_next_day()
        lines.append(
            f"{left:,} of {limit:,} are left for today. The next day begins at 00:00 UTC, in"
            f" {wait}."
        )
    lines.append(f"In 30 days: {sum(one.total for one in lately.values()):,} tokens.")
    if len(lately) > 1:
        lines += [f"• {name}: {took.total:,}" for name, took in lately.items()]
    sums = [*lately.values()]
    if context.by_admin_in_private:
        of_today, _ = await book.of_all(1)
        of_all, count = await book.of_all(DAYS)
        sums.append(of_all)
        lines.append(
            f"Everybody together ({count}): {of_today.total:,} tokens today, {of_all.total:,} in"
            " 30 days."
        )
    if any(one.is_estimated for one in sums):
        lines.append("Some of that is an estimate, because a model did not report its tokens.")
    return "\n".join(lines)
