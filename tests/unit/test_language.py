"""The languages of the bot's own sentences."""

import ast
import re
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Final

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.attestation.report import report_line
from bot.chat.door import ASK
from bot.chat.question_messages import HOW_TO_ANSWER
from bot.commands.catalog import COMMANDS
from bot.language.catalogs import ENGLISH, NAMES, translated
from bot.language.languages import detect

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = re.compile(r"\{\w+\}")
FOREIGN: Final = [language for language in NAMES if language != ENGLISH]
LINES_OF_HELP: Final = {f"!{one.name}: {one.summary}" for one in COMMANDS}


def entries(language: str) -> dict[str, str]:
    file = resources.files("bot.language").joinpath(f"{language}.po")
    return {entry.msgid: entry.msgstr for entry in polib.pofile(file.read_text("utf-8"))}


def sentences_of_the_program() -> set[str]:
    """Return texts of the program and their lines, with places unnamed, and the lines of `!help`.

    Messages of checks count in the form in which `!verify` shows them.
    """
    found: set[str] = set()
    for path in chain((ROOT / "bot").rglob("*.py"), (ROOT / "tools").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(PLACE.sub("{}", node.value))
            elif isinstance(node, ast.JoinedStr):
                parts = (p.value if isinstance(p, ast.Constant) else "{}" for p in node.values)
                found.add("".join(map(str, parts)))
    found.update(*map(str.splitlines, tuple(found)))
    return found | LINES_OF_HELP | {report_line(text) for text in found} | {"5 minutes"}


def test_every_translation_is_of_a_sentence_that_the_program_says() -> None:
    said = sentences_of_the_program()
    assert [one for one in entries("de") if PLACE.sub("{}", one) not in said] == []


def test_every_line_of_help_is_translated() -> None:
    assert LINES_OF_HELP - entries("de").keys() == set()


@pytest.mark.parametrize("language", FOREIGN)
def test_a_translation_has_the_places_and_commands_of_its_sentence(language: str) -> None:
    assert entries(language).keys() == entries("de").keys()
    for sentence, translation in entries(language).items():
        assert translation.strip(), sentence
        assert sorted(PLACE.findall(translation)) == sorted(PLACE.findall(sentence))
        assert sorted(re.findall(r"![a-z]+", translation)) == sorted(
            re.findall(r"![a-z]+", sentence)
        )


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Hallo!", "de"), ("Wie wird das Wetter morgen in Berlin?", "de"), ("Danke", "de"),
        ("What is 127*43?", "en"), ("tell me a joke", "en"), ("may I?", "en"),
        ("without a code", "en"), ("no", None), ("no me gusta", "es"), ("I'm fine, and you?", "en"),
        ("Hola, ¿qué tiempo hace hoy?", "es"), ("Gracias", "es"), ("¿Cuánto cuesta?", "es"),
        ("Bonjour, quel temps fait-il ?", "fr"), ("je voudrais un café", "fr"),
        ("Olá, como está o tempo hoje?", "pt"), ("Obrigado", "pt"),
        ("ما الطقس اليوم؟", "ar"), ("مرحبا", "ar"),
        ("ok", None), ("127*43", None), ("", None), ("👍", None), ("Berlin", None),
    ],
)  # fmt: skip
def test_a_few_words_tell_the_language(text: str, language: str | None) -> None:
    assert detect(text) == language


def test_translation_keeps_the_values_in_a_sentence() -> None:
    asked = translated(ASK.format(code="K7MPXQ"), "de")
    assert asked.startswith("Hallo! Ich bin ein Bot")
    assert "\n\nK7MPXQ\n\n" in asked
    assert "5 Minuten" in translated(HOW_TO_ANSWER.format(minutes="5 minutes"), "de")
    assert translated("{code} {0} %s", "de") == "{code} {0} %s"
    about = translated(
        "About the image: It is too large; I read up to 9 MB, and 40 MB at once.", "de"
    )
    assert about == "Zu dem Bild: Das ist zu groß; ich lese bis zu 9 MB, und 40 MB auf einmal."
    two = "Stopped.\nSomething that nobody has translated."
    assert translated(two, "fr") == "Arrêté.\nSomething that nobody has translated."
    used = "Today: 7 tokens.\nIn 30 days: 8 tokens."
    assert translated(used, "de") == "Heute: 7 Tokens.\nIn 30 Tagen: 8 Tokens."


@given(st.text(), st.sampled_from([*NAMES, "xx"]))
def test_untranslated_text_stays_unchanged(text: str, language: str) -> None:
    marked = "\n".join(f"~{line}" for line in text.split("\n"))
    assert translated(marked, language) == marked
    assert detect(text) in {None, *NAMES}
