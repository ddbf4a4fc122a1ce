"""Promises of every transport, see bot/signal/messenger.py."""

import asyncio
from typing import Any, Final

import pytest

from bot.signal.account import OwnIdentity
from bot.signal.errors import (
    SignalError,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnavailable,
)
from bot.signal.events import Incoming, IncomingMessage, Person, Reaction
from conversation_store.models import MAX_ATTACHMENT_BYTES, Attachment, ChatId
from tests.contract.harnesses import EVERY_ADDRESS, Fault, Harness, Open, settled
from tests.fakes.json_rpc_server import Json
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_side import IDENTITY_KEY
from tests.signal_frames import FRAMES

ADA: Final = ChatId.direct("7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11")
TEAM: Final = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-000000000002", number="+4915200000002")
GARBAGE: Final = (
    b"",
    b"{",
    b"null",
    b"[]",
    b"3",
    b'"text"',
    b"{}",
    b"\xff\xfe\x00",
    b'{"envelope":null}',
    b'{"method":"receive"}',
    b'{"jsonrpc":"2.0","method":"receive","params":[{}]}',
    b'{"jsonrpc":"2.0","result":{},"id":[]}',
    b'{"jsonrpc":"2.0","error":"?","id":999999}',
    b"[" * 100_000,
    b'{"number":' + b"9" * 10_000 + b"}",
)


@pytest.mark.parametrize("open_harness", EVERY_ADDRESS, indirect=True)
async def test_a_message_arrives_once_and_parsed(harness: Harness) -> None:
    timestamp = await harness.people.say("hello")
    message = await harness.next_message()
    assert (message.chat, message.text, message.timestamp) == (ADA, "hello", timestamp)
    assert message.author.aci == ADA.value
    await harness.people.say("the end")
    await harness.next_message()
    assert harness.texts == ["hello", "the end"]


@pytest.mark.parametrize(("group", "chat"), [(None, ADA), (TEAM.value, TEAM)])
async def test_a_reaction_to_a_message_of_the_bot_arrives_until_it_is_taken_back(
    harness: Harness, group: str | None, chat: ChatId
) -> None:
    question = await harness.messenger.send(ADA, "Shall I?")
    given = await harness.people.react("👍🏽", question, group=group)
    first = await harness.next_reaction()
    assert (first.author.aci, first.chat, first.timestamp) == (ADA.value, chat, given)
    assert (first.emoji, first.target_timestamp, first.removed) == ("👍🏽", question, False)
    taken = await harness.people.react("👍🏽", question, group=group, removed=True)
    second = await harness.next_reaction()
    assert (second.timestamp, second.target_timestamp, second.removed) == (
        taken,
        question,
        True,
    )


async def test_a_reply_names_the_message_of_the_bot_that_it_quotes(harness: Harness) -> None:
    question = await harness.messenger.send(ADA, "Shall I?")
    for group in (None, TEAM.value):
        await harness.people.say("yes", quote=question, group=group)
        answer = await harness.next_message()
        assert answer.quote is not None
        assert (answer.text, answer.quote.timestamp) == ("yes", question)
        assert answer.addresses_bot
    await harness.people.say("by the way")
    assert (await harness.next_message()).quote is None


async def test_reactions_and_messages_arrive_in_one_order(harness: Harness) -> None:
    expected: list[int] = []
    for number in range(100):
        if number % 3:
            expected.append(await harness.people.react("👍", 1 + number, author=BEN))
        else:
            expected.append(await harness.people.say(f"{number}"))
    await harness.until(lambda: len(harness.received) == len(expected))
    assert [when(one) for one in harness.received] == expected


def when(incoming: Incoming) -> int | None:
    return incoming.timestamp if isinstance(incoming, IncomingMessage | Reaction) else None


async def test_a_send_reaches_the_chat_and_returns_its_timestamp(harness: Harness) -> None:
    timestamp = await harness.messenger.send(ADA, "*stars* stay stars\n\ufffc 👍")
    sent = await harness.next_sent()
    assert (sent.chat, sent.text) == (ADA, "*stars* stay stars\n\ufffc 👍")
    assert (sent.timestamp, sent.replaces) == (timestamp, None)


async def test_an_edit_names_the_replaced_message_and_has_its_own_timestamp(
    harness: Harness,
) -> None:
    first = await harness.messenger.send(ADA, "one")
    second = await harness.messenger.send(ADA, "two", replaces=first)
    await harness.next_sent()
    assert (await harness.next_sent()).replaces == first
    assert second > first


