"""The most verbose log reveals nothing about people: whole conversations with the daemon.

All secrets are marked: words, names, numbers, ids, keys and codes. None of them is in the output,
in any disguise.
"""

import asyncio
import json
import os
import re
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Final

import apsw
import pytest

from bot.signal.events import Person
from conversation_store.models import ChatId, Quote
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.disguises import disguises, found_in
from tests.e2e.running_bot import World, world
from tests.fakes.json_rpc_server import Refusal
from tests.fakes.openai_server import (
    Step,
    cut,
    held,
    raw_body,
    script,
    sse,
    status,
    text,
    tool_calls,
    transcript,
)
from tests.fakes.signal_side import ADA, BOT, IDENTITY_KEY, Sent, SharedFile
from tests.unit.test_media import picture

ROOT: Final = Path(__file__).parents[2]
BEN: Final = Person(
    aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Bartholomew"
)
STRANGER: Final = Person(
    aci="5e4d3c2b-1111-4222-8333-444455556666", number="+33612345678", name="Mélusine"
)
GROUP: Final = "c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2U="
WORD: Final = "sésame🗝"
API_KEY: Final = "sk-Zanzibar0815"
STORE_KEY: Final = "Lighthouse-4711"
MCP_TOKEN: Final = "Xylophone-42"
CODE: Final = re.compile(r"[A-HJKMNP-Z2-9]{6}")
HASH: Final = re.compile(r"[0-9a-f]{8}")

SECRETS: Final = (
    *(str(person.aci) for person in (ADA, BEN, STRANGER, BOT)),
    *(str(person.number) for person in (ADA, BEN, STRANGER, BOT)),
    *(str(person.name) for person in (ADA, BEN, STRANGER)),
    *(str(ChatId.direct(person.aci)) for person in (ADA, BEN)),
    GROUP, WORD, "sésame", API_KEY, STORE_KEY, MCP_TOKEN, IDENTITY_KEY.hex(),
    "Traceback", "file-",
)  # fmt: skip


def talkative(here: World) -> dict[str, str]:
    """Return the settings of a bot that uses every feature and logs as much as possible."""
    return environment(
        here,
        ACCESS__POLICY="pairing",
        ACCESS__ADMINS=ADA.aci,
        BOT__ACK_REACTION="true",
        BOT__PROFILE_NAME=WORD,
        BOT__READ_RECEIPTS="true",
        LLM__API_KEY=API_KEY,
        LLM__TRANSCRIPTION_MODEL="whisper-1",
        LLM__VISION="on",
        LOG__LEVEL="debug",
        MCP__SERVERS__NOTES__COMMAND=f"{sys.executable} -m tests.fakes.mcp_notes {WORD}",
        MCP__SERVERS__NOTES__ENV__PYTHONPATH=str(ROOT),
        MCP__SERVERS__AWAY__URL="http://127.0.0.1:9/mcp",
        MCP__SERVERS__AWAY__TOKEN=MCP_TOKEN,
        PYTHONASYNCIODEBUG="1",
        PYTHONDEVMODE="1",
        PYTHONPATH=str(ROOT),
        SIGNAL__DATA_DIR=str(here.signal.data_dir),
        STORE__KEY=STORE_KEY,
        TOOLS__WEATHER__FORECAST_URL="http://127.0.0.1:9/forecast",
        TOOLS__WEATHER__GEOCODING_URL="http://127.0.0.1:9/search",
        TOOLS__MAX_TOOL_CALLS="20",
    )


