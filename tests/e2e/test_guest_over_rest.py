"""The bot over signal-cli-rest-api: people see the same as over signal-cli."""

import asyncio
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final

from bot.chat.door import WELCOME
from bot.signal.events import Person
from conversation_store.models import ChatId, Quote, StyleRange, TextStyle
from conversation_store.pairings import open_pairing_book
from tests.e2e.running_bot import World, running_bot, world
from tests.e2e.test_pairing import code_in
from tests.e2e.traces import gone, rows_with
from tests.fakes.openai_server import echo, held, images_in, script, text, tool_calls, transcript
from tests.fakes.rest_markup import served
from tests.fakes.signal_people import Reacted, SharedFile
from tests.fakes.signal_rest_api import NUMBER, Sent, SignalRestApi
from tests.fakes.signal_side import ADA
from tests.unit.test_media import picture

BEN: Final = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", name="Ben")
TEAM: Final = "dGVhbQ=="
TEAM_CHAT: Final = ChatId.parse(f"group:{TEAM}")
ADA_CHAT: Final = ChatId.parse(f"direct:{ADA.aci}")
SECRET: Final = "sesquipedalian"


@dataclass(frozen=True, slots=True)
class Guest:
    """A bot over REST, its model, and the people on the other side."""

    here: World
    api: SignalRestApi

    async def answer(self, number: int) -> Sent:
        """Return the n-th message of the bot without progress messages, once it is there."""
        await self.api.until(lambda: len(self.answers()) >= number)
        return self.answers()[number - 1]

    def answers(self) -> list[Sent]:
        return [sent for sent in self.api.sent if not sent.text.startswith("🔧")]

    def asked(self) -> str:
        """The last question to the model, without the time."""
        content = self.here.model.requests[-1]["messages"][-1]["content"]
        words = content if isinstance(content, str) else content[0]["text"]
        return str(words).split(" UTC] ", 1)[-1]


@asynccontextmanager
async def guest(here: World, **overrides: Mapping[str, object]) -> AsyncIterator[Guest]:
    """Run a bot of this world over REST."""
    async with SignalRestApi.listen() as api:
        signal = {"url": api.url, "phone_number": NUMBER, **overrides.pop("signal", {})}
        async with running_bot(here.settings(**overrides, signal=signal)):
            await api.wait_for_receiver()
            yield Guest(here, api)


async def test_two_quick_messages_get_one_answer() -> None:
    never = asyncio.Event()
    async with world(script(held(never), text("Far."), text("Fine."))) as here, guest(here) as bot:
        await bot.api.say("Hi")
        await here.model.wait_for_requests(1)
        await bot.api.say("how far is the moon?")
        await bot.answer(1)
        await bot.api.say("thanks")
        await bot.answer(2)
    assert len(here.model.requests) == 3
    assert "how far is the moon?" in str(here.model.requests[1]["messages"][-1])


async def test_edit_during_a_request_replaces_the_question() -> None:
    never = asyncio.Event()
    async with world(script(held(never))) as here, guest(here) as bot:
        question = await bot.api.say("How hihg is Everest?")
        await here.model.wait_for_requests(1)
        await bot.api.edit("How high is Everest?", question)
        await bot.answer(1)
        assert bot.asked() == "How high is Everest?"
    assert len(bot.api.sent) == 1


async def test_an_edit_after_the_answer_edits_the_answer_and_a_second_one_the_edited() -> None:
    async with world() as here, guest(here) as bot:
        question = await bot.api.say("Is Sidney nice?")
        old = await bot.answer(1)
        edit = await bot.api.edit("Is Sydney nice?", question)
        new = await bot.answer(2)
        await bot.api.edit("Is Sydney big?", edit)
        newest = await bot.answer(3)
        assert bot.asked() == "Is Sydney big?"
    assert (old.replaces, new.replaces, newest.replaces) == (None, old.timestamp, new.timestamp)


async def test_a_deletion_ends_the_turn_and_leaves_nothing_in_the_store() -> None:
    never = asyncio.Event()
    async with world(script(echo, held(never))) as here, guest(here) as bot:
        first = await bot.api.say(f"{SECRET} one")
        await bot.answer(1)
        second = await bot.api.say(f"{SECRET} two")
        await here.model.wait_for_requests(2)
        await bot.api.delete(first)
        await bot.api.delete(second)
        await bot.api.say("hello")
        assert (await bot.answer(2)).text.endswith("hello")
        assert not rows_with(here, SECRET)
    assert SECRET not in str(here.model.requests[-1])


async def test_a_disappearing_message_disappears_here_as_well() -> None:
    async with world() as here, guest(here) as bot:
        await bot.api.say(SECRET, expires_seconds=1)
        await bot.answer(1)
        await gone(here, SECRET)


async def test_markdown_arrives_as_styles_and_nothing_typed_is_eaten() -> None:
    markdown = "**Bold** 👋 and `a*b_c~d|e`: 2*3*4, ~x~ snake_case_name\n\n- one\n- two"
    async with world(script(text(markdown))) as here, guest(here) as bot:
        await bot.api.say("style")
        answer = await bot.answer(1)
    assert answer.text_mode == "styled"
    words, styles = served(answer.text)
    assert words == "Bold 👋 and a*b_c~d|e: 2*3*4, ~x~ snake_case_name\n\n• one\n• two"
    assert set(styles) == {
        StyleRange(0, 4, TextStyle.BOLD),
        StyleRange(12, 9, TextStyle.MONOSPACE),
    }


