"""Meaning of people's answers to a question of yes or no."""

import tomllib
from collections import defaultdict
from importlib import resources

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.chat.meaning import MAX_CHARACTERS, PHRASES, Meaning, meaning_of


@pytest.mark.parametrize(
    "text",
    [
        "yes", " YES! ", "ok", "Sure.", "yes please", "Sure, go ahead!",
        "OK 👍🏽", "ok👍", "👌🏻", "✔️",
        "ja bitte", "Klar!", "mach ruhig", "¡Sí, gracias!", "de acuerdo", "oui, merci", "Vas-y stp",
        "d\u2019accord", "sim, pode", "نعم من فضلك", "تمام", "да, пожалуйста", "так", "हाँ",
        "ठीक है",
        "好的\uff0c谢谢", "はい、お願いします", "네 감사합니다", "evet",
        "ja tak", "no problem", "why not", "jaaa", "yess!", "jup passt 👍", "ja, leg los",
        "ach so ja ok", "sieht gut aus",
    ],
)  # fmt: skip
def test_a_yes_is_understood_as_people_write_it(text: str) -> None:
    assert meaning_of(text) is Meaning.YES


@pytest.mark.parametrize(
    "text",
    [
        "no", "No.", "no thanks", "No, thank you!", "of course not", "please don\u2019t", "stop",
        "👎🏿",
        "nein danke", "lieber nicht", "no, gracias", "mejor no", "non merci", "surtout pas",
        "não, obrigado", "لا شكرا", "нет, спасибо", "नहीं", "不用了\uff0c谢谢", "いいえ", "아니요",
        "nej tak",
    ],
)  # fmt: skip
def test_a_no_is_understood_as_people_write_it(text: str) -> None:
    assert meaning_of(text) is Meaning.NO


@pytest.mark.parametrize(
    "text",
    [
        "maybe", "not sure", "hmm...", "?", "...", "why?", "vielleicht", "🤔", "🤷‍♂️",
        "yes no", "ok, no", "don't go ahead", "no wait", "tak", "thanks", "🙂",
    ],
)  # fmt: skip
def test_uncertain_words_are_unclear(text: str) -> None:
    assert meaning_of(text) is Meaning.UNCLEAR


@pytest.mark.parametrize(
    "text",
    [
        "", "yes, but only to Ben", "ok and what will it cost?", "sí pero mañana",
        "What is the weather?", "Good morning!",
        "Nothing of the kind", "okra", "note: milk",
        "Was kostet das?", "yes " * MAX_CHARACTERS, "En fait, quel temps fait-il ?",
    ],
)  # fmt: skip
def test_words_about_other_things_answer_nothing(text: str) -> None:
    assert meaning_of(text) is Meaning.OTHER


def test_no_phrase_says_one_thing_in_one_language_and_another_in_another() -> None:
    languages = tomllib.loads(resources.files("bot.chat").joinpath(PHRASES).read_text())
    kinds = defaultdict(set)
    for language in languages.values():
        for kind in {"yes", "always", "no", "unsure", "polite"} & language.keys():
            for phrase in language[kind]:
                kinds[phrase.casefold()].add(kind)
    assert not [phrase for phrase, found in kinds.items() if len(found) > 1]


def test_no_word_is_one_number_in_one_language_and_another_in_another() -> None:
    languages = tomllib.loads(resources.files("bot.chat").joinpath(PHRASES).read_text())
    places = defaultdict(set)
    for language in languages.values():
        for place, words in enumerate(language.get("numbers", ())):
            for word in words.split():
                places[word].add(place)
    assert not [word for word, found in places.items() if len(found) > 1]


@given(st.sampled_from(["yes", "ok", "sí", "нет", "no thanks"]), st.text(max_size=60))
def test_an_answer_with_unknown_words_after_it_is_neither_yes_nor_no(
    answer: str, rest: str
) -> None:
    alone, followed = meaning_of(answer), meaning_of(f"{answer} xyzzy {rest}")
    assert followed is Meaning.OTHER
    assert alone in {Meaning.YES, Meaning.NO}


@given(st.text())
def test_every_text_has_a_meaning(text: str) -> None:
    assert meaning_of(text) in Meaning