# Files


PROOF: Final = Attachment("proof-1.json", "application/json", b'{"quote":"\x00\xff"}\r\n')


async def test_files_reach_the_chat_byte_for_byte_with_their_text(open_harness: Open) -> None:
    picture = Attachment("a.png", "image/png", bytes(range(256)))
    async with open_harness() as harness:
        timestamp = await harness.messenger.send(ADA, "Here it is.", attachments=[PROOF, picture])
        await harness.messenger.send(ADA, "And nothing with this.")
        sent = await harness.next_sent()
        assert (sent.text, sent.timestamp) == ("Here it is.", timestamp)
        assert sent.attachments == (PROOF, picture)
        assert (await harness.next_sent()).attachments == ()


async def test_the_largest_file_is_sent_whole_and_the_bot_goes_on(open_harness: Open) -> None:
    largest = Attachment("large", "application/json", b"\xa5" * MAX_ATTACHMENT_BYTES)
    async with open_harness() as harness:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(harness.messenger.send(ADA, "large", attachments=[largest]))
            tasks.create_task(harness.messenger.send(ADA, "small"))
        sent = {one.text: one for one in (await harness.next_sent(), await harness.next_sent())}
        assert sent["large"].attachments == (largest,)
        await harness.people.say("and now?")
        assert (await harness.next_message()).text == "and now?"


async def test_an_edit_with_a_file_is_a_bug_that_reaches_nobody(harness: Harness) -> None:
    first = await harness.messenger.send(ADA, "first")
    with pytest.raises(ValueError, match="replaces"):
        await harness.messenger.send(ADA, "x", replaces=first, attachments=[PROOF])
    await harness.messenger.send(ADA, "last")
    assert [(await harness.next_sent()).text for _ in range(2)] == ["first", "last"]


# The bot's own account


OWN: Final = {
    "number": FIXTURE_ACCOUNT.number,
    "uuid": FIXTURE_ACCOUNT.aci,
    "fingerprint": IDENTITY_KEY.hex(" ") + " ",
}
SOMEBODY: Final = {"number": BEN.number, "uuid": BEN.aci, "fingerprint": "05" * 33}


def identity(linked_devices: int = 0, key: bytes = IDENTITY_KEY) -> OwnIdentity:
    return OwnIdentity(str(FIXTURE_ACCOUNT.aci), key, linked_devices)


@pytest.mark.parametrize(
    "spelling",
    [
        {"fingerprint": IDENTITY_KEY.hex()},
        {"fingerprint": IDENTITY_KEY.hex(" ").upper()},
        {"uuid": str(FIXTURE_ACCOUNT.aci).upper()},
        {"unknown": ["to", "us"]},
    ],
)
async def test_the_identity_is_read_however_it_is_spelled(harness: Harness, spelling: Json) -> None:
    harness.list_identities([SOMEBODY, OWN | spelling, {"number": None, "uuid": None}])
    assert await harness.messenger.own_identity() == identity()


async def test_identity_is_never_cached(open_harness: Open) -> None:
    other = b"\x05" + bytes(32)
    async with open_harness() as harness:
        assert await harness.messenger.own_identity() == identity()
        harness.list_devices([1, 3, 2])
        assert await harness.messenger.own_identity() == identity(linked_devices=2)
        harness.list_identities([OWN | {"fingerprint": other.hex()}])
        assert await harness.messenger.own_identity() == identity(linked_devices=2, key=other)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [SOMEBODY],
        [OWN | {"uuid": None}],
        [OWN | {"uuid": "7f3c1a52"}],
        [OWN | {"fingerprint": None}],
        [OWN | {"fingerprint": ""}],
        [OWN | {"fingerprint": "05 8"}],
        [OWN | {"fingerprint": "not hexadecimal"}],
        [OWN | {"fingerprint": "05" * 32}],
        [OWN | {"fingerprint": "05" * 34}],
        [OWN | {"fingerprint": "06" * 33}],
        [OWN, OWN | {"fingerprint": "05" * 33}],
        [OWN, OWN | {"uuid": BEN.aci}],
    ],
)
async def test_an_account_without_exactly_one_identity_key_has_no_identity(
    harness: Harness, rows: list[Json]
) -> None:
    harness.list_identities(rows)
    with pytest.raises(SignalRejected) as failure:
        await harness.messenger.own_identity()
    for private in ("+49", "7f3c1a52", "05"):
        assert private not in repr(failure.value)


