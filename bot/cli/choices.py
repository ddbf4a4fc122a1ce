"""Questions with a few answers, at a console."""

from collections.abc import Sequence

from bot.approvals.meaning import Meaning, meaning_of
from bot.cli.console import Console


async def choose(console: Console, question: str, options: Sequence[str], *, usual: int = 0) -> int:
    """Return which of the options somebody takes, by its number or its text.

    Args:
        console: where.
        question: what for.
        options: to choose from.
        usual: what Enter takes.
    """
    console.say(question)
    for number, option in enumerate(options, 1):
        console.say(f"  {number}. {option}")
    while True:
        answer = await console.ask(f"Number [{usual + 1}]:") or str(usual + 1)
        if answer in options:
            return options.index(answer)
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
