"""A process that looks like a model's endpoint: HTTP/1.1 keep-alive, answers streamed as events.

    python -m benchmarks.model_side --delay-seconds 1 --calculate

With `--calculate` it first asks for one calculation and then answers, if the result is right. With
`--obey` it runs the command that a message consists of, if it begins with `RUN `. With
`--tokens 300 --token-seconds 0.005` it answers in so many tokens, each in a write of its own.
"""

import argparse
import asyncio
import json
import re
from functools import partial
from typing import Any, Final, cast

from benchmarks.control import Json, obey

ANSWER: Final = "It is mild there, with some rain and a good deal of sun."
EXPRESSION: Final = "127 * 43"
RESULT: Final = "5461"
WRONG_RESULT: Final = "The calculator is wrong."
BACKLOG: Final = 2048
ORDER: Final = re.compile("RUN (.*)", re.DOTALL)
COMMAND_SECONDS: Final = 4
EXIT: Final = "exit code"
LENGTH: Final = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)
USAGE: Final = {"prompt_tokens": 8_000, "completion_tokens": 15, "total_tokens": 8_015}
"""As many as the bot's tools take; with fewer, the bot would suspect that they were dropped."""

Deltas = tuple[dict[str, Any], ...]


HEAD: Final = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)


def _streamed(deltas: Deltas, finish_reason: str) -> tuple[bytes, ...]:
    """A whole HTTP response: its head, then each event in a chunk of its own, then its end."""
    choices: list[Json] = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    choices.append({"index": 0, "delta": {}, "finish_reason": finish_reason})
    events: list[Json] = [_event([choice]) for choice in choices]
    events.append({**_event([]), "usage": USAGE})
    lines = [*(json.dumps(event) for event in events), "[DONE]"]
    return (HEAD, *(_chunk(f"data: {line}\n\n".encode()) for line in lines), _chunk(b""))


def _event(choices: list[Json]) -> Json:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
    return {**head, "choices": choices}


def _chunk(payload: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(payload), payload)


def _words(text: str) -> tuple[bytes, ...]:
    pieces = tuple({"content": piece} for piece in re.findall(r"\S+\s*", text))
    return _streamed(({"role": "assistant", "content": ""}, *pieces), "stop")


def _call(tool: str, arguments: Json) -> tuple[bytes, ...]:
    function = {"name": tool, "arguments": json.dumps(arguments)}
    call = {"index": 0, "id": "call_1", "type": "function", "function": function}
    opening = {"role": "assistant", "content": None}
    return _streamed((opening, {"tool_calls": [call]}), "tool_calls")


def _whole(value: Json) -> bytes:
    body = json.dumps(value).encode()
    head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    return head % len(body) + body


MODELS: Final = _whole({"object": "list", "data": [{"id": "bench", "object": "model"}]})
WORDS: Final = _words(ANSWER)
COMPLAINT: Final = _words(WRONG_RESULT)
CALL: Final = _call("calculate", {"expression": EXPRESSION})


class ModelSide(asyncio.Protocol):
    """One connection.

    Args:
        delay_seconds: before each answer.
        calculate: ask for a calculation first.
        obey: run the command that a message asks for.
        words: the answer.
        token_seconds: between two pieces of an answer; 0 sends it in one write.
    """

    def __init__(
        self,
        delay_seconds: float,
        *,
        calculate: bool,
        obey: bool = False,
        words: tuple[bytes, ...] = WORDS,
        token_seconds: float = 0.0,
    ) -> None:
        self._delay_seconds = delay_seconds
        self._calculate = calculate
        self._obey = obey
        self._words = words
        self._token_seconds = token_seconds
        self._received = b""
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The bot has connected."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Answer the request once it is complete."""
        self._received += data
        head, blank, body = self._received.partition(b"\r\n\r\n")
        length = LENGTH.search(head)
        if not blank or (length and len(body) < int(length[1])):
            return
        self._received = b""
        if head.startswith(b"GET"):
            self._write((MODELS,))
        elif self._delay_seconds:
            loop = asyncio.get_running_loop()
            loop.call_later(self._delay_seconds, partial(self._write, self._answer(body)))
        else:
            self._write(self._answer(body))

    def _answer(self, body: bytes) -> tuple[bytes, ...]:
        if self._obey:
            return self._obedient(body)
        if not self._calculate:
            return self._words
        last = json.loads(body)["messages"][-1]
        if last["role"] != "tool":
            return CALL
        return WORDS if RESULT in last["content"] else COMPLAINT

    def _obedient(self, body: bytes) -> tuple[bytes, ...]:
        last = json.loads(body)["messages"][-1]
        if last["role"] == "user" and (command := ORDER.search(last["content"])):
            call = {"command": command[1], "timeout_seconds": COMMAND_SECONDS}
            return _call("run_command", call)
        if last["role"] == "tool" and EXIT not in last["content"]:
            raise SystemExit(f"The command was not run: {last['content']}")
        return self._words

    def _write(self, answer: tuple[bytes, ...]) -> None:
        if self._transport is None:
            return
        if not self._token_seconds:
            self._transport.write(b"".join(answer))
            return
        self._transport.write(answer[0])
        if answer[1:]:
            loop = asyncio.get_running_loop()
            loop.call_later(self._token_seconds, self._write, answer[1:])


async def _carry_out(command: Json) -> Json:
    raise SystemExit(f"The model knows no command: {command}")


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--delay-seconds", type=float, default=0.0)
    parser.add_argument("--calculate", action="store_true")
    parser.add_argument("--obey", action="store_true")
    parser.add_argument("--tokens", type=int, default=0)
    parser.add_argument("--token-seconds", type=float, default=0.0)
    chosen = parser.parse_args()
    words = _words("word " * chosen.tokens + ANSWER)
    server = await asyncio.get_running_loop().create_server(
        lambda: ModelSide(
            chosen.delay_seconds,
            calculate=chosen.calculate,
            obey=chosen.obey,
            words=words,
            token_seconds=chosen.token_seconds,
        ),
        "127.0.0.1",
        0,
        backlog=BACKLOG,
    )
    async with server:
        await obey(_carry_out, ready={"port": server.sockets[0].getsockname()[1]})


if __name__ == "__main__":
    asyncio.run(main())
