"""Expected result of every recorded frame."""

from typing import Final

import pytest

from bot.signal.events import (
    FrameKind,
    GroupChanged,
    IdentityChanged,
    Incoming,
    Person,
    PollVote,
    Receipt,
)
from bot.signal.frames import parse_frame
from conversation_store.models import ReceivedFile, ReceivedQuote
from tests.signal_frames import (
    ADA,
    BOT,
    BOT_ACI,
    FRAMES,
    GROUP,
    NOTE_TO_SELF,
    OWNER,
    PHONE,
    deletion,
    edit,
    message,
    reaction,
)

IMAGE: Final = ReceivedFile("6ox3wJ8d0bMzN1cVtTqK.jpg", "image/jpeg", size=84213)
VOICE: Final = ReceivedFile("9zKpVoice.m4a", "audio/aac", size=20480, voice_note=True)
THUMBNAIL: Final = ReceivedFile("Qm0aThumb.jpg", "image/jpeg", size=5120)
LONG_TEXT: Final = ReceivedFile("Lng1Text.txt", "text/x-signal-plain", size=5400)
QUOTE: Final = ReceivedQuote(
    1795291668387, BOT_ACI, by_bot=True, text="Did you mean A?", author_number=BOT.number
)
QUOTED_IMAGE: Final = ReceivedQuote(
    1795291668387, ADA, by_bot=False, has_files=True, author_number=PHONE
)

SENT_ELSEWHERE: Final = Receipt(None, (1795291728387,))

TOLD: Final[dict[str, Incoming | Receipt | FrameKind]] = {
    "dm_text": message("hello"),
    "dm_text_hidden_number": message("hello", number=None),
    "group_text": message("hi all", chat=GROUP, number=None),
    "group_mention": message("what is this?", chat=GROUP, number=None, addresses_bot=True),
    "quote_reply": message("no, the other one", addresses_bot=True, quote=QUOTE),
    "quote_of_image": message("what is on it?", quote=QUOTED_IMAGE, unread=(THUMBNAIL,)),
    "attachment_image": message("look", files=(IMAGE,)),
    "attachment_voice": message("", files=(VOICE,)),
    "attachment_long_text": message("<full text, >2000 bytes>", unread=(LONG_TEXT,)),
    "styled_text": message("bold word"),
    "link_preview": message("see https://example.org/x"),
    "sticker": FrameKind.STICKER,
    "reaction_add": reaction(),
    "reaction_remove": reaction(removed=True),
    "edit": edit(message("hello (fixed)")),
    "edit_in_group": edit(message("fixed", chat=GROUP, number=None)),
    "remote_delete": deletion(),
    "admin_delete": deletion(chat=GROUP, number=None, target_author=BOT_ACI),
    "typing_start": FrameKind.TYPING,
    "typing_stop_group": FrameKind.TYPING,
    "receipt_delivery": Receipt(ADA, (1795291724387,)),
    "receipt_read": Receipt(ADA, (1795291724387, 1795291725387)),
    "timer_update": FrameKind.TIMER,
    "group_update": GroupChanged(BOT.number, GROUP, Person(ADA, None, "Ada")),
    "sync_sent_to_other": SENT_ELSEWHERE,
    "sync_note_to_self": SENT_ELSEWHERE,
    "sync_sent_group": SENT_ELSEWHERE,
    "sync_sent_edit": SENT_ELSEWHERE,
    "sync_read": FrameKind.SYNC,
    "sync_empty": FrameKind.SYNC,
    "call_offer": FrameKind.CALL,
    "call_hangup": FrameKind.CALL,
    "story": FrameKind.STORY,
    "story_reply": FrameKind.STORY,
    "poll_create": FrameKind.POLL,
    "poll_vote": PollVote(
        BOT.number, GROUP, Person(ADA, None, "Ada"), 1795291728387, 1795291721387, (0,)
    ),
    "poll_terminate": FrameKind.POLL,
    "pin": FrameKind.PIN,
    "profile_key_or_empty": FrameKind.EMPTY,
    "no_payload": FrameKind.EMPTY,
    "untrusted_identity": IdentityChanged(BOT.number, Person(ADA, PHONE, "Ada")),
    "decrypt_error": FrameKind.UNDECRYPTABLE,
    "error_frame": FrameKind.ERROR,
}

IN_NOTE_TO_SELF: Final[dict[str, Incoming | Receipt | FrameKind]] = {
    "sync_note_to_self": message("note", chat=NOTE_TO_SELF),
    "sync_sent_to_other": FrameKind.OTHER_CHAT,
    "sync_sent_group": FrameKind.OTHER_CHAT,
    "sync_sent_edit": FrameKind.OTHER_CHAT,
}
"""Different results on the account of a person, where the bot lives in the note to self."""


@pytest.mark.parametrize("name", FRAMES)
def test_recorded_frames_are_parsed(name: str) -> None:
    assert parse_frame(FRAMES[name], BOT) == TOLD[name]


@pytest.mark.parametrize("name", FRAMES)
def test_account_of_a_person_hears_only_its_note_to_self(name: str) -> None:
    elsewhere = TOLD[name] if isinstance(TOLD[name], FrameKind) else FrameKind.OTHER_CHAT
    expected = IN_NOTE_TO_SELF.get(name, elsewhere)
    assert parse_frame(FRAMES[name], OWNER) == expected


def test_every_expectation_has_its_frame() -> None:
    assert TOLD.keys() == FRAMES.keys()
    assert IN_NOTE_TO_SELF.keys() <= FRAMES.keys()
