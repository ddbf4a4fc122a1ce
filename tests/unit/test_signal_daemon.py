"""Promises of the daemon transport alone; the others are in tests/contract/test_messenger.py."""

import asyncio
import json
import socket
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, asynccontextmanager, closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from bot.observability.metrics import FRAMES, SENDS
from bot.signal.account import PeerIdentity, Profile, TrustLevel
from bot.signal.errors import (
    SignalAccountTrouble,
    SignalError,
    SignalLacks,
    SignalPassedOver,
    SignalRateLimited,
    SignalRejected,
    SignalTimeout,
    SignalUnclear,
    SignalUntrusted,
)
from bot.signal.json_rpc import MAX_LINE_BYTES, JsonRpcConnection, LineBuffer
from bot.signal.signal_daemon import MAX_QUEUE, DaemonTimeouts, SignalDaemon
from bot.signal.trouble import AccountTrouble
from conversation_store.models import MAX_ATTACHMENT_BYTES, Attachment, ChatId, ReceivedFile
from tests.contract.harnesses import Receiver, SlowReceiver, daemon_bounds, in_background
from tests.contract.signal_cli_protocol import EXCHANGES, check_exchange
from tests.fakes.json_rpc_server import Json, LostReply, Refusal
from tests.fakes.registering import RegisteringSignalCli
from tests.fakes.signal_cli import FIXTURE_ACCOUNT, SignalCli
from tests.fakes.signal_frames import text_frame
from tests.fakes.signal_side import ADA, BOT, DROPPED, OUTDATED, Group, Sent, SharedFile, SignalSide