@pytest.mark.full
@pytest.mark.long
async def test_the_log_of_whole_conversations_tells_nothing_of_them() -> None:
    async with world(text(f"{WORD} **and** `code`")) as here:
        here.signal.data_dir = here.folder / "signal-cli"
        here.model.transcription_handler = transcript(f"spoken {WORD}")
        settings = talkative(here)
        module = "tests.e2e.clumsy_bot"
        anew = ("env",)
        async with daemon(settings, folder=here.folder, module=module, through=anew) as bot:
            await bot.event("mcp.connected")
            secrets = [await _pair(here), await _send_files(here)]
            await _change_words(here, bot)
            await _talk_in_a_group(here)
            await _use_tools(here)
            await _have_the_model_fail(here)
            await _send_what_is_broken(here, bot)
            secrets += await _change_key(here)
            await _command(here)
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
    lines = [json.loads(line) for line in bot.stderr]
    assert {line["event"] for line in lines} >= {
        "app.uncaught", "identity.trusted", "identity.untrusted", "intake.not_admitted",
        "library.warning", "llm.retry", "media.not_read", "outbox.will_retry", "outbox.withdrawn",
        "pairing.code_given", "pairing.let_in", "tool.bug", "turn.began", "turn.failed",
        "turn.finished", "withheld",
    }  # fmt: skip
    assert leaks(bot, *secrets) == []
    named = {line["chat"] for line in lines if line["event"] == "turn.began"}
    assert len(named) == 3  # two chats and a group can be followed, whosesoever they are
    for event in ("outbox.will_retry", "tool.bug", "turn.failed", "turn.finished"):
        assert {line["chat"] for line in lines if line["event"] == event} <= named


def leaks(bot: Daemon, *secrets: str) -> list[str]:
    said = [json.loads(line) if line.startswith("{") else line for line in bot.stderr]
    bare = [_without_chance(line) if isinstance(line, dict) else line for line in said]
    as_written = "\n".join(json.dumps(line) for line in bare)
    as_meant = "\n".join(map(str, bare))
    return [
        form for secret in (*SECRETS, *secrets) for form in found_in(as_written + as_meant, secret)
    ]


def _without_chance(line: dict[str, object]) -> dict[str, object]:
    """Remove times and hashes, which may contain the letters of a short name by chance."""
    hashes = {key for key in ("chat", "person") if HASH.fullmatch(str(line.get(key)))}
    return {key: value for key, value in line.items() if key not in hashes | {"timestamp"}}


async def test_failing_store_is_reported_without_its_contents() -> None:
    async with world() as here:
        settings = environment(here, LOG__LEVEL="debug")
        async with daemon(settings, folder=here.folder) as bot:
            await bot.event("signal.connected")
            _refuse_rows(here.folder / "store.db", WORD)
            await here.signal.say(f"{WORD} {BEN.number}")
            assert await bot.exit_code() == 1
    [bug] = bot.events("app.bug")
    assert bug["error"] == "ConstraintError"
    assert leaks(bot) == []


def _refuse_rows(path: Path, words: str) -> None:
    """Make the store refuse writes in words that quote them."""
    database = apsw.Connection(str(path))
    database.set_busy_timeout(5_000)
    database.execute(
        "CREATE TRIGGER refuse BEFORE INSERT ON inbox BEGIN"
        f" SELECT RAISE(FAIL, '{words} {BEN.number}'); END"
    )
    database.close()


async def test_a_log_that_cannot_be_written_costs_no_answer_and_is_no_failure() -> None:
    async with world() as here:
        full = os.open("/dev/full", os.O_WRONLY)
        bot = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "bot", "run"),
            stderr=full,
            env=environment(here, PATH=os.environ["PATH"]),
            cwd=here.folder,
        )
        os.close(full)
        try:
            await here.signal.say("hello")
            assert (await here.answer()).text.endswith("hello")
        finally:
            bot.terminate()
            code = await bot.wait()
    assert code == 0


@pytest.mark.parametrize("secret", [WORD, BEN.aci, str(BEN.number), GROUP, API_KEY])
@pytest.mark.parametrize("before", ["", "a", "ab"])
def test_no_disguise_of_a_secret_is_overlooked(secret: str, before: str) -> None:
    for form in disguises(before + secret):
        assert found_in(f"{form} and more", before + secret)


