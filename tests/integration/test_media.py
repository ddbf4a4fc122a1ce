"""A file's whole way: from a phone over signal-cli into the model's request, and out of the way."""

import base64
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Final

from PIL import Image as Picture

from bot.attestation.near_ai.encryption import RequestKeys, request_keys
from bot.chat.intake import received
from bot.chat.media import Media, Prepared, open_media
from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.transcription import MAX_AUDIO_BYTES, Transcriber
from bot.signal.signal_daemon import SignalDaemon
from conversation_store.models import Image, Message, ReceivedMessage, Role
from tests.contract.harnesses import Receiver, in_background
from tests.fakes.near_ai_encryption import EncryptedModel
from tests.fakes.openai_server import (
    MODEL,
    OpenAiServer,
    form_fields,
    images_in,
    openai_server,
    text,
    transcript,
)
from tests.fakes.signal_side import SharedFile, SignalSide

PLACE: Final = b"taken in Berlin"


@dataclass(frozen=True, slots=True)
class World:
    """A person's phone, the bot's side of Signal, its media, and the model."""

    side: SignalSide
    phone: Receiver
    media: Media
    client: LlmClient
    server: OpenAiServer
    folder: Path

    async def sent(self, *files: SharedFile, words: str | None = None) -> list[ReceivedMessage]:
        await self.side.say(words, files=files)
        return [received(await self.phone.next_message(), now_ms=1)]

    def left(self) -> list[Path]:
        return list((self.folder / "attachments").iterdir())

    async def asked(self, prepared: Prepared) -> None:
        images = tuple(Image(image.content_type, image.data) for image in prepared.images)
        await self.client.complete([Message(Role.USER, "\n".join(prepared.words), images=images)])


async def sees_images() -> bool:
    return True


@asynccontextmanager
async def world(
    folder: Path, *, encryption: Callable[[], Awaitable[RequestKeys]] | None = None
) -> AsyncIterator[World]:
    async with (
        openai_server(text("I see.")) as server,
        open_transport(LlmSettings(base_url=server.base_url, model=MODEL)) as transport,
        SignalSide.listen(folder / "socket", data_dir=folder) as side,
    ):
        endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
        client = LlmClient(transport, endpoint, seal=encryption)
        messenger = SignalDaemon(f"unix:{side.path}", side.account.number, data_dir=folder)
        phone = Receiver()
        async with (
            in_background(messenger.run(phone.deliver)),
            open_media(
                messenger,
                transcriber=Transcriber(
                    LlmClient(transport, endpoint), "whisper-1", endpoint.timeout_seconds
                ),
            ) as media,
        ):
            await phone.until(lambda: messenger.connected)
            yield World(side, phone, media, client, server, folder)


def photograph(width: int = 4_000, height: int = 3_000) -> bytes:
    """A noisy photograph that says where it was taken."""
    small = Picture.frombytes("RGB", (400, 300), os.urandom(400 * 300 * 3))
    exif = Picture.Exif()
    exif[0x010E] = PLACE.decode()
    file = BytesIO()
    small.resize((width, height)).save(file, "JPEG", quality=92, exif=exif)
    return file.getvalue()


def shown(urls: Sequence[str]) -> list[bytes]:
    return [base64.b64decode(url.partition("base64,")[2]) for url in urls]


async def test_a_photograph_reaches_the_model_small_and_without_its_place(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        data = photograph()
        assert PLACE in data
        messages = await here.sent(SharedFile("image/jpeg", data), words="What is this?")
        await here.asked(await here.media.prepare(messages, sees_images))

    (image,) = shown(images_in(here.server.requests[0]))
    assert Picture.open(BytesIO(image)).size == (1_568, 1_176)
    assert len(image) < 2**20
    assert PLACE not in image


async def test_a_sealed_photograph_is_seen_by_the_model_alone(tmp_path: Path) -> None:
    model = EncryptedModel()
    async with world(tmp_path, encryption=partial(request_keys, model.encryption_key)) as here:
        here.server.handler = model.reads(text("I see."))
        messages = await here.sent(SharedFile("image/jpeg", photograph(400, 300)))
        await here.asked(await here.media.prepare(messages, sees_images))

    assert images_in(here.server.requests[0]) == []
    assert b"image" not in here.server.received[-1].raw
    (image,) = shown(images_in(model.read[0]))
    assert Picture.open(BytesIO(image)).size == (400, 300)


async def test_a_voice_note_of_the_greatest_length_is_heard(tmp_path: Path) -> None:
    speech = b"OggS" + bytes(MAX_AUDIO_BYTES - 4)
    async with world(tmp_path) as here:
        here.server.transcription_handler = transcript("Good morning.")
        messages = await here.sent(SharedFile("audio/ogg", speech, voice_note=True))
        prepared = await here.media.prepare(messages, sees_images)

    assert prepared.words == ("[voice note] Good morning.",)
    assert prepared.notices == ("🎤 “Good morning.”",)
    assert form_fields(here.server.received[-1])["file"] == speech


async def test_after_use_the_files_are_gone_from_signal_clis_folder(tmp_path: Path) -> None:
    async with world(tmp_path) as here:
        messages = await here.sent(
            SharedFile("text/plain", b"A list.", name="list.txt"),
            SharedFile("video/mp4", b"...", name="clip.mp4"),
        )
        prepared = await here.media.prepare(messages, sees_images)
        assert "A list." in prepared.words[0]
        assert len(here.left()) == 2

        await here.media.discard(messages)
        assert here.left() == []

        again = await here.media.prepare(messages, sees_images)

    assert again.notices[0].endswith("I could not get it from Signal. Please send it again.")
    assert again.notices[1].startswith("About “clip.mp4”: I cannot read it.")
    assert not again.has_words
