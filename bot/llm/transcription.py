"""Speech to text: `POST /audio/transcriptions`, as OpenAI-compatible servers speak it.

Reference: https://platform.openai.com/docs/api-reference/audio/createTranscription
"""

import asyncio
from dataclasses import replace
from typing import Final

import httpx
from pydantic import BaseModel, ConfigDict, ValidationError

from bot.llm.counting import counted
from bot.llm.endpoint import Endpoint
from bot.llm.errors import LlmBroken, LlmTimeout, LlmUnavailable
from bot.llm.failures import refusal_from_http
from bot.llm.transport import bounded_body, sent

MAX_AUDIO_BYTES: Final = 23 * 2**20
"""A little less than the 25 MB that OpenAI takes; as Base64 it fits into 32 MiB."""
MAX_ANSWER_BYTES: Final = 64 * 1024
ATTEMPTS: Final = 2
RETRY_SECONDS: Final = 1.0

_SIGNATURES: Final = (
    (0, b"OggS", "ogg"),
    (0, b"ID3", "mp3"),
    (0, b"\xff\xfb", "mp3"),
    (0, b"\xff\xf3", "mp3"),
    (0, b"\xff\xf1", "aac"),
    (0, b"\xff\xf9", "aac"),
    (0, b"fLaC", "flac"),
    (0, b"RIFF", "wav"),
    (0, b"\x1aE\xdf\xa3", "webm"),
    (4, b"ftyp", "m4a"),
)
_UNKNOWN: Final = "m4a"


class _Transcript(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)

    text: str


class Transcriber:
    """Has speech written down by a model.

    Nothing vouches for that model: it is not for an endpoint that has to prove who listens.

    Args:
        transport: sends the requests; closed by whoever made it.
        endpoint: where; its time-out is that of a whole transcription.
        model: which model there.
    """

    def __init__(self, transport: httpx.AsyncBaseTransport, endpoint: Endpoint, model: str) -> None:
        self._transport = transport
        self._endpoint = endpoint
        self._model = model

    def use_key(self, api_key: str | None) -> None:
        """Take another bearer token, from the next request on."""
        self._endpoint = replace(self._endpoint, api_key=api_key)

    async def transcribe(self, audio: bytes) -> str:
        """Return what is said in a recording; empty where nothing is. Tried again once.

        Args:
            audio: a sound file of at most `MAX_AUDIO_BYTES`.

        Raises:
            LlmError: no usable answer.
        """
        with counted("transcription"):
            return await self._transcribe(audio)

    async def _transcribe(self, audio: bytes) -> str:
        try:
            async with asyncio.timeout(self._endpoint.timeout_seconds):
                for _ in range(ATTEMPTS - 1):
                    try:
                        return await self._attempt(audio)
                    except LlmUnavailable:
                        await asyncio.sleep(RETRY_SECONDS)
                return await self._attempt(audio)
        except (TimeoutError, httpx.ReadTimeout):
            raise LlmTimeout("The transcription did not come in time.") from None

    async def _attempt(self, audio: bytes) -> str:
        try:
            async with sent(self._transport, self._request(audio)) as response:
                body = await bounded_body(response, MAX_ANSWER_BYTES)
        except httpx.ReadTimeout:
            raise
        except httpx.TransportError as error:
            raise LlmUnavailable(str(error)) from error
        if not response.is_success:
            raise refusal_from_http(response.status_code, body).as_error()
        try:
            return _Transcript.model_validate_json(body).text.strip()
        except ValidationError:
            # `from None`: what cannot be read may hold what somebody said.
            raise LlmBroken("The transcription could not be understood.") from None

    def _request(self, audio: bytes) -> httpx.Request:
        return httpx.Request(
            "POST",
            self._endpoint.url("audio/transcriptions"),
            headers={**self._endpoint.headers, "accept": "application/json"},
            data={"model": self._model, "response_format": "json"},
            files={"file": (f"recording.{_suffix(audio)}", audio)},
        )


def _suffix(audio: bytes) -> str:
    """Return what a recording's file is called by its first bytes: servers go by the name."""
    for start, signature, suffix in _SIGNATURES:
        if audio.startswith(signature, start):
            return suffix
    return _UNKNOWN