CHAT = ChatId.direct(ADA.aci)
TEAM = ChatId.group("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
BOUNDS = daemon_bounds(impatient=False)
OWN_ROW: Json = {"number": FIXTURE_ACCOUNT.number, "uuid": str(FIXTURE_ACCOUNT.aci).upper()}


@asynccontextmanager
async def signal_cli(directory: Path) -> AsyncIterator[SignalCli]:
    side = SignalCli(directory / "signal-cli.sock")
    await side.come_back()
    try:
        yield side
    finally:
        await side.go_away()


@asynccontextmanager
async def running(
    side: SignalCli, receiver: Receiver | None = None, *, bounds: DaemonTimeouts = BOUNDS
) -> AsyncIterator[SignalDaemon]:
    receiver = receiver or Receiver()
    messenger = SignalDaemon(side.url, side.account.number, bounds=bounds)
    async with in_background(messenger.run(receiver.deliver)):
        await receiver.until(lambda: messenger.connected)
        yield messenger


async def test_a_slow_store_stops_the_reading_and_loses_nothing(tmp_path: Path) -> None:
    receiver = SlowReceiver()
    many = 10 * MAX_QUEUE
    before = FRAMES.labels("message")._value.get()
    async with signal_cli(tmp_path) as side, running(side, receiver) as messenger:

        async def write() -> None:
            for number in range(many):
                await side.say(f"{number} {'x' * 2_000}")

        async with asyncio.TaskGroup() as tasks:
            writing = tasks.create_task(write())
            await receiver.until(
                lambda: FRAMES.labels("message")._value.get() - before >= MAX_QUEUE
            )
            send = tasks.create_task(messenger.send(CHAT, "meanwhile"))
            await side.next_sent()
            assert FRAMES.labels("message")._value.get() - before < many / 2
            assert not writing.done()
            assert not send.done()
            receiver.proceed.set()
        await receiver.until(lambda: len(receiver.received) == many)
    assert [text.split()[0] for text in receiver.texts] == [f"{n}" for n in range(many)]


async def test_an_endless_line_is_dropped_and_the_next_one_read(tmp_path: Path) -> None:
    receiver = Receiver()
    broken = FRAMES.labels("broken")._value.get()
    async with signal_cli(tmp_path) as side, running(side, receiver):
        await side.push_line(b"x" * (MAX_LINE_BYTES + 1))
        await side.say("still here")
        assert (await receiver.next_message()).text == "still here"
    assert FRAMES.labels("broken")._value.get() == broken + 1


@given(st.binary(max_size=60), st.lists(st.integers(1, 9), min_size=1))
def test_lines_do_not_depend_on_how_the_bytes_come_in(data: bytes, sizes: list[int]) -> None:
    buffer = LineBuffer(5)
    lines: list[bytes | None] = []
    rest, turn = data, 0
    while rest:
        size = sizes[turn % len(sizes)]
        lines += buffer.feed(rest[:size])
        rest, turn = rest[size:], turn + 1
    assert lines == [line if len(line) <= 5 else None for line in data.split(b"\n")[:-1]]


def failure_data(*fates: str) -> object:
    return {"response": {"timestamp": 1, "results": [{"type": fate} for fate in fates]}}


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (Refusal(-1, "No recipients given"), SignalRejected),
        (Refusal(-1, "Group not found: AAEC"), SignalRejected),
        (Refusal(-1, "User is not a member in group: a (AAEC)"), SignalRejected),
        (Refusal(-1, "User is not allowed to send message to group: a"), SignalRejected),
        (Refusal(-1, "The user +15550100001 is not registered."), SignalRejected),
        (Refusal(-1, 'Unregistered user "+15550100001"'), SignalRejected),
        (Refusal(-1, "Failed to send message"), SignalUnclear),
        (Refusal(-1, "Failed. Group not found: AAEC"), SignalUnclear),
        (Refusal(-1, "No recipients given", failure_data("SUCCESS")), SignalUnclear),
        (Refusal(-2, "a code of a later version"), SignalUnclear),
        (Refusal(-32603, "Failed to send message: a (AttachmentInvalidException)"), SignalRejected),
        (Refusal(-32603, "Failed to send message: null (IOException)"), SignalUnclear),
        (Refusal(-32600, "Cannot deserialize value"), SignalRejected),
        (Refusal(-32601, "Method not implemented"), SignalLacks),
        (Refusal(-1, "failed", failure_data("UNREGISTERED_FAILURE")), SignalRejected),
        (Refusal(-1, "failed", failure_data("NETWORK_FAILURE")), SignalUnclear),
        (Refusal(-1, "failed", failure_data("RATE_LIMIT_FAILURE")), SignalRateLimited),
        (Refusal(-3, "io"), SignalUnclear),
        (Refusal(-3, "io", failure_data()), SignalUnclear),
        (Refusal(-3, OUTDATED, failure_data("SUCCESS", "NETWORK_FAILURE")), SignalUnclear),
        (Refusal(-3, OUTDATED), SignalAccountTrouble),
        (Refusal(-32603, "disk", failure_data("SUCCESS")), SignalUnclear),
        (Refusal(-4, "untrusted", failure_data("IDENTITY_FAILURE")), SignalUntrusted),
        (Refusal(-4, "untrusted"), SignalUntrusted),
        (Refusal(-5, "Failed to send message: rate limit"), SignalRateLimited),
        (
            Refusal(-5, "Failed to send message: rate limit", {"response": {"results": "?"}}),
            SignalRateLimited,
        ),
        (Refusal(-32602, "no account"), SignalRejected),
        (Refusal(-32603, "java.io.IOException"), SignalUnclear),
        (Refusal(-32603, "Failed to send: [429] (RateLimitException)"), SignalRateLimited),
    ],
)
async def test_every_error_of_signal_cli_has_its_meaning(
    tmp_path: Path, refusal: Refusal, expected: type[SignalError]
) -> None:
    async def refuse(_sent: Sent) -> None:
        raise refusal

    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.on_send = refuse
        with pytest.raises(SignalError) as failure:
            await messenger.send(CHAT, "text")
        assert type(failure.value) is expected
        assert refusal.message not in str(failure.value)


@pytest.mark.parametrize(
    ("fates", "expected"),
    [
        (["UNREGISTERED_FAILURE"], pytest.raises(SignalRejected)),
        (["IDENTITY_FAILURE", "NETWORK_FAILURE"], pytest.raises(SignalUnclear)),
        (["IDENTITY_FAILURE"], pytest.raises(SignalUntrusted)),
        (["RATE_LIMIT_FAILURE"], pytest.raises(SignalRateLimited)),
        (["IDENTITY_FAILURE", "SUCCESS"], nullcontext()),
        ([], nullcontext()),
    ],
)
async def test_send_fails_if_it_reaches_no_recipient(
    tmp_path: Path, fates: list[str], expected: AbstractContextManager[object]
) -> None:
    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.fates = fates
        with expected:
            assert await messenger.send(CHAT, "text") > 0


