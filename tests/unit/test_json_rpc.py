"""A connection to signal-cli at its end."""

import json
import socket
from contextlib import closing
from pathlib import Path

import pytest

from bot.signal.errors import SignalTimeout
from bot.signal.json_rpc import JsonRpcConnection

MESSAGES = 100


async def test_last_messages_of_an_ended_server_are_read_even_after_a_write(
    tmp_path: Path,
) -> None:
    path = str(tmp_path / "signal.sock")
    heard: list[object] = []
    with closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(path)
        server.listen()
        async with JsonRpcConnection.connect(
            f"unix:{path}", lambda _, params: heard.append(params)
        ) as connection:
            peer, _ = server.accept()
            frames = ({"method": "receive", "params": number} for number in range(MESSAGES))
            peer.sendall(b"".join(json.dumps(frame).encode() + b"\n" for frame in frames))
            peer.close()
            with pytest.raises(SignalTimeout):
                await connection.call("send", {}, seconds=1.0)
            await connection.lost.wait()
    assert heard == list(range(MESSAGES))
