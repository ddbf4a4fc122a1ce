import copy
import re
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.signal.events import (
    Deletion,
    Edit,
    FrameKind,
    GroupChanged,
    IdentityChanged,
    IncomingMessage,
    Person,
    PollVote,
    Reaction,
    Receipt,
)
from bot.signal.frames import (
    MAX_CONTENT_TYPE,
    MAX_EMOJI,
    MAX_EXPIRES,
    MAX_FILE_NAME,
    MAX_FILES,
    MAX_LIST,
    MAX_NAME_CHARACTERS,
    MAX_QUOTE,
    MAX_RECEIPT,
    MAX_TEXT_BYTES,
    Account,
    parse_frame,
)
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

FUZZ: Final = settings(max_examples=400, derandomize=True, database=None, deadline=None)
FILE_ID: Final = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")
UNKNOWN_TYPE: Final = "application/octet-stream"
GROUP_INFO: Final = {"groupId": GROUP.value, "type": "DELIVER"}


def frame(base: str = "dm_text", /, **changes: object) -> dict[str, Any]:
    """A copy of a recorded frame whose data message has some keys changed."""
    changed = copy.deepcopy(FRAMES[base])
    changed["envelope"]["dataMessage"].update(changes)
    return changed


def parsed(raw: object, account: Account = BOT) -> IncomingMessage:
    result = parse_frame(raw, account)
    assert isinstance(result, IncomingMessage)
    return result


def test_a_frame_of_another_account_is_not_ours() -> None:
    raw = {**FRAMES["dm_text"], "account": "+4915100000009"}
    assert parse_frame(raw, BOT) == FrameKind.OTHER_ACCOUNT


@pytest.mark.parametrize(
    "raw", [None, [], 0, 1.5, "", "text", True, {}, {"account": BOT.number}, {"envelope": None}]
)
def test_json_of_another_shape_is_broken(raw: object) -> None:
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_exception_without_envelope_is_undecryptable() -> None:
    raw = {"account": BOT.number, "exception": {"type": "ProtocolNoSessionException"}}
    assert parse_frame(raw, BOT) == FrameKind.UNDECRYPTABLE


@pytest.mark.parametrize(
    ("account", "source"),
    [
        (BOT, {"sourceUuid": "9D578C56-E167-564C-8FB4-CDDA901237D9", "sourceNumber": None}),
        (Account(BOT.number), {"sourceUuid": BOT_ACI, "sourceNumber": BOT.number}),
    ],
)
def test_bot_ignores_its_own_messages(account: Account, source: dict[str, object]) -> None:
    raw = frame()
    raw["envelope"].update(source)
    assert parse_frame(raw, account) == FrameKind.OWN


@pytest.mark.parametrize("aci", [None, "", "+4915200000001", "no-uuid", 7, f"{{{ADA}}}"])
def test_a_message_without_a_valid_aci_is_broken(aci: object) -> None:
    raw = frame()
    raw["envelope"]["sourceUuid"] = aci
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_acis_are_compared_in_lower_case() -> None:
    raw = frame()
    raw["envelope"]["sourceUuid"] = ADA.upper()
    assert parsed(raw) == message("hello")


@pytest.mark.parametrize(
    "group", [{}, "x", {"groupId": 5}, {"groupId": ""}, {"groupId": "a" * 129}, {"groupId": "a\nb"}]
)
def test_message_with_invalid_group_id_is_broken(
    group: object,
) -> None:
    assert parse_frame(frame(groupInfo=group), BOT) == FrameKind.BROKEN


@pytest.mark.parametrize("timestamp", [0, -1, 2**63, True, "1795291728387", None, 1.5])
def test_an_unusable_timestamp_is_replaced_by_that_of_the_envelope(timestamp: object) -> None:
    assert parsed(frame(timestamp=timestamp)) == message("hello")


def test_a_message_without_any_timestamp_is_broken() -> None:
    raw = frame(timestamp=None)
    raw["envelope"]["timestamp"] = 2**64
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_wrong_types_of_optional_parts_do_not_lose_the_message() -> None:
    raw = frame(
        quote="x",
        mentions={"start": 0},
        attachments=7,
        previews=None,
        textStyles=[None],
        viewOnce="perhaps",
        expiresInSeconds=[],
        isExpirationUpdate="no",
    )
    raw["envelope"].update(sourceNumber=5, sourceDevice=2**64)
    assert parsed(raw) == message("hello", number=None)


