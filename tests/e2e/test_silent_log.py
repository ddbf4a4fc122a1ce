"""A log at its most talkative tells nothing of what guests do: the whole of it, in one process."""

import asyncio
import json
import re
import signal
from typing import Final

from bot.demo.json_rpc_server import Refusal
from bot.demo.signal_side import ADA, BOT, Sent, SharedFile
from bot.messaging.events import Person
from bot.messaging.messenger import Quote
from tests.e2e.daemon_process import Daemon, daemon, environment
from tests.e2e.running_bot import World, world
from tests.fakes.openai_server import held, text, tool_calls, transcript
from tests.unit.test_media import picture

BEN: Final = Person(
    aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Bartholomew"
)
GROUP: Final = "c2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2VzYW1lc2U="
WORD: Final = "sesame"
CODE: Final = re.compile(r"[A-HJKMNP-Z2-9]{6}")


async def test_the_log_tells_nothing_of_edits_files_groups_codes_and_keys() -> None:
    async with world(text(f"{WORD} **and** `code`")) as here:
        here.signal.data_dir = here.folder / "signal-cli"
        here.model.transcription_handler = transcript(f"spoken {WORD}")
        settings = environment(
            here,
            ACCESS__POLICY="pairing",
            ACCESS__ADMINS=ADA.aci,
            BOT__ACK_REACTION="true",
            BOT__PROFILE_NAME=WORD,
            BOT__READ_RECEIPTS="true",
            LLM__TRANSCRIPTION_MODEL="whisper-1",
            LLM__VISION="on",
            LOG__LEVEL="debug",
            SIGNAL__DATA_DIR=str(here.signal.data_dir),
        )
        async with daemon(settings, folder=here.folder) as bot:
            secrets = [await _pair(here), await _send_files(here)]
            await _change_words(here, bot)
            await _talk_in_a_group(here)
            secrets += await _change_key(here)
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code() == 0
        lines = [json.loads(line) for line in bot.stderr]
    log = "\n".join(str(line | {"timestamp": ""}) for line in lines)
    assert {line["event"] for line in lines} >= {
        "identity.trusted", "identity.untrusted", "outbox.will_retry", "outbox.withdrawn",
        "pairing.code_given", "pairing.let_in", "media.not_read",
    }  # fmt: skip
    people = (ADA.aci, str(ADA.number), str(ADA.name), BEN.aci, str(BEN.number), str(BEN.name))
    own = (str(BOT.aci), BOT.number, GROUP, WORD, "file-", "Traceback")
    for secret in (*people, *own, *secrets):
        assert secret not in log


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


async def _change_key(here: World) -> list[str]:
    number = await here.signal.change_identity(BEN)
    await here.signal.say(f"{WORD} five", author=BEN)
    note = await here.signal.wait_for(lambda sent: "new safety number" in sent.text)
    code = CODE.search(note.text.partition("!trust ")[2])
    assert code is not None
    await here.signal.say(f"!trust {code[0]}")
    await here.signal.wait_for(lambda sent: sent.text == WORD and not sent.chat.is_group)
    return [code[0], number, number[:5]]
