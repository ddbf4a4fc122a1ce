"""Problems that only the transport over signal-cli-rest-api has to handle."""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from aiohttp import WSMsgType
from signalbot import LOGGER_NAME

from bot.observability.metrics import SIGNAL_STUCK, SIGNAL_UNANSWERED
from bot.signal.account import Group
from bot.signal.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.signal.events import Incoming
from bot.signal.messenger import Deliver, FileTooBig
from bot.signal.rest_requests import Refused, RestTimeouts
from bot.signal.signal_rest import MAX_ANSWER_BYTES, SignalRest
from bot.signal.trouble import AccountTrouble
from conversation_store.models import Attachment, ChatId, ReceivedFile
from tests.contract.harnesses import (
    Receiver,
    RestHarness,
    SlowReceiver,
    in_background,
    open_rest,
    rest_bounds,
    settled,
)
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_frames import text_frame
from tests.fakes.signal_people import Group as KnownGroup
from tests.fakes.signal_rest_api import NUMBER, Answer, Fault, SignalRestApi
from tests.fakes.signal_side import ADA, SharedFile

PERSON: Final = ChatId.direct(ADA.aci)
GROUP: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
GROUP_AT_SERVER: Final = "group.QUFFQ0F3UUZCZ2NJQ1FvTERBME9EeEFSRWhNVUZSWVhHQmthR3h3ZEhoOD0="
PRIVATE: Final = "+4915200000001"
FIRST_TIMESTAMP: Final = 1795291728387

Open = Callable[..., AbstractAsyncContextManager[RestHarness]]


@pytest.fixture
def open_harness(tmp_path: Path) -> Open:
    return partial(open_rest, tmp_path)


def messages(count: int) -> list[bytes]:
    return [
        json.dumps(text_frame(FIXTURE_ACCOUNT, ADA, FIRST_TIMESTAMP + number, f"{number}")).encode()
        for number in range(count)
    ]


@asynccontextmanager
async def receiving(
    deliver: Deliver, **bounds: Any
) -> AsyncIterator[tuple[SignalRestApi, SignalRest]]:
    async with SignalRestApi.listen() as api:
        messenger = SignalRest(api.url, NUMBER, bounds=RestTimeouts(**bounds))
        async with in_background(messenger.run(deliver)):
            await api.wait_for_receiver()
            yield api, messenger


async def ignore(_: Sequence[Incoming]) -> None:
    """Take a message and do nothing."""


# Sending


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (
            Answer(429, '{"error":"slow","challenge_tokens":["tok"],"account":"+49"}'),
            SignalRateLimited,
        ),
        (Answer(429, '{"error":"slow","challenge_tokens":[""]}'), SignalRateLimited),
        (Answer(400, f"The user {PRIVATE} is not registered."), Refused),
        (Answer(400, f"Failed to send message: {PRIVATE} (IOException)"), Refused),
        (Answer(400, " " * (MAX_ANSWER_BYTES + 1)), Refused),
        (Answer(500), SignalTimeout),
        (Answer(502), SignalTimeout),
        (Answer(503), Refused),
        (Answer(418), Refused),
        (Answer(404, "404 page not found"), SignalUnavailable),
        (Answer(307), SignalUnavailable),
        (Answer(504), SignalTimeout),
        (Answer(201, "no JSON"), SignalTimeout),
        (Answer(201, "[" * 100_000), SignalTimeout),
        (Answer(201, "[]"), SignalTimeout),
        (Answer(201, '[{"timestamp":"soon"}]'), SignalTimeout),
        (Fault.DROP, SignalTimeout),
    ],
)
async def test_every_failure_of_a_send_has_its_error_and_names_no_person(
    harness: RestHarness, answer: Answer | Fault, error: type[SignalError]
) -> None:
    harness.api.answers.append(answer)
    with pytest.raises(error) as failure:
        await harness.messenger.send(PERSON, "secret")
    assert type(failure.value) is error
    shown = f"{failure.value!r} {failure.value.__cause__!r}"
    assert not any(private in shown for private in ("secret", "+49", "tok", "AAEC"))
    assert await harness.messenger.send(PERSON, "next") > 0


