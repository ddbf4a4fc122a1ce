"""All commands, in the order of `!help`."""

from typing import Final

from bot.commands.access import grants, pair, trust
from bot.commands.base import Command, CommandContext, Parts, Reply, always, command
from bot.commands.behaviour import catchup, instructions, language
from bot.commands.memory import memory, reminders, timezone
from bot.commands.models import list_models, model, retry, usage
from bot.commands.questions import clear, files, plan, stop, undo
from bot.commands.status import show_status, show_tools
from bot.commands.verify import verify

INTRODUCTION: Final = "Write to me as you would to a person. These commands do special things:"
FOR_ADMINS: Final = "You are an admin of mine, so you can also use these:"


@command("help", "show this list", urgent=always)
async def show_help(context: CommandContext) -> Reply:
    """List the commands that the person may use in this chat, one on each line."""
    hidden = [one for one in context.listed if _is_for_admins(one, context.parts)]
    shown = [one for one in context.listed if one not in hidden]
    lines = [INTRODUCTION, "", *map(_line, shown)]
    if hidden and context.by_admin_in_private:
        lines += ["", FOR_ADMINS, "", *map(_line, hidden)]
    return Reply("\n".join(lines))


COMMANDS: Final = (
    show_help,
    clear,
    stop,
    undo,
    retry,
    plan,
    memory,
    reminders,
    timezone,
    instructions,
    language,
    catchup,
    files,
    show_tools,
    grants,
    model,
    list_models,
    usage,
    show_status,
    verify,
    pair,
    trust,
)


def available(parts: Parts, *, note_to_self: bool = False) -> dict[str, Command]:
    """Return the commands of a bot by name.

    Args:
        note_to_self: whether the bot talks only to its owner.
    """
    absent = set()
    if parts.tools.workspaces is None:
        absent.add(files)
    if parts.people.let_in is None:
        absent.add(pair)
    if note_to_self:
        absent |= {one for one in COMMANDS if one.allowed == "admins"}
    return {one.name: one for one in COMMANDS if one not in absent}


def _is_for_admins(one: Command, parts: Parts) -> bool:
    workspaces = parts.tools.workspaces
    if one is files:
        return workspaces is not None and workspaces.admins_only
    return one.allowed == "admins"


def _line(one: Command) -> str:
    return f"!{one.name}: {one.summary}"
