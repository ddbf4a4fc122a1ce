"""What the bot was asked to remember in a chat."""

from conversation_store import full_text, remembered
from conversation_store.connections import Execute
from conversation_store.models import ChatId, Fact, NotRemembered, ShownFacts
from conversation_store.sections.section import Section, reads, reads_aside, writes


class MemoryStore(Section):
    """Facts, each of one chat: of a person in private, or of a group."""

    async def remember(
        self, chat: ChatId, text: str, *, turn_id: int, call: str
    ) -> Fact | NotRemembered:
        """Remember something from a turn that runs, once for each call; return it.

        Args:
            chat: where; no other chat ever gets to know it.
            text: what.
            turn_id: the turn; when it is forgotten, so is this.
            call: names the call within its turn.
        """
        if not self._context.retention_days:
            return NotRemembered.KEPT_NOWHERE
        return await self._remember(chat, text, turn_id, call)

    @writes
    def _remember(
        self, execute: Execute, chat: ChatId, text: str, turn_id: int, call: str
    ) -> Fact | NotRemembered:
        now = self._context.now_ms()
        return remembered.add(execute, chat, text, turn_id=turn_id, call=call, now_ms=now)

    async def recall(
        self, chat: ChatId, query: str, limit: int, *, turn_id: int
    ) -> tuple[Fact, ...] | NotRemembered:
        """Find facts of a chat for a turn, best first; without words the newest.

        The turn holds their words then, so it goes with them.
        """
        numbers = await self._find(chat, query, limit)
        if isinstance(numbers, NotRemembered):
            return numbers
        return await self._tell(chat, numbers, turn_id) if numbers else ()

    @reads_aside
    def _find(
        self, execute: Execute, chat: ChatId, query: str, limit: int
    ) -> list[int] | NotRemembered:
        if remembered.is_off(execute, chat):
            return NotRemembered.OFF
        facts = remembered.of_chat(execute, chat, self._context.now_ms())
        if not query.strip():
            return [fact.number for fact in facts[: -limit - 1 : -1]]
        texts = [fact.text for fact in facts]
        return [facts[place].number for place in full_text.best(texts, query, limit)]

    @writes
    def _tell(
        self, execute: Execute, chat: ChatId, numbers: list[int], turn_id: int
    ) -> tuple[Fact, ...]:
        return remembered.tell(execute, chat, numbers, turn_id, self._context.now_ms())

    async def version(self, chat: ChatId) -> int | None:
        """Return what is another number after each change of a chat's facts; quick.

        None where the chat uses no facts. Facts that disappear change nothing before they are
        forgotten; see `ShownFacts.until`.
        """
        return await self._database.read(
            lambda execute: remembered.version(execute, chat), latest=False
        )

    async def shown(self, chat: ChatId) -> ShownFacts:
        """Return what the model is always shown in a chat; nothing where its memory is off."""
        now = self._context.now_ms()
        return await self._database.read(
            lambda execute: remembered.shown(execute, chat, now), latest=False
        )

    @reads
    def of_chat(self, execute: Execute, chat: ChatId) -> tuple[Fact, ...]:
        """Return all facts of a chat in the order of their numbers, whether its memory is on."""
        return remembered.of_chat(execute, chat, self._context.now_ms())

    async def forget(self, chat: ChatId, number: int) -> bool:
        """Forget a fact; False where the chat never had one of that number."""
        had = await self._forget(chat, number)
        await self._database.scrub()
        return had

    @writes
    def _forget(self, execute: Execute, chat: ChatId, number: int) -> bool:
        return remembered.strike(execute, chat, number)

    async def forget_all(self, chat: ChatId) -> int:
        """Forget all facts of a chat; return how many that were."""
        forgotten = await self._forget_all(chat)
        await self._database.scrub()
        return forgotten

    @writes
    def _forget_all(self, execute: Execute, chat: ChatId) -> int:
        return remembered.strike_all(execute, chat)

    @reads
    def is_off(self, execute: Execute, chat: ChatId) -> bool:
        """Whether nothing is remembered in a chat, and nothing of what was is used."""
        return remembered.is_off(execute, chat)

    @writes
    def switch(self, execute: Execute, chat: ChatId, *, on: bool) -> None:
        """Switch the memory of a chat on or off; what it holds stays."""
        remembered.switch(execute, chat, on=on)
