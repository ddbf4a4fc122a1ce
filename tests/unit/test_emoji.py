"""What counts as one emoji."""

import pytest

from tools.emoji import MAX_CHARACTERS, is_emoji

ONE = (
    "👍", "👍🏽", "❤️", "❤", "☺️", "😂", "🙏🏿", "🤷🏽‍♀️", "👩‍❤️‍💋‍👨",
    "👨‍👩‍👧‍👦", "🏳️‍🌈", "🏴‍☠️", "🇩🇪", "🏴󠁧󠁢󠁷󠁬󠁳󠁿", "1️⃣", "#⃣",
    "✅", "⁉️", "©️", "🫶🏻", "👩🏽‍❤️‍💋‍👨🏿", "⏰", "💤", "🟢",
)  # fmt: skip
NONE = (
    "", " ", "a", "1", "12", "👍👍", "👍 ", " 👍", "👍a", "ok", ":)", "🇩", "🇩🇪🇫🇷", "\u200d",
    "\ufe0f", "🏽‍", "👍\u200d", "✓", "→", "№", "汉", "é", "👍\n",
    "🏴󠁧󠁢", "👍" + "‍👍" * MAX_CHARACTERS,
)  # fmt: skip


@pytest.mark.parametrize("text", ONE)
def test_emoji_with_tone_gender_or_flag_is_one(text: str) -> None:
    assert is_emoji(text)


@pytest.mark.parametrize("text", NONE)
def test_words_parts_and_several_emoji_are_not_one(text: str) -> None:
    assert not is_emoji(text)