async def test_answers_may_come_in_any_order(tmp_path: Path) -> None:
    second_is_answered = asyncio.Event()

    async def hold_the_first(sent: Sent) -> None:
        if sent.text == "first":
            await second_is_answered.wait()

    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.on_send = hold_the_first
        async with asyncio.TaskGroup() as tasks:
            first = tasks.create_task(messenger.send(CHAT, "first"))
            second = await messenger.send(CHAT, "second")
            assert not first.done()
            second_is_answered.set()
        assert {one.text: one.timestamp for one in side.sent} == {
            "first": first.result(),
            "second": second,
        }


async def lose(_sent: Sent) -> None:
    raise LostReply


async def test_a_send_without_an_answer_ends_within_its_bound(tmp_path: Path) -> None:
    async with (
        signal_cli(tmp_path) as side,
        running(side, bounds=replace(BOUNDS, send=0.05)) as messenger,
    ):
        side.on_send = lose
        before = SENDS.labels("timeout")._value.get()
        with pytest.raises(SignalTimeout):
            await messenger.send(CHAT, "text")
        assert SENDS.labels("timeout")._value.get() == before + 1
        side.on_send = None
        assert await messenger.send(CHAT, "text") > 0


@pytest.mark.parametrize(
    "identities",
    [
        ([], [{"number": ADA.number, "uuid": ADA.aci}, OWN_ROW]),
        ([{"number": ADA.number, "uuid": ADA.aci}], [OWN_ROW]),
        ([OWN_ROW], []),
    ],
)
async def test_the_bot_finds_its_own_aci_with_and_without_the_filter_by_number(
    tmp_path: Path, identities: tuple[list[Json], list[Json]]
) -> None:
    receiver = Receiver()
    async with signal_cli(tmp_path) as side:
        side.identities = identities
        mention = text_frame(side.account, ADA, 1795291728387, "what is this?", mention=True)
        mention["envelope"]["dataMessage"]["mentions"][0]["number"] = None
        async with running(side, receiver):
            await side.push(mention)
            assert (await receiver.next_message()).addresses_bot


async def test_account_is_connected_once_it_is_registered(tmp_path: Path) -> None:
    receiver = Receiver()
    async with RegisteringSignalCli.open(tmp_path / "socket") as side:
        messenger = SignalDaemon(side.url, BOT.number, bounds=daemon_bounds(impatient=True))
        with capture_logs() as said:
            async with in_background(messenger.run(receiver.deliver)):
                await receiver.until(lambda: messenger.trouble is AccountTrouble.ABSENT)
                assert not messenger.connected
                assert not (await messenger.account_status()).registered
                side.registrar.registered = True
                await receiver.until(lambda: messenger.connected)
                assert messenger.trouble is None
                await side.go_away()
                await receiver.until(lambda: not messenger.connected)
    events = [line["event"] for line in said]
    assert events.count("signal.account_trouble") == 1


async def test_a_subscription_that_signal_cli_has_forgotten_is_renewed(tmp_path: Path) -> None:
    receiver = Receiver()
    bounds = replace(daemon_bounds(impatient=True), renew_every=0.1)
    async with signal_cli(tmp_path) as side:
        messenger = SignalDaemon(f"unix:{side.path}", side.account.number, bounds=bounds)
        async with in_background(messenger.run(receiver.deliver)):
            await side.until(lambda: side.subscribed)
            await side.meets(DROPPED)
            await side.meets("")
            await side.say("still there?")
            assert (await receiver.next_message()).text == "still there?"


PICTURE = Attachment("a.png", "image/png", b"pixels")
FILE = ReceivedFile("9zKpVoice.m4a", "audio/aac")


