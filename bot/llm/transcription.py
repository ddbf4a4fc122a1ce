"""Speech to text: `POST /audio/transcriptions`, as OpenAI-compatible servers speak it.

Reference: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import asyncio
from dataclasses import dataclass
from typing import Final

import httpx2
from pydantic_core import from_json

from bot.llm.api import Api
from bot.llm.client import counted
from bot.llm.errors import LlmBroken, LlmTimeout, LlmUnavailable
from bot.llm.refusals import refusal_from_http
from tools.http import AiohttpTransport, Request, bounded_body

MAX_AUDIO_BYTES: Final = 23 * 2**20
"""A little less than OpenAI's 25 MB; as Base64 it fits into 32 MiB."""
MAX_ANSWER_BYTES: Final = 64 * 1024
RETRY_SECONDS: Final = 1.0

_SIGNATURES: Final = (
    (b"OggS", "ogg"),
    (b"ID3", "mp3"),
    (b"\xff\xfb", "mp3"),
    (b"\xff\xf3", "mp3"),
    (b"\xff\xf1", "aac"),
    (b"\xff\xf9", "aac"),
    (b"fLaC", "flac"),
    (b"RIFF", "wav"),
    (b"\x1aE\xdf\xa3", "webm"),
    (b"", "m4a"),  # anything else
)
"""First bytes of recordings, with the suffix: servers go by the name."""


@dataclass(frozen=True, slots=True)
class Transcriber:
    """Lets a model write down speech.

    Nothing proves that model, so endpoints that need a proof must not use it.

    Attributes:
        transport: sends the requests; its creator closes it.
        api: of the endpoint, with its address and key.
        timeout_seconds: for a whole transcription.
    """

    transport: AiohttpTransport
    api: Api
    model: str
    timeout_seconds: float

    async def transcribe(self, audio: bytes) -> str:
        """Return the words of a recording, or an empty text; LlmError after two failures.

        Args:
            audio: a sound file of at most `MAX_AUDIO_BYTES`.
        """
        with counted("transcription"):
            try:
                async with asyncio.timeout(self.timeout_seconds):
                    try:
                        return await self._attempt(audio)
                    except LlmUnavailable:
                        await asyncio.sleep(RETRY_SECONDS)
                    return await self._attempt(audio)
            except (TimeoutError, httpx2.ReadTimeout):
                raise LlmTimeout("The transcription did not come in time.") from None

    async def _attempt(self, audio: bytes) -> str:
        try:
            async with self.transport.sent(self._request(audio)) as response:
                body = await bounded_body(response, MAX_ANSWER_BYTES)
        except httpx2.ReadTimeout:
            raise
        except httpx2.TransportError as error:
            raise LlmUnavailable(str(error)) from error
        if not response.is_success:
            raise refusal_from_http(response.status, body)
        try:
            text = from_json(body)["text"].strip()
        except (ValueError, TypeError, LookupError, AttributeError):
            raise LlmBroken("The transcription could not be understood.") from None
        return str(text)

    def _request(self, audio: bytes) -> Request:
        url = f"{self.api.base_url}/audio/transcriptions"
        suffix = next(suffix for signature, suffix in _SIGNATURES if audio.startswith(signature))
        headers = {**self.api.headers, "accept": "application/json"}
        del headers["content-type"]  # the form's own names its boundary
        form = httpx2.Request(
            "POST",
            url,
            headers=headers,
            data={"model": self.model, "response_format": "json"},
            files={"file": (f"recording.{suffix}", audio)},
        )
        return Request(url, dict(form.headers), form.read())
