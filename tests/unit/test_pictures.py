"""Pictures of tables: which tables get one, and the bounds of drawing."""

import asyncio
import time
from io import BytesIO

import pytest
from PIL import Image

from bot.chat import pictures
from bot.chat.picture_worker import MAX_COLUMNS, MAX_LINES, MAX_ROWS, drawn
from bot.chat.pictures import MAX_SOURCE_CHARACTERS, draw, open_pictures, picture_for
from bot.signal.formatting import GRID_COLUMNS, MAX_CHARACTERS, rendered
from tools.sandbox.errors import WorkError

SHORT_SECONDS = 0.5


def table(*rows: list[str]) -> str:
    """Return a table in Markdown; the first row has the names of the columns."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([lines[0], f"|{'--|' * len(rows[0])}", *lines[1:]])


FIVE = table([*"abcde"], [*"12345"])
LONG = table(["name", "words"], ["x", "y" * GRID_COLUMNS])
BARE = "a | b | c | d | e\n-|-|-|-|-\n1 | 2 | 3 | 4 | 5"
NARROW = table(["name", "words"], ["x", "y"])


@pytest.mark.parametrize(
    ("answer", "source"),
    [
        (FIVE, FIVE),
        (LONG, LONG),
        (f"Before.\n\n{FIVE}\n\nAfter | all.", FIVE),
        (f"{NARROW}\n\nand\n\n{FIVE}\n\n{LONG}", FIVE),
        (BARE, BARE),
        (NARROW, None),
        (table([*"abcd"], [*"1234"]), None),
        ("a|b", None),
        ("No table - or | is it?", None),
        ("|--|--|--|--|--|\n| no | names | above | this | one |", None),
        (f"```\n{FIVE}\n```", None),
        (table([*"abcde"], ["1" * MAX_SOURCE_CHARACTERS, *"2345"]), None),
        (f"{FIVE}\n\n{' ' * MAX_CHARACTERS}", None),
        ("", None),
    ],
)  # fmt: skip
def test_first_wide_table_is_found(answer: str, source: str | None) -> None:
    found = picture_for(answer, rendered(answer, ()))
    assert (found and found.source) == source


@pytest.mark.parametrize(
    "unit", ["|-\n", "|", "|-", "-|-|-|-\n", "|\n-", " |-|\n", "```\n|-|\n", "a|b\n-|-\n"]
)
def test_search_for_tables_takes_little_time(unit: str) -> None:
    answer = (unit * MAX_CHARACTERS)[:MAX_CHARACTERS]
    began = time.process_time()
    picture_for(answer, ())
    assert time.process_time() - began < SHORT_SECONDS


def size_of(markdown: str) -> tuple[int, int]:
    with Image.open(BytesIO(drawn(markdown)), formats=["PNG"]) as image:
        return image.size


def test_picture_shows_what_people_see_and_breaks_long_cells() -> None:
    plain, styled = table([*"abcde"], [*"12345"]), table([*"abcde"], ["**1**", "`2`", *"345"])
    assert size_of(plain) == size_of(styled)
    assert drawn(plain) == drawn(styled)
    broken = size_of(table([*"abcde"], ["some words " * 8, "w" * 60, *"345"]))
    assert size_of(plain)[0] < broken[0] < 1_000
    assert broken[1] > size_of(plain)[1]


@pytest.mark.parametrize(
    "letters", ["Köln Łódź ğışç", "Αθήνα", "Київ Ёж", "5 € £ ¥ ½ m² ≤ → °", "e\u0301", "✅ ❌ ☀️"]
)
def test_european_letters_and_common_signs_are_drawn(letters: str) -> None:
    assert drawn(table([*"abcde"], [letters, *"2345"]))


@pytest.mark.parametrize(
    ("cell", "drawn_as"),
    [
        ("🍎 Apple", "Apple"), ("🟢", "large green circle"), ("👍🏽", "thumbs up sign"),
        ("🇩🇪", "D E"), ("🇩🇪 Berlin", "Berlin"), ("✅ done", "✔ done"),
    ],
)  # fmt: skip
def test_emoji_that_the_font_lacks_are_left_out_or_put_into_words(cell: str, drawn_as: str) -> None:
    with_emoji, in_words = (table([*"abcde"], [one, *"2345"]) for one in (cell, drawn_as))
    assert drawn(with_emoji) == drawn(in_words)


@pytest.mark.parametrize(
    "markdown",
    [
        "", "no table", NARROW, f"```\n{FIVE}\n```",
        table([*"abcde"], ["日本", *"2345"]), table([*"abcde"], ["שלום", *"2345"]),
        table([*"abcde"], ["नमस्ते", *"2345"]),
        table([*"abcde"], ["\x07", *"2345"]), table([*"abcde"], ["x\u0335", *"2345"]),
        table(["a"] * (MAX_COLUMNS + 1), ["1"] * (MAX_COLUMNS + 1)),
        table([*"abcde"], *[[*"12345"]] * MAX_ROWS),
        table([*"abcde"], ["word " * 20 * MAX_LINES, *"2345"]),
        table([*"abcde"], *[["word " * 30, *"2345"]] * (MAX_ROWS - 1)),
    ],
)  # fmt: skip
def test_table_that_is_narrow_large_or_of_other_letters_is_not_drawn(markdown: str) -> None:
    with pytest.raises(WorkError):
        drawn(markdown)


async def test_sandbox_draws_and_refuses() -> None:
    async with open_pictures() as draw:
        picture = await draw(FIVE)
        assert picture is not None
        assert (picture.name, picture.content_type) == ("table.png", "image/png")
        assert picture.data == drawn(FIVE)
        assert await draw(NARROW) is None
        assert await draw("\ud83d" * MAX_SOURCE_CHARACTERS) is None
        largest = table(["w" * 40] * MAX_COLUMNS, *[["w" * 15] * MAX_COLUMNS] * (MAX_ROWS - 1))
        assert await draw(largest) is not None


@pytest.mark.parametrize("reply", ["", "no Base64", "é", "\ud83d", "aGVsbG8="])
async def test_reply_that_is_no_picture_is_dropped(reply: str) -> None:
    async def ask(_: str) -> str:
        return reply

    assert await draw(ask, FIVE) is None


async def test_drawing_ends_at_its_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask(_: str) -> str:
        await asyncio.get_running_loop().create_future()
        raise AssertionError("nobody answers this")

    monkeypatch.setattr(pictures, "DRAW_SECONDS", 0.01)
    assert await draw(ask, FIVE) is None