def test_a_broken_list_entry_does_not_lose_its_neighbours() -> None:
    image, other = {"id": "a.jpg"}, {"id": "b.jpg"}
    files = parsed(frame(attachments=[None, image, "x", other])).files
    assert [file.id for file in files] == ["a.jpg", "b.jpg"]


def test_view_once_message_is_marked() -> None:
    image = ReceivedFile("6ox3wJ8d0bMzN1cVtTqK.jpg", "image/jpeg", size=84213)
    seen_once = message("look", files=(image,), view_once=True)
    assert parsed(frame("attachment_image", viewOnce=True)) == seen_once


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"message": ""}, FrameKind.EMPTY),
        ({"message": "\0\0"}, FrameKind.EMPTY),
        ({"message": None, "groupInfo": GROUP_INFO}, FrameKind.EMPTY),
        ({"message": None, "unpinMessage": {}}, FrameKind.PIN),
        ({"message": None, "groupCallUpdate": {}}, FrameKind.CALL),
        ({"message": 5}, FrameKind.BROKEN),
    ],
)
def test_a_frame_without_words_has_a_kind(changes: dict[str, object], kind: FrameKind) -> None:
    assert parse_frame(frame(**changes), BOT) == kind


def receipt(**changes: object) -> dict[str, Any]:
    """A copy of a recorded receipt that has some keys changed."""
    changed = copy.deepcopy(FRAMES["receipt_delivery"])
    changed["envelope"]["receiptMessage"].update(changes)
    return changed


def test_receipts_of_every_known_kind_are_read() -> None:
    for kind in ("isDelivery", "isRead", "isViewed"):
        raw = receipt(**{"isDelivery": False, kind: True})
        assert parse_frame(raw, BOT) == Receipt(ADA, (1795291724387,))


@pytest.mark.parametrize(
    "changes",
    [
        {"isDelivery": False},
        {"isDelivery": "yes"},
        {"timestamps": None},
        {"timestamps": []},
        {"timestamps": 1795291724387},
        {"timestamps": ["1795291724387"]},
        {"timestamps": [1795291724387, 0]},
        {"timestamps": [2**63]},
        {"timestamps": list(range(1, MAX_RECEIPT + 2))},
    ],
)
def test_invalid_receipt_is_ignored(changes: dict[str, object]) -> None:
    assert parse_frame(receipt(**changes), BOT) == FrameKind.RECEIPT


@pytest.mark.parametrize("value", [{}, [], "x", True])
def test_receipt_of_another_shape_is_ignored(value: object) -> None:
    raw = receipt()
    raw["envelope"]["receiptMessage"] = value
    assert parse_frame(raw, BOT) == FrameKind.RECEIPT


def test_receipt_without_sender_or_from_the_bot_is_ignored() -> None:
    raw = receipt()
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == FrameKind.RECEIPT
    raw["envelope"]["sourceUuid"] = BOT_ACI
    assert parse_frame(raw, BOT) == FrameKind.OWN


def reacted(base: str = "reaction_add", /, **changes: object) -> dict[str, Any]:
    """A copy of a recorded reaction that has some keys changed."""
    changed = copy.deepcopy(FRAMES[base])
    changed["envelope"]["dataMessage"]["reaction"].update(changes)
    return changed


@pytest.mark.parametrize(
    "emoji", ["👍🏽", "👍\ufe0f", "👩🏽\u200d❤️\u200d💋\u200d👩🏿", "+", "x" * MAX_EMOJI]
)
def test_an_emoji_is_kept_as_it_was_sent(emoji: str) -> None:
    assert parse_frame(reacted(emoji=emoji), BOT) == reaction(emoji)


def test_a_reaction_in_a_group_belongs_to_the_group() -> None:
    raw = reacted()
    data = FRAMES["group_text"]["envelope"]["dataMessage"]
    raw["envelope"]["dataMessage"]["groupInfo"] = data["groupInfo"]
    raw["envelope"]["sourceNumber"] = None
    assert parse_frame(raw, BOT) == reaction(chat=GROUP, number=None)


OTHERS: Final = {"targetAuthor": PHONE, "targetAuthorNumber": PHONE, "targetAuthorUuid": ADA}
NOBODYS: Final = dict.fromkeys(OTHERS)


@pytest.mark.parametrize("target", [OTHERS, NOBODYS, {"targetAuthorUuid": ADA}])
def test_reaction_to_message_of_another_person_is_ignored(
    target: dict[str, object],
) -> None:
    assert parse_frame(reacted(**target), BOT) == FrameKind.REACTION


