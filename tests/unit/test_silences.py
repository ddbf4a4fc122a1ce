"""A silence of signal-cli: what it was asked meanwhile is neither done nor answered."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from bot.signal.errors import SignalPassedOver
from bot.signal.signal_daemon import SignalDaemon
from conversation_store.models import Attachment, ChatId
from tests.contract.harnesses import Receiver, daemon_bounds, in_background
from tests.fakes.signal_cli import SignalCli
from tests.fakes.signal_side import ADA, Group, Sent

CHAT: Final = ChatId.direct(ADA.aci)
TEAM: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
FILE: Final = Attachment("a.png", "image/png", b"pixels")
LOOK_SECONDS: Final = 0.03
BOUNDS: Final = replace(daemon_bounds(impatient=False), look=LOOK_SECONDS)
"""An answer is waited for longer than a test may last."""


@asynccontextmanager
async def connected(folder: Path) -> AsyncIterator[tuple[SignalCli, SignalDaemon]]:
    side = SignalCli(folder / "signal-cli.sock")
    side.groups[TEAM.value] = Group("Team", members={ADA.aci: ADA})
    await side.come_back()
    receiver = Receiver()
    messenger = SignalDaemon(side.url, side.account.number, bounds=BOUNDS)
    try:
        async with in_background(messenger.run(receiver.deliver)):
            await receiver.until(lambda: messenger.connected)
            yield side, messenger
    finally:
        await side.go_away()


async def asked(side: SignalCli, method: str, times: int = 1) -> None:
    """Wait until signal-cli was asked something, whether it listened or not."""
    await Receiver().until(lambda: side.asked.count(method) >= times)


async def passed_over(messenger: SignalDaemon, chat: ChatId = CHAT, *files: Attachment) -> None:
    with pytest.raises(SignalPassedOver):
        await messenger.send(chat, "hello", attachments=files)


@pytest.mark.parametrize("chat", [CHAT, TEAM], ids=["person", "group"])
@pytest.mark.parametrize("files", [(), (FILE,)], ids=["text", "file"])
async def test_a_send_made_in_a_silence_ends_soon_after_it(
    tmp_path: Path, chat: ChatId, files: tuple[Attachment, ...]
) -> None:
    async with connected(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
        side.silent = True
        sending = tasks.create_task(passed_over(messenger, chat, *files))
        await asked(side, "version", times=5)
        assert not sending.done()
        side.silent = False
    assert side.sent == []


@pytest.mark.parametrize("chat", [CHAT, TEAM], ids=["person", "group"])
async def test_slow_send_is_awaited_through_a_silence(tmp_path: Path, chat: ChatId) -> None:
    done = asyncio.Event()

    async def be_slow(sent: Sent) -> None:
        if sent.text == "slow":
            await done.wait()

    async with connected(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
        side.on_send = be_slow
        slow = tasks.create_task(messenger.send(chat, "slow"))
        await asked(side, "send")
        side.silent = True
        swallowed = tasks.create_task(passed_over(messenger))
        await asked(side, "send", times=2)
        side.silent = False
        await swallowed
        for _ in range(5):
            await messenger.send(CHAT, "quick")
            await asyncio.sleep(LOOK_SECONDS)
        assert not slow.done()
        done.set()
        assert await slow == next(one.timestamp for one in side.sent if one.text == "slow")
    assert Counter(one.text for one in side.sent) == {"slow": 1, "quick": 5}


async def test_the_receipt_of_a_reaction_does_not_settle_a_send_made_in_a_silence(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
        await messenger.react(CHAT, "👀", author=ADA.aci, timestamp=1)
        reaction = side._last_timestamp
        side.silent = True
        sending = tasks.create_task(passed_over(messenger))
        await asked(side, "send")
        await side.deliver_receipt(reaction)
        side.silent = False
        await sending


async def test_an_answer_to_a_request_that_was_never_made_passes_nothing_over(
    tmp_path: Path,
) -> None:
    async with connected(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
        side.silent = True
        sending = tasks.create_task(passed_over(messenger))
        await asked(side, "version", times=2)
        for number in (999_999, 10**30, -1, 0):
            await side.push_line(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number)
        await asked(side, "version", times=8)
        assert not sending.done()
        side.silent = False
