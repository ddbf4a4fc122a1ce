"""`!tools`: what the model may use."""

from bot.commands.base import AdminList, CommandContext, Reply
from tools.base import Caller, first_sentence
from tools.registry import Registry


class Tools:
    """Lists the tools, those that ask first marked, and what is missing."""

    name = "tools"
    summary = "what I can use to answer"
    urgent = False

    def __init__(self, registry: Registry, admins: AdminList) -> None:
        self._registry = registry
        self._admins = admins

    async def run(self, context: CommandContext) -> Reply:
        """Return one line for each tool, and for each that is not there now."""
        author = context.author
        caller = Caller(author.aci, context.chat, is_admin=self._admins.is_admin(author))
        lines = [
            f"• {tool.name}: {first_sentence(tool.description)}"
            + (" I ask you before I use it." if tool.side_effects else "")
            for tool in self._registry.offered_to(caller)
        ]
        lines += [
            f"• {name}: not available. {reason}"
            for name, reason in sorted(self._registry.absent.items())
        ]
        return Reply("\n".join(lines) or "I have no tools here: I answer from what I know.")