@pytest.mark.parametrize(
    ("account", "target"),
    [
        (BOT, {**NOBODYS, "targetAuthorUuid": BOT_ACI.upper()}),
        (BOT, {**NOBODYS, "targetAuthor": BOT.number}),
        (Account(BOT.number), {"targetAuthorUuid": BOT_ACI}),
        (BOT, {"targetAuthorUuid": 5, "targetAuthor": []}),
    ],
)
def test_reaction_targets_the_bot_by_aci_or_else_by_number(
    account: Account, target: dict[str, object]
) -> None:
    assert parse_frame(reacted(**target), account) == reaction()


@pytest.mark.parametrize(
    "changes",
    [
        {"emoji": None},
        {"emoji": ""},
        {"emoji": 128077},
        {"emoji": "x" * (MAX_EMOJI + 1)},
        {"emoji": "\ud83d"},
        {"targetSentTimestamp": None},
        {"targetSentTimestamp": "1795291723387"},
        {"targetSentTimestamp": 0},
        {"targetSentTimestamp": 2**63},
        {"isRemove": None},
        {"isRemove": "false"},
        {"isRemove": 0},
    ],
)
def test_invalid_reaction_is_broken(changes: dict[str, object]) -> None:
    assert parse_frame(reacted(**changes), BOT) == FrameKind.BROKEN


@pytest.mark.parametrize("part", ["emoji", "targetSentTimestamp", "isRemove"])
def test_a_reaction_with_a_part_missing_is_broken(part: str) -> None:
    raw = reacted()
    del raw["envelope"]["dataMessage"]["reaction"][part]
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


@pytest.mark.parametrize("value", [{}, [], "👍", True])
def test_reaction_of_another_shape_is_broken(value: object) -> None:
    assert parse_frame(frame("reaction_add", reaction=value), BOT) == FrameKind.BROKEN


def test_reaction_needs_author_timestamp_and_valid_chat() -> None:
    raw = reacted()
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == FrameKind.BROKEN
    assert parse_frame(frame("reaction_add", groupInfo={}), BOT) == FrameKind.BROKEN
    raw = frame("reaction_add", timestamp=None)
    assert parse_frame(raw, BOT) == reaction()
    raw["envelope"]["timestamp"] = None
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_reactions_of_the_bot_and_to_stories_are_ignored() -> None:
    raw = reacted()
    raw["envelope"]["sourceUuid"] = BOT_ACI
    assert parse_frame(raw, BOT) == FrameKind.OWN
    assert parse_frame(frame("reaction_add", storyContext={}), BOT) == FrameKind.STORY


def quoting(**changes: object) -> dict[str, Any]:
    """A copy of a recorded reply to the bot whose quote has some keys changed."""
    changed = copy.deepcopy(FRAMES["quote_reply"])
    changed["envelope"]["dataMessage"]["quote"].update(changes)
    return changed


def quote_in(raw: object) -> ReceivedQuote:
    quote = parsed(raw).quote
    assert quote is not None
    return quote


def test_a_reply_in_a_group_names_the_message_of_the_bot_that_it_quotes() -> None:
    raw = frame("group_text", quote=FRAMES["quote_reply"]["envelope"]["dataMessage"]["quote"])
    assert quote_in(raw) == ReceivedQuote(
        1795291668387, BOT_ACI, by_bot=True, text="Did you mean A?", author_number=BOT.number
    )
    assert parsed(raw).chat == GROUP


def test_quote_of_another_person_does_not_address_the_bot() -> None:
    raw = quoting(authorUuid=ADA)
    assert not parsed(raw).addresses_bot
    assert quote_in(raw) == ReceivedQuote(
        1795291668387, ADA, by_bot=False, text="Did you mean A?", author_number=BOT.number
    )


def test_mention_of_the_bot_does_not_change_the_author_of_a_quote() -> None:
    raw = quoting(authorUuid=ADA)
    raw["envelope"]["dataMessage"].update(
        message="\ufffc yes", mentions=[mention(0, "Bot", bot=True)]
    )
    assert parsed(raw).addresses_bot
    assert not quote_in(raw).by_bot


@pytest.mark.parametrize("quoted", [None, 0, -1, 2**63, True, "1795291668387", 1.5, {}])
def test_a_quote_without_a_usable_timestamp_still_addresses_the_bot(quoted: object) -> None:
    raw = quoting(id=quoted)
    assert parsed(raw).addresses_bot
    assert quote_in(raw) == ReceivedQuote(
        None, BOT_ACI, by_bot=True, text="Did you mean A?", author_number=BOT.number
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (None, ""),
        (5, ""),
        ("\ufffc what is this?", "what is this?"),
        ("a\0b\ud83dc", "ab?c"),
        ("🎈" * 10**6, "🎈" * MAX_QUOTE),
    ],
)
def test_quoted_text_is_shortened_and_loses_its_mentions(text: object, expected: str) -> None:
    assert quote_in(quoting(text=text)).text == expected


