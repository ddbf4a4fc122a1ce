"""Every kind of frame that Signal delivers, and the visible reaction of the bot."""

import json
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from bot.chat.media import CANNOT_LISTEN
from bot.commands.base import UNKNOWN_COMMAND
from bot.signal.events import Person
from conversation_store.models import ChatId
from tests.e2e.running_bot import World, running_bot
from tests.fakes.openai_server import openai_server
from tests.fakes.signal_cli import FIXTURE_ACCOUNT
from tests.fakes.signal_side import Group, SignalSide
from tests.signal_frames import ADA, FRAMES, GROUP, PHONE

FRAME_TIMESTAMP: Final = "1795291728387"
PERSON: Final = Person(ADA, PHONE, "Ada")
MARKER: Final = "marker"

SILENCE: Final = None
SEEN: Final[dict[str, str | None]] = {
    "dm_text": "hello",
    "dm_text_hidden_number": "hello",
    "group_text": SILENCE,  # overheard
    "group_mention": "what is this?",
    "quote_reply": "no, the other one",
    "quote_of_image": "[You do not see the small copy of the picture.]",
    "attachment_image": "[the image, which you cannot read; the person was told so]",
    "attachment_voice": CANNOT_LISTEN,
    "attachment_long_text": "<full text, >2000 bytes>",
    "styled_text": "bold word",
    "link_preview": "see https://example.org/x",
    "sticker": "[sticker]",
    "reaction_add": SILENCE,
    "reaction_remove": SILENCE,
    "edit": "hello (fixed)",  # of a message that never came
    "edit_in_group": SILENCE,
    "remote_delete": SILENCE,
    "admin_delete": SILENCE,
    "typing_start": SILENCE,
    "typing_stop_group": SILENCE,
    "receipt_delivery": SILENCE,
    "receipt_read": SILENCE,
    "timer_update": SILENCE,  # every message says its own timer
    "group_update": SILENCE,
    "sync_sent_to_other": SILENCE,
    "sync_note_to_self": SILENCE,
    "sync_sent_group": SILENCE,
    "sync_sent_edit": SILENCE,
    "sync_read": SILENCE,
    "sync_empty": SILENCE,
    "call_offer": SILENCE,
    "call_hangup": SILENCE,
    "story": SILENCE,
    "story_reply": SILENCE,
    "poll_create": SILENCE,
    "poll_vote": SILENCE,
    "poll_terminate": SILENCE,
    "pin": SILENCE,
    "profile_key_or_empty": SILENCE,
    "no_payload": SILENCE,
    "untrusted_identity": SILENCE,
    "decrypt_error": SILENCE,
    "error_frame": SILENCE,
}


@asynccontextmanager
async def world_of_the_fixtures() -> AsyncIterator[World]:
    """A Signal side with the account of the recorded frames, and their group."""
    with tempfile.TemporaryDirectory(prefix="stb-") as name:
        folder = Path(name)
        side = SignalSide.listen(folder / "signal.sock", account=FIXTURE_ACCOUNT)
        async with side as signal, openai_server() as model:
            signal.groups[GROUP.value] = Group(members={ADA: PERSON})
            yield World(signal, model, folder)


def with_own_timestamp(frame: Any, number: int) -> Any:
    """Make a recorded frame one of its own: they all have the same timestamp."""
    timestamp = str(int(FRAME_TIMESTAMP) + 1_000_000 + number)
    return json.loads(json.dumps(frame).replace(FRAME_TIMESTAMP, timestamp))


async def answers_until_markers(here: World) -> list[str]:
    """Write in both chats, and return the answers before the answers to these messages."""
    for group in (None, GROUP.value):
        for words in ("!apart", MARKER):  # behind a command, the marker joins no turn
            await here.signal.say(words, author=PERSON, group=group, mention=group is not None)
    seen: list[str] = []
    markers = 0
    while markers < 2:
        text = (await here.answer()).text
        if text.endswith(MARKER):
            markers += 1
        elif text != UNKNOWN_COMMAND:
            seen.append(text)
    return seen


async def test_every_frame_has_its_answer_or_its_silence() -> None:
    assert set(SEEN) == set(FRAMES)
    seen: dict[str, str | None] = {}
    async with world_of_the_fixtures() as here:
        settings = here.settings(signal={"phone_number": FIXTURE_ACCOUNT.number})
        async with running_bot(settings):
            for number, (name, frame) in enumerate(FRAMES.items()):
                await here.signal.push(with_own_timestamp(frame, number))
                answers = await answers_until_markers(here)
                expected = SEEN[name]
                fits = [answer for answer in answers if expected and answer.endswith(expected)]
                seen[name] = (
                    expected if len(fits) == len(answers) == 1 else next(iter(answers), None)
                )
    assert seen == SEEN


async def test_in_the_note_to_self_nothing_else_is_answered_or_kept() -> None:
    own = ChatId.direct(FIXTURE_ACCOUNT.aci or "")
    async with world_of_the_fixtures() as here:
        settings = here.settings(
            signal={"phone_number": FIXTURE_ACCOUNT.number}, access={"note_to_self": True}
        )
        async with running_bot(settings):
            for number, (name, frame) in enumerate(FRAMES.items()):
                if name != "sync_note_to_self":
                    await here.signal.push(with_own_timestamp(frame, number))
            await here.signal.push(FRAMES["sync_note_to_self"])
            answer = await here.answer()
            question = await here.signal.note_to_self("and once more")
            again = await here.answer()
            await here.signal.delete_note(question)
            await here.signal.note_to_self("!status")
            await here.answer()
    assert answer.text.endswith("note")
    assert again.text.endswith("and once more")
    assert {sent.chat for sent in here.signal.sent} == {own}
    assert len(here.signal.sent) == 3
    asked = str(here.model.requests)
    assert "hello" not in asked
    assert "typed on the owner's phone" not in asked
