"""`!language`: in which language the bot itself speaks here."""

from typing import Final, Protocol

from bot.commands.base import CommandContext, Reply
from bot.language.catalogs import NAMES

AUTOMATIC: Final = "auto"

HOW: Final = "Send !language and one of: {codes}. With auto I speak as you write."
UNKNOWN: Final = "I do not speak that language. I speak: {codes}."
CHOSEN: Final = (
    "From now on I speak English here. The model answers in the language that you write."
)
AS_WRITTEN: Final = "From now on I speak here as you write."
NOW_CHOSEN: Final = "I speak {language} here, because somebody chose it."
NOW_HEARD: Final = "I speak {language} here, as you write."


class Languages(Protocol):
    """Who knows. Implemented by `bot.language.languages.Languages`."""

    def of(self, chat: str) -> str:
        """Return the language of a chat, by ISO 639-1."""
        ...

    def is_chosen(self, chat: str) -> bool:
        """Whether somebody has chosen it."""
        ...

    async def choose(self, chat: str, language: str | None) -> None:
        """Speak a language from now on; None: as people write."""
        ...


class Language:
    """Chooses, or shows, the language of the bot's own sentences in a chat."""

    name = "language"
    summary = "choose the language of my own sentences"
    urgent = False

    def __init__(self, languages: Languages) -> None:
        self._languages = languages

    async def run(self, context: CommandContext) -> Reply:
        """Choose a language by its code or its name."""
        codes = ", ".join(f"{code} ({name})" for code, name in NAMES.items())
        wanted = context.argument.strip().casefold()
        if not wanted:
            return Reply("\n".join((self._now(context), HOW.format(codes=codes))))
        if wanted == AUTOMATIC:
            await self._languages.choose(context.chat, None)
            return Reply(AS_WRITTEN)
        known = {code: code for code in NAMES} | {n.casefold(): code for code, n in NAMES.items()}
        if wanted not in known:
            return Reply(UNKNOWN.format(codes=codes))
        await self._languages.choose(context.chat, known[wanted])
        return Reply(CHOSEN)

    def _now(self, context: CommandContext) -> str:
        sentence = NOW_CHOSEN if self._languages.is_chosen(context.chat) else NOW_HEARD
        return sentence.format(language=NAMES[self._languages.of(context.chat)])