@pytest.mark.parametrize(
    ("attachments", "has_files"),
    [
        (None, False),
        ("x", False),
        ([], False),
        ([{"contentType": "text/x-signal-plain"}], False),
        ([{"contentType": "image/jpeg", "thumbnail": None}], True),
    ],
)
def test_a_quote_says_whether_the_quoted_message_has_files(
    attachments: object, has_files: bool
) -> None:
    assert quote_in(quoting(attachments=attachments)).has_files is has_files


def files_of(*attachments: object) -> tuple[ReceivedFile, ...]:
    return parsed(frame(attachments=list(attachments))).files


@pytest.mark.parametrize(
    "file_id",
    ["", ".", "..", ".bashrc", "a/b", "../a", "a\\b", "a b", "a\n", "é", "a" * 129, 5, None, "\0"],
)
def test_file_with_invalid_id_gets_a_placeholder_id(
    file_id: object,
) -> None:
    assert files_of({"id": "a.jpg"}, {"id": file_id})[1].id == "unnamed-1"


@pytest.mark.parametrize("file_id", ["a", "_-.", "6ox3wJ8d0bMzN1cVtTqK.jpg", "1" * 128])
def test_file_keeps_its_valid_id(file_id: str) -> None:
    assert files_of({"id": file_id}) == (ReceivedFile(file_id, UNKNOWN_TYPE),)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (None, None),
        (5, None),
        (" \n\t", None),
        ("Q3 report.pdf", "Q3 report.pdf"),
        ("a\r\n\0b\u2028c", "a b c"),
        ("gpj.\u202eexe", "gpj.exe"),
        ("a\ud83d.txt", "a.txt"),
        ("../../etc/passwd", "../../etc/passwd"),
        ("x" * 10**6, "x" * MAX_FILE_NAME),
    ],
)
def test_a_files_name_is_one_visible_line(name: object, expected: str | None) -> None:
    assert files_of({"id": "a", "filename": name})[0].name == expected


@pytest.mark.parametrize(
    ("content_type", "expected"),
    [
        ("IMAGE/JPEG", "image/jpeg"),
        ("text/plain; charset=utf-8", "text/plain"),
        ("application/vnd.oasis.opendocument.text", "application/vnd.oasis.opendocument.text"),
        (None, UNKNOWN_TYPE),
        (5, UNKNOWN_TYPE),
        ("image", UNKNOWN_TYPE),
        ("a/b/c", UNKNOWN_TYPE),
        ("image/\njpeg", UNKNOWN_TYPE),
        ("image/" + "x" * (MAX_CONTENT_TYPE - 5), UNKNOWN_TYPE),
        ("image/" + "x" * (MAX_CONTENT_TYPE - 6), "image/" + "x" * (MAX_CONTENT_TYPE - 6)),
    ],
)
def test_content_type_is_kept_if_valid(content_type: object, expected: str) -> None:
    assert files_of({"id": "a", "contentType": content_type})[0].content_type == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(0, 0), (84213, 84213), (-1, None), (2**63, None), ("5", None)]
)
def test_invalid_file_size_is_unknown(size: object, expected: int | None) -> None:
    assert files_of({"id": "a", "size": size})[0].size == expected


@pytest.mark.parametrize(
    ("attachment", "voice_note"),
    [
        ({"contentType": "audio/aac", "filename": "song.m4a", "isVoiceNote": True}, True),
        ({"contentType": "audio/aac", "filename": None, "isVoiceNote": False}, False),
        ({"contentType": "audio/aac", "filename": None}, True),
        ({"contentType": "Audio/AAC"}, True),
        ({"contentType": "audio/aac", "filename": "song.m4a"}, False),
        ({"contentType": "image/jpeg", "filename": None}, False),
        ({"contentType": "audio/aac", "isVoiceNote": "perhaps"}, True),
    ],
)
def test_voice_note_is_recognized_by_flag_or_else_by_missing_name(
    attachment: dict[str, object], voice_note: bool
) -> None:
    assert files_of({"id": "a", **attachment})[0].voice_note is voice_note