async def _pair(here: World) -> str:
    await here.signal.say(f"{WORD}, let me in", author=BEN)
    code = CODE.search((await here.answer()).text.partition("\n\n")[2])
    assert code is not None
    await here.signal.say(f"!pair {code[0]}")
    await here.signal.wait_for(lambda sent: "You can talk to me now" in sent.text)
    return code[0]


async def _send_files(here: World) -> str:
    files = [
        SharedFile("image/jpeg", picture(), name=f"{WORD}.jpg"),
        SharedFile("image/jpeg", b"no image", name=f"{WORD}.jpg"),
        SharedFile("text/plain", WORD.encode(), name=f"{WORD}.txt"),
        SharedFile("application/pdf", b"%PDF-" + WORD.encode(), name=f"{WORD}.pdf"),
        SharedFile("audio/ogg", b"OggS" + WORD.encode(), voice_note=True),
        SharedFile("video/mp4", b"film", name=f"{WORD}.mp4"),
    ]
    await here.signal.say(WORD, author=BEN, files=files)
    await here.signal.wait_for(lambda sent: f"spoken {WORD}" in sent.text)
    return "spoken"


async def _change_words(here: World, bot: Daemon) -> None:
    question = await here.signal.say(f"{WORD} one", author=BEN, expires_seconds=600)
    old = await here.signal.wait_for(lambda sent: sent.text == f"{WORD} and code")
    await here.signal.edit(f"{WORD} two", question, author=BEN)
    await here.signal.wait_for(lambda sent: sent.replaces == old.timestamp)

    never = asyncio.Event()
    answered, here.model.handler = here.model.handler, held(never)
    asked = len(here.model.requests)
    running = await here.signal.say(f"{WORD} three", author=BEN)
    await here.model.wait_for_requests(asked + 1)
    await here.signal.delete(running, author=BEN)
    here.model.handler = answered

    async def refuse(_: Sent) -> None:
        raise Refusal(-32603, f"{WORD} {BEN.number}")

    here.signal.on_send = refuse
    unsent = await here.signal.say(f"{WORD} four", author=BEN)
    await bot.event("outbox.will_retry")
    await here.signal.delete(unsent, author=BEN)
    await bot.event("outbox.withdrawn")
    here.signal.on_send = None


async def _talk_in_a_group(here: World) -> None:
    await here.signal.change_group(GROUP, members=[BEN], admins=[ADA.aci])
    overheard = await here.signal.say(f"{WORD} to others", author=BEN, group=GROUP)
    await here.signal.edit(f"{WORD} to all", overheard, author=BEN, group=GROUP)
    here.model.handler = tool_calls(("calculate", {"expression": "127*43"}))
    quote = Quote(overheard, BEN.aci, f"{WORD} to others")
    await here.signal.say(WORD, group=GROUP, mention=True, quote=quote)
    await here.signal.wait_for(lambda sent: sent.chat.is_group and "calculate" in sent.text)
    here.model.handler = text(WORD)
    await here.signal.wait_for(lambda sent: sent.chat.is_group and sent.text == WORD)
    await here.signal.delete(overheard, author=ADA, group=GROUP, target_author=BEN)


async def _use_tools(here: World) -> None:
    """Call every tool whose errors may quote its input, and one that asks first."""
    here.model.handler = script(
        tool_calls(
            ("stumble", {"words": WORD}),
            ("stumble", {"words": f"{WORD} {BEN.number} {BEN.aci}"}),
            ("get_weather", {"place": WORD}),
            ("web_fetch", {"url": f"http://127.0.0.1:9/{WORD}"}),
            ("calculate", f"{{broken {WORD}"),
            (f"no_{WORD}", {WORD: WORD}),
        ),
        tool_calls(("notes_write", {"text": WORD}), ("notes_read", {})),
        text(f"{WORD} done"),
    )
    await here.signal.say(f"{WORD} tools", author=BEN)
    for words in ("127.0.0.1", "Write a note"):
        asked = await here.signal.wait_for(partial(_asks, words))
        await here.signal.react("👍", asked.timestamp, author=BEN)
    await here.signal.wait_for(lambda sent: sent.text == f"{WORD} done")
    here.model.handler = text(WORD)


