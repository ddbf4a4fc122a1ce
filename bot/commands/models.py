"""Models and tokens: `!model`, `!models`, `!retry` and `!usage`."""

import asyncio
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from bot.commands.base import (
    CommandContext,
    Reply,
    always,
    asker_refusal,
    command,
    without_argument,
)
from bot.llm.errors import LlmError
from bot.llm.models import Model, Models
from conversation_store.models import Retry, TokenSum

HOW: Final = "Send !model and a name to choose."
ALONE: Final = "There is no other model."
CHOSEN: Final = "From now on the model {name} answers here."
NO_CHANGE: Final = "The model {name} answers here already."
UNKNOWN_MODEL: Final = "There is no model of that name. Send !model to see which there are."
NOT_PROVEN: Final = (
    "The model {name} has not proven who can read along there, and I send nothing to such a model."
    " Please choose another one."
)
VISION_SECONDS: Final = 0.5
"""Time to ask the endpoints whether their models see images; `!model` must not wait longer."""

MAX_SHOWN: Final = 50
NO_LIST: Final = "{model} answers here. I cannot get the list of models right now."

NOTHING_TO_RETRY: Final = "There is no question here that I could answer again."

DAYS: Final = 30
TODAY: Final = "Today: {tokens} tokens."
LATELY: Final = "In 30 days: {tokens} tokens."
LEFT: Final = "{left} of {limit} are left for today. The next day begins at 00:00 UTC, in {wait}."
ESTIMATED: Final = "Some of that is an estimate, because a model did not report its tokens."
ALL: Final = "Everybody together ({people}): {today} tokens today, {lately} in 30 days."


@command(
    "model",
    "show the models that can answer here, or choose one",
    allowed="group_admins",
    urgent=without_argument,
)
async def model(context: CommandContext) -> Reply:
    """List the configured models, or choose the model of a chat."""
    models, chat = context.parts.models, context.chat
    if not context.argument:
        return Reply(await _listed(models, models.of(chat)))
    wanted = _wanted(models, context.argument)
    if isinstance(wanted, str):
        return Reply(wanted)
    if wanted is models.of(chat):
        return Reply(NO_CHANGE.format(name=wanted.name))
    await models.choose(chat, wanted.name)
    return Reply(f"{CHOSEN.format(name=wanted.name)}\n{wanted.proof.summary()}")


def _wanted(models: Models, argument: str) -> Model | str:
    """Return the model of a name, or the refusal if it may not answer."""
    found = models.get(argument.casefold())
    if found is None:
        return UNKNOWN_MODEL
    if models.proof_required and not found.proof.proven:
        return NOT_PROVEN.format(name=found.name)
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
        lines.append(f"• {one.name} ({one.id}): {_abilities(one, sees.get(one.name))}{mark}")
    return "\n".join((*lines, HOW if len(lines) > 1 else ALONE))


def _abilities(one: Model, sees_images: bool | None) -> str:
    words = ["tools" if one.traits.takes_tools else "no tools"]
    if sees_images is not None:
        words.append("images" if sees_images else "no images")
    words.append(f"reads {one.traits.context_tokens:,} tokens")
    words.append("proven" if one.proof.proven else "not proven")
    return ", ".join(words)


@command("models", "list the models of my provider")
async def list_models(context: CommandContext) -> Reply:
    """List the models of the default model's endpoint, and mark the one in use."""
    default = context.parts.models.default
    try:
        known = await default.client.models()
    except LlmError:
        return Reply(NO_LIST.format(model=default.id))
    shown = sorted(known)[:MAX_SHOWN]
    lines = [f"• {name} ← answers here" if name == default.id else f"• {name}" for name in shown]
    if default.id not in shown:
        lines.insert(0, f"{default.id} answers here.")
    if len(known) > MAX_SHOWN:
        lines.append(f"… and {len(known) - MAX_SHOWN} more")
    return Reply("\n".join(lines))


@command("retry", "answer the last question again; with a model's name, by that model")
async def retry(context: CommandContext) -> Reply:
    """Return the question to answer again, or the reason for not doing so."""
    # Include stopped questions: after `!stop`, `!retry` repeats the stopped question.
    question = await context.parts.store.turns.last_question(
        context.chat, context.inbox_id, or_stopped=True
    )
    if question is None or not question.is_kept:
        return Reply(NOTHING_TO_RETRY)
    if refused := await asker_refusal(context, question.asker):
        return Reply(refused)
    if not context.argument:
        return Reply("", retry=Retry(question))
    wanted = _wanted(context.parts.models, context.argument)
    if isinstance(wanted, str):
        return Reply(wanted)
    return Reply("", retry=Retry(question, wanted.name))


@command("usage", "show how many tokens your questions took", urgent=always)
async def usage(context: CommandContext) -> Reply:
    """Show a person's tokens; to admins, in private, also those of all people together."""
    book, people, person = context.parts.store.usage, context.parts.people, context.author
    today = _total((await book.of_person(person.aci, 1)).values())
    lately = await book.of_person(person.aci, DAYS)
    lines = [TODAY.format(tokens=f"{today:,}")]
    if limit := people.tokens_per_day(person):
        left, wait = max(0, limit - today), people.until_next_day()
        lines.append(LEFT.format(left=f"{left:,}", limit=f"{limit:,}", wait=wait))
    lines.append(LATELY.format(tokens=f"{_total(lately.values()):,}"))
    if len(lately) > 1:
        lines += [f"• {name}: {took.total:,}" for name, took in lately.items()]
    sums = [*lately.values()]
    if context.by_admin_in_private:
        of_today, _ = await book.of_all(1)
        of_all, count = await book.of_all(DAYS)
        sums.append(of_all)
        lines.append(
            ALL.format(people=count, today=f"{of_today.total:,}", lately=f"{of_all.total:,}")
        )
    if any(one.is_estimated for one in sums):
        lines.append(ESTIMATED)
    return Reply("\n".join(lines))


def _total(sums: Iterable[TokenSum]) -> int:
    return sum(one.total for one in sums)