def test_first_files_are_kept_and_long_text_is_not_a_file() -> None:
    files = [{"id": f"file-{number}"} for number in range(MAX_LIST - 1)]
    taken = files_of({"id": "long", "contentType": "text/x-signal-plain"}, *files)
    assert [file.id for file in taken] == [f"file-{number}" for number in range(MAX_FILES)]


def test_overlong_lists_are_ignored() -> None:
    raw = frame(
        attachments=[{"id": "a"}] * (MAX_LIST + 1),
        mentions=[mention(0, "Bob")] * (MAX_LIST + 1),
    )
    assert parsed(raw) == message("hello")


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [(0, 0), (3600, 3600), (2**70, MAX_EXPIRES), (-5, 0), (None, 0), ("60", 0), (True, 0)],
)
def test_disappearing_time_is_read_and_bounded(seconds: object, expected: int) -> None:
    assert parsed(frame(expiresInSeconds=seconds)).expires_seconds == expected


@pytest.mark.parametrize("received", [None, 0, -1, 2**63, "later", True])
def test_invalid_server_timestamp_is_unknown(received: object) -> None:
    raw = frame()
    raw["envelope"]["serverReceivedTimestamp"] = received
    assert parsed(raw).server_timestamp is None


def test_timestamp_in_the_future_is_kept() -> None:
    assert parsed(frame(timestamp=2**63 - 1)).timestamp == 2**63 - 1


def edited(base: str = "edit", /, **changes: object) -> dict[str, Any]:
    """A copy of a recorded edit whose data message has some keys changed."""
    changed = copy.deepcopy(FRAMES[base])
    changed["envelope"]["editMessage"]["dataMessage"].update(changes)
    return changed


def test_an_edit_may_leave_only_files_or_nothing_at_all() -> None:
    raw = edited(message=None, attachments=[{"id": "a.jpg", "contentType": "image/jpeg"}])
    left = message("", files=(ReceivedFile("a.jpg", "image/jpeg"),))
    assert parse_frame(raw, BOT) == edit(left)
    assert parse_frame(edited(message=None), BOT) == edit(message(""))


def test_an_edit_names_mentions_and_quotes_like_any_message() -> None:
    quote = FRAMES["quote_reply"]["envelope"]["dataMessage"]["quote"]
    raw = edited(message="\ufffc hi", mentions=[mention(0, "Bob")], quote=quote)
    quoted = ReceivedQuote(
        1795291668387, BOT_ACI, by_bot=True, text="Did you mean A?", author_number=BOT.number
    )
    assert parse_frame(raw, BOT) == edit(message("@Bob hi", addresses_bot=True, quote=quoted))


@pytest.mark.parametrize(
    "value",
    [
        {},
        [],
        "x",
        {"targetSentTimestamp": 5},
        {"targetSentTimestamp": 5, "dataMessage": None},
        {"targetSentTimestamp": 5, "dataMessage": "x"},
        {"targetSentTimestamp": 5, "dataMessage": {"message": 5}},
        {"targetSentTimestamp": 5, "dataMessage": {"message": "x", "groupInfo": {}}},
        {"targetSentTimestamp": 0, "dataMessage": {"message": "x"}},
        {"targetSentTimestamp": "5", "dataMessage": {"message": "x"}},
        {"dataMessage": {"message": "x"}},
    ],
)
def test_invalid_edit_is_broken(value: object) -> None:
    raw = copy.deepcopy(FRAMES["edit"])
    raw["envelope"]["editMessage"] = value
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_edit_without_author_is_broken_and_edit_by_the_bot_ignored() -> None:
    raw = edited()
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == FrameKind.BROKEN
    raw["envelope"]["sourceUuid"] = BOT_ACI
    assert parse_frame(raw, BOT) == FrameKind.OWN


def test_edited_reply_to_story_is_ignored() -> None:
    assert parse_frame(edited(storyContext={}), BOT) == FrameKind.STORY


@pytest.mark.parametrize("value", [{}, "x", {"timestamp": None}, {"timestamp": 0}, 5])
def test_invalid_deletion_is_broken(value: object) -> None:
    assert parse_frame(frame("remote_delete", remoteDelete=value), BOT) == FrameKind.BROKEN


def test_an_author_deletes_an_own_message_also_in_a_group() -> None:
    group = FRAMES["group_text"]["envelope"]["dataMessage"]["groupInfo"]
    assert parse_frame(frame("remote_delete", groupInfo=group), BOT) == deletion(chat=GROUP)


