"""A signal-cli-rest-api that keeps requests without an answer, as the real one may."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Final

import pytest

from bot.observability.metrics import SIGNAL_STUCK, SIGNAL_UNANSWERED
from bot.signal.errors import SignalError, SignalTimeout, SignalUnavailable
from bot.signal.rest_requests import RestTimeouts
from bot.signal.signal_rest import SignalRest
from conversation_store.models import Attachment, ChatId
from tests.contract.harnesses import Receiver, in_background, rest_bounds, settled
from tests.fakes.signal_people import Group
from tests.fakes.signal_rest_api import NUMBER, Fault, SignalRestApi
from tests.fakes.signal_side import ADA

PERSON: Final = ChatId.direct(ADA.aci)
GROUP: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
FILE: Final = Attachment("a.png", "image/png", b"pixels")
LATE_SECONDS: Final = 0.1
MAX_AT_ONCE: Final = 4
"""With more the real server may crash."""

BOUNDS: Final = replace(rest_bounds(impatient=False), late=LATE_SECONDS)
"""An answer is waited for longer than a test may last."""


@asynccontextmanager
async def connected(
    bounds: RestTimeouts = BOUNDS,
) -> AsyncIterator[tuple[SignalRestApi, SignalRest]]:
    async with SignalRestApi.listen() as api:
        api.groups[GROUP.value] = Group()
        messenger = SignalRest(api.url, NUMBER, bounds=bounds)
        receiver = Receiver()
        async with in_background(messenger.run(receiver.deliver)):
            await receiver.until(lambda: messenger.connected)
            yield api, messenger


async def in_doubt(messenger: SignalRest, chat: ChatId = PERSON) -> None:
    with pytest.raises(SignalTimeout):
        await messenger.send(chat, "lost")


async def test_requests_that_never_get_their_answer_give_their_places_back() -> None:
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.extend([Fault.HANG] * 6)
        for _ in range(6):
            tasks.create_task(in_doubt(messenger))
        await api.wait_until(lambda: api.in_flight == 3)
        assert await messenger.send(PERSON, "next") > 0
        assert messenger.connected
    assert api.most_in_flight <= MAX_AT_ONCE
    assert [sent.text for sent in api.sent] == ["next"]


async def test_a_receipt_settles_a_send_that_never_gets_its_answer() -> None:
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.append(Fault.HANG_LATER)
        sending = tasks.create_task(settled(messenger, messenger.send(PERSON, "hello")))
        await api.wait_until(lambda: len(api.sent) == 1)
        await api.deliver_receipt(api.sent[0].timestamp)
        assert await sending == api.sent[0].timestamp


@pytest.mark.parametrize(("chat", "files"), [(GROUP, ()), (PERSON, (FILE,))], ids=["group", "file"])
async def test_a_send_that_may_take_long_gives_its_place_back_and_is_waited_for(
    chat: ChatId, files: tuple[Attachment, ...]
) -> None:
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.append(Fault.SLOW)
        slow = tasks.create_task(messenger.send(chat, "slow", attachments=files))
        await Receiver().until(lambda: messenger.stuck or slow.done())
        api.hold.clear()
        for number in range(3):
            tasks.create_task(messenger.send(PERSON, f"{number}"))
        await api.wait_until(lambda: api.in_flight == MAX_AT_ONCE)
        with pytest.raises(SignalUnavailable):
            await messenger.show_typing(PERSON)
        api.hold.set()
        api.slow_done.set()
        assert await slow > 0
    assert api.most_in_flight <= MAX_AT_ONCE
    assert sorted(sent.text for sent in api.sent) == ["0", "1", "2", "slow"]


async def test_bot_waits_for_the_latest_of_several_late_long_requests() -> None:
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.extend([Fault.HANG, Fault.HANG, Fault.HANG, Fault.SLOW])
        lost = [tasks.create_task(in_doubt(messenger, GROUP)) for _ in range(3)]
        await api.wait_until(lambda: api.in_flight == 3)
        slow = tasks.create_task(messenger.send(GROUP, "slow"))
        await asyncio.wait(lost)
        api.slow_done.set()
        assert await slow > 0
    assert api.most_in_flight <= MAX_AT_ONCE


async def test_signs_of_life_never_take_a_place_from_answers() -> None:
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.hold_signs.clear()
        signs = [tasks.create_task(gives_up(messenger, number)) for number in range(3)]
        await api.wait_until(lambda: api.in_flight == 1)
        api.hold.clear()
        for number in range(3):
            tasks.create_task(messenger.send(PERSON, f"{number}"))
        await api.wait_until(lambda: api.in_flight == MAX_AT_ONCE)
        api.hold.set()
        await api.wait_until(lambda: len(api.sent) == 3)
        await asyncio.wait(signs)
    assert api.most_in_flight <= MAX_AT_ONCE


async def gives_up(messenger: SignalRest, number: int) -> None:
    with pytest.raises(SignalError):
        await messenger.mark_read(ADA.aci, [number])


async def test_a_gateway_that_answers_nothing_is_said_to_be_stuck_and_left_until_it_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unanswered = SIGNAL_UNANSWERED.labels("text")._value.get()
    receiver = Receiver()
    async with connected() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.signal_cli_alive.clear()
        sends = [tasks.create_task(failure(messenger)) for _ in range(9)]
        await receiver.until(lambda: not messenger.connected)
        await asyncio.wait(sends)
        in_doubt_count = Counter(send.result() for send in sends)[SignalTimeout]
        assert 3 <= in_doubt_count < len(sends) - 2
        assert messenger.stuck
        assert SIGNAL_STUCK._value.get() == 1
        assert SIGNAL_UNANSWERED.labels("text")._value.get() == unanswered + in_doubt_count
        api.signal_cli_alive.set()
        await receiver.until(lambda: messenger.connected)
        await receiver.until(lambda: not messenger.stuck)
        assert SIGNAL_STUCK._value.get() == 0
    said = capsys.readouterr().out
    assert said.count("signal.gateway_stuck") == said.count("signal.gateway_answers") == 1


async def failure(messenger: SignalRest) -> type[SignalError]:
    """Send, which does not work, and return how it failed."""
    with pytest.raises(SignalError) as failed:
        await messenger.send(PERSON, "hello")
    return failed.type
