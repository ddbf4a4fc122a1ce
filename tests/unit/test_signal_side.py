"""The look-alike of signal-cli against what the real one was seen to do."""

import asyncio
from pathlib import Path

import pytest

from bot.demo.signal_side import SignalSide
from bot.messaging.json_rpc import JsonRpcConnection
from tests.contract.signal_cli_protocol import EXCHANGES, check_batch, check_exchange


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


async def test_a_reply_to_the_bot_quotes_its_last_message(tmp_path: Path) -> None:
    frames: asyncio.Queue[object] = asyncio.Queue()
    async with (
        SignalSide.listen(tmp_path / "socket") as side,
        JsonRpcConnection.connect(
            str(side.path), lambda _, params: frames.put_nowait(params), lambda: None
        ) as connection,
    ):
        await connection.call("subscribeReceive", {}, seconds=5.0)
        params = {"recipient": ["x"], "message": "Did you mean A?"}
        sent = await connection.call("send", params, seconds=5.0)
        await side.say("no, B", quote_bot=True)
        frame = await frames.get()
        assert isinstance(frame, dict)
        quote = frame["result"]["envelope"]["dataMessage"]["quote"]
        assert (quote["id"], quote["text"]) == (sent["timestamp"], "Did you mean A?")
        assert quote["authorUuid"] == side.account.aci
