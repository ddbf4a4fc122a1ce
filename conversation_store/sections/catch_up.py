"""What people have missed in groups that have opted in."""

from collections.abc import Sequence

from conversation_store import catch_up, overheard, turns
from conversation_store.connections import Execute
from conversation_store.models import ChatId, Missed, OverheardMessage
from conversation_store.sections.section import Section, reads, reads_aside, writes


class CatchUpStore(Section):
    """Which groups have opted in, and what is kept of them."""

    @property
    def kept_days(self) -> int:
        """How many days something is kept at most; 0: nothing is kept at all."""
        return min(catch_up.MAX_DAYS, self._context.retention_days)

    @reads
    def is_on(self, execute: Execute, chat: ChatId) -> bool:
        """Whether a group has opted in."""
        return catch_up.is_on(execute, chat)

    @reads
    def groups(self, execute: Execute) -> tuple[ChatId, ...]:
        """Return the groups that have opted in."""
        return catch_up.groups(execute)

    @writes
    def switch_on(self, execute: Execute, chat: ChatId) -> None:
        """Keep from now on what is said in a group."""
        catch_up.switch_on(execute, chat)

    async def switch_off(self, chat: ChatId) -> None:
        """Keep no more of a group; what was kept goes at once, with the turns that were told it.

        One that runs goes when it ends. What was overheard and no turn was told yet goes as well.
        """
        await self._switch_off(chat)
        await self._database.scrub()

    @writes
    def _switch_off(self, execute: Execute, chat: ChatId) -> None:
        turns.forget_with_answers(execute, catch_up.switch_off(execute, chat))
        overheard.forget_chat(execute, chat)

    @reads_aside
    def missed(
        self, execute: Execute, chat: ChatId, person: str, *, turn_id: int, hours: int
    ) -> Missed | None:
        """Return what was said in a group since somebody wrote there last; see `catch_up.missed`.

        A turn is told it only by `tell`.
        """
        return catch_up.missed(
            execute, chat, person, turn_id=turn_id, hours=hours, now_ms=self._context.now_ms()
        )

    @writes
    def tell(
        self, execute: Execute, messages: Sequence[OverheardMessage], turn_id: int
    ) -> tuple[OverheardMessage, ...]:
        """Return those of some messages that are still kept, to a turn, which goes with them."""
        return catch_up.tell(execute, messages, turn_id)