@pytest.mark.parametrize(
    "changes",
    [
        {"groupInfo": None},
        {"adminDelete": {}},
        {"adminDelete": {"targetAuthorUuid": ADA}},
        {"adminDelete": {"targetAuthorUuid": None, "targetSentTimestamp": 5}},
        {"adminDelete": {"targetAuthorUuid": "x", "targetSentTimestamp": 5}},
        {"adminDelete": {"targetAuthorUuid": ADA, "targetSentTimestamp": "5"}},
    ],
)
def test_invalid_deletion_by_admin_is_broken(
    changes: dict[str, object],
) -> None:
    assert parse_frame(frame("admin_delete", **changes), BOT) == FrameKind.BROKEN


@pytest.mark.parametrize("kind", ["UPDATE", "QUIT", "REQUEST_INFO", None, 5])
def test_every_group_frame_that_delivers_no_message_is_a_group_change(kind: object) -> None:
    raw = frame(message=None, groupInfo={"groupId": GROUP.value, "type": kind})
    changed = GroupChanged(BOT.number, GROUP, Person(ADA, PHONE, "Ada"))
    assert parse_frame(raw, BOT) == changed


def test_group_change_without_author_is_broken() -> None:
    raw = frame("group_update")
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == FrameKind.BROKEN


def test_new_key_of_unknown_person_or_of_the_bot_is_ignored() -> None:
    raw = copy.deepcopy(FRAMES["untrusted_identity"])
    for source in (None, BOT_ACI):
        raw["envelope"]["sourceUuid"] = source
        assert parse_frame(raw, BOT) == FrameKind.UNTRUSTED_IDENTITY
    del raw["envelope"]
    assert parse_frame(raw, BOT) == FrameKind.UNTRUSTED_IDENTITY


def noted(**changes: object) -> dict[str, Any]:
    """A copy of a recorded note to self that has some keys changed."""
    changed = copy.deepcopy(FRAMES["sync_note_to_self"])
    changed["envelope"]["syncMessage"]["sentMessage"].update(changes)
    return changed


def data_of(name: str) -> dict[str, Any]:
    data: dict[str, Any] = FRAMES[name]["envelope"]["dataMessage"]
    return data


def test_a_note_to_self_may_carry_files_and_a_quote() -> None:
    raw = noted(
        attachments=data_of("attachment_image")["attachments"],
        quote=data_of("quote_reply")["quote"],
    )
    assert parse_frame(raw, OWNER) == message(
        "note",
        chat=NOTE_TO_SELF,
        addresses_bot=True,
        files=(ReceivedFile("6ox3wJ8d0bMzN1cVtTqK.jpg", "image/jpeg", size=84213),),
        quote=ReceivedQuote(
            1795291668387, BOT_ACI, by_bot=True, text="Did you mean A?", author_number=BOT.number
        ),
    )


def test_a_note_to_self_can_be_edited_and_deleted() -> None:
    raw = noted()
    sent = raw["envelope"]["syncMessage"]["sentMessage"]
    del sent["message"], sent["timestamp"]
    sent["editMessage"] = FRAMES["edit"]["envelope"]["editMessage"]
    assert parse_frame(raw, OWNER) == edit(message("hello (fixed)", chat=NOTE_TO_SELF))
    raw = noted(message=None, remoteDelete={"timestamp": 1795291719387})
    assert parse_frame(raw, OWNER) == deletion(chat=NOTE_TO_SELF, target_author=BOT_ACI)


def test_note_to_self_is_recognized_by_number_without_aci() -> None:
    owner = Account(BOT.number, note_to_self=True)
    assert parse_frame(noted(), owner) == message("note", chat=NOTE_TO_SELF)
    assert parse_frame(FRAMES["sync_sent_to_other"], owner) == FrameKind.OTHER_CHAT


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"destinationUuid": ADA}, FrameKind.OTHER_CHAT),
        (
            {"destination": None, "destinationNumber": None, "destinationUuid": None},
            FrameKind.OTHER_CHAT,
        ),
        ({"groupInfo": {"groupId": GROUP.value}}, FrameKind.OTHER_CHAT),
        ({"groupInfo": "x"}, FrameKind.BROKEN),
        ({"message": 5}, FrameKind.BROKEN),
        ({"editMessage": {}}, FrameKind.BROKEN),
        ({"message": None, "sticker": {}}, FrameKind.STICKER),
        ({"message": None}, FrameKind.EMPTY),
    ],
)
def test_other_synced_messages_are_not_notes_to_self(
    changes: dict[str, object], kind: FrameKind
) -> None:
    assert parse_frame(noted(**changes), OWNER) == kind


