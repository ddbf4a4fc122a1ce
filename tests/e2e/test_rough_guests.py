"""People and phones at their worst: huge, broken, doubled, out of order, while the bot stops."""

import asyncio
import os
import signal
import time
from typing import Final

import pytest

from bot import app
from bot.signal.events import Person
from bot.signal.formatting import MAX_ANSWER_BYTES, MAX_PART_BYTES
from conversation_store.models import Quote
from tests.e2e.daemon_process import daemon, environment
from tests.e2e.running_bot import World, running_bot, story, world
from tests.e2e.test_files import all_gone, folder_world, left, settings
from tests.e2e.test_media import PHOTO, VOICE_NOTE
from tests.e2e.test_over_rest import guest
from tests.e2e.test_pairing import code_in
from tests.e2e.traces import gone, rows_with
from tests.fakes.json_rpc_server import Json
from tests.fakes.openai_server import Request, echo, held, text, transcript, words_of
from tests.fakes.signal_cli_program import install, starts
from tests.fakes.signal_frames import (
    data_message,
    deletion_frame,
    edit_frame,
    message_frame,
)
from tests.fakes.signal_side import ADA, BOT, Sent, SharedFile
from tests.integration.web_pages import pdf
from tests.unit.test_media import picture

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")
GROUP: Final = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="
HUGE: Final = ("é🙂 word " * 6_000).encode()[: 64 * 1024].decode(errors="ignore")
NOW: Final = 1_795_000_000_000
LAST_MOMENT: Final = 2**63 - 1
GRACE_SECONDS: Final = 0.2
AT_ONCE_SECONDS: Final = 2.0
FORCED: Final = -signal.SIGTERM
LISTENING: Final = {"transcription_model": "whisper"}


def asked(here: World) -> str:
    """The last question to the model."""
    return words_of(here.model.requests[-1]["messages"][-1]["content"])


def to_ada(here: World) -> list[Sent]:
    return [sent for sent in here.signal.sent if sent.chat.value == ADA.aci]


async def goes_on(here: World) -> None:
    """Wait for an answer to another person, which proves that everything before was processed."""
    await here.signal.say("hello", author=BEN)
    await here.signal.wait_for(lambda sent: sent.chat.value == BEN.aci)


def text_of(timestamp: int, words: str, **more: object) -> Json:
    return message_frame(BOT, ADA, data_message(BOT, timestamp, words) | more)


def edit_of(target: int, timestamp: int, words: str) -> Json:
    return edit_frame(BOT, ADA, target, data_message(BOT, timestamp, words))


# Huge ---------------------------------------------------------------------------------------------


async def test_a_short_question_about_a_huge_text_reaches_the_model() -> None:
    async with world() as here:
        here.model.handler = text("It is about words.")
        async with running_bot(here.settings()):
            await here.signal.say(HUGE)
            await here.asked("What is it about?")
    assert asked(here).endswith("What is it about?")
    assert "é🙂 word é🙂 word" in asked(here)


async def test_overheard_messages_leave_room_for_the_question() -> None:
    async with story(llm={"context_tokens": 2_200}) as here:
        for number in range(20):
            await here.signal.say(f"{number} {'chatter ' * 40}", group=GROUP)
        await here.asked("What is it about?", group=GROUP, mention=True)
    assert asked(here).endswith("Ada: What is it about?")
    assert "Ada: 19 chatter" in asked(here)
    assert "Ada: 0 chatter" not in asked(here)


async def test_edits_and_quotes_of_64_kib_are_answered_in_private_and_in_groups() -> None:
    async with story(text("yes")) as here:
        for group in (None, GROUP):
            question = await here.signal.say(HUGE, group=group, mention=True)
            first = await here.answer()
            await here.signal.edit(f"Now: {HUGE}", question, group=group, mention=True)
            second = await here.answer()
            assert second.replaces == first.timestamp
            assert "Now: é🙂 word" in asked(here)
            quote = Quote(question, ADA.aci, HUGE)
            await here.asked("And this?", group=group, mention=True, quote=quote)
            assert asked(here).endswith("…”] And this?")


