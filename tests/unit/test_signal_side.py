"""The look-alike of signal-cli against what the real one was seen to do."""

import asyncio
import copy
import json
from pathlib import Path
from typing import Any, Final

import pytest

from bot.demo.json_rpc_server import Json
from bot.demo.signal_side import BOT, SignalSide
from bot.messaging.account import Attachment
from bot.messaging.events import Person
from bot.messaging.json_rpc import JsonRpcConnection, JsonRpcError
from tests.contract.signal_cli_protocol import EXCHANGES, check_batch, check_exchange
from tests.fakes.signal_cli import FIXTURE_ACCOUNT

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


async def test_every_subscriber_gets_what_was_kept(tmp_path: Path) -> None:
    frames: asyncio.Queue[object] = asyncio.Queue()

    def receive(_method: object, params: object) -> None:
        frames.put_nowait(params)

    async with SignalSide.listen(tmp_path / "socket") as side:
        await side.say("kept")
        async with (
            JsonRpcConnection.connect(str(side.path), receive, lambda: None) as first,
            JsonRpcConnection.connect(str(side.path), receive, lambda: None) as second,
        ):
            await first.call("subscribeReceive", {}, seconds=5.0)
            await frames.get()
            await second.call("subscribeReceive", {}, seconds=5.0)
            await side.say("for both")
            await frames.get()
            await frames.get()
            assert frames.empty()


@pytest.mark.parametrize("method", ["sendTyping", "sendReaction", "sendReceipt"])
async def test_what_a_bot_may_do_besides_writing_is_accepted(tmp_path: Path, method: str) -> None:
    async with (
        SignalSide.listen(tmp_path / "socket") as side,
        JsonRpcConnection.connect(str(side.path), lambda *_: None, lambda: None) as connection,
    ):
        answer = await connection.call(method, {"recipient": ["x"]}, seconds=5.0)
        assert answer["results"][0]["type"] == "SUCCESS"


async def test_what_people_answer_looks_as_signal_cli_shows_it(tmp_path: Path) -> None:
    frames: asyncio.Queue[Json] = asyncio.Queue()

    def receive(_method: object, params: object) -> None:
        assert isinstance(params, dict)
        frames.put_nowait(params["result"])

    async with (
        SignalSide.listen(tmp_path / "socket", account=FIXTURE_ACCOUNT) as side,
        JsonRpcConnection.connect(str(side.path), receive, lambda: None) as connection,
    ):
        await connection.call("subscribeReceive", {}, seconds=5.0)
        params = {"recipient": ["x"], "message": "Did you mean A?"}
        question = (await connection.call("send", params, seconds=5.0))["timestamp"]
        replied = await side.say("no, the other one", quote=question, author=ADA)
        added = await side.react("👍", question, author=ADA)
        removed = await side.react("👍", question, author=ADA, removed=True)
        in_group = await side.react("👍", question, author=ADA, group=GROUP)
        received = [await frames.get() for _ in range(4)]
    assert received == [
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
    async with JsonRpcConnection.connect(str(path), lambda *_: None, lambda: None) as connection:
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
