"""What the bot says of its own accord is stored first."""

from pathlib import Path

from bot.chat.access import Access
from bot.chat.outbox import Notices, Outbox
from bot.config.settings import AccessSettings
from bot.language.languages import Languages
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.store import ConversationStore, open_store
from tests.fakes.partial_messenger import PartialMessenger


def notices(store: ConversationStore, admins: frozenset[str] = frozenset()) -> Notices:
    rules = AccessSettings.model_construct(
        policy="open", allowed=frozenset(), admins=admins, groups="mention", messages_per_minute=20
    )
    return Notices(Outbox(PartialMessenger(), store), Languages(store), Access(rules))


async def test_notice_that_was_not_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db") as store:
        await notices(store).send(ChatId.parse("direct:ada"), "hello")
    async with open_store(tmp_path / "store.db") as store:
        (note,) = await store.outbox.unfinished()
    assert note == OutgoingMessage(note.id, ChatId.parse("direct:ada"), "hello", 0)


async def test_every_admin_is_told_in_private_by_number_or_aci(tmp_path: Path) -> None:
    async with open_store(tmp_path / "store.db") as store:
        here = notices(store, frozenset({"+4915112345678", "ben"}))
        await here.to_admins("news")
        sent = [here.waiting.get_nowait() for _ in range(here.waiting.qsize())]
    assert [(note.chat, note.text) for note in sent] == [
        ("direct:+4915112345678", "news"),
        ("direct:ben", "news"),
    ]
