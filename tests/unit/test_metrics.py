"""Metrics and their names."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

import pytest

from bot.chat.presence import MAX_UNSIGNED, MAX_UNSIGNED_CHATS, Presence
from bot.observability.metrics import MAX_TOOLS, count_tool_call
from bot.signal.events import FrameKind
from conversation_store.models import ChatId
from tests import exposition
from tests.exposition import PREFIX
from tests.skipped_waits import without_waiting
from tests.unit.test_presence import ADA, CHAT, TIMESTAMP, Phones, everywhere

CHATS: Final = [ChatId.direct(str(number)) for number in range(MAX_UNSIGNED_CHATS + 1)]


@pytest.mark.parametrize(
    ("name", "label", "values"),
    [
        ("signal_frames_total", "kind", FrameKind),
        ("turns_total", "outcome", {"answered", "failed", "stopped", "bug"}),
        ("answer_signatures_total", "outcome", {"proven", "wrong", "missing", "unattested"}),
        (
            "model_verifications_total",
            "outcome",
            {"verified", "failed", "unavailable", "not_offered"},
        ),
        (
            "approvals_total",
            "outcome",
            {"asked", "yes", "no", "other", "silence"},
        ),
    ],
)
def test_every_series_is_there_before_its_first_event(
    name: str, label: str, values: Iterable[str]
) -> None:
    assert exposition.now().labels()[PREFIX + name][label] == {str(value) for value in values}


def test_tools_are_counted_by_name_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {str(number) for number in range(MAX_TOOLS - 1)}
    monkeypatch.setattr("bot.observability.metrics._counted_tools", known)
    for name in ("0", "a", "b", "a"):
        count_tool_call(name, "a test", 0.0)
    counted = exposition.now().labels()[f"{PREFIX}tool_calls_total"]["tool"]
    assert counted >= {"0", "a", "other"}
    assert "b" not in counted


# The first sign of life ---------------------------------------------------------------------------


class Signs:
    """First signs that were measured since, with the sum of their seconds."""

    def __init__(self) -> None:
        self._before = self._measured()

    def measured(self) -> tuple[float, float]:
        count, seconds = self._measured()
        return count - self._before[0], round(seconds - self._before[1], 3)

    def _measured(self) -> tuple[float, float]:
        found = exposition.now()
        return found.value("first_sign_seconds_count"), found.value("first_sign_seconds_sum")


@asynccontextmanager
async def presence_on(phones: Phones) -> AsyncIterator[Presence]:
    async with asyncio.TaskGroup() as tasks:
        yield Presence(
            phones,
            may_write=everywhere,
            ack_reaction=None,
            read_receipts=False,
            tasks=tasks,
            clock=lambda: TIMESTAMP / 1_000 + asyncio.get_running_loop().time(),
        )


@without_waiting
async def test_answer_is_the_first_sign_if_there_is_no_other() -> None:
    phones, signs = Phones(), Signs()
    phones.away = True
    async with presence_on(phones) as presence:
        presence.noticed(CHAT, ADA, TIMESTAMP, received_at=TIMESTAMP)
        async with presence.typing(CHAT) as turn:
            await asyncio.sleep(25)
            assert signs.measured() == (0, 0)
            turn.answered = True
    assert signs.measured() == (1, 25)


@without_waiting
async def test_messages_that_wait_for_their_first_sign_are_bounded() -> None:
    phones, signs = Phones(), Signs()
    phones.away = True
    async with presence_on(phones) as presence:
        presence.cancel()
        for chat in (*CHATS, *(CHATS[0],) * 2 * MAX_UNSIGNED):
            presence.noticed(chat, ADA, TIMESTAMP, received_at=TIMESTAMP)
        for chat in CHATS:
            presence.message_sent(chat)
    assert signs.measured()[0] == MAX_UNSIGNED_CHATS - 1 + MAX_UNSIGNED