async def test_a_discarded_file_is_gone_from_the_folder_and_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "attachments"
    folder.mkdir(parents=True)
    stays = [tmp_path / "data" / "account.db", folder / "other", tmp_path / "x"]
    for path in (*stays, folder / FILE.id):
        path.write_bytes(b"?")
    (folder / "link").symlink_to(tmp_path / "x")
    (folder / "folder").mkdir()
    messenger = SignalDaemon("unix:/nowhere", "+4915100000000", data_dir=tmp_path / "data")
    bad = ("../account.db", str(tmp_path / "x"), "..", ".", "", "link/../other", "a\0", "folder")
    for file_id in (FILE.id, FILE.id, "link", *bad):
        await messenger.discard_file(ReceivedFile(file_id, "audio/aac"))
    assert all(path.exists() for path in stays)
    assert [path.name for path in sorted(folder.iterdir())] == ["folder", "other"]


async def test_a_folder_that_signal_cli_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "conversations.db").write_bytes(b"?")
    (tmp_path / "attachments").symlink_to(own)
    messenger = SignalDaemon("unix:/nowhere", "+4915100000000", data_dir=tmp_path)
    await messenger.discard_file(ReceivedFile("conversations.db", "audio/aac"))
    assert (own / "conversations.db").exists()


async def test_without_signal_cli_s_folder_nothing_is_deleted(tmp_path: Path) -> None:
    async with signal_cli(tmp_path) as side, running(side) as messenger:
        await side.say(None, files=[SharedFile("text/plain", b"words")])
        await messenger.discard_file(ReceivedFile(next(iter(side.files)), "text/plain"))
        assert side.files


@pytest.mark.parametrize("answer", [{"data": "?"}, {"data": "YQ"}, {"data": 5}, {}, "a", None])
async def test_a_file_that_cannot_be_read_is_no_file(tmp_path: Path, answer: object) -> None:
    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.told["getAttachment"] = answer
        with pytest.raises(SignalTimeout):
            await messenger.fetch_file(CHAT, FILE, max_bytes=100)


NUMBER_OF_ADA = "12345" * 12
KEY_OF_ADA: Json = {"uuid": ADA.aci, "safetyNumber": NUMBER_OF_ADA, "trustLevel": "UNTRUSTED"}


@pytest.mark.parametrize(
    ("rows", "identity"),
    [
        ([], None),
        ([OWN_ROW], None),
        ([KEY_OF_ADA | {"safetyNumber": None}], None),
        ([KEY_OF_ADA | {"safetyNumber": "12345"}], None),
        ([KEY_OF_ADA | {"uuid": None, "number": ADA.number}], None),
        ([OWN_ROW, KEY_OF_ADA], PeerIdentity(ADA.aci, TrustLevel.UNTRUSTED, NUMBER_OF_ADA)),
        (
            [
                KEY_OF_ADA | {"addedTimestamp": 1, "safetyNumber": "0" * 60},
                KEY_OF_ADA | {"addedTimestamp": 3, "trustLevel": "TRUSTED_VERIFIED"},
                KEY_OF_ADA | {"addedTimestamp": 2, "safetyNumber": "9" * 60},
            ],
            PeerIdentity(ADA.aci, TrustLevel.VERIFIED, NUMBER_OF_ADA),
        ),
        (
            [KEY_OF_ADA | {"uuid": ADA.aci.upper(), "trustLevel": "WHO_KNOWS"}],
            PeerIdentity(ADA.aci, TrustLevel.UNTRUSTED, NUMBER_OF_ADA),
        ),
    ],
)
async def test_the_newest_key_of_a_person_counts(
    tmp_path: Path, rows: list[Json], identity: PeerIdentity | None
) -> None:
    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.told["listIdentities"] = rows
        assert await messenger.peer_identity(ADA.aci) == identity


async def test_person_refused_by_signal_cli_is_unknown(tmp_path: Path) -> None:
    async with signal_cli(tmp_path) as side, running(side) as messenger:
        side.lacks |= {"listGroups", "listIdentities"}
        assert await messenger.group(TEAM) is None
        assert await messenger.peer_identity(ADA.aci) is None


async def test_stop_receiving_waits_for_the_delivery_of_read_messages(tmp_path: Path) -> None:
    receiver = SlowReceiver()
    async with signal_cli(tmp_path) as side, running(side, receiver) as messenger:
        await side.say("one")
        await side.say("two")
        await receiver.reading.wait()
        async with asyncio.TaskGroup() as tasks:
            stopping = tasks.create_task(messenger.stop_receiving())
            await side.until(lambda: not side.subscribed)
            assert not stopping.done()
            receiver.proceed.set()
        assert receiver.texts == ["one", "two"]