async def test_an_answer_of_64_kib_comes_in_parts_and_gives_way_to_a_short_one() -> None:
    async def as_asked(request: Request, writer: asyncio.StreamWriter) -> None:
        short = words_of(request.body["messages"][-1]["content"]).endswith("short")
        words = "short" if short else "**bold** `code` 🙂 word\n" * 4_000
        await text(words)(request, writer)

    async with story(as_asked) as here:
        question = await here.signal.say("long")
        await here.signal.wait_for(lambda sent: "ends here" in sent.text)
        parts = list(here.signal.sent)
        edit = await here.signal.edit("short", question)
        answer = await here.signal.wait_for(lambda sent: sent.text == "short")
        await here.signal.until(lambda: len(here.signal.deleted) == len(parts) - 1)
        await here.signal.edit("long", edit)
        await here.signal.until(lambda: len(here.signal.sent) == 2 * len(parts) + 1)
    assert max(len(part.text.encode()) for part in parts) <= MAX_PART_BYTES
    assert sum(len(part.text.encode()) for part in parts) <= MAX_ANSWER_BYTES
    assert answer.replaces == parts[0].timestamp
    assert here.signal.sent[len(parts) + 1].replaces == answer.timestamp


async def test_every_readable_one_of_thirty_files_is_read() -> None:
    files = [
        SharedFile("image/jpeg", picture()),
        SharedFile("application/pdf", pdf("It costs 12 euros."), name="good.pdf"),
        SharedFile("application/pdf", b"%PDF-1.7 broken", name="broken.pdf"),
        VOICE_NOTE,
        SharedFile("image/png", b"\x89PNG\r\n\x1a\n broken"),
        SharedFile("text/plain", b"lost", name="lost.txt"),
        SharedFile("", b"", name="x" * 500),
        *[SharedFile("image/gif", b"GIF89a")] * 23,
    ]
    async with folder_world() as here:
        here.model.transcription_handler = transcript("How far is the moon?")
        llm = {"vision": "on", **LISTENING}
        side = {"data_dir": here.folder / "signal-cli"}
        async with running_bot(here.settings(llm=llm, signal=side)):
            shared = [here.signal.share(file) for file in files]
            del here.signal.files[shared[5]["id"]]
            shared[6]["size"] = 2**70
            await here.signal.push(text_of(NOW, "look", attachments=shared))
            answer = (await here.answer()).text
            await all_gone(here)
    assert answer.splitlines()[:5] == [
        "About “broken.pdf”: This PDF is broken and cannot be read.",
        "🎤 “How far is the moon?”",
        "About the image: This is no image that I can read; I read JPEG, PNG, WebP and GIF.",
        "About “lost.txt”: I could not get it from Signal. Please send it again.",
        f"About “{'x' * 80}”: It is empty.",
    ]
    assert "22 more I left out." in answer
    assert "It costs 12 euros." in asked(here)


# Doubled and out of order -------------------------------------------------------------------------


async def test_second_edit_counts_even_if_it_comes_first() -> None:
    async with story() as here:
        await here.signal.push(text_of(NOW, "first wording"))
        await here.answer()
        await here.signal.push(edit_of(NOW + 1, NOW + 2, "third wording"))
        await here.signal.push(edit_of(NOW, NOW + 1, "second wording"))
        await here.signal.wait_for(lambda sent: sent.text.endswith("third wording"))
        await goes_on(here)
        words = [sent.text.partition("] ")[2] for sent in to_ada(here)]
        await here.signal.push(deletion_frame(BOT, ADA, NOW + 3, NOW))
        await gone(here, "wording")
    assert words == ["first wording", "third wording"]


async def test_a_message_that_comes_after_its_edit_is_not_answered() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        await here.signal.push(edit_of(NOW, NOW + 1, "second wording"))
        await here.answer()
        await here.signal.say("first wording", timestamp=NOW, files=[PHOTO])
        await all_gone(here)
        await goes_on(here)
        assert not rows_with(here, "first wording")
    (answer,) = to_ada(here)
    assert answer.text.endswith("second wording")


async def test_the_file_of_a_message_that_comes_after_its_deletion_leaves_the_folder() -> None:
    async with folder_world() as here, running_bot(settings(here)):
        await here.signal.delete(NOW)
        await here.signal.say("look", timestamp=NOW, files=[PHOTO])
        await goes_on(here)
        await all_gone(here)
    assert to_ada(here) == []


