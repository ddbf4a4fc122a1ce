"""The bot's state: `!status` and `!tools`."""

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Final

from bot import __version__
from bot.commands.base import CommandContext, Parts, command
from bot.observability.logs import Trouble, last_trouble
from bot.observability.metrics import process_figures
from bot.observability.process import duration, size
from bot.signal.releases import age_words
from tools.base import Caller, Tool, first_sentence

ABILITIES: Final = {
    "• Look something up on the web ({names})": ("web_search", "web_fetch"),
    "• Do sums and convert units ({names})": ("calculate",),
    "• Tell the time and count days ({names})": ("date_time",),
    "• Tell the weather ({names})": ("get_weather",),
    "• Remember things for you ({names})": ("remember", "recall", "forget"),
    "• Remind you, or ask myself a question later ({names})": (
        "remind",
        "schedule",
        "list_reminders",
        "cancel_reminder",
        "set_timezone",
    ),
    "• Find earlier messages of this chat ({names})": ("search_chat",),
    "• Tell you what you missed in a group ({names})": ("catch_up",),
    "• Ask you a question, or show you a plan ({names})": ("ask_user", "propose_plan"),
    "• Answer with a reaction ({names})": ("react",),
    "• Keep a list of my steps, or ask helpers ({names})": ("todo", "delegate"),
    "• Run programs in a closed room ({names})": ("run_command", "run_python"),
}
WITH_FILES: Final = "• Work with the files of this chat ({names})"


@command("tools", "show what I can do besides talking", changes="never")
async def show_tools(context: CommandContext) -> str:
    """List abilities with the tools behind them; tell admins which ones are missing."""
    registry = context.parts.tools.registry
    offered = registry.offered_to(_caller(context))
    lines = list(_abilities(offered))
    if asking := [tool.name for tool in offered if tool.side_effects]:
        lines.append(f"I ask you before I use {', '.join(asking)}.")
    absent = sorted(registry.absent.items())
    if context.by_admin_in_private:
        lines += [f"• {name}: not available. {reason}" for name, reason in absent]
    elif absent:
        lines.append(f"Not available right now: {', '.join(name for name, _ in absent)}.")
    return "\n".join(lines) or "I have no tools here: I answer from what I know."


def _abilities(offered: Iterable[Tool]) -> Iterator[str]:
    left = {tool.name: tool for tool in offered}
    of_files = tuple(name for name in left if "file" in name or "notebook" in name)
    for ability, names in {**ABILITIES, WITH_FILES: of_files}.items():
        if found := [name for name in names if left.pop(name, None) is not None]:
            yield ability.format(names=", ".join(found))
    yield from (f"• {name}: {first_sentence(tool.description)}" for name, tool in left.items())


@command("status", "show how busy I am and which model answers", changes="never")
async def show_status(context: CommandContext) -> str:
    """Show version, model and load; in private, show admins the bot's own state too."""
    lines = list(_for_everyone(context))
    if context.by_admin_in_private:
        lines += await _for_admins(context.parts)
    return "\n".join(lines)


def _for_everyone(context: CommandContext) -> Iterator[str]:
    parts = context.parts
    model = parts.models.of(context.chat)
    tools = parts.tools.registry.offered_to(_caller(context))
    yield f"signal-tee-bot {__version__}"
    yield f"Up for {_since(parts.started_at)}"
    yield f"Model: {model.settings.model}.\n{model.proof.summary()}"
    yield f"Tools: {len(tools)} (!tools lists them)" if tools else "Tools: none"
    yield f"Answers in progress: {context.turns.running()}"


async def _for_admins(parts: Parts) -> list[str]:
    sizes = await parts.store.upkeep.sizes()
    since = parts.messenger.connected_since
    signal = "not connected" if since is None else f"connected for {_since(since)}"
    store = size(sizes.file_bytes + sizes.log_bytes)
    lines = ["", f"Signal: {signal}"]
    if (server := parts.messenger.server) is not None:
        today = datetime.fromtimestamp(parts.clock(), UTC).date()
        lines.append(age_words(server, today) or server)
    if (account := parts.messenger.trouble) is not None:
        lines.append(f"Account: {account}")
    lines += [
        f"Endpoint of the model {model.name}: {trouble}"
        for model in parts.models
        if (trouble := model.client.reach.trouble) is not None
    ]
    others = max(0, sizes.waiting_messages - 1)  # without this command
    lines.append(f"Waiting: {others} to answer, {sizes.waiting_sends} to send")
    lines.append(f"Store: {store}, {size(sizes.disk_free_bytes)} free on its disk")
    if figures := process_figures():
        files = f"{figures['process_open_fds']:,.0f} of {figures['process_max_fds']:,.0f}"
        memory = size(round(figures["process_resident_memory_bytes"]))
        lines.append(f"Process: {memory} of memory, {files} files open")
    if missing := parts.tools.sandboxes.missing:
        lines.append(f"Sandboxes: without {', '.join(missing)}, which this machine lacks")
    last = last_trouble()
    if last is not None and not any(last.kind and last.kind in line for line in lines):
        lines.append(f"Last trouble: {_told(last)}, {_since(last.at)} ago")
    return lines


def _told(trouble: Trouble) -> str:
    """Return a log entry for people; a reason that is a sentence comes before the event."""
    if " " in trouble.kind:
        return f"{trouble.kind.rstrip('.')} ({trouble.event})"
    return f"{trouble.event} ({trouble.kind})" if trouble.kind else trouble.event


def _caller(context: CommandContext) -> Caller:
    return Caller(context.author.aci, context.chat, is_admin=context.by_admin)


def _since(moment: float) -> str:
    return duration(time.monotonic() - moment)
