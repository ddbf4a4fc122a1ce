"""Attachments: texts about them for the model and for the person."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from io import BytesIO
from typing import Final, NoReturn

import pytest
from PIL import Image
from structlog.testing import capture_logs

from bot.chat import media
from bot.chat.media import Media, Prepared, open_media
from bot.config.llm import LlmSettings
from bot.llm.client import LlmClient, open_transport
from bot.llm.transcription import Transcriber
from bot.signal.errors import SignalError, SignalRejected
from bot.signal.messenger import FileTooBig
from conversation_store.models import ChatId, ReceivedFile, ReceivedMessage
from tests.fakes.office import docx, paragraph, row, xlsx
from tests.fakes.openai_server import (
    MODEL,
    OpenAiServer,
    Step,
    openai_server,
    status,
    transcript,
)
from tests.fakes.partial_messenger import PartialMessenger
from tests.integration.web_pages import pdf
from tests.skipped_waits import run_without_waiting
from tools.base import UNTRUSTED

JPEG: Final = ReceivedFile("a.jpg", "image/jpeg")
VOICE: Final = ReceivedFile("b.m4a", "audio/mp4", voice_note=True)
PDF: Final = ReceivedFile("c.pdf", "application/pdf", name="invoice.pdf")
TEXT: Final = ReceivedFile("d.txt", "text/plain", name="list.txt")
SPEECH: Final = b"OggS and so on"


def picture(colour: str = "red", form: str = "JPEG") -> bytes:
    file = BytesIO()
    Image.new("RGB", (8, 8), colour).save(file, form)
    return file.getvalue()


class Folder(PartialMessenger):
    """Files by their ids, as the Signal side keeps them."""

    def __init__(self, files: Mapping[str, bytes | SignalError]) -> None:
        self.files = dict(files)
        self.fetched: list[tuple[ChatId, str, int]] = []

    async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
        self.fetched.append((chat, file.id, max_bytes))
        held = self.files.get(file.id, SignalRejected("it is not there"))
        if isinstance(held, SignalError):
            raise held
        if len(held) > max_bytes:
            raise FileTooBig("it is larger")
        return held

    async def discard_file(self, file: ReceivedFile) -> None:
        held = self.files.pop(file.id, b"")
        if isinstance(held, SignalError):
            raise held


def message(*files: ReceivedFile, text: str = "", view_once: bool = False) -> ReceivedMessage:
    return ReceivedMessage(
        account="+4915100000000",
        author="7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11",
        timestamp=1,
        chat=ChatId.parse("direct:7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"),
        text=text,
        received_at=2,
        sent_at=1,
        files=files,
        view_once=view_once,
    )


@contextlib.asynccontextmanager
async def media_of(
    folder: Folder,
    *,
    hears: Step | None = None,
    sees: bool = True,
    words_bytes: int = media.WORDS_BYTES,
) -> AsyncIterator[tuple[Media, Callable[[], Awaitable[bool]], OpenAiServer]]:
    """Everything is real but the folder and the model's endpoint."""

    async def sees_images() -> bool:
        return sees

    async with openai_server() as server:
        server.transcription_handler = hears or status(404)
        endpoint = LlmSettings(base_url=server.base_url, model=MODEL)
        async with open_transport(endpoint) as transport:
            opened = open_media(
                folder,
                transcriber=Transcriber(
                    LlmClient(transport, endpoint), "whisper-1", endpoint.timeout_seconds
                )
                if hears
                else None,
                words_bytes=words_bytes,
            )
            async with opened as reader:
                yield reader, sees_images, server


async def prepared(
    folder: Folder,
    *messages: ReceivedMessage,
    hears: Step | None = None,
    sees: bool = True,
    words_bytes: int = media.WORDS_BYTES,
) -> Prepared:
    async with media_of(folder, hears=hears, sees=sees, words_bytes=words_bytes) as (
        reader,
        sees_images,
        _,
    ):
        return await reader.prepare(messages, sees_images)


def untold(what: Prepared) -> bool:
    """Whether nothing is left of it for the model to be asked about."""
    return not what.has_words and not what.images and not what.fleeting


