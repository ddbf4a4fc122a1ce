"""The look-alike of signal-cli against what the real one was seen to do."""

import asyncio
import base64
import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from bot.signal.account import Profile
from bot.signal.events import Person
from bot.signal.json_rpc import JsonRpcConnection, JsonRpcError
from conversation_store.models import Attachment, ChatId, Quote, StyleRange, TextStyle
from tests.contract.signal_cli_protocol import EXCHANGES, check_batch, check_exchange
from tests.fakes.json_rpc_server import Json
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_side import BOT, Reacted, SharedFile, SignalSide

FRAMES: Final[dict[str, Json]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "signal_frames.json").read_text()
)
ADA: Final = Person("7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11", "+4915200000001", "Ada")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="


@pytest.mark.parametrize(("line", "expected"), EXCHANGES)
async def test_the_look_alike_answers_as_the_real_one(
    tmp_path: Path, line: str, expected: object
) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await check_exchange(str(side.path), line, expected)


async def test_a_batch_is_answered_at_once(tmp_path: Path) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await check_batch(str(side.path))


async def test_every_subscriber_gets_the_kept_messages(tmp_path: Path) -> None:
    frames: asyncio.Queue[object] = asyncio.Queue()

    def receive(_method: object, params: object) -> None:
        frames.put_nowait(params)

    async with SignalSide.listen(tmp_path / "socket") as side:
        await side.say("kept")
        async with (
            JsonRpcConnection.connect(f"unix:{side.path}", receive) as first,
            JsonRpcConnection.connect(f"unix:{side.path}", receive) as second,
        ):
            await first.call("subscribeReceive", {}, seconds=5.0)
            await frames.get()
            await second.call("subscribeReceive", {}, seconds=5.0)
            await side.say("for both")
            await frames.get()
            await frames.get()
            assert frames.empty()


async def test_other_requests_of_a_bot_are_noted(tmp_path: Path) -> None:
    chat = ChatId.direct(ADA.aci)
    async with SignalSide.listen(tmp_path / "socket") as side:
        message = await side.say("hello", author=ADA)
        target = {"targetTimestamp": message, "targetAuthor": ADA.aci}
        await ask(side.path, "sendTyping", recipient=[ADA.aci])
        await ask(side.path, "sendTyping", recipient=[ADA.aci], stop=True)
        await ask(side.path, "sendReaction", recipient=[ADA.aci], emoji="👀", **target)
        await ask(side.path, "sendReceipt", recipient=ADA.aci, targetTimestamp=[message])
        await ask(side.path, "remoteDelete", recipient=[ADA.aci], targetTimestamp=7)
        await ask(side.path, "sendMessageRequestResponse", recipient=[ADA.aci], type="accept")
        await ask(side.path, "updateProfile", givenName="Tee")
        await ask(side.path, "updateProfile", about="a bot")
        assert side.typing == [(chat, True), (chat, False)]
        assert side.reactions == [Reacted(chat, "👀", ADA.aci, message)]
        assert side.receipts == [(ADA.aci, (message,))]
        assert side.deleted == [(chat, 7)]
        assert side.accepted_requests == [ADA.aci]
        assert side.profile == Profile("Tee", "a bot")


async def test_styles_and_a_quote_of_a_message_are_read(tmp_path: Path) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await ask(
            side.path,
            "send",
            recipient=[ADA.aci],
            message="so it is",
            textStyle=["0:2:BOLD", "3:2:ITALIC"],
            quoteTimestamp=7,
            quoteAuthor=ADA.aci,
            quoteMessage="is it?",
        )
        sent = await side.next_sent()
        with pytest.raises(JsonRpcError):
            await ask(side.path, "send", recipient=["x"], message="x", textStyle="0:2:LARGE")
    assert sent.styles == (StyleRange(0, 2, TextStyle.BOLD), StyleRange(3, 2, TextStyle.ITALIC))
    assert sent.quote == Quote(7, ADA.aci, "is it?")


