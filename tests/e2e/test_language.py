"""The bot itself speaks as people write to it, or as they choose."""

from bot.chat.question_messages import HOW_TO_ANSWER
from bot.commands.base import UNKNOWN_COMMAND
from bot.language.catalogs import translated
from bot.llm.errors import LlmUnauthorized
from bot.signal.events import Person
from tests.e2e.running_bot import running_bot, world
from tests.e2e.test_approvals import WRITE, question, with_notes
from tests.fakes.openai_server import script, status, text, tool_calls

GROUP = "Z3JvdXA="
BEN = Person(aci="0d1e2f30-0000-4000-8000-00000000000b", number="+4915200000002", name="Ben")


async def test_sentences_of_the_bot_follow_the_language_of_the_chat() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.say("!nonsense")
        assert (await here.answer()).text == UNKNOWN_COMMAND
        await here.signal.say("Hallo, wie ist das Wetter heute?")
        await here.answer()
        await here.signal.say("!nonsense")
        assert (await here.answer()).text.startswith("Diesen Befehl kenne ich nicht.")
        await here.signal.say("!help")
        assert "!stop: anhalten, was ich hier gerade tue" in (await here.answer()).text
        await here.signal.say("!tools")
        assert "• Rechnen und Einheiten umrechnen (" in (await here.answer()).text
        await here.signal.say("!verify")
        said = (await here.answer()).text
        assert said.startswith("Dieser Bot läuft nicht in einer vertrauenswürdigen")
        assert "\n\nDAS MODELL\nDer Endpunkt des Modells kann nicht beweisen" in said
        await here.signal.say("What is the weather like today?", author=BEN)
        await here.answer()
        await here.signal.say("!nonsense", author=BEN)
        assert (await here.answer()).text == UNKNOWN_COMMAND


async def test_a_language_that_was_chosen_stays_also_after_a_restart() -> None:
    async with world() as here:
        async with running_bot(here.settings()):
            await here.signal.say("!language")
            assert "I speak English here, because you write in it." in (await here.answer()).text
            await here.signal.say("!language klingon")
            assert (await here.answer()).text.startswith("I do not speak that language.")
            for name, said in (
                ("german", "hier Deutsch"), ("arabic", "العربية"), ("alemán", "hier Deutsch"),
                ("Englisch", "I speak English"), ("الفرنسية", "français"), ("espanhol", "español"),
            ):  # fmt: skip
                await here.signal.say(f"!language {name}")
                assert said in (await here.answer()).text
            await here.signal.say("!language Español")
            assert "hablo español aquí" in (await here.answer()).text
        async with running_bot(here.settings()):
            await here.signal.say("what is the time and where are you?")
            await here.answer()
            await here.signal.say("!nonsense")
            assert (await here.answer()).text.startswith("No conozco ese comando.")
            await here.signal.say("!language auto")
            assert (
                await here.answer()
            ).text == "From now on I use the language in which you write."


async def test_troubles_and_questions_are_said_in_the_persons_language() -> None:
    async with world(status(401)) as here, running_bot(here.settings()):
        await here.signal.say("Bonjour, quel temps fait-il ?")
        assert (await here.answer()).text == translated(LlmUnauthorized.sentence, "fr")
    async with world(script(tool_calls(WRITE), text("Gemacht."))) as here:
        async with running_bot(with_notes(here)):
            await here.signal.say("Bitte schreib auf: Milch")
            asked = await question(here)
            assert translated(HOW_TO_ANSWER.format(minutes="5 minutes"), "de") in asked.text
            assert "erlaubt notes_write in diesem Chat 30 Tage lang" in asked.text
            await here.signal.say("Ja, mach das")
            assert (await here.answer()).text == "Gemacht."


async def test_a_stranger_is_answered_in_a_language_that_is_read_from_right_to_left() -> None:
    async with world() as here, running_bot(here.settings(access={"policy": "pairing"})):
        await here.signal.say("مرحبا، كيف حالك؟")
        said = (await here.answer()).text
        assert said.startswith("مرحبًا! أنا بوت")
        assert len([line for line in said.splitlines() if line.isascii() and len(line) == 6]) == 1


async def test_in_a_group_the_language_is_the_groups() -> None:
    async with world() as here, running_bot(here.settings()):
        await here.signal.say("Hola, ¿qué tiempo hace hoy?", group=GROUP, mention=True)
        await here.answer()
        await here.signal.say("!nonsense", group=GROUP, mention=True)
        assert (await here.answer()).text.startswith("No conozco ese comando.")