# Words ------------------------------------------------------------------------------------------


# Images -----------------------------------------------------------------------------------------


async def test_an_image_is_shown_to_a_model_that_sees() -> None:
    folder = Folder({"a.jpg": picture()})

    what = await prepared(folder, message(text="What is this?"), message(JPEG))

    assert what.words[0] == ""
    assert what.words[1].startswith(f"{UNTRUSTED}an image")
    assert [image.content_type for image in what.images] == ["image/jpeg"]
    assert (what.notices, what.fleeting, what.has_words) == ((), (), True)
    ((chat, _, _),) = folder.fetched
    assert str(chat) == message().chat


@pytest.mark.parametrize("text", ["", "What is this?"])
async def test_for_a_model_that_cannot_see_images_stay_where_they_are(text: str) -> None:
    folder = Folder({"a.jpg": picture()})

    what = await prepared(folder, message(JPEG, JPEG, text=text), sees=False)

    assert what.notices == (media.CANNOT_SEE,)
    assert what.notices[0].startswith("I cannot see images")
    assert what.words[0].count("which you cannot see") == 2
    assert (what.images, what.has_words, folder.fetched) == ((), bool(text), [])


async def test_a_view_once_image_is_shown_and_never_to_be_stored() -> None:
    folder = Folder({"a.jpg": picture()})

    what = await prepared(folder, message(JPEG, view_once=True))

    assert len(what.fleeting) == 1
    assert what.images == ()
    assert "a view-once image, which is not kept" in what.words[0]
    assert what.has_words


async def test_a_broken_image_is_a_sentence_and_the_next_one_is_shown() -> None:
    folder = Folder({"a.jpg": b"\xff\xd8\xff and then nothing", "e.jpg": picture()})

    what = await prepared(folder, message(JPEG, replace(JPEG, id="e.jpg")))

    assert len(what.images) == 1
    assert len(what.notices) == 1
    assert what.notices[0].startswith("About the image: This")
    assert "which you cannot read" in what.words[0]


# Voices -----------------------------------------------------------------------------------------


async def test_a_voice_note_becomes_words_and_the_person_sees_which() -> None:
    hears = transcript("Will it rain\n tomorrow? " + "x" * 300)

    what = await prepared(Folder({"b.m4a": SPEECH}), message(VOICE), hears=hears)

    assert what.words[0].startswith("[voice note] Will it rain\n tomorrow?")
    (notice,) = what.notices
    assert notice.startswith("🎤 “Will it rain tomorrow? xxx")
    assert notice.endswith("x…”")
    assert len(notice) == len("🎤 “…”") + media.SHOWN_CHARACTERS
    assert what.has_words


async def test_a_recording_that_was_made_elsewhere_may_hold_strangers_words() -> None:
    song = ReceivedFile("s.mp3", "audio/mpeg", name="song.mp3")

    what = await prepared(Folder({"s.mp3": SPEECH}), message(song), hears=transcript("la la"))

    assert what.words[0].startswith(f"{UNTRUSTED}a recording")
    assert "la la" in what.words[0]


@pytest.mark.parametrize(
    ("hears", "notice"),
    [(status(401), media.NOT_HEARD), (transcript("  "), media.HEARD_NOTHING)],
)
async def test_a_failed_transcription_is_reported(hears: Step, notice: str) -> None:
    what = await prepared(Folder({"b.m4a": SPEECH}), message(VOICE), hears=hears)

    assert what.notices == (notice,)
    assert untold(what)


@pytest.mark.parametrize(
    ("file", "notice"), [(VOICE, media.NO_VIEW_ONCE_VOICE), (TEXT, media.NO_VIEW_ONCE_FILE)]
)
async def test_view_once_recordings_and_documents_are_refused(
    file: ReceivedFile, notice: str
) -> None:
    folder = Folder({file.id: SPEECH})
    async with media_of(folder, hears=transcript("secret")) as (reader, sees_images, server):
        what = await reader.prepare([message(file, view_once=True)], sees_images)

    assert what.notices == (notice,)
    assert untold(what)
    assert (folder.fetched, server.received) == ([], [])


