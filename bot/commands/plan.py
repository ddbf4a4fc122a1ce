"""`!plan`: the model looks into a question and shows a plan before it does anything."""

from typing import Final

from bot.commands.base import CommandContext, Reply

HOW: Final = "Write in the same message what I am to plan: !plan and your question."


class PlanCommand:
    """What follows it is a question in plan mode, which the model answers; see `chat.plan_mode`."""

    name = "plan"
    summary = "look into something and show you a plan, before I do anything"
    urgent = False

    async def run(self, context: CommandContext) -> Reply:
        """Say how it is used: this is asked only where nothing follows it."""
        return Reply(HOW)