@pytest.mark.parametrize("ids", [[], [2], [2, 3], None])
async def test_a_list_of_devices_without_the_primary_one_proves_nothing(
    harness: Harness, ids: list[int] | None
) -> None:
    harness.list_devices(ids)
    with pytest.raises(SignalError):
        await harness.messenger.own_identity()
    harness.list_devices([1])
    assert await harness.messenger.own_identity() == identity()


async def test_a_silent_server_tells_no_identity_within_the_bound(open_harness: Open) -> None:
    async with open_harness(impatient=True) as harness:
        harness.fall_silent()
        with pytest.raises((SignalTimeout, SignalUnavailable)):
            await harness.messenger.own_identity()


@pytest.mark.parametrize("open_harness", EVERY_ADDRESS, indirect=True)
async def test_a_refused_connection_is_retried_until_the_server_is_there(
    open_harness: Open,
) -> None:
    async with open_harness(up=False) as harness:
        assert not harness.messenger.connected
        with pytest.raises(SignalUnavailable):
            await harness.messenger.send(ADA, "too early")
        await harness.come_back()
        await harness.until(lambda: harness.messenger.connected)
        await harness.people.say("now")
        assert (await harness.next_message()).text == "now"


async def test_a_closed_connection_is_opened_again(harness: Harness) -> None:
    for number in range(3):
        await harness.until(lambda: harness.messenger.connected)
        await harness.people.say(f"{number}")
        assert (await harness.next_message()).text == f"{number}"
        await harness.drop_connections()
        await harness.until(lambda: not harness.messenger.connected)


@pytest.mark.parametrize("open_harness", EVERY_ADDRESS, indirect=True)
async def test_a_server_that_goes_away_for_a_while_is_found_again(harness: Harness) -> None:
    before = harness.messenger.connected_since
    await harness.go_away()
    await harness.until(lambda: not harness.messenger.connected)
    await harness.until(lambda: harness.messenger.connected_since is None)
    with pytest.raises(SignalUnavailable):
        await harness.messenger.send(ADA, "nobody there")
    await harness.come_back()
    await harness.until(lambda: harness.messenger.connected)
    assert await harness.messenger.send(ADA, "there you are") > 0
    since = harness.messenger.connected_since
    assert before is not None
    assert since is not None
    assert since > before


async def test_silent_server_is_left_and_called_stuck_until_it_answers(open_harness: Open) -> None:
    async with open_harness(impatient=True) as harness:
        assert not harness.messenger.stuck
        harness.fall_silent()
        await harness.until(lambda: harness.messenger.stuck)
        await harness.until(lambda: not harness.messenger.connected)
        harness.speak_again()
        await harness.until(lambda: harness.messenger.connected and not harness.messenger.stuck)


async def test_no_frame_of_any_kind_costs_the_next_message(harness: Harness) -> None:
    for name, frame in FRAMES.items():
        await harness.push(frame)
        await harness.people.say(f"after {name}")
    await harness.people.say("the end")
    await harness.until(lambda: "the end" in harness.texts)
    after = [text for text in harness.texts if text.startswith("after ")]
    assert after == [f"after {name}" for name in FRAMES]


async def test_garbage_costs_nothing_but_itself(harness: Harness) -> None:
    for number, garbage in enumerate(GARBAGE):
        await harness.push_raw(garbage)
        await harness.people.say(f"{number}")
        assert (await harness.next_message()).text == f"{number}"
    assert len(harness.received) == len(GARBAGE)


async def test_an_error_of_the_store_ends_the_messenger(open_harness: Open) -> None:
    async def receive() -> None:
        async with open_harness() as harness:
            harness.failure = OSError("disk full")
            await harness.people.say("hello")
            await asyncio.Event().wait()

    with pytest.raises(ExceptionGroup) as failure:
        await receive()
    assert failure.group_contains(OSError, match="disk full")


async def test_error_of_refused_send_names_no_person(harness: Harness) -> None:
    harness.fail_next_send(Fault.REFUSED)
    with pytest.raises(harness.refusal) as failure:
        await harness.messenger.send(ADA, "secret")
    for private in ("secret", "+49", ADA.value):
        assert private not in repr(failure.value)
    assert await harness.messenger.send(ADA, "next") > 0


async def test_a_rate_limit_says_how_long_to_wait_where_signal_does(harness: Harness) -> None:
    harness.fail_next_send(Fault.RATE_LIMITED)
    with pytest.raises(SignalRateLimited) as failure:
        await harness.messenger.send(ADA, "much")
    assert failure.value.retry_after_seconds == harness.retry_after_seconds


