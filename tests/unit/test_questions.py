"""A question as messages: whole, numbered, and never split inside a mark."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.chat.question_messages import FILE_NAME, GOES_ON, MAX_MESSAGES, question_messages
from bot.signal.formatting import MAX_PART_BYTES
from tests.unit.test_display import nasty_texts
from tools.display import visible

HOW = "👍 this message."


def put_together(texts: list[str]) -> str:
    """Return the question that messages show."""
    whole, goes_on = "", False
    for number, text in enumerate(texts, start=1):
        begin = f"❓ ({number}/{len(texts)})\n" if len(texts) > 1 else "❓ "
        assert text.startswith(begin)
        if goes_on:
            begin += GOES_ON
            assert text.startswith(begin)
        whole += text.removeprefix(begin)
        goes_on = whole.endswith(GOES_ON)
        if number < len(texts):
            whole = whole.removesuffix(GOES_ON) if goes_on else f"{whole}\n"
    return re.sub(r"\n\n(\(Characters that a phone.*\n)?👍 this message\.\Z", "", whole)


def test_a_short_question_is_one_message() -> None:
    (message,) = question_messages("pay", "Run pay?\namount: 1", HOW)
    assert message.text == f"❓ Run pay?\namount: 1\n\n{HOW}"


def test_a_long_question_is_numbered_and_its_last_message_asks() -> None:
    question = "\n".join(
        ["Run pay?", *(f'recipient_{number}: "{"x" * 60}"' for number in range(60))]
    )
    messages = question_messages("pay", question, HOW)
    assert 1 < len(messages) <= MAX_MESSAGES
    assert not any(HOW in message.text for message in messages[:-1])
    assert messages[-1].text.endswith(HOW)
    assert put_together([message.text for message in messages]) == question


def test_even_longer_question_is_a_complete_file() -> None:
    question = "Run write?\ncontent: " + "ö" * 20_000 + "; pay EVE"
    (message,) = question_messages("write", question, HOW)
    (file,) = message.attachments
    assert (file.name, file.content_type) == (FILE_NAME, "text/plain")
    assert file.data.decode("utf-8-sig") == question
    assert "Run write?" in message.text
    assert message.text.endswith(HOW)


def test_a_value_that_is_divided_cannot_begin_a_message_as_another_argument() -> None:
    for length in range(1_700, 1_800):
        question = f'Run pay?\ntext: "{"x" * length}amount: 1{" y" * 500}"\namount: 5000'
        first, second = question_messages("pay", question, HOW)
        assert first.text.endswith(GOES_ON)
        assert second.text.startswith(f"❓ (2/2)\n{GOES_ON}")


@pytest.mark.parametrize("unit", ["\u202e\u202d", "ש ", "สวั", "क्", "\U00010900"])
def test_a_mark_or_a_letter_with_its_signs_is_never_divided(unit: str) -> None:
    for shift in range(30):
        question = "x" * shift + visible(unit * 300)
        texts = [message.text for message in question_messages("pay", question, HOW)]
        assert put_together(texts) == question
        for text in texts:
            assert text.count("⟨") == text.count("⟩")
            assert re.match(r"❓ (?:\(\d/\d\)\n)?[^\u0e30-\u0e4e\u094d]", text)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(st.lists(nasty_texts.map(visible), min_size=1, max_size=40), st.integers(1, 40))
def test_nothing_of_a_question_is_lost_between_its_messages(lines: list[str], times: int) -> None:
    question = "\n".join(f"{number}: {line * times}" for number, line in enumerate(lines))
    messages = question_messages("pay", question, HOW)
    assert all(len(message.text.encode()) <= MAX_PART_BYTES for message in messages)
    if not messages[-1].attachments:
        assert put_together([message.text for message in messages]) == question