def _asks(words: str, sent: Sent) -> bool:
    return sent.text.startswith("❓") and words in sent.text


async def _have_the_model_fail(here: World) -> None:
    """Make the endpoint fail, and quote the request with its key."""
    quoting = {"error": {"message": f"{WORD} {BEN.number} {API_KEY}", "code": WORD, "type": WORD}}
    failing: tuple[Step, ...] = (
        status(400, quoting),
        status(401, quoting),
        status(403, f"<p>{WORD} {API_KEY}", {"X-Echo": API_KEY}),
        raw_body(f"{WORD} {API_KEY}".encode(), content_type="application/json"),
        sse(quoting),
        sse(f"{{broken {WORD}"),
        sse({"choices": [{"delta": {"content": f"{WORD} half"}}]}, done=False, cut=True),
        text("", finish_reason=WORD),
    )
    for step in failing:
        here.model.handler = step
        await _answered(here, f"{WORD} fails", author=BEN)
    here.model.handler = script(status(503, quoting, {"Retry-After": "0"}), cut, text(WORD))
    await _answered(here, f"{WORD} again", author=BEN)
    here.model.handler = text(WORD)


async def _send_what_is_broken(here: World, bot: Daemon) -> None:
    """Send unreadable frames, and messages of a person who may not write."""
    envelope = {"sourceUuid": BEN.aci, "sourceNumber": BEN.number, "sourceName": BEN.name}
    frames: tuple[object, ...] = (
        {"envelope": envelope | {"timestamp": WORD, "dataMessage": {"message": WORD}}},
        {"envelope": envelope | {"timestamp": 1, "dataMessage": {"message": [WORD]}}},
        {"envelope": envelope | {"timestamp": 1, "dataMessage": WORD}},
        {"envelope": WORD, "account": BEN.number},
        {"exception": {"message": WORD, "type": WORD}, "envelope": envelope},
        WORD,
    )
    for frame in frames:
        await here.signal.push({"account": here.signal.account.number, "frame": frame})
        if isinstance(frame, dict):
            await here.signal.push(frame)
    await here.signal.push_line(f"{{broken {WORD} {BEN.number}\n".encode())
    await here.signal.push_line(b"\xff\xfe" + WORD.encode("utf-16-le") + b"\n")
    await here.signal.say(f"{WORD}, who is there?", author=STRANGER)
    await bot.event("pairing.code_given", times=2)


async def _command(here: World) -> None:
    """Send every command with words, and some unknown ones."""
    names = "help tools models status verify trust pair stop clear nothing"
    for command in (*names.split(), WORD):
        await _answered(here, f"!{command} {WORD} {BEN.number}", author=ADA)
    await here.signal.wait_for(
        lambda sent: (sent.chat, sent.text) == (ChatId.direct(ADA.aci), WORD)
    )


async def _answered(here: World, words: str, *, author: Person) -> None:
    before = len(here.signal.sent)
    await here.signal.say(words, author=author)
    await here.signal.until(lambda: len(here.signal.sent) > before)


async def _change_key(here: World) -> list[str]:
    number = await here.signal.change_identity(BEN)
    await here.signal.say(f"{WORD} five", author=BEN)
    note = await here.signal.wait_for(lambda sent: "new safety number" in sent.text)
    code = CODE.search(note.text.partition("!trust ")[2])
    assert code is not None
    await here.signal.say(f"!trust {code[0]}")
    await here.signal.wait_for(lambda sent: sent.text == WORD and not sent.chat.is_group)
    return [code[0], number, number[:5]]
