"""Questions with a few answers, at a console."""

from collections.abc import Sequence

from bot.approvals.meaning import Meaning, meaning_of
from bot.cli.console import Console


async def choose(console: Console, question: str, options: Sequence[str]) -> int:
    """Return which of the options somebody takes; Enter takes the first."""
    console.say(question)
    for number, option in enumerate(options, 1):
        console.say(f"  {number}. {option}")
    while True:
        answer = await console.ask("Number [1]:") or "1"
        if answer.isascii() and answer.isdigit() and 1 <= int(answer) <= len(options):
            return int(answer) - 1
        console.say(f"Please answer with a number from 1 to {len(options)}.")


async def agrees(console: Console, question: str) -> bool:
    """Return whether somebody says yes; Enter is a yes."""
    while True:
        answer = await console.ask(f"{question} [Y/n]")
        meaning = meaning_of(answer) if answer else Meaning.YES
        if meaning in {Meaning.YES, Meaning.NO}:
            return meaning is Meaning.YES
        console.say("Please answer yes or no.")