async def test_sent_file_stays_until_it_is_deleted(tmp_path: Path) -> None:
    picture = SharedFile("image/png", bytes(range(256)))
    async with SignalSide.listen(tmp_path / "socket", data_dir=tmp_path) as side:
        await side.say(None, files=[picture], view_once=True)
        [file_id] = side.files
        answer = await ask(side.path, "getAttachment", id=file_id, recipient=ADA.aci)
        assert base64.b64decode(answer["data"]) == picture.data
        (tmp_path / "attachments" / file_id).unlink()
        for gone in (file_id, "another"):
            with pytest.raises(JsonRpcError):
                await ask(side.path, "getAttachment", id=gone, recipient=ADA.aci)


async def test_person_with_a_new_key_is_unreachable_until_it_is_trusted(tmp_path: Path) -> None:
    frames: asyncio.Queue[Json] = asyncio.Queue()

    def receive(_method: object, params: object) -> None:
        assert isinstance(params, dict)
        frames.put_nowait(params["result"])

    async with (
        SignalSide.listen(tmp_path / "socket") as side,
        JsonRpcConnection.connect(f"unix:{side.path}", receive) as connection,
    ):
        await connection.call("subscribeReceive", {}, seconds=5.0)
        number = await side.change_identity(ADA)
        said = await side.say("it is me", author=ADA)
        for frame in (await frames.get(), await frames.get()):
            assert frame["exception"]["type"] == "UntrustedIdentityException"
        with pytest.raises(JsonRpcError) as failure:
            await ask(side.path, "send", recipient=[ADA.aci], message="hello")
        assert failure.value.code == -4
        with pytest.raises(JsonRpcError):
            await ask(side.path, "trust", recipient=ADA.aci, verifiedSafetyNumber="0" * 60)
        await ask(side.path, "trust", recipient=ADA.aci, verifiedSafetyNumber=number)
        assert (await frames.get())["envelope"]["timestamp"] == said
        await ask(side.path, "send", recipient=[ADA.aci], message="hello")
        [row] = await ask(side.path, "listIdentities", number=ADA.aci)
        assert (row["safetyNumber"], row["trustLevel"]) == (number, "TRUSTED_VERIFIED")
        assert side.trusted == [(ADA.aci, number)]


async def test_an_invitation_can_be_accepted_and_refused(tmp_path: Path) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await side.change_group(GROUP, admins=[ADA.aci], invited=True)
        [row] = await ask(side.path, "listGroups", groupId=GROUP)
        assert (row["isMember"], len(row["pendingMembers"])) == (False, 1)
        with pytest.raises(JsonRpcError):
            await ask(side.path, "send", groupId=GROUP, message="hello")
        await ask(side.path, "updateGroup", groupId=GROUP)
        await ask(side.path, "send", groupId=GROUP, message="hello")
        await ask(side.path, "quitGroup", groupId=GROUP)
        with pytest.raises(JsonRpcError):
            await ask(side.path, "quitGroup", groupId=GROUP)


async def test_in_an_announcement_group_only_its_admins_write(tmp_path: Path) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await side.change_group(GROUP, only_admins_write=True)
        with pytest.raises(JsonRpcError):
            await ask(side.path, "send", groupId=GROUP, message="hello")
        await side.change_group(GROUP, admins=[str(BOT.aci)])
        await ask(side.path, "send", groupId=GROUP, message="hello")