async def test_the_file_of_a_message_that_comes_twice_is_still_seen() -> None:
    release = asyncio.Event()
    async with folder_world() as here, running_bot(settings(here)):
        here.model.handler = held(release)
        await here.let_think("first")
        frame = text_of(NOW, "look", attachments=[here.signal.share(PHOTO)])
        for _ in range(2):
            await here.signal.push(frame)
        await here.let_think("hello", author=BEN, requests=2)
        assert len(left(here)) == 1
        release.set()
        answer = await here.signal.wait_for(lambda sent: "look" in sent.text)
        await all_gone(here)
    assert "an image" in answer.text


# Odd values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("timestamp", [1, NOW * 1_000, LAST_MOMENT])
async def test_phone_with_a_wrong_clock_may_ask_edit_and_delete(
    timestamp: int,
) -> None:
    async with story() as here:
        first = await here.answer_to("wording one", timestamp=timestamp, group=GROUP, mention=True)
        await here.signal.edit("wording two", timestamp, group=GROUP, mention=True)
        second = await here.answer()
        await here.signal.delete(timestamp, group=GROUP)
        await gone(here, "wording")
    assert first.quote is not None
    assert (first.quote.timestamp, second.replaces) == (timestamp, first.timestamp)


@pytest.mark.parametrize("name", [None, "", "\u202e\u0000\n", "x" * 500, "x" * 5_000, 7])
async def test_people_with_a_hidden_number_and_any_name_are_answered(name: object) -> None:
    hidden = {"source": ADA.aci, "sourceNumber": None, "sourceName": name}
    team = {"groupId": GROUP, "type": "DELIVER"}
    async with story(access={"groups": "always"}) as here:
        await here.signal.change_group(GROUP)
        for number, more in enumerate(({}, {"groupInfo": team})):
            frame = text_of(NOW + number, "hello", **more)
            await here.signal.push(frame | {"envelope": frame["envelope"] | hidden})
            assert (await here.answer()).text.endswith("hello")
    who = asked(here).partition("] ")[2]
    assert who == (f"{'x' * 40}: hello" if name == "x" * 500 else "Somebody: hello")


async def test_styles_and_mentions_of_any_shape_are_no_harm() -> None:
    styles = [{"start": -5, "length": 2**70, "style": "BLINK"}, {"start": "x"}, 7, None, []]
    mentions = [
        {"start": 10**12, "length": 10**12, "uuid": BOT.aci},
        {"start": 1, "length": 2**31, "uuid": ADA.aci, "name": "x" * 600},
        {"start": -1, "length": 0},
        None,
    ]
    wrong = dict.fromkeys(("quote", "attachments", "previews", "expiresInSeconds", "viewOnce"), "x")
    async with story() as here:
        await here.signal.push(text_of(NOW, "a🙂b", textStyles=styles, mentions=mentions))
        assert (await here.answer()).text.endswith("a🙂b")
        await here.signal.push(text_of(NOW + 1, "ab", textStyles="x", mentions="x", **wrong))
        assert (await here.answer()).text.endswith("ab")
        await here.signal.push(text_of(NOW + 2, "half \ud800 of a pair"))
        assert (await here.answer()).text.endswith("of a pair")


# Told to stop in the middle of something ----------------------------------------------------------


async def test_stopped_while_a_voice_note_is_written_down_the_next_start_does_it() -> None:
    never, begun = asyncio.Event(), asyncio.Event()

    async def hang(_: Request, __: asyncio.StreamWriter) -> None:
        begun.set()
        await never.wait()

    async with world() as here:
        here.model.transcription_handler = hang
        told = 0.0
        async with running_bot(here.settings(llm=LISTENING), grace_seconds=GRACE_SECONDS):
            await here.signal.say(None, files=[VOICE_NOTE])
            await begun.wait()
            told = time.monotonic()
        assert time.monotonic() - told < AT_ONCE_SECONDS
        assert here.signal.sent == []
        here.model.transcription_handler = transcript("How far is the moon?")
        async with running_bot(here.settings(llm=LISTENING)):
            assert (await here.answer()).text.startswith("🎤 “How far is the moon?”")
            await goes_on(here)
    assert len(to_ada(here)) == 1