async def test_receipt_settles_refused_send() -> None:
    async with receiving(ignore) as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.append(Answer(400, "Failed to send message", after_delivery=True))
        sending = tasks.create_task(settled(messenger, messenger.send(PERSON, "hello")))
        await api.wait_until(lambda: len(api.sent) == 1)
        await api.deliver_receipt(api.sent[0].timestamp)
        assert await sending == api.sent[0].timestamp


async def test_server_older_than_0_101_is_refused() -> None:
    async with SignalRestApi.listen() as api:
        api.old = True
        messenger = SignalRest(api.url, NUMBER)
        with pytest.raises(SignalRejected, match=r"0\.101"):
            await messenger.account_status()
        async with in_background(messenger.run(ignore)):
            await api.wait_until(lambda: api.requests > 2)
            assert not messenger.connected
            api.old = False
            await Receiver().until(lambda: messenger.connected)


async def test_group_that_the_server_does_not_list_gets_no_message(harness: RestHarness) -> None:
    with pytest.raises(SignalRejected) as failure:
        await harness.messenger.send(GROUP, "hello")
    assert GROUP.value not in repr(failure.value)
    assert not harness.api.sent


async def test_text_goes_out_unstyled_and_not_to_the_bot_itself(open_harness: Open) -> None:
    text = "**2*3=6** and a*b ~x~ ||y|| `z` \\ \u202e\ufffc 👍"
    async with open_harness() as harness:
        await harness.messenger.send(PERSON, text)
        [sent] = harness.api.sent
        assert (sent.text, sent.text_mode, sent.notify_self) == (text, "normal", False)
        assert sent.recipient == ADA.aci


def partly_failed(*reasons: str) -> Answer:
    recipients = [{"number": PRIVATE, "uuid": ADA.aci, "reason": reason} for reason in reasons]
    return Answer(201, json.dumps([{"timestamp": "77", "errors": {"recipients": recipients}}]))


async def test_a_group_message_counts_as_sent_when_some_members_were_not_reached(
    harness: RestHarness,
) -> None:
    harness.api.groups[GROUP.value] = KnownGroup()
    harness.api.answers.append(partly_failed("NETWORK_FAILURE", "IDENTITY_FAILURE"))
    assert await harness.messenger.send(GROUP, "hello") == 77


async def test_at_most_three_calls_are_in_flight_whatever_they_ask(harness: RestHarness) -> None:
    harness.api.hold.clear()
    async with asyncio.TaskGroup() as tasks:
        for number in range(10):
            tasks.create_task(harness.messenger.send(PERSON, f"{number}"))
            tasks.create_task(harness.messenger.group(GROUP))
            tasks.create_task(harness.messenger.account_status())
        await harness.api.wait_until(lambda: harness.api.in_flight == 3)
        harness.api.hold.set()
    assert harness.api.most_in_flight == 3
    assert len(harness.api.sent) == 10


async def test_a_file_bigger_than_any_answer_is_too_big(open_harness: Open) -> None:
    huge = SharedFile("video/mp4", bytes(MAX_ANSWER_BYTES + 1))
    async with open_harness() as harness:
        await harness.people.say(None, files=[huge])
        file = ReceivedFile(next(iter(harness.api.files)), "video/mp4")
        with pytest.raises(FileTooBig):
            await harness.messenger.fetch_file(PERSON, file, max_bytes=2 * MAX_ANSWER_BYTES)
        assert await harness.messenger.send(PERSON, "next") > 0


async def test_a_call_that_gets_no_turn_is_not_sent() -> None:
    async with receiving(ignore, turn=0.02) as (api, messenger):
        api.hold.clear()
        async with asyncio.TaskGroup() as tasks:
            for _ in range(3):
                tasks.create_task(messenger.send(PERSON, "slow"))
            await api.wait_until(lambda: api.in_flight == 3)
            with pytest.raises(SignalUnavailable):
                await messenger.send(PERSON, "waiting")
            api.hold.set()
        assert [sent.text for sent in api.sent] == ["slow"] * 3