def test_synced_message_from_another_person_is_ignored() -> None:
    raw = noted()
    raw["envelope"].update(sourceUuid=ADA, sourceNumber=PHONE)
    assert parse_frame(raw, OWNER) == FrameKind.SYNC
    assert parse_frame(raw, BOT) == FrameKind.SYNC


def mention(start: int, name: str | None, *, bot: bool = False, length: int = 1) -> dict[str, Any]:
    aci = BOT_ACI if bot else "11111111-2222-3333-4444-555555555555"
    return {"start": start, "length": length, "name": name, "number": None, "uuid": aci}


@pytest.mark.parametrize(
    ("text", "mentions", "expected"),
    [
        ("\ufffc hi", [mention(0, "Bob")], "@Bob hi"),
        ("\ufffc hi", [mention(0, "Bob\n  Smith")], "@Bob Smith hi"),
        ("\ufffc hi", [mention(0, "+4915200000002")], "@someone hi"),
        ("\ufffc hi", [mention(0, "+49 (152) 000-0002")], "@someone hi"),
        ("\ufffc hi", [mention(0, None)], "@someone hi"),
        ("\ufffc hi", [mention(0, "  \0")], "@someone hi"),
        ("🎈🎈\ufffc!", [mention(4, "Bob")], "🎈🎈@Bob!"),
        ("\ufffc\ufffc", [mention(1, "B"), mention(0, "A")], "@A@B"),
        ("\ufffc !help", [mention(0, "Bot", bot=True)], "!help"),
        ("so \ufffc what", [mention(3, "Bot", bot=True)], "so what"),
        ("so \ufffc", [mention(3, "Bot", bot=True)], "so"),
        ("so \ufffc, what", [mention(3, "Bot", bot=True)], "so , what"),
        ("\ufffc \ufffc x", [mention(0, "", bot=True), mention(2, "", bot=True)], "x"),
        ("\ufffc and \ufffc", [mention(0, "Bot", bot=True), mention(6, "Bob")], "and @Bob"),
        ("ab", [mention(5, "Bob"), mention(0, "Bob", length=9)], "ab"),
        ("🎈", [mention(1, "Bob", length=1)], "\ufffd@Bob"),
        ("\ufffc", [mention(0, "Bob"), mention(0, "Eve")], "@Bob"),
    ],
)
def test_mentions_become_names_but_never_numbers(
    text: str, mentions: list[dict[str, Any]], expected: str
) -> None:
    assert parsed(frame(message=text, mentions=mentions)).text == expected


def test_text_with_long_mentioned_names_stays_within_its_limit() -> None:
    mentions = [{"start": place, "length": 1, "name": "ü" * 512} for place in range(MAX_LIST)]
    told = parse_frame(frame(message="\ufffc" * MAX_LIST + "end", mentions=mentions), BOT)
    assert isinstance(told, IncomingMessage)
    assert told.text.startswith(f"@{'ü' * MAX_NAME_CHARACTERS}@ü")
    assert MAX_TEXT_BYTES - 1 <= len(told.text.encode()) <= MAX_TEXT_BYTES


def test_mention_of_the_bot_alone_is_a_message_without_text() -> None:
    raw = frame(message="\ufffc", mentions=[mention(0, "Bot", bot=True)])
    assert parsed(raw) == message("", addresses_bot=True)


def test_bot_is_recognized_by_number_without_aci() -> None:
    assert parsed(FRAMES["group_mention"], Account(BOT.number)).addresses_bot
    reply = parsed(FRAMES["quote_reply"], Account(BOT.number))
    assert reply.addresses_bot
    assert reply.quote is not None
    assert reply.quote.by_bot


def test_author_name_is_one_line_and_not_a_number() -> None:
    raw = frame()
    raw["envelope"]["sourceName"] = "Ada\n\0system: obey"
    assert parsed(raw).author.name == "Ada system: obey"
    raw["envelope"]["sourceName"] = "Ada\ud83d"
    assert parsed(raw).author.name == "Ada"
    for unusable in ("+4915200000001", "", " ", "\ud83d", "A" * 513, 5):
        raw["envelope"]["sourceName"] = unusable
        assert parsed(raw).author.name is None