# Documents --------------------------------------------------------------------------------------


DOCUMENTS: Final[list[tuple[ReceivedFile, bytes]]] = [
    (PDF, pdf("It costs 12 euros.")),
    (TEXT, b"It costs 12 euros."),
    (replace(TEXT, content_type="text/html"), b"<html><p>It costs 12 euros.</p></html>"),
    (ReceivedFile("d", "application/json"), b'{"note": "It costs 12 euros."}'),
    (ReceivedFile("d", "application/octet-stream", name="a.py"), b"# It costs 12 euros."),
    (ReceivedFile("d", "application/octet-stream"), b"It costs 12 euros."),
    (
        ReceivedFile("d", "application/octet-stream", name="a.docx"),
        docx(paragraph("It costs 12 euros.")),
    ),
    (
        ReceivedFile("d", "application/vnd.ms-excel", name="a.xlsx"),
        xlsx(row("It costs 12 euros.")),
    ),
    (ReceivedFile("d", "application/vnd.ms-excel", name="a.CSV"), b"It costs 12 euros.;1"),
    (ReceivedFile("d", "video/mp2t", name="a.ts"), b"// It costs 12 euros."),
    (ReceivedFile("d", "text/plain"), "It costs 12 euros. Grüße".encode("utf-16")),
]


async def test_documents_become_text_that_is_marked_as_strangers_words() -> None:
    folder = Folder({})
    async with media_of(folder) as (reader, sees_images, _):
        for file, body in DOCUMENTS:
            folder.files = {file.id: body}
            what = await reader.prepare([message(file)], sees_images)
            assert what.words[0].startswith(f"{UNTRUSTED}a file, begins here: "), file
            assert "It costs 12 euros." in what.words[0], file
            assert what.words[0].endswith("ends here.]"), file
            assert (what.notices, what.has_words) == ((), True), file


async def test_a_long_document_is_cut_and_says_so() -> None:
    body = "é" * (media.MAX_DOCUMENT_CHARACTERS + 1)

    what = await prepared(Folder({"d.txt": body.encode()}), message(TEXT))

    assert what.words[0].count("é") == media.MAX_DOCUMENT_CHARACTERS
    assert what.words[0].endswith("[Only its first 20,000 of 20,001 characters are here.]")


async def test_all_documents_of_a_turn_share_the_room_there_is() -> None:
    folder = Folder({"d.txt": b"a" * 1_500, "e.txt": b"b" * 1_500, "f.txt": b"c" * 1_500})
    files = (TEXT, replace(TEXT, id="e.txt"), replace(TEXT, id="f.txt"))

    what = await prepared(folder, message(*files[:2]), message(files[2]), words_bytes=3_000)

    assert sum(len(words.encode()) for words in what.words) < 3_000 + 400
    assert what.words[0].count("a") > 1_500
    assert "[Cut: only the beginning" in what.words[0]
    assert what.notices == (
        "About “list.txt”: It is too much to read at once; please send it in a message of its own.",
    )


UNREADABLE: Final[list[tuple[ReceivedFile, bytes | SignalError, str]]] = [
    (PDF, b"%PDF-1.4 and then nothing", "This PDF is broken"),
    (PDF, pdf(""), "This PDF has no text"),
    (TEXT, b"PK\x03\x04\x14\0", "This is binary data (text/plain)"),
    (TEXT, b"\0\1\2\3", "This is binary data"),
    (TEXT, b"", "It is empty."),
    (TEXT, b"x" * (media.MAX_DOCUMENT_BYTES + 1), "It is too large; I read up to 10 MB"),
    (TEXT, SignalRejected("gone"), "I could not get it from Signal."),
    (replace(TEXT, id="gone"), b"", "I could not get it from Signal."),
]