@pytest.mark.parametrize("times", [1, 2])
async def test_stopped_while_images_are_read_it_ends_and_each_message_has_one_answer(
    times: int,
) -> None:
    async with folder_world() as here:
        folder = str(here.folder / "signal-cli")
        more = environment(here, LLM__VISION="on", SIGNAL__DATA_DIR=folder)
        more["BOT__READ_RECEIPTS"] = "true"
        here.model.handler = text("Nice.")
        async with daemon(more, folder=here.folder) as bot:
            await here.signal.say("look", files=[PHOTO] * 8)
            await here.signal.until(lambda: bool(here.signal.receipts))
            for _ in range(times):
                bot.send_signal(signal.SIGTERM)
                await bot.event("app.stopping")
            seconds = app.BOUNDS.grace_seconds if times == 1 else AT_ONCE_SECONDS
            assert await bot.exit_code(seconds=seconds) == (0 if times == 1 else FORCED)
        async with running_bot(settings(here)):
            await here.signal.wait_for(lambda sent: sent.chat.value == ADA.aci)
            await goes_on(here)
            await all_gone(here)
    assert len(to_ada(here)) == 1


async def test_stopped_while_a_code_is_being_sent_the_next_start_sends_it_once() -> None:
    never, begun = asyncio.Event(), asyncio.Event()

    async def hang(_: Sent) -> None:
        begun.set()
        await never.wait()

    pairing = {"policy": "pairing"}
    async with world() as here:
        here.signal.on_send = hang
        told = 0.0
        async with running_bot(here.settings(access=pairing), grace_seconds=GRACE_SECONDS):
            await here.signal.say("hello")
            await begun.wait()
            told = time.monotonic()
        assert time.monotonic() - told < AT_ONCE_SECONDS
        here.signal.on_send = None
        async with running_bot(here.settings(access=pairing)):
            assert code_in((await here.answer()).text)
            await here.signal.say("hello?")
            await goes_on(here)
    assert len(to_ada(here)) == 1


async def test_second_sigterm_ends_the_bot_at_once_even_if_signal_cli_hangs() -> None:
    async with world() as here:
        programs = install(here.folder / "bin", "--stubborn")
        path = f"{programs}:{os.environ['PATH']}"
        more = environment(here, SIGNAL__URL="spawn:", PATH=path)
        async with daemon(more, folder=here.folder) as bot:
            await bot.event("signal.connected")
            bot.send_signal(signal.SIGTERM)
            await bot.event("app.stopping")
            bot.send_signal(signal.SIGTERM)
            assert await bot.exit_code(seconds=AT_ONCE_SECONDS) == FORCED
        for start in starts(programs):  # the next start of the bot would
            os.kill(start["pid"], signal.SIGKILL)


# Over REST ----------------------------------------------------------------------------------------


async def test_over_rest_signs_of_life_that_hang_keep_no_answer_waiting() -> None:
    signs = {"ack_reaction": "👀", "read_receipts": True}
    async with world() as here, guest(here, bot={**signs}) as bot:
        bot.api.hold_signs.clear()
        people = [Person(aci=f"0d1e2f30-0000-4000-8000-0000000000{n:02d}") for n in range(10)]
        for person in people:
            await bot.api.say("hello", author=person)
        async with asyncio.timeout(AT_ONCE_SECONDS):
            await bot.answer(len(people))
        assert bot.api.most_in_flight <= 3
        bot.api.hold_signs.set()
        await bot.api.until(lambda: bool(bot.api.receipts))


async def test_over_rest_huge_and_doubled_messages_are_answered_once() -> None:
    async with world(echo) as here, guest(here) as bot:
        here.model.handler = text("yes")
        for _ in range(3):
            question = await bot.api.say(HUGE, timestamp=LAST_MOMENT)
        await bot.answer(1)
        for _ in range(2):
            await bot.api.edit(f"Now: {HUGE}", question)
        await bot.answer(2)
        await bot.api.delete(question)
        await bot.api.say("hello", files=[PHOTO] * 30)
        answer = await bot.answer(len(bot.answers()) + 1)
    assert "22 more I left out." in answer.text
