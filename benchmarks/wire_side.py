"""The wire without a bot: takes a frame, asks the model, sends its words. Stores nothing.

Its time is the price of the sockets, the processes and the machine's present load. The bot's time
beyond that is the price of the bot.

    python -m benchmarks.wire_side unix:/path/to/socket http://127.0.0.1:PORT/v1
"""

import asyncio
import json
import sys
from urllib.parse import urlsplit

END = b"data: [DONE]"


async def main(signal_url: str, base_url: str) -> None:
    model = urlsplit(base_url)
    frames, sends = await asyncio.open_unix_connection(signal_url.removeprefix("unix:"))
    answers, questions = await asyncio.open_connection(model.hostname, model.port)
    print("{}", flush=True)  # both connections stand
    while line := await frames.readline():
        frame = json.loads(line)
        if "method" not in frame:
            continue  # the answer to a send
        envelope = frame["params"]["result"]["envelope"]
        text = envelope["dataMessage"]["message"]
        body = {"model": "wire", "stream": True, "messages": [{"role": "user", "content": text}]}
        questions.write(_post(f"{model.path}/chat/completions", json.dumps(body).encode()))
        stream = b""
        while END not in stream:
            stream += await answers.read(65_536)
        params = {"recipient": [envelope["sourceUuid"]], "message": _words(stream)}
        send = {"jsonrpc": "2.0", "method": "send", "params": params, "id": 1}
        sends.write(json.dumps(send).encode() + b"\n")


def _post(path: str, body: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: wire\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _words(stream: bytes) -> str:
    events = [line[6:] for line in stream.split(b"\n") if line.startswith(b"data: {")]
    choices = [choice for event in events for choice in json.loads(event)["choices"]]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
