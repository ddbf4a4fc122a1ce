"""What the bot says of its own accord is stored first and leaves in its chat's order."""

import asyncio
from pathlib import Path

from bot.dispatch.mailboxes import Job, Mailboxes
from bot.dispatch.outgoing.notices import Notices
from bot.language.languages import Languages
from conversation_store.models import ChatId, OutgoingMessage
from conversation_store.store import open_store
from tests.unit.sending import Letterbox

ADA = ChatId.parse("direct:ada")


async def test_a_notice_waits_behind_what_its_chat_is_doing(tmp_path: Path) -> None:
    letterbox, turn_may_end = Letterbox(), asyncio.Event()
    async with open_store(tmp_path / "store.db") as store, asyncio.TaskGroup() as tasks:
        mailboxes = Mailboxes(tasks)
        notices = Notices(
            store=store,
            mailboxes=mailboxes,
            outbox=letterbox,
            languages=Languages(store),
            admins=frozenset,
        )

        async def turn() -> None:
            await turn_may_end.wait()
            letterbox.sent.append((str(ADA), "the answer"))

        mailboxes.add(ADA, Job(turn))
        await notices.send(ADA, "the notice")
        assert letterbox.sent == []
        turn_may_end.set()
        await mailboxes.drain()
    assert letterbox.sent == [(str(ADA), "the answer"), (str(ADA), "the notice")]


async def test_a_notice_that_was_not_sent_is_there_after_a_restart(tmp_path: Path) -> None:
    letterbox = Letterbox()
    async with open_store(tmp_path / "store.db") as store, asyncio.TaskGroup() as tasks:
        mailboxes = Mailboxes(tasks)
        mailboxes.wind_down()
        notices = Notices(
            store=store,
            mailboxes=mailboxes,
            outbox=letterbox,
            languages=Languages(store),
            admins=frozenset,
        )
        await notices.send(ADA, "hello")
    async with open_store(tmp_path / "store.db") as store:
        (note,) = (await store.messages.unfinished()).outgoing
    assert letterbox.sent == []
    assert note == OutgoingMessage(note.id, ChatId.parse("direct:ada"), "hello", 0)


async def test_every_admin_is_told_in_private_by_number_or_aci(tmp_path: Path) -> None:
    letterbox, admins = Letterbox(), frozenset({"+4915112345678", "ben"})
    async with open_store(tmp_path / "store.db") as store:
        async with asyncio.TaskGroup() as tasks:
            mailboxes = Mailboxes(tasks)
            notices = Notices(
                store=store,
                mailboxes=mailboxes,
                outbox=letterbox,
                languages=Languages(store),
                admins=lambda: admins,
            )
            await notices.to_admins("news")
            await mailboxes.drain()
    assert notices.has_admins
    assert sorted(letterbox.sent) == [("direct:+4915112345678", "news"), ("direct:ben", "news")]