# Receiving


@pytest.mark.parametrize(
    ("frame", "kind"),
    [
        (b"null", WSMsgType.TEXT),
        (b'{"error":"rpc failed"}', WSMsgType.TEXT),
        (b'{"account":"+4915100000000"}', WSMsgType.TEXT),
        (b'{"envelope":{"sourceUuid":"\xff\xfe"}}', WSMsgType.TEXT),
        (b"\x00\x01", WSMsgType.BINARY),
        (b'"' + b"x" * 3 * 2**20 + b'"', WSMsgType.TEXT),
        (b"[" * 2**20, WSMsgType.TEXT),
    ],
)
async def test_no_frame_ends_the_connection(
    harness: RestHarness, frame: bytes, kind: WSMsgType
) -> None:
    await harness.api.push_raw(frame, kind=kind)
    await harness.people.say("still there")
    assert (await harness.next_message()).text == "still there"
    assert harness.api.connections == 1


async def test_a_huge_message_arrives_cut(harness: RestHarness) -> None:
    await harness.people.say("x" * 3 * 2**20)
    assert len((await harness.next_message()).text) == 64 * 1024


async def test_while_signal_cli_is_dead_the_websocket_is_kept(open_harness: Open) -> None:
    async with open_harness(impatient=True) as harness:
        harness.api.signal_cli_alive.clear()
        await harness.until(lambda: not harness.messenger.connected)
        harness.api.signal_cli_alive.set()
        await harness.people.say("back")
        assert (await harness.next_message()).text == "back"
        await harness.until(lambda: harness.messenger.connected)
        assert harness.api.connections == 1


async def test_a_websocket_that_answers_no_ping_is_left(open_harness: Open) -> None:
    async with open_harness(impatient=True) as harness:
        harness.api.answers_pings = False
        await harness.api.wait_until(lambda: harness.api.connections > 1)
        harness.api.answers_pings = True
        await harness.until(lambda: harness.messenger.connected)


async def test_an_account_that_is_not_registered_is_not_connected() -> None:
    async with SignalRestApi.listen() as api:
        api.accounts = ["+4915100000009"]
        messenger = SignalRest(api.url, NUMBER)
        async with in_background(messenger.run(ignore)):
            await api.wait_until(lambda: api.requests > 2)
            await Receiver().until(lambda: messenger.trouble is AccountTrouble.ABSENT)
            assert not messenger.connected
            assert api.connections == 0
            api.accounts.append(NUMBER)
            await Receiver().until(lambda: messenger.connected and messenger.trouble is None)


async def test_no_frame_is_read_before_the_one_before_it_is_delivered() -> None:
    delivered: list[Incoming] = []
    proceed = asyncio.Semaphore(0)

    async def deliver(delivery: Sequence[Incoming]) -> None:
        [event] = delivery
        await proceed.acquire()
        delivered.append(event)

    async with receiving(deliver) as (api, messenger):
        for frame in messages(5):
            await api.push_raw(frame)
        for number in range(5):
            await Receiver().until(lambda: messenger.undelivered == 1)
            assert len(delivered) == number
            proceed.release()
            await Receiver().until(lambda: len(delivered) > number)  # noqa: B023


async def test_frames_after_a_ping_arrive_although_the_server_has_gone() -> None:
    receiver = SlowReceiver()
    async with receiving(receiver.deliver) as (api, messenger):
        first, *others = messages(3)
        await api.push_raw(first)
        await receiver.until(lambda: messenger.undelivered == 1)
        await api.push_raw(b"", kind=WSMsgType.PING)
        for frame in others:
            await api.push_raw(frame)
        await api.push_raw(b"", kind=WSMsgType.PING)
        api.drop_websockets()
        for _ in range(50):  # until the bot's side has seen the end, on loopback
            await asyncio.sleep(0)
        receiver.proceed.set()
        await receiver.until(lambda: len(receiver.received) == 3)


