"""The bot itself speaks as people write to it, or as they choose."""

from typing import Final

import pytest

from bot.chat.question_messages import HOW_TO_ANSWER
from bot.commands.base import NEAREST_COMMAND, UNKNOWN_COMMAND
from bot.language.catalogs import translated
from bot.llm.errors import LlmUnauthorized
from bot.signal.events import Person
from conversation_store.models import StyleRange, TextStyle
from tests.e2e.running_bot import running_bot, story, world
from tests.e2e.test_approvals import WRITE, notes, question, with_notes
from tests.e2e.test_reactions import TRANSPORTS, side
from tests.e2e.test_reminders import at, remind
from tests.e2e.traces import there
from tests.fakes.openai_server import script, status, text, tool_calls
from tests.fakes.signal_side import Sent

GROUP = "Z3JvdXA="
BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")


async def test_sentences_of_the_bot_follow_the_language_of_the_chat() -> None:
    async with story() as here:
        assert await here.asked("!nonsense") == UNKNOWN_COMMAND
        await here.asked("Hallo, wie ist das Wetter heute?")
        assert (await here.asked("!nonsense")).startswith("Diesen Befehl kenne ich nicht.")
        assert "!stop: anhalten, was ich hier gerade tue" in await here.asked("!help")
        assert "• Rechnen und Einheiten umrechnen (" in await here.asked("!tools")
        said = await here.asked("!verify")
        assert said.startswith("Dieser Bot läuft nicht in einer vertrauenswürdigen")
        assert "\n\nDAS MODELL\nDer Endpunkt des Modells kann nicht beweisen" in said
        await here.asked("What is the weather like today?", author=BEN)
        assert await here.asked("!nonsense", author=BEN) == UNKNOWN_COMMAND


async def test_a_mistyped_command_gets_the_nearest_one() -> None:
    async with story() as here:
        assert await here.asked("!hlep") == NEAREST_COMMAND.format(name="help")
        await here.asked("Hallo, wie ist das Wetter heute?")
        assert (await here.asked("!spracheee")).startswith("Diesen Befehl kenne ich nicht.")
        assert (await here.asked("!hlep")).endswith("Meinst du !help?")
        assert await here.asked("!paire") != NEAREST_COMMAND.format(name="pair")  # for admins


WIDE: Final = "\uff01\uff28\uff25\uff2c\uff30"


@pytest.mark.parametrize(
    "help_", ["\uff01help", WIDE, "\u200f!help", "\u2068!help\u2069", "!he\u200blp"]
)
async def test_commands_count_in_other_spellings(help_: str) -> None:
    async with story() as here:
        assert (await here.asked(help_)).startswith("Write to me as you would to a person.")


async def test_a_language_that_was_chosen_stays_also_after_a_restart() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            assert "I speak English here until you write in" in await here.asked("!language")
            await here.signal.say("!language klingon")
            assert (await here.answer()).text.startswith("I do not speak that language.")
            for name, said in (
                ("german", "hier Deutsch"), ("arabic", "العربية"), ("alemán", "hier Deutsch"),
                ("Englisch", "I speak English"), ("الفرنسية", "français"), ("espanhol", "español"),
            ):  # fmt: skip
                assert said in await here.asked(f"!language {name}")
            assert "hablo español aquí" in await here.asked("!language Español")
        async with running_bot(here.settings()):
            await here.asked("what is the time and where are you?")
            assert (await here.asked("!nonsense")).startswith("No conozco ese comando.")
            await here.signal.say("!language auto")
            assert (
                await here.answer()
            ).text == "From now on I use the language in which you write."


async def test_troubles_and_questions_are_said_in_the_persons_language() -> None:
    async with story(status(401)) as here:
        await here.signal.say("Bonjour, quel temps fait-il ?")
        assert (await here.answer()).text == translated(LlmUnauthorized.sentence, "fr")
    async with story(script(tool_calls(WRITE), text("Gemacht.")), with_notes) as here:
        asked = await question(here, "Bitte schreib auf: Milch")
        assert translated(HOW_TO_ANSWER.format(minutes="5 minutes"), "de") in asked.text
        assert "erlaubt notes_write in diesem Chat 30 Tage lang" in asked.text
        assert await here.asked("Ja, mach das") == "Gemacht."


MILK: Final = ("notes_write", {"text": "Milch:\n    fett   ;\u202e"})


@TRANSPORTS
async def test_question_about_a_call_is_a_block_in_the_persons_language(transport: str) -> None:
    async with side(transport, script(tool_calls(MILK), text("Gemacht."))) as bot:
        signal = bot.settings.signal.model_dump(exclude_unset=True)
        async with running_bot(with_notes(bot.here, signal=signal)):
            await bot.ready()
            await bot.people.say("Bitte schreib auf: Milch")
            await bot.people.until(lambda: bool(bot.texts()))
            asked = bot.people.sent[-1]
            await there(bot.here, str(asked.timestamp))  # until then, words answer nothing
            await bot.people.say("Ja, mach das")
            await bot.people.until(lambda: "Gemacht." in bot.texts())
        assert notes(bot.here) == f"{MILK[1]['text']}\n"
    block = "│ Milch:\n│     fett⟨3 spaces⟩;⟨U+202E⟩"
    begin = f"❓ notes_write ausführen? Write a note.\nText:\n{block}\n\n(Zeichen, die ein Telefon"
    assert asked.text.replace("`", "").startswith(begin), asked.text
    if isinstance(asked, Sent):
        assert asked.styles == (StyleRange(asked.text.index("│"), len(block), TextStyle.MONOSPACE),)


async def test_translation_leaves_peoples_words_as_they_are() -> None:
    steps = script(remind("the file", at(86_400)), text("Ja."))
    async with story(steps) as here:
        assert await here.asked("erinnere mich") == "Ja."
        await here.asked("!language german")
        assert await here.asked("!reminders cancel 1") == "Gestrichen: the file."


async def test_a_stranger_is_answered_in_a_language_that_is_read_from_right_to_left() -> None:
    async with story(access={"policy": "pairing"}) as here:
        said = await here.asked("مرحبا، كيف حالك؟")
        assert said.startswith("مرحبًا! أنا بوت")
        assert len([line for line in said.splitlines() if line.isascii() and len(line) == 6]) == 1


async def test_in_a_group_the_language_is_the_groups() -> None:
    async with story() as here:
        await here.asked("Hola, ¿qué tiempo hace hoy?", group=GROUP, mention=True)
        await here.signal.say("!nonsense", group=GROUP, mention=True)
        assert (await here.answer()).text.startswith("No conozco ese comando.")
