"""Commands about the conversation: end, repeat, take back or forget questions and their files."""

import asyncio
from typing import Final

from bot.commands.base import (
    CommandContext,
    Reply,
    always,
    asker_refusal,
    command,
)
from conversation_store.changes import CHANGEABLE_MS
from tools.sandbox.errors import WorkError

NOTHING_TO_STOP: Final = "There is nothing to stop."
STOPPED: Final = "Stopped."
STOPPED_MORE: Final = "Stopped. {count} more of your messages will not be answered."

HOW_TO_PLAN: Final = "Write your question in the same message: !plan and your question."

FILES: Final = "files"
NO_WORKSPACE: Final = "There is no workspace for files in this chat."
FILES_GONE: Final = "The files of this chat are deleted."
FILES_SECONDS: Final = 5.0
"""`!files` must not wait longer for a tool that reads a large file."""
FILES_BUSY: Final = "I am busy with the files of this chat. Please try again in a minute."

CLEARED: Final = "Forgotten. We start afresh."
NOTHING_TO_FORGET: Final = "There was nothing to forget."
STILL_REMEMBERED: Final = (
    "I still know what I was asked to remember here. !memory forget all forgets that as well."
)
INSTRUCTIONS_STAY: Final = "The instructions of this chat still hold. !instructions off ends them."
REMINDERS_STAY: Final = "Reminders still come. !reminders lists them and cancels them."

NOTHING_TO_UNDO: Final = "There is nothing to undo."
UNDONE: Final = (
    "I have forgotten the last question and my answer, and delete the answer for everyone."
)
UNDONE_HERE: Final = (
    "I have forgotten the last question and my answer. Signal deletes messages for everyone only"
    " within a day, so please delete the answer yourself."
)


@command("stop", "stop what I am doing here", urgent=always)
async def stop(context: CommandContext) -> Reply:
    """Stop the running answer and drop the messages that wait after it."""
    stopped = await context.turns.stop(context.inbox_id)
    if stopped > 1:
        return Reply(STOPPED_MORE.format(count=stopped - 1))
    return Reply(STOPPED if stopped else NOTHING_TO_STOP)


@command("plan", "look into something and show you a plan before I do anything")
async def plan(_: CommandContext) -> Reply:
    """Explain the command; with a question it goes to the model, see `bot.chat.plan`."""
    return Reply(HOW_TO_PLAN)


@command("clear", "forget this conversation", allowed="group_admins")
async def clear(context: CommandContext) -> Reply:
    """Forget the conversation, or delete the files of a chat.

    Facts, reminders and instructions stay; the answer tells how to delete them.
    """
    if context.argument.casefold() == FILES:
        return await _without_files(context)
    store, chat = context.parts.store, context.chat
    forgotten = await context.turns.clear()
    lines = [CLEARED if forgotten else NOTHING_TO_FORGET]
    if await store.memory.of_chat(chat):
        lines.append(STILL_REMEMBERED)
    if await store.instructions.of_chat(chat) is not None:
        lines.append(INSTRUCTIONS_STAY)
    if await store.reminders.are_in(chat):
        lines.append(REMINDERS_STAY)
    return Reply("\n".join(lines))


async def _without_files(context: CommandContext) -> Reply:
    workspaces = context.parts.tools.workspaces
    if workspaces is None:
        return Reply(NO_WORKSPACE)
    try:
        await workspaces.clear(context.chat)
    except WorkError as error:
        return Reply(str(error))
    return Reply(FILES_GONE)


@command("files", "list the files that I have in this chat", urgent=always)
async def files(context: CommandContext) -> Reply:
    """List the files of a chat, folders with a slash."""
    workspaces = context.parts.tools.workspaces
    if workspaces is None or (workspaces.admins_only and not context.by_admin):
        return Reply(NO_WORKSPACE)
    try:
        async with asyncio.timeout(FILES_SECONDS):
            return Reply(await workspaces.of(context.chat).do("overview"))
    except TimeoutError:
        return Reply(FILES_BUSY)
    except WorkError as error:
        return Reply(str(error))


@command("undo", "take back the last question and its answer")
async def undo(context: CommandContext) -> Reply:
    """Forget the last question and its answer; files that it changed stay as they are."""
    question = await context.parts.store.turns.last_question(
        context.chat, context.inbox_id, or_stopped=False
    )
    if question is None:
        return Reply(NOTHING_TO_UNDO)
    if refused := await asker_refusal(context, question.asker):
        return Reply(refused)
    is_fresh = question.asked_at >= context.parts.clock() * 1_000 - CHANGEABLE_MS
    return Reply(UNDONE if is_fresh else UNDONE_HERE, undone=question)
