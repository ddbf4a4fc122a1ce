"""Draws the picture of README from a real run of the demo: a terminal, and the same on a phone.

`make picture` runs it. The bot answers again each time, and only the clock differs.
"""

import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from unicodedata import east_asian_width
from xml.sax.saxutils import escape

QUESTIONS: Final = ("What is 127*43?", "What is 5 km in miles?", "Thanks!")
PICTURE: Final = Path(__file__).parents[1] / "docs" / "demo.svg"

GREETING: Final = re.compile(r"\n\n")
TIME: Final = re.compile(r"\b\d\d:\d\d\b")
TIME_SHOWN: Final = "10:24"

MARGIN: Final = 20
ROW: Final = 18
COLUMN: Final = 8.4
PHONE_WIDTH: Final = 330
LETTER: Final = 8.0
BUBBLE_COLUMNS: Final = 30


@dataclass(frozen=True, slots=True)
class Bubble:
    """A message as the demo shows it."""

    mine: bool
    text: str


def transcript(questions: Sequence[str]) -> str:
    """Return the output of the demo for these messages, after its greeting."""
    command = [sys.executable, "-m", "bot", "demo", "--say", *questions]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    _, shown = GREETING.split(done.stdout, maxsplit=1)
    return TIME.sub(TIME_SHOWN, shown.rstrip())


def bubbles(shown: str) -> Iterator[Bubble]:
    """Parse the messages: each is followed by a line with its sender and time."""
    text: list[str] = []
    for line in shown.splitlines():
        if line.startswith(("You · ", "Bot · ")):
            yield Bubble(line.startswith("You"), " ".join(text))
            text = []
        elif line:
            text.append(line)


def as_on_a_phone(found: Sequence[Bubble]) -> list[Bubble]:
    """Leave out what a phone shows no more: a message before its edit."""
    return [bubble for bubble in found if not bubble.text.endswith("…")]


def draw(shown: str) -> str:
    """Return the picture."""
    lines = shown.splitlines()
    width = max(map(len, lines)) * COLUMN
    height = max(len(lines) * ROW, 300) + 3 * MARGIN
    left = width + 4 * MARGIN
    parts = [
        (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + PHONE_WIDTH + MARGIN:.0f}"'
            f' height="{height:.0f}" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace"'
            ' font-size="14">'
        ),
        _box(MARGIN / 2, MARGIN / 2, width + 2 * MARGIN, height - MARGIN, "#1e1e2e"),
        *(_typed(line, 2 * MARGIN + (number + 0.5) * ROW) for number, line in enumerate(lines)),
        _box(left, MARGIN / 2, PHONE_WIDTH, height - MARGIN, "#ffffff", edge="#9ca0b0"),
        *_phone(as_on_a_phone(list(bubbles(shown))), left),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _typed(line: str, y: float) -> str:
    """Row of the terminal; its ends are at their columns in any font."""
    indent = len(line) - len(line.lstrip())
    columns = sum(2 if east_asian_width(one) in "WF" else 1 for one in line) - indent
    return (
        f'<text x="{1.5 * MARGIN + indent * COLUMN:.1f}" y="{y:.0f}" fill="#cdd6f4"'
        f' textLength="{columns * COLUMN:.1f}" xml:space="preserve">{escape(line.strip())}</text>'
    )


def _phone(shown: Sequence[Bubble], left: float) -> Iterator[str]:
    yield (
        f'<text x="{left + PHONE_WIDTH / 2}" y="{2 * MARGIN}" text-anchor="middle"'
        ' font-family="system-ui, sans-serif" font-weight="600">signal-tee-bot</text>'
    )
    top = 3.0 * MARGIN
    for bubble in shown:
        rows = _wrapped(bubble.text)
        width = max(map(len, rows)) * LETTER + MARGIN
        x = left + (PHONE_WIDTH - width - MARGIN / 2 if bubble.mine else MARGIN / 2)
        fill, ink = ("#2c6bed", "#ffffff") if bubble.mine else ("#e9e9e9", "#1b1b1b")
        yield _box(x, top, width, len(rows) * ROW + MARGIN / 2, fill)
        for number, row in enumerate(rows):
            yield (
                f'<text x="{x + MARGIN / 2:.0f}" y="{top + (number + 1) * ROW:.0f}" fill="{ink}"'
                f' font-family="system-ui, sans-serif">{escape(row)}</text>'
            )
        top += len(rows) * ROW + MARGIN


def _wrapped(text: str) -> list[str]:
    rows = [""]
    for word in text.split():
        if rows[-1] and len(rows[-1]) + len(word) >= BUBBLE_COLUMNS:
            rows.append("")
        rows[-1] = f"{rows[-1]} {word}".strip()
    return rows


def _box(x: float, y: float, width: float, height: float, fill: str, *, edge: str = "none") -> str:
    return (
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}" rx="12"'
        f' fill="{fill}" stroke="{edge}"/>'
    )


if __name__ == "__main__":
    PICTURE.write_text(draw(transcript(QUESTIONS)))
