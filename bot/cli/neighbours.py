"""Other packages with names like the bot's own, in an environment that is not the bot's alone."""

from importlib.metadata import distributions
from typing import Final

from bot.errors import BotError

OWN: Final = frozenset({"bot", "tools", "conversation_store"})
NAME: Final = "signal-tee-bot"
MIXED: Final = (
    "This Python environment also has {others}, with packages named like the bot's own (bot, tools,"
    " conversation_store). They overwrite each other. Give the bot an environment of its own:"
    " uv tool install signal-tee-bot, or pipx install signal-tee-bot."
)


def neighbours() -> str | None:
    """Return a sentence about other distributions with the bot's package names."""
    found = set()
    for other in distributions():
        folders = {file.parts[0] for file in other.files or ()}
        if other.name != NAME and not OWN.isdisjoint(folders):
            found.add(other.name)
    return MIXED.format(others=" and ".join(sorted(found))) if found else None


def explained(error: ImportError) -> Exception:
    """Return the error that says why a module of the bot is missing, otherwise the error itself."""
    words = neighbours()
    return error if words is None else BotError(words)