async def test_stopping_still_delivers_frames_that_have_arrived() -> None:
    receiver = SlowReceiver()
    async with receiving(receiver.deliver) as (api, messenger):
        for frame in messages(10):
            await api.push_raw(frame)
        await receiver.reading.wait()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(messenger.stop_receiving())
            receiver.proceed.set()
        assert len(receiver.received) == 10
        assert api.receivers == 0
        assert await messenger.send(PERSON, "good night") > 0


async def test_no_websocket_is_opened_after_a_stop() -> None:
    async with SignalRestApi.listen() as api:
        api.hold.clear()
        messenger = SignalRest(api.url, NUMBER)
        async with in_background(messenger.run(ignore)):
            await api.wait_until(lambda: api.in_flight == 1)
            await messenger.stop_receiving()
            api.hold.set()
            await api.wait_until(lambda: not api.in_flight)
            assert await messenger.send(PERSON, "good night") > 0
            assert api.connections == 0


async def test_stopping_ends_within_its_bound_although_deliver_hangs() -> None:
    receiver = SlowReceiver()
    async with receiving(receiver.deliver, stop=0.05) as (api, messenger):
        await api.push_raw(messages(1)[0])
        await receiver.reading.wait()
        await messenger.stop_receiving(delivery_seconds=0.05)
        assert messenger.undelivered == 1


# Questions


@pytest.mark.parametrize("identities", [None, [], "?", [{"number": NUMBER}], [{"uuid": 5}]])
async def test_without_identities_the_bot_goes_on_and_learns_its_aci_later(
    identities: object,
) -> None:
    async with SignalRestApi.listen() as api:
        known, api.identities = api.identities, identities
        messenger = SignalRest(api.url, NUMBER, bounds=RestTimeouts(probe_every=0.02))
        receiver = Receiver()
        mention = text_frame(FIXTURE_ACCOUNT, ADA, FIRST_TIMESTAMP, "hi", mention=True)
        mention["envelope"]["dataMessage"]["mentions"][0]["number"] = None
        async with in_background(messenger.run(receiver.deliver)):
            await api.wait_for_receiver()
            await api.push(mention)
            assert not (await receiver.next_message()).addresses_bot
            api.identities = known
            addressed = False
            while not addressed:
                await api.push(mention)
                addressed = (await receiver.next_message()).addresses_bot


OWN: Final = {"number": NUMBER, "uuid": FIXTURE_ACCOUNT.aci}


@pytest.mark.parametrize(
    ("told", "group"),
    [
        (
            {"member": True, "admins": [{"number": PRIVATE, "uuid": ADA.aci.upper()}]},
            Group(frozenset(), frozenset({PRIVATE, ADA.aci}), True, False, False),
        ),
        (
            {"members": [PRIVATE, ADA.aci], "admins": [PRIVATE], "pending_invites": [NUMBER]},
            Group(frozenset({PRIVATE, ADA.aci}), frozenset({PRIVATE}), False, True, False),
        ),
        (
            {"pending_invites": [OWN], "permissions": {"send_messages": "only-admins"}},
            Group(frozenset(), frozenset(), False, True, True),
        ),
        ({}, Group(frozenset(), frozenset(), False, False, False)),
        (None, None),
    ],
)
async def test_a_group_is_read_as_every_version_tells_it(
    harness: RestHarness, told: Any, group: Group | None
) -> None:
    harness.api.told_groups[GROUP_AT_SERVER] = told
    assert await harness.messenger.group(GROUP) == group


async def test_an_unreadable_answer_to_a_question_is_an_error(harness: RestHarness) -> None:
    harness.api.told_groups[GROUP_AT_SERVER] = "?"
    with pytest.raises(SignalUnavailable):
        await harness.messenger.group(GROUP)


async def test_the_account_status_needs_no_running_messenger() -> None:
    async with SignalRestApi.listen() as api:
        status = await SignalRest(api.url, NUMBER).account_status()
        assert (status.server, status.registered) == (
            "signal-cli-rest-api 0.101 in json-rpc mode",
            True,
        )
        api.accounts = []
        assert not (await SignalRest(api.url, NUMBER).account_status()).registered