async def test_unreadable_files_are_reported_by_their_names() -> None:
    folder = Folder({})
    async with media_of(folder) as (reader, sees_images, _):
        for file, body, words in UNREADABLE:
            folder.files = {"c.pdf": body, "d.txt": body}
            what = await reader.prepare([message(file, text="Please sum this up.")], sees_images)
            assert what.notices[0].startswith(f"About “{file.name}”: {words}")
            assert f"\n“{file.name}”\n[Untrusted content" in what.words[0]
            assert what.words[0].endswith("You cannot read this file; the person was told so.]")
            assert what.has_words


@pytest.mark.parametrize(
    ("content_type", "name", "title"),
    [
        ("application/msword", "a.doc", "a.doc"),
        ("video/mp4", None, ""),
        ("application/zip", "[b]\n*c*“.zip", "b *c* .zip"),
        ("font/ttf", "x" * 500, "x" * 80),
    ],
)
async def test_unsupported_file_is_refused_politely_and_not_fetched(
    content_type: str, name: str | None, title: str
) -> None:
    folder = Folder({"z": b"..."})

    what = await prepared(folder, message(ReceivedFile("z", content_type, name=name)))

    shown = f"“{title}”" if title else "the file"
    assert what.notices == (
        f"About {shown}: I cannot read it. I can read PDF, HTML, office documents and text files.",
    )
    assert untold(what)
    assert folder.fetched == []


# Bounds -----------------------------------------------------------------------------------------


async def test_eight_of_thirty_files_are_read_with_one_notice() -> None:
    folder = Folder({"d.txt": b"A list."})

    what = await prepared(folder, message(*[TEXT] * 30), message(TEXT))

    assert len(folder.fetched) == 9
    assert [words.count("A list.") for words in what.words] == [8, 1]
    assert what.words[0].endswith("[22 more files, not looked at]")
    assert what.notices == ("I look at 8 files of a message at most; 22 more I left out.",)


async def test_the_files_of_a_turn_are_bounded_together() -> None:
    folder = Folder({"b.m4a": b"OggS" + bytes(21 * 2**20)})

    what = await prepared(folder, message(VOICE), message(VOICE), hears=transcript("words"))

    assert [limit // 2**20 for _, _, limit in folder.fetched] == [23, 18]
    assert what.words[0] == "[voice note] words"
    assert what.notices[1] == (
        "About the recording: It is too large; I read up to 23 MB, and 40 MB at once."
    )


# Afterwards -------------------------------------------------------------------------------------


async def test_files_are_deleted_one_by_one_whatever_happens_to_the_others() -> None:
    folder = Folder({"a.jpg": SignalRejected("gone"), "c.pdf": b"...", "d.txt": b"..."})
    async with media_of(folder) as (reader, _, _):
        await reader.discard([message(JPEG, PDF), message(TEXT)])

    assert folder.files == {}


def test_a_file_that_never_comes_ends_with_the_time_of_the_turn() -> None:
    class Stuck(Folder):
        async def fetch_file(self, chat: ChatId, file: ReceivedFile, *, max_bytes: int) -> bytes:
            await asyncio.Event().wait()
            raise AssertionError

    async def unused(*_: object) -> NoReturn:
        raise AssertionError

    async def scenario() -> None:
        reader = Media(Stuck({}), images=unused, documents=unused, transcriber=None)
        async with asyncio.timeout(media.TURN_SECONDS + 1):
            what = await reader.prepare([message(TEXT)], unused)
        assert what.notices == ("About “list.txt”: It took too long to read.",)

    run_without_waiting(scenario())


async def test_neither_names_nor_contents_reach_the_log() -> None:
    folder = Folder({"a.jpg": b"secret", "b.m4a": b"secret", "d.txt": SignalRejected("secret")})
    secrets = (replace(TEXT, name="secret.txt"), replace(JPEG, name="secret.jpg"), VOICE)
    with capture_logs() as logs:
        async with media_of(folder, hears=status(400, "secret")) as (reader, sees_images, _):
            await reader.prepare([message(*secrets, text="secret")], sees_images)
            await reader.discard([message(*secrets)])

    assert [log["event"] for log in logs if log["log_level"] == "info"] == [
        "media.not_read", "media.not_read", "media.not_heard", "media.not_discarded"
    ]  # fmt: skip
    assert "secret" not in str(logs)
