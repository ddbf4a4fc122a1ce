"""Commands about the conversation: stop answers, plan, undo or forget questions, list files."""

import asyncio
from typing import Final

from bot.commands.base import CommandContext, Refused, Reply, check_admin, command
from conversation_store.changes import CHANGEABLE_MS
from tools.workspace.workspaces import Workspaces

HOW_TO_PLAN: Final = "Write your question in the same message: !plan and your question."

NO_WORKSPACE: Final = "There is no workspace for files in this chat."
FILES_SECONDS: Final = 5.0
"""Longest wait of `!files` for a tool that reads a large file."""

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


@command("stop", "stop what I am doing here", changes="never")
async def stop(context: CommandContext) -> str:
    """Stop the running answer and drop the messages that wait after it."""
    stopped = await context.turns.stop(context.inbox_id)
    if stopped > 1:
        return f"Stopped. Other messages here that I will not answer: {stopped - 1}."
    return "Stopped." if stopped else "There is nothing to stop."


@command("plan", "look into something and show you a plan before I do anything")
async def plan(_: CommandContext) -> str:
    """Explain the command; with a question, it goes to the model instead (`bot.chat.plan`)."""
    return HOW_TO_PLAN


@command("clear", "forget this conversation", allowed="group_admins")
async def clear(context: CommandContext) -> str:
    """Forget the conversation, or delete the files of a chat.

    Facts, reminders and instructions stay; the answer tells how to delete them.
    """
    store, chat = context.parts.store, context.chat
    if context.argument.casefold() == "files":
        await _workspaces(context).clear(chat)
        return "The files of this chat are deleted."
    forgotten = await context.turns.clear()
    lines = ["Forgotten. We start afresh." if forgotten else "There was nothing to forget."]
    if await store.memory.of_chat(chat):
        lines.append(STILL_REMEMBERED)
    if await store.instructions.of_chat(chat) is not None:
        lines.append(INSTRUCTIONS_STAY)
    if await store.reminders.are_in(chat):
        lines.append(REMINDERS_STAY)
    return "\n".join(lines)


@command("files", "list the files that I have in this chat", changes="never")
async def files(context: CommandContext) -> str:
    """List the files of a chat, folders with a slash."""
    workspaces = _workspaces(context)
    if workspaces.admins_only and not context.by_admin:
        raise Refused(NO_WORKSPACE)
    try:
        async with asyncio.timeout(FILES_SECONDS):
            return await workspaces.of(context.chat).do("overview")
    except TimeoutError:
        return "I am busy with the files of this chat. Please try again in a minute."


def _workspaces(context: CommandContext) -> Workspaces:
    workspaces = context.parts.tools.workspaces
    if workspaces is None:
        raise Refused(NO_WORKSPACE)
    return workspaces


@command("undo", "take back the last question and its answer")
async def undo(context: CommandContext) -> Reply:
    """Forget the last question and its answer; files changed by it stay as they are."""
    question = await context.parts.store.turns.last_question(
        context.chat, context.inbox_id, or_stopped=False
    )
    if question is None:
        raise Refused(NOTHING_TO_UNDO)
    await check_admin(context, question.asker)
    is_fresh = question.asked_at >= context.parts.clock() * 1_000 - CHANGEABLE_MS
    return Reply(UNDONE if is_fresh else UNDONE_HERE, undone=question)