async def test_the_account_status_does_not_wait_for_a_dead_signal_cli() -> None:
    async with SignalRestApi.listen() as api:
        api.signal_cli_alive.clear()
        with pytest.raises(SignalTimeout):
            await SignalRest(api.url, NUMBER, bounds=RestTimeouts(request=0.05)).account_status()
        await api.stop()
        with pytest.raises(SignalUnavailable):
            await SignalRest(api.url, NUMBER).account_status()


async def test_signalbot_logs_nothing(
    open_harness: Open, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, LOGGER_NAME)
    async with open_harness() as harness:
        await harness.messenger.send(PERSON, "secret")
        await harness.messenger.react(PERSON, "👀", author=ADA.aci, timestamp=1)
        harness.api.answers.append(Answer(400, "secret"))
        with pytest.raises(SignalTimeout):
            await harness.messenger.send(PERSON, "secret")
    assert not logging.getLogger(LOGGER_NAME).handlers
    assert not caplog.records
    assert "secret" not in "".join(capfd.readouterr())


# A gateway that keeps requests without an answer


FILE: Final = Attachment("a.png", "image/png", b"pixels")
MAX_AT_ONCE: Final = 4
"""The real server may crash with more requests at once."""


@asynccontextmanager
async def stuck() -> AsyncIterator[tuple[SignalRestApi, SignalRest]]:
    """Provide a messenger that soon calls requests late, but waits for answers very long."""
    async with SignalRestApi.listen() as api:
        api.groups[GROUP.value] = KnownGroup()
        bounds = replace(rest_bounds(impatient=False), late=0.1)
        messenger = SignalRest(api.url, NUMBER, bounds=bounds)
        receiver = Receiver()
        async with in_background(messenger.run(receiver.deliver)):
            await receiver.until(lambda: messenger.connected)
            yield api, messenger


async def in_doubt(messenger: SignalRest, chat: ChatId = PERSON) -> None:
    with pytest.raises(SignalTimeout):
        await messenger.send(chat, "lost")


async def test_requests_that_never_get_their_answer_give_their_places_back() -> None:
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.extend([Fault.HANG] * 6)
        for _ in range(6):
            tasks.create_task(in_doubt(messenger))
        await api.wait_until(lambda: api.in_flight == 3)
        assert await messenger.send(PERSON, "next") > 0
        assert messenger.connected
    assert api.most_in_flight <= MAX_AT_ONCE
    assert [sent.text for sent in api.sent] == ["next"]


async def test_a_receipt_settles_a_send_that_never_gets_its_answer() -> None:
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.append(Fault.HANG_LATER)
        sending = tasks.create_task(settled(messenger, messenger.send(PERSON, "hello")))
        await api.wait_until(lambda: len(api.sent) == 1)
        await api.deliver_receipt(api.sent[0].timestamp)
        assert await sending == api.sent[0].timestamp


@pytest.mark.parametrize(("chat", "files"), [(GROUP, ()), (PERSON, (FILE,))], ids=["group", "file"])
async def test_a_send_that_may_take_long_gives_its_place_back_and_is_waited_for(
    chat: ChatId, files: tuple[Attachment, ...]
) -> None:
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
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
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
        api.answers.extend([Fault.HANG, Fault.HANG, Fault.HANG, Fault.SLOW])
        lost = [tasks.create_task(in_doubt(messenger, GROUP)) for _ in range(3)]
        await api.wait_until(lambda: api.in_flight == 3)
        slow = tasks.create_task(messenger.send(GROUP, "slow"))
        await asyncio.wait(lost)
        api.slow_done.set()
        assert await slow > 0
    assert api.most_in_flight <= MAX_AT_ONCE


async def test_signs_of_life_never_take_a_place_from_answers() -> None:
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
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


async def test_a_silent_gateway_is_reported_as_stuck_until_it_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    unanswered = SIGNAL_UNANSWERED.labels("text")._value.get()
    receiver = Receiver()
    async with stuck() as (api, messenger), asyncio.TaskGroup() as tasks:
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
    with pytest.raises(SignalError) as failed:
        await messenger.send(PERSON, "hello")
    return failed.type
