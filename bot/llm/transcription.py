"""Speech to text: `POST /audio/transcriptions`, as OpenAI-compatible servers speak it.

Reference: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import asyncio
import re
from dataclasses import dataclass
from typing import Final

import httpx2

from bot.llm.client import LlmClient, counted
from bot.llm.errors import LlmRejected, LlmTimeout, LlmUnavailable
from tools import ledger
from tools.http import Request

MAX_AUDIO_BYTES: Final = 23 * 2**20
"""A little less than OpenAI's 25 MB; as Base64 it fits into 32 MiB."""
MAX_ANSWER_BYTES: Final = 64 * 1024
RETRY_SECONDS: Final = 1.0

_SIGNATURES: Final = (
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"),
    (b"\xff\xf3", "mp3"),
    (b"\xff\xf2", "mp3"),
    (b"\xff\xfa", "mp3"),
    (b"fLaC", "flac"),
    (b"RIFF", "wav"),
    (b"\x1aE\xdf\xa3", "webm"),
    (b"", "m4a"),  # anything else, also raw AAC: OpenAI reads it, but only under this name
)
"""First bytes of recordings, with the suffix that servers expect; OpenAI refuses others."""
_RAW_AAC: Final = re.compile(rb"\xff[\xf0\xf1\xf8\xf9]")
_ANNOTATION: Final = re.compile(
    r"\[[^\[\]]{0,100}\]|\([^()]{0,100}\)|\uff08[^\uff08\uff09]{0,100}\uff09|【[^【】]{0,100}】|<[^<>]{0,100}>"
    r"|\*[^*]{0,100}\*|♪[^♪]{0,300}♪"
)
"""A model's remark about a sound that is no speech: [BLANK_AUDIO], (silence), *coughs*."""
_BLANK: Final = re.compile(
    r"\[\s*_*(?:BLANK[_ ]?AUDIO|SILENCE|NO[_ ]?SPEECH|(?:BEG|TT)_\w{0,8})\s*\]|<\|[^<>|]{1,30}\|>",
    re.IGNORECASE,
)
"""A mark that means nothing, even next to words."""


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Transcribes speech by a model.

    Nothing proves that model, so never use it if the endpoint needs a proof.

    The time-out applies to a whole transcription.
    """

    client: LlmClient
    model: str
    timeout_seconds: float

    async def transcribe(self, audio: bytes) -> str:
        """Return the words of a sound file of at most `MAX_AUDIO_BYTES`; empty without speech.

        Raises:
            LlmError: there is no transcription; LlmUnavailable only after a second attempt.
        """
        with counted("transcription"):
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    try:
                        return await self._attempt(audio)
                    except LlmUnavailable:
                        await asyncio.sleep(RETRY_SECONDS)
                    return await self._attempt(audio)
            except TimeoutError:
                raise LlmTimeout("The transcription did not come in time.") from None

    async def _attempt(self, audio: bytes) -> str:
        suffix = next(suffix for signature, suffix in _SIGNATURES if audio.startswith(signature))
        try:
            return await self._sent(audio, suffix)
        except LlmRejected:
            if not _RAW_AAC.match(audio):
                raise
        return await self._sent(audio, "aac")  # servers that trust the name refuse it as m4a

    async def _sent(self, audio: bytes, suffix: str) -> str:
        api = self.client.api
        url = f"{api.base_url}/audio/transcriptions"
        headers = {**api.headers, "accept": "application/json"}
        del headers["content-type"]  # the form's own names its boundary
        form = httpx2.Request(
            "POST",
            url,
            headers=headers,
            data={"model": self.model, "response_format": "json"},
            files={"file": (f"recording.{suffix}", audio)},
        )
        ledger.note("recording", self.client.reach.host, self.model, len(audio))
        return await self.client.told(
            Request(url, dict(form.headers), form.read()),
            lambda answer: spoken(answer["text"]),
            seconds=self.timeout_seconds,
            max_bytes=MAX_ANSWER_BYTES,
        )


def spoken(text: str) -> str:
    """Return the words of a transcription; empty if it only describes that nobody speaks."""
    words = _BLANK.sub("", text).strip()
    return words if any(map(str.isalnum, _ANNOTATION.sub("", words))) else ""
