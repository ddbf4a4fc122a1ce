"""Full queues: starting and stopping still lose no message."""

import asyncio
from typing import Final

import pytest

from bot.chat.joining import MAX_WAITING
from conversation_store.models import ChatId, ReceivedMessage
from conversation_store.store import open_store
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.stored import read_store
from tests.e2e.test_conversation import BEN
from tests.fakes.openai_server import held
from tests.fakes.signal_side import ADA, BOT

MORE_THAN_FIT: Final = MAX_WAITING + 300
WRITTEN_MEANWHILE: Final = 90


@pytest.mark.full
async def test_a_start_with_more_unfinished_work_than_fits_gets_in_touch_with_signal() -> None:
    never = asyncio.Event()
    async with world(held(never)) as here:
        await _leave_unanswered(here)
        async with running_bot(here.settings(), grace_seconds=0):
            await here.signal.until(lambda: here.signal.subscribed)
            await here.signal.say("!stop")
            assert str(MORE_THAN_FIT - 1) in (await here.answer()).text


@pytest.mark.full
async def test_shutdown_stores_read_messages_also_with_full_queues() -> None:
    never = asyncio.Event()
    async with world(held(never)) as here:
        await _leave_unanswered(here)
        async with running_bot(here.settings(), grace_seconds=0):
            await here.signal.until(lambda: here.signal.subscribed)
            for number in range(WRITTEN_MEANWHILE):
                await here.signal.say(f"message {number}", author=BEN)
        store = read_store(here.folder / "store.db")
        assert len(store.outcomes) == MORE_THAN_FIT + WRITTEN_MEANWHILE - here.signal.undelivered


async def _leave_unanswered(here: World) -> None:
    """Fill the store like a bot that was killed with full queues."""
    messages = [
        ReceivedMessage(
            account=BOT.number,
            author=ADA.aci,
            timestamp=number,
            chat=ChatId.parse(f"direct:{ADA.aci}"),
            text="hello",
            received_at=number,
        )
        for number in range(MORE_THAN_FIT)
    ]
    async with open_store(here.folder / "store.db") as store:
        assert all(await store.messages.accept(messages))
