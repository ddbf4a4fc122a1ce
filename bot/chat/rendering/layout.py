"""An answer as the messages that Signal shows, with the notices above it."""

from collections.abc import Sequence
from dataclasses import replace

from bot.signal.formatting import split, split_styled
from bot.signal.markdown import render
from conversation_store.models import StyledText


def rendered(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of an answer whose Markdown is shown as Signal's styles.

    Args:
        answer: what the model wrote.
        notices: plain lines above it.
    """
    return split_styled(_below(notices, render(answer)))


def plain(answer: str, notices: Sequence[str]) -> tuple[StyledText, ...]:
    """Return the messages of an answer that is shown as it was typed."""
    return tuple(map(StyledText, split("\n\n".join(filter(None, ("\n".join(notices), answer))))))


def _below(notices: Sequence[str], styled: StyledText) -> StyledText:
    """Put plain lines above a text; its styles move with it, counted in UTF-16 units."""
    if not notices:
        return styled
    opening = "\n".join(notices) + "\n\n"
    moved = len(opening.encode("utf-16-le", "replace")) // 2
    styles = (replace(style, start=style.start + moved) for style in styled.styles)
    return StyledText(opening + styled.text, tuple(styles))
