"""The look-alike of signal-cli against what the real one was seen to do."""

import asyncio
import copy
import json
from pathlib import Path
from typing import Final

import pytest

from bot.signal.events import Person
from bot.signal.json_rpc import JsonRpcConnection
from tests import signal_frames
from tests.contract.signal_cli_protocol import EXCHANGES, check_batch, check_exchange
from tests.fakes.json_rpc_server import Json
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_side import SignalSide
from tests.signal_frames import FRAMES, PHONE

ADA: Final = Person(signal_frames.ADA, PHONE, "Ada")
GROUP: Final = signal_frames.GROUP.value


@pytest.mark.parametrize(("line", "expected"), EXCHANGES)
async def test_the_look_alike_answers_as_the_real_one(
    tmp_path: Path, line: str, expected: object
) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await check_exchange(str(side.path), line, expected)


async def test_a_batch_is_answered_at_once(tmp_path: Path) -> None:
    async with SignalSide.listen(tmp_path / "socket") as side:
        await check_batch(str(side.path))


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
