"""Text to speech: `POST /audio/speech`, as OpenAI-compatible servers speak it.

Reference: https://platform.openai.com/docs/api-reference/audio/createSpeech
"""

import json
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from bot.llm.client import LlmClient, counted
from bot.llm.errors import LlmBroken, LlmRejected
from bot.llm.sound import NoSound, sound_file
from conversation_store.models import VOICE_NOTE, Attachment
from conversation_store.store import ConversationStore
from tools import ledger
from tools.http import Request

When = Literal["off", "on", "auto"]
"""When the bot speaks: never, always, or as an answer to a voice note."""

CHOSEN: Final = "voice of "
"""Prefix of the store's key for the choice of a chat; the chat follows."""

SECONDS: Final = 30.0
MAX_SPEECH_BYTES: Final = 4 * 2**20
MAX_SPEECH_SECONDS: Final = 300.0
NOT_PLAYED: Final = "It answered with a recording that phones do not play, or with none."
TOO_LONG: Final = "It answered with a recording that is too long."

# Signal's apps record AAC, and all of them play it. Not every server makes it.
_FORMATS: Final = ("aac", "opus")


class Voices:
    """The choice of each chat when the bot speaks there."""

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self._chosen: dict[str, When] = {}

    async def resume(self) -> None:
        """Load the choices of earlier processes."""
        for name, value in (await self._store.metadata_below(CHOSEN)).items():
            for when in get_args(When):
                if value == when:
                    self._chosen[name.removeprefix(CHOSEN)] = when

    def of(self, chat: str) -> When:
        """Return when the bot speaks in a chat."""
        return self._chosen.get(chat, "off")

    async def choose(self, chat: str, when: When) -> None:
        """Set when the bot speaks in a chat."""
        await self._store.set_metadata(CHOSEN + chat, when)
        self._chosen[chat] = when


@dataclass(eq=False, slots=True)
class Speaker:
    """Turns text into voice notes by a text-to-speech model.

    Attributes:
        voice: the server's name for it.
    """

    client: LlmClient
    model: str
    voice: str
    _format: str = field(default=_FORMATS[0], init=False)

    async def speak(self, text: str) -> Attachment:
        """Return a text as a voice note for phones; LlmError without one."""
        with counted("speech"):
            try:
                return _voice_note(await self._sound(text, self._format))
            except (LlmRejected, LlmBroken):
                if self._format != _FORMATS[0]:
                    raise
            note = _voice_note(await self._sound(text, _FORMATS[1]))
            self._format = _FORMATS[1]
            return note

    async def _sound(self, text: str, form: str) -> bytes:
        api = self.client.api
        asked = {"model": self.model, "voice": self.voice, "input": text, "response_format": form}
        body = json.dumps(asked, ensure_ascii=False).encode(errors="replace")
        ledger.note("speech", self.client.reach.host, self.model, len(body))
        request = Request(
            f"{api.base_url}/audio/speech", {**api.headers, "accept": "audio/*"}, body
        )
        return await self.client.fetched(request, seconds=SECONDS, max_bytes=MAX_SPEECH_BYTES)


def _voice_note(data: bytes) -> Attachment:
    """Return a recording with the name and type of its kind."""
    try:
        sound = sound_file(data)
    except NoSound as error:
        raise LlmBroken(f"{NOT_PLAYED} {error}") from None
    if len(data) >= MAX_SPEECH_BYTES or sound.seconds > MAX_SPEECH_SECONDS:
        raise LlmBroken(TOO_LONG)
    return Attachment(f"{VOICE_NOTE}{sound.suffix}", sound.content_type, data)