async def test_replies_of_people_look_as_in_signal_cli(tmp_path: Path) -> None:
    frames: asyncio.Queue[Json] = asyncio.Queue()

    def receive(_method: object, params: object) -> None:
        assert isinstance(params, dict)
        frames.put_nowait(params["result"])

    async with (
        SignalSide.listen(tmp_path / "socket", account=FIXTURE_ACCOUNT) as side,
        JsonRpcConnection.connect(f"unix:{side.path}", receive) as connection,
    ):
        await connection.call("subscribeReceive", {}, seconds=5.0)
        params = {"recipient": ["x"], "message": "Did you mean A?"}
        question = (await connection.call("send", params, seconds=5.0))["timestamp"]
        replied = await side.say("no, the other one", quote=question, author=ADA)
        added = await side.react("👍", question, author=ADA)
        removed = await side.react("👍", question, author=ADA, removed=True)
        in_group = await side.react("👍", question, author=ADA, group=GROUP)
        edited = await side.edit("hello (fixed)", 1795291719387, author=ADA)
        deleted = await side.delete(1795291719387, author=ADA)
        timed = await side.set_timer(3600, author=ADA)
        noted = await side.note_to_self("note")
        received = [await frames.get() for _ in range(8)]
    assert received[:4] == [
        recorded("quote_reply", replied, quote={"id": question}),
        recorded("reaction_add", added, reaction={"targetSentTimestamp": question}),
        recorded("reaction_remove", removed, reaction={"targetSentTimestamp": question}),
        recorded(
            "reaction_add",
            in_group,
            reaction={"targetSentTimestamp": question},
            groupInfo={"groupId": GROUP, "groupName": "Team", "revision": 1, "type": "DELIVER"},
        ),
    ]
    assert [shown(frame) for frame in received[4:]] == [
        shown(at(FRAMES["edit"], edited)),
        shown(at(FRAMES["remote_delete"], deleted)),
        shown(at(FRAMES["timer_update"], timed)),
        shown(at(FRAMES["sync_note_to_self"], noted)),
    ]


def at(frame: Json, timestamp: int) -> Json:
    """A recorded frame as if it came from another time."""
    text = json.dumps(frame).replace("1795291728387", str(timestamp))
    moved: Json = json.loads(text)
    return moved


def shown(frame: Json) -> Json:
    """What a frame tells of an event itself, and to whom."""
    envelope = frame["envelope"]
    parts = ("dataMessage", "editMessage", "syncMessage", "sourceUuid", "timestamp")
    return {"account": frame["account"], **{part: envelope.get(part) for part in parts}}


def recorded(name: str, timestamp: int, **changes: Json) -> Json:
    """A recorded frame of another time, in which some parts of the message are changed."""
    frame: Json = copy.deepcopy(FRAMES[name])
    times = ("timestamp", "serverReceivedTimestamp", "serverDeliveredTimestamp")
    frame["envelope"].update(dict.fromkeys(times, timestamp))
    data = frame["envelope"]["dataMessage"]
    data["timestamp"] = timestamp
    for part, values in changes.items():
        data[part] = data.get(part, {}) | values
    return frame


async def ask(path: Path, method: str, **params: object) -> Any:
    """Make one request of the look-alike and return its answer."""
    async with JsonRpcConnection.connect(f"unix:{path}") as connection:
        return await connection.call(method, params, seconds=5.0)


async def test_the_demo_s_account_has_the_identity_key_of_the_published_vectors(
    tmp_path: Path,
) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        [row] = await ask(side.path, "listIdentities", number=BOT.number)
        [device] = await ask(side.path, "listDevices")
    assert (row["number"], row["uuid"]) == (BOT.number, "9d0652a3-dcc3-4d11-975f-74d61598733f")
    assert row["fingerprint"].startswith("05 06 86 3b")
    assert device["id"] == 1


async def test_a_file_may_go_without_a_text_but_must_be_one(tmp_path: Path) -> None:
    file = Attachment("proof.json", "application/json", b"{}")
    async with SignalSide.listen(tmp_path / "socket") as side:
        await ask(side.path, "send", recipient=["x"], attachment=file.data_uri)
        assert (await side.next_sent()).attachments == (file,)
        for wrong in ("/etc/hostname", "data:text/plain;base64,e30=", file.data_uri + "!"):
            with pytest.raises(JsonRpcError):
                await ask(side.path, "send", recipient=["x"], attachment=wrong)
        assert len(side.sent) == 1