async def test_stop_receiving_ends_in_time_without_an_answer(tmp_path: Path) -> None:
    async with (
        signal_cli(tmp_path) as side,
        running(side, bounds=replace(BOUNDS, stop=0.05)) as messenger,
    ):
        side.silent = True
        await messenger.stop_receiving()
        assert "unsubscribeReceive" in side.asked


async def test_a_reconnect_after_stop_receiving_serves_sends_only(tmp_path: Path) -> None:
    receiver = Receiver()
    async with signal_cli(tmp_path) as side, running(side, receiver) as messenger:
        await messenger.stop_receiving()
        await side.drop_connections()
        await receiver.until(lambda: not messenger.connected)
        await receiver.until(lambda: messenger.connected)
        assert await messenger.send(CHAT, "good night") > 0
        assert not side.subscribed


async def test_too_large_profile_picture_is_refused() -> None:
    picture = bytes(MAX_ATTACHMENT_BYTES + 1)
    with pytest.raises(SignalRejected):
        await SignalDaemon("unix:/nowhere", "+4915100000000").set_profile(Profile(picture=picture))


@pytest.mark.parametrize(
    "url", ["", "unix:", "unix:relative", "tcp://", "tcp://host", "tcp://host:x", "http://h:1"]
)
def test_an_address_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        SignalDaemon(url, "+4915100000000")


LOOK_SECONDS = 0.03


@asynccontextmanager
async def looking(folder: Path) -> AsyncIterator[tuple[SignalCli, SignalDaemon]]:
    """Provide a messenger that notices a silence soon; it waits for answers very long."""
    bounds = replace(BOUNDS, look=LOOK_SECONDS)
    async with signal_cli(folder) as side, running(side, bounds=bounds) as messenger:
        side.groups[TEAM.value] = Group("Team", members={ADA.aci: ADA})
        yield side, messenger


async def asked(side: SignalCli, method: str, times: int = 1) -> None:
    """Wait until signal-cli was asked something, whether it listened or not."""
    await Receiver().until(lambda: side.asked.count(method) >= times)


async def passed_over(messenger: SignalDaemon, chat: ChatId = CHAT, *files: Attachment) -> None:
    with pytest.raises(SignalPassedOver):
        await messenger.send(chat, "hello", attachments=files)


@pytest.mark.parametrize("chat", [CHAT, TEAM], ids=["person", "group"])
@pytest.mark.parametrize("files", [(), (PICTURE,)], ids=["text", "file"])
async def test_a_send_made_in_a_silence_ends_soon_after_it(
    tmp_path: Path, chat: ChatId, files: tuple[Attachment, ...]
) -> None:
    async with looking(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
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

    async with looking(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
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


async def test_an_answer_to_a_request_that_was_never_made_passes_nothing_over(
    tmp_path: Path,
) -> None:
    async with looking(tmp_path) as (side, messenger), asyncio.TaskGroup() as tasks:
        side.silent = True
        sending = tasks.create_task(passed_over(messenger))
        await asked(side, "version", times=2)
        for number in (999_999, 10**30, -1, 0):
            await side.push_line(b'{"jsonrpc":"2.0","id":%d,"result":{}}' % number)
        await asked(side, "version", times=8)
        assert not sending.done()
        side.silent = False


async def test_last_messages_of_an_ended_server_are_read_even_after_a_write(tmp_path: Path) -> None:
    path = str(tmp_path / "signal.sock")
    heard: list[object] = []
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(path)
        server.listen()
        async with JsonRpcConnection.connect(
            f"unix:{path}", lambda _, params: heard.append(params)
        ) as connection:
            peer, _ = server.accept()
            frames = ({"method": "receive", "params": number} for number in range(100))
            peer.sendall(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
            peer.close()
            with pytest.raises(SignalTimeout):
                await connection.call("send", {}, seconds=1.0)
            await connection.lost.wait()
    assert heard == list(range(100))


# The look-alike of signal-cli


@pytest.mark.parametrize(("line", "expected"), EXCHANGES)
async def test_the_look_alike_answers_as_the_real_one(
    tmp_path: Path, line: str, expected: object
) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await check_exchange(str(side.path), line, expected)