async def test_answer_in_a_group_quotes_its_question_and_the_model_sees_quotes() -> None:
    async with world() as here, guest(here) as bot:
        await bot.api.say("pizza?", group=TEAM, author=BEN)
        question = await bot.api.say("what do you say?", group=TEAM, mention=True)
        answer = await bot.answer(1)
        assert answer.quote == Quote(question, ADA.aci, "what do you say?")
        assert "Ben: pizza?" in bot.asked()
        await bot.api.say("really?", group=TEAM, quote=answer.timestamp)
        await bot.answer(2)
        assert "[in reply to your message:" in bot.asked()


async def test_an_image_is_shown_to_the_model_and_its_file_deleted() -> None:
    async with world() as here, guest(here, llm={"vision": "on"}) as bot:
        await bot.api.say("who is this?", files=[SharedFile("image/jpeg", picture())])
        await bot.answer(1)
        [shown] = images_in(here.model.requests[-1])
        await bot.api.until(lambda: not bot.api.files)
    assert shown.startswith("data:image/")


async def test_words_of_a_voice_note_are_shown_and_answered() -> None:
    async with world() as here, guest(here, llm={"transcription_model": "whisper"}) as bot:
        here.model.transcription_handler = transcript("How far is the moon?")
        note = SharedFile("audio/aac", b"\xff\xf1 sound", voice_note=True)
        await bot.api.say(None, files=[note])
        answer = await bot.answer(1)
        assert bot.asked() == "[voice note] How far is the moon?"
        await bot.api.until(lambda: not bot.api.files)
    words, _ = served(answer.text)
    assert words.startswith("🎤 “How far is the moon?”\n\n")


async def test_a_file_that_cannot_be_read_is_named_as_it_is() -> None:
    name = "my *great* file_v_2_.zip"
    async with world() as here, guest(here) as bot:
        await bot.api.say(None, files=[SharedFile("application/zip", b"PK", name=name)])
        answer = await bot.answer(1)
    words, styles = served(answer.text) if answer.text_mode == "styled" else (answer.text, ())
    assert name in words
    assert (list(styles), here.model.requests) == ([], [])


async def test_a_picture_that_a_tool_makes_comes_with_the_answer() -> None:
    command = f"{sys.executable} -m tests.fakes.mcp_odd"
    mcp = {"servers": {"odd": {"command": command}}}
    drawn = script(tool_calls(("odd_everything", {})), text("Here it is."))
    async with world(drawn) as here, guest(here, mcp=mcp) as bot:
        await bot.api.say("draw")
        question = await bot.answer(1)
        assert question.text.startswith("❓ Run odd_everything?")
        await bot.api.react("👍", question.timestamp)
        answer = await bot.answer(2)
    assert answer.text == "Here it is."
    assert [file.content_type for file in answer.attachments][:1] == ["image/png"]


async def test_typing_lasts_until_the_answer_and_settings_add_signs() -> None:
    signs = {"ack_reaction": "true", "read_receipts": True}
    release = asyncio.Event()
    async with world(held(release, text("Done."))) as here, guest(here, bot={**signs}) as bot:
        asked = await bot.api.say("hello")
        await bot.api.until(lambda: (ADA_CHAT, True) in bot.api.typing)
        release.set()
        await bot.answer(1)
        await bot.api.until(lambda: bool(bot.api.reactions and bot.api.receipts))
    assert bot.api.reactions == [Reacted(ADA_CHAT, "👀", ADA.aci, asked)]
    assert bot.api.receipts == [(ADA.aci, (asked,))]


async def test_a_stranger_gets_a_code_and_is_let_in_by_it() -> None:
    access = {"policy": "pairing", "admins": BEN.aci}
    async with world() as here, guest(here, access=access) as bot:
        await bot.api.say(SECRET)
        code = code_in((await bot.answer(1)).text)
        await bot.api.say(f"{SECRET} again")
        with open_pairing_book(here.folder / "store.db", None) as book:
            assert book.approve(code) is not None
        assert (await bot.answer(2)).text == WELCOME
        await bot.api.say("hello")
        assert (await bot.answer(3)).text.endswith("hello")
    assert SECRET not in str(here.model.requests)


async def test_an_admin_lets_a_stranger_in_from_the_chat() -> None:
    access = {"policy": "pairing", "admins": BEN.aci}
    async with world() as here, guest(here, access=access) as bot:
        await bot.api.say("hello")
        code = code_in((await bot.answer(1)).text)
        await bot.api.say(f"!pair {code}", author=BEN)
        await bot.answer(3)
    told = {sent.recipient: sent.text for sent in bot.api.sent[1:]}
    assert told == {ADA.aci: WELCOME, BEN.aci: "Ada can talk to me now."}


async def test_in_the_note_to_self_it_answers_there_and_nowhere_else() -> None:
    async with world() as here, guest(here, access={"note_to_self": True}) as bot:
        await bot.api.say("from somebody else")
        await bot.api.note_to_self("remember the milk")
        answer = await bot.answer(1)
        await bot.api.note_to_self("thanks")
        await bot.answer(2)
    assert {sent.recipient for sent in bot.api.sent} == {NUMBER}
    assert (answer.notify_self, len(here.model.requests)) == (False, 2)
