"""Answers as voice notes: when the bot speaks, and what it says.

The answer is stored as text, with the words to be spoken next to it. The outbox has them spoken
just before it sends the answer, so after a crash they are spoken again. Without a recording, the
text goes alone.
"""

import asyncio
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import structlog

from bot.chat.rendering import Renderer
from bot.chat.turn import Turn, audited
from bot.llm.client import RetryPolicy
from bot.llm.errors import LlmError
from bot.llm.messages import ModelRequest
from bot.llm.speech import Speaker, Voices
from bot.signal.spoken_words import first_sentences
from conversation_store.models import AcceptedMessage, Attachment, Message, Role
from conversation_store.outbox import FileToMake
from conversation_store.store import ConversationStore

log = structlog.get_logger()

MAX_SPOKEN: Final = 900
"""Characters of a voice note: about a minute."""
SPOKEN_AT_ONCE: Final = 4
"""Voice notes of all chats that are made at the same time."""
SHORTER_SECONDS: Final = 20.0
SPEAK_SECONDS: Final = 45.0
"""From the request to the recording, with a second attempt in another format."""
PATIENCE: Final = RetryPolicy(bound_seconds=5.0, unreached_seconds=3.0)

SHORTER: Final = (
    "Say the following answer in at most {words} words, in its own language, to be read aloud. Keep"
    " what matters most. Answer with these words alone, without Markdown, links or lists."
)

_SOURCE: Final = re.compile(r"speech (\d+)\n")


@dataclass(eq=False, repr=False, slots=True)
class Voice:
    """Speaks answers."""

    speaker: Speaker
    voices: Voices
    renderer: Renderer
    store: ConversationStore
    _places: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(SPOKEN_AT_ONCE), init=False
    )

    async def to_speak(self, turn: Turn, pieces: Sequence[AcceptedMessage]) -> FileToMake | None:
        """Return the words of an answer to speak; None if the chat wants no voice note.

        The model shortens a long answer.
        """
        when = self.voices.of(turn.chat)
        heard = any(file.voice_note for piece in pieces for file in piece.message.files)
        if when == "off" or (when == "auto" and not heard):
            return None
        words = await self.renderer.spoken(turn.answer)
        if len(words) > MAX_SPOKEN:
            words = await self._shorter(turn, words)
        return FileToMake(f"speech {turn.id}\n{words}", is_alone=True) if words else None

    async def _shorter(self, turn: Turn, words: str) -> str:
        model = turn.route.model
        told = SHORTER.format(words=MAX_SPOKEN // 8)
        request = ModelRequest((Message(Role.SYSTEM, told), Message(Role.USER, words)), (), False)
        try:
            async with asyncio.timeout(SHORTER_SECONDS):
                completion = await model.complete(
                    request,
                    still_trying=lambda: None,
                    cancelled=partial(turn.count_tokens, model),
                    patience=PATIENCE,
                )
            turn.count(model, completion)
            shorter = await self.renderer.spoken(completion.message.content or "")
        except (LlmError, TimeoutError) as error:
            log.info("speech.not_shortened", error=type(error).__name__)
            shorter = ""
        return first_sentences(shorter or words, MAX_SPOKEN)

    async def made(self, source: str) -> Attachment | None:
        """Return the voice note of a source that `to_speak` has made; None if there is none."""
        about = _SOURCE.match(source)
        if about is None:
            return None
        try:
            async with asyncio.timeout(SPEAK_SECONDS), self._places:
                with audited(self.store, int(about[1]), "speech", source):
                    return await self.speaker.speak(source[about.end() :])
        except (LlmError, TimeoutError, ValueError) as error:
            log.info("speech.failed", error=type(error).__name__)
            return None


def is_speech(source: str) -> bool:
    """Return whether a file to be made is a voice note."""
    return _SOURCE.match(source) is not None
