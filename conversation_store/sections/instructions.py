"""How the bot is to be in a chat."""

from conversation_store import instructions
from conversation_store.connections import Execute
from conversation_store.models import ChatId, Instructions
from conversation_store.sections.section import Section, writes


class InstructionStore(Section):
    """The instructions of chats: language, tone, role."""

    async def of_chat(self, chat: ChatId) -> Instructions | None:
        """Return a chat's instructions; None where it has none."""
        now = self._context.now_ms()
        return await self._database.read(
            lambda execute: instructions.of_chat(execute, chat, now), latest=False
        )

    async def put(self, chat: ChatId, text: str, inbox_id: int) -> Instructions | None:
        """Keep a chat's instructions instead of those before, and return them.

        Args:
            chat: where.
            text: what is to be so.
            inbox_id: the message that says so and is being answered: they disappear with it, and
                go when it is deleted or edited.

        Returns:
            None where that message is gone, so that nothing was kept.
        """
        kept = await self._put(chat, text, inbox_id)
        self._database.scrub_soon()
        return kept

    @writes
    def _put(self, execute: Execute, chat: ChatId, text: str, inbox_id: int) -> Instructions | None:
        return instructions.put(execute, chat, text, inbox_id)

    async def end(self, chat: ChatId) -> bool:
        """Forget a chat's instructions; False where it had none."""
        had = await self._end(chat)
        await self._database.scrub()
        return had

    @writes
    def _end(self, execute: Execute, chat: ChatId) -> bool:
        return instructions.end(execute, chat)