async def reconnect(harness: Harness) -> None:
    await harness.drop_connections()
    await harness.until(lambda: not harness.messenger.connected)
    await harness.until(lambda: harness.messenger.connected)


@pytest.mark.parametrize(
    "more",
    [{}, {"replaces": 1795291728387}, {"attachments": [PROOF]}],
    ids=["text", "edit", "file"],
)
async def test_a_receipt_after_the_reconnect_stands_in_for_a_lost_reply(
    open_harness: Open, more: dict[str, Any]
) -> None:
    async with open_harness() as harness, asyncio.TaskGroup() as tasks:
        harness.fail_next_send(Fault.LOST_REPLY)
        send = tasks.create_task(
            settled(harness.messenger, harness.messenger.send(ADA, "perhaps", **more))
        )
        sent = await harness.next_sent()
        await reconnect(harness)
        await harness.people.deliver_receipt(sent.timestamp)
        assert await send == sent.timestamp
        assert await harness.messenger.send(ADA, "next") > sent.timestamp


async def test_only_the_receipt_for_the_lost_message_itself_is_evidence(open_harness: Open) -> None:
    async with open_harness() as harness, asyncio.TaskGroup() as tasks:
        earlier = await harness.messenger.send(ADA, "earlier")
        await harness.next_sent()
        harness.fail_next_send(Fault.LOST_REPLY)
        sending = harness.messenger.send(ADA, "perhaps")
        send = tasks.create_task(settled(harness.messenger, sending))
        sent = await harness.next_sent()
        await reconnect(harness)
        await harness.people.deliver_receipt(earlier)
        await harness.people.deliver_receipt(sent.timestamp - 60_000)
        await harness.people.deliver_receipt(sent.timestamp, BEN)
        await harness.people.say("all receipts are read")
        await harness.next_message()
        assert not send.done()
        await harness.people.deliver_receipt(sent.timestamp)
        assert await send == sent.timestamp


async def test_after_stop_receiving_nothing_is_delivered_but_sends_go_on(harness: Harness) -> None:
    await harness.people.say("in time")
    await harness.next_message()
    await harness.messenger.stop_receiving()
    await harness.people.say("too late")
    assert await harness.messenger.send(ADA, "good night") > 0
    assert harness.texts == ["in time"]


async def test_held_messages_arrive_later_and_sends_continue(harness: Harness) -> None:
    await harness.messenger.hold_receiving()
    assert harness.messenger.connected
    await harness.people.say("held")
    assert await harness.messenger.send(ADA, "good night") > 0
    await harness.messenger.resume_receiving()
    assert (await harness.next_message()).text == "held"


async def test_held_messages_stay_held_over_a_lost_connection(harness: Harness) -> None:
    await harness.messenger.hold_receiving()
    await harness.go_away()
    await harness.until(lambda: not harness.messenger.connected)
    await harness.messenger.hold_receiving()
    await harness.come_back()
    await harness.until(lambda: harness.messenger.connected)
    await harness.messenger.resume_receiving()
    await harness.people.say("held")
    assert (await harness.next_message()).text == "held"


async def test_resume_without_connection_takes_effect_on_the_next_one(harness: Harness) -> None:
    await harness.messenger.hold_receiving()
    await harness.go_away()
    await harness.until(lambda: not harness.messenger.connected)
    await harness.messenger.resume_receiving()
    await harness.come_back()
    await harness.until(lambda: harness.messenger.connected)
    await harness.people.say("hello again")
    assert (await harness.next_message()).text == "hello again"


async def test_a_transport_that_retries_gives_signs_of_life(open_harness: Open) -> None:
    async with open_harness(up=False) as harness:
        first = harness.messenger.last_sign
        await harness.until(lambda: harness.messenger.last_sign > first)
        await harness.come_back()
        await harness.until(lambda: harness.messenger.connected)
        second = harness.messenger.last_sign
        assert second > first


async def test_an_idle_transport_that_works_gives_signs_of_life(open_harness: Open) -> None:
    async with open_harness(impatient=True) as harness:
        first = harness.messenger.last_sign
        await harness.until(lambda: harness.messenger.last_sign > first)


async def test_the_account_status_is_told_while_running(harness: Harness) -> None:
    status = await harness.messenger.account_status()
    assert status.registered
    assert status.server.startswith("signal-cli")
