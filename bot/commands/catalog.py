"""All commands, in the order of `!help`."""

from collections.abc import Container
from typing import Final

from bot.commands import access, behaviour, memory, models, past, questions, status
from bot.commands.base import Command, CommandContext, Parts, command
from bot.commands.verify import verify


@command("help", "show this list", changes="never")
async def show_help(context: CommandContext) -> str:
    """List the commands that the person may use in this chat, one on each line."""
    hidden = [one for one in context.listed if _is_for_admins(one, context.parts)]
    # Without a voice, the command only says what is missing.
    mute = behaviour.voice if context.parts.voices is None else None
    shown = [one for one in context.listed if one not in hidden and one is not mute]
    lines = ["Write to me as you would to a person. These commands do special things:", ""]
    lines += [f"!{one.name}: {one.summary}" for one in shown]
    if hidden and context.by_admin_in_private:
        lines += ["", "You are an admin of mine, so you can also use these:", ""]
        lines += [f"!{one.name}: {one.summary}" for one in hidden]
    return "\n".join(lines)


COMMANDS: Final = (
    show_help,
    questions.clear,
    questions.stop,
    questions.undo,
    models.retry,
    questions.plan,
    past.find,
    memory.memory,
    memory.reminders,
    memory.timezone,
    behaviour.instructions,
    behaviour.language,
    behaviour.voice,
    behaviour.catchup,
    questions.files,
    status.show_tools,
    access.grants,
    models.model,
    models.list_models,
    models.usage,
    past.sent,
    status.show_status,
    verify,
    access.pair,
    access.trust,
)


def available(parts: Parts, *, note_to_self: bool = False) -> dict[str, Command]:
    """Return the commands of a bot by name.

    Args:
        note_to_self: whether the bot talks only to its owner.
    """
    absent = set()
    if parts.tools.workspaces is None:
        absent.add(questions.files)
    if parts.let_in is None:
        absent.add(access.pair)
    if note_to_self:
        absent |= {one for one in COMMANDS if one.allowed == "admins"}
    return {one.name: one for one in COMMANDS if one not in absent}


TOLD: Final = {
    questions.clear: "delete this conversation at once; facts and reminders stay",
    memory.memory: "see, export or forget facts: !memory forget all",
    memory.reminders: "",
    past.find: "earlier messages",
    past.sent: "as a reply to an answer: what left this machine for it",
    memory.timezone: "",
    behaviour.instructions: "how you should be",
    behaviour.language: "of my own sentences",
    behaviour.voice: "answers as voice notes",
    models.model: "which one answers",
    models.usage: "tokens",
    verify: "what is proven about privacy",
    show_help: "all commands",
}
"""Commands that the model names to people, and what for."""

FOR_THE_MODEL: Final = """
## What people can send instead of asking you
{commands}. If somebody asks for one of these things, name the command.
Messages and remembered facts are kept here for {days}."""


def told_to_model(commands: Container[Command], retention_days: int, *, speaks: bool) -> str:
    """Return what the model is told of the commands, and of how long messages are kept."""
    told = {one.name: why for one, why in TOLD.items() if one in commands}
    if not speaks:
        told.pop(behaviour.voice.name, None)
    named = (f"!{name} ({why})" if why else f"!{name}" for name, why in told.items())
    days = f"{retention_days} days" if retention_days else "no longer than their answer takes"
    return FOR_THE_MODEL.format(commands=", ".join(named), days=days)


def _is_for_admins(one: Command, parts: Parts) -> bool:
    workspaces = parts.tools.workspaces
    if one is questions.files:
        return workspaces is not None and workspaces.admins_only
    return one.allowed == "admins"