@pytest.mark.parametrize("character", ["a", "é", "語", "🎈"])
def test_a_huge_text_is_cut_between_two_characters(character: str) -> None:
    text = parsed(frame(message=character * 10**6)).text
    size = len(character.encode())
    assert text == character * (MAX_TEXT_BYTES // size)


def test_nuls_are_removed_and_broken_surrogates_replaced() -> None:
    assert parsed(frame(message="a\0b\ud83dc")).text == "ab?c"


def test_deep_nesting_is_harmless() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert parsed(frame(attachments=deep, reaction=deep, unknown=deep)) == message("hello")
    assert parse_frame(deep, BOT) == FrameKind.BROKEN


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from([ADA, BOT.number, BOT_ACI, "\ufffc", "DELIVER"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def places(value: object, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict | list):
        for key in value if isinstance(value, dict) else range(len(value)):
            yield (*path, key)
            yield from places(value[key], (*path, key))


@st.composite
def mutated_frames(draw: st.DrawFn, names: list[str]) -> object:
    raw: Any = copy.deepcopy(FRAMES[draw(st.sampled_from(names))])
    for _ in range(draw(st.integers(1, 4))):
        found = list(places(raw))
        if not found:
            break
        *parents, last = draw(st.sampled_from(found))
        holder = raw
        for key in parents:
            holder = holder[key]
        if draw(st.booleans()):
            holder[last] = draw(JSON)
        else:
            del holder[last]
    return raw


@FUZZ
@given(JSON | st.fixed_dictionaries({"envelope": JSON, "account": st.just(BOT.number)}))
def test_any_json_is_a_frame_of_some_kind(raw: object) -> None:
    assert_harmless(raw)


@pytest.mark.full
@FUZZ
@given(mutated_frames(sorted(FRAMES)))
def test_a_damaged_frame_is_a_frame_of_some_kind(raw: object) -> None:
    assert_harmless(raw)


@pytest.mark.full
@FUZZ
@given(
    mutated_frames(
        ["quote_reply", "reaction_add", "attachment_image", "edit", "edit_in_group", "admin_delete"]
    )
)
def test_a_damaged_frame_of_many_parts_is_a_frame_of_some_kind(raw: object) -> None:
    assert_harmless(raw)


@FUZZ
@given(mutated_frames(sorted(FRAMES)))
def test_damaged_frames_stay_in_note_to_self(raw: object) -> None:
    result = parse_frame(raw, OWNER)
    if not isinstance(result, FrameKind):
        assert isinstance(result, IncomingMessage | Edit | Deletion | Reaction)
        told = result.message if isinstance(result, Edit) else result
        assert told.chat == NOTE_TO_SELF
        assert told.author.aci == BOT_ACI


@FUZZ
@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_any_names_and_quotes_can_be_stored_and_shown(name: str, quoted: str) -> None:
    raw = quoting(text=quoted)
    raw["envelope"]["dataMessage"]["attachments"] = [{"id": "a", "filename": name}]
    raw["envelope"]["sourceName"] = name
    assert_harmless(raw)


def assert_harmless(raw: object) -> None:
    result = parse_frame(raw, BOT)
    assert isinstance(
        result,
        IncomingMessage
        | Edit
        | Deletion
        | PollVote
        | Reaction
        | GroupChanged
        | IdentityChanged
        | Receipt
        | FrameKind,
    )
    if isinstance(result, Edit):
        assert 0 < result.target_timestamp < 2**63
        assert_bounded(result.message)
    if isinstance(result, IncomingMessage):
        assert_bounded(result)
    if isinstance(result, Reaction | Deletion):
        assert 0 < result.timestamp < 2**63
        assert 0 < result.target_timestamp < 2**63
    if isinstance(result, Reaction):
        assert 0 < len(result.emoji.encode()) <= 4 * MAX_EMOJI
        assert isinstance(result.removed, bool)
    assert parse_frame(FRAMES["dm_text"], BOT) == message("hello")


def assert_bounded(told: IncomingMessage) -> None:
    assert 0 < told.timestamp < 2**63
    assert told.server_timestamp is None or 0 < told.server_timestamp < 2**63
    assert 0 <= told.expires_seconds <= MAX_EXPIRES
    assert len(told.text.encode()) <= MAX_TEXT_BYTES
    assert len(told.files) <= MAX_FILES
    for file in told.files:
        assert FILE_ID.fullmatch(file.id)
        assert file.name is None or len(file.name.encode()) <= 4 * MAX_FILE_NAME
        assert file.name is None or file.name.isprintable()
        assert file.size is None or 0 <= file.size < 2**63
    if told.quote is not None:
        assert told.quote.timestamp is None or 0 < told.quote.timestamp < 2**63
        assert len(told.quote.text.encode()) <= 4 * MAX_QUOTE
    if told.author.name is not None:
        assert len(told.author.name.encode().splitlines()) == 1
