"""Lines to signal-cli's daemon and the answers of the real one; its look-alike gives the same."""

import asyncio
import json
from typing import Any, Final
from unittest.mock import ANY

ANSWER_SECONDS: Final = 10.0


def request(method: object, **params: object) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": "7", "method": method, "params": params})


METHODS: Final = (
    "getAttachment",
    "listGroups",
    "quitGroup",
    "remoteDelete",
    "sendMessageRequestResponse",
    "sendReaction",
    "sendReceipt",
    "sendTyping",
    "trust",
    "updateGroup",
    "updateProfile",
)
"""All exist: the error is about the account. An unknown method gives -32601."""

EXCHANGES: Final[list[tuple[str, object]]] = [
    *((request(method, account="+4915299999999"), -32602) for method in METHODS),
    (request("version"), {"version": ANY}),
    ('{"jsonrpc":"2.0","id":7,"method":"version","params":null}', {"version": ANY}),
    ('{"jsonrpc":"2.0","id":null,"method":"version"}', {"version": ANY}),
    ("x", -32700),
    ("null", -32600),
    ("3", -32600),
    ("[]", -32600),
    ("{}", -32600),
    ('{"jsonrpc":"2.0","id":7}', -32600),
    ('{"jsonrpc":"2.0","id":7,"method":"version","params":[]}', -32600),
    (request("noSuchMethod"), -32601),
    (request(5), -32601),
    (request("send", account="+4915299999999", recipient="x", message="x"), -32602),
    (request("listIdentities", account="+4915299999999", number="+4915299999999"), -32602),
    (request("listDevices", account="+4915299999999"), -32602),
    (request("subscribeReceive", account="+4915299999999"), -32602),
    (request("unsubscribeReceive", subscription=4711), -1),
]


async def ask(socket: str, line: str) -> Any:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        writer.write(line.encode() + b"\n")
        async with asyncio.timeout(ANSWER_SECONDS):
            return json.loads(await reader.readline())
    finally:
        writer.close()
        await writer.wait_closed()


async def check_exchange(socket: str, line: str, expected: object) -> None:
    """Assert that a line is answered by the expected result or error code, under its own id."""
    answer = await ask(socket, line)
    found = answer["error"]["code"] if "error" in answer else answer["result"]
    assert found == expected, line
    sent = {} if expected == -32700 else json.loads(line)
    assert answer["id"] == (sent.get("id") if isinstance(sent, dict) else None), line
