import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.messaging.envelope import EMOJI_LIMIT, RECEIPT_LIMIT, TEXT_LIMIT_BYTES, parse_frame
from bot.messaging.events import (
    Account,
    ChatId,
    ChatKind,
    Frame,
    FrameKind,
    Ignored,
    IncomingMessage,
    Person,
    Reaction,
    Receipt,
)

FRAMES: Final[dict[str, dict[str, Any]]] = json.loads(
    (Path(__file__).parents[1] / "fixtures" / "signal_frames.json").read_text()
)
ADA: Final = "7f3c1a52-6b1e-4a0e-9a55-3a1e1b6f0d11"
PHONE: Final = "+4915200000001"
BOT: Final = Account("+4915100000000", "9d578c56-e167-564c-8fb4-cdda901237d9")
GROUP: Final = ChatId(ChatKind.GROUP, "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
DIRECT: Final = ChatId(ChatKind.DIRECT, ADA)
FUZZ: Final = settings(max_examples=400, derandomize=True, database=None, deadline=None)


def message(
    text: str,
    *,
    chat: ChatId = DIRECT,
    number: str | None = PHONE,
    addresses_bot: bool = False,
    attachments: int = 0,
    quote_timestamp: int | None = None,
) -> IncomingMessage:
    return IncomingMessage(
        account=BOT.number,
        chat=chat,
        author=Person(ADA, number, "Ada"),
        timestamp=1795291728387,
        text=text,
        addresses_bot=addresses_bot,
        attachments=attachments,
        quote_timestamp=quote_timestamp,
    )


def reaction(
    emoji: str = "👍", *, chat: ChatId = DIRECT, number: str | None = PHONE, removed: bool = False
) -> Reaction:
    return Reaction(
        account=BOT.number,
        chat=chat,
        author=Person(ADA, number, "Ada"),
        timestamp=1795291728387,
        emoji=emoji,
        target_timestamp=1795291723387,
        removed=removed,
    )


EXPECTED: Final[dict[str, Frame | FrameKind]] = {
    "dm_text": message("hello"),
    "dm_text_hidden_number": message("hello", number=None),
    "group_text": message("hi all", chat=GROUP, number=None),
    "group_mention": message("what is this?", chat=GROUP, number=None, addresses_bot=True),
    "quote_reply": message("no, the other one", addresses_bot=True, quote_timestamp=1795291668387),
    "quote_of_image": message("what is on it?"),
    "attachment_image": message("look", attachments=1),
    "attachment_voice": message("", attachments=1),
    "attachment_long_text": message("<full text, >2000 bytes>"),
    "styled_text": message("bold word"),
    "link_preview": message("see https://example.org/x"),
    "sticker": FrameKind.STICKER,
    "reaction_add": reaction(),
    "reaction_remove": reaction(removed=True),
    "edit": FrameKind.EDIT,
    "edit_in_group": FrameKind.EDIT,
    "remote_delete": FrameKind.DELETE,
    "admin_delete": FrameKind.DELETE,
    "typing_start": FrameKind.TYPING,
    "typing_stop_group": FrameKind.TYPING,
    "receipt_delivery": Receipt(ADA, (1795291724387,)),
    "receipt_read": Receipt(ADA, (1795291724387, 1795291725387)),
    "timer_update": FrameKind.TIMER,
    "group_update": FrameKind.GROUP_UPDATE,
    "sync_sent_to_other": FrameKind.SYNC,
    "sync_note_to_self": FrameKind.SYNC,
    "sync_sent_group": FrameKind.SYNC,
    "sync_sent_edit": FrameKind.SYNC,
    "sync_read": FrameKind.SYNC,
    "sync_empty": FrameKind.SYNC,
    "call_offer": FrameKind.CALL,
    "call_hangup": FrameKind.CALL,
    "story": FrameKind.STORY,
    "story_reply": FrameKind.STORY,
    "poll_create": FrameKind.POLL,
    "poll_vote": FrameKind.POLL,
    "poll_terminate": FrameKind.POLL,
    "pin": FrameKind.PIN,
    "profile_key_or_empty": FrameKind.EMPTY,
    "no_payload": FrameKind.EMPTY,
    "untrusted_identity": FrameKind.UNTRUSTED_IDENTITY,
    "decrypt_error": FrameKind.UNDECRYPTABLE,
    "error_frame": FrameKind.ERROR,
}


def frame(base: str = "dm_text", /, **changes: object) -> dict[str, Any]:
    """A copy of a recorded frame whose data message has some keys changed."""
    changed = copy.deepcopy(FRAMES[base])
    changed["envelope"]["dataMessage"].update(changes)
    return changed


def parsed(raw: object, account: Account = BOT) -> IncomingMessage:
    result = parse_frame(raw, account)
    assert isinstance(result, IncomingMessage)
    return result


@pytest.mark.parametrize("name", FRAMES)
def test_every_recorded_frame_is_what_it_is(name: str) -> None:
    expected = EXPECTED[name]
    if isinstance(expected, FrameKind):
        expected = Ignored(expected)
    assert parse_frame(FRAMES[name], BOT) == expected


def test_a_frame_of_another_account_is_not_ours() -> None:
    raw = {**FRAMES["dm_text"], "account": "+4915100000009"}
    assert parse_frame(raw, BOT) == Ignored(FrameKind.OTHER_ACCOUNT)


@pytest.mark.parametrize(
    "raw", [None, [], 0, 1.5, "", "text", True, {}, {"account": BOT.number}, {"envelope": None}]
)
def test_what_is_no_frame_is_broken(raw: object) -> None:
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)


def test_an_exception_without_an_envelope_is_still_known() -> None:
    raw = {"account": BOT.number, "exception": {"type": "ProtocolNoSessionException"}}
    assert parse_frame(raw, BOT) == Ignored(FrameKind.UNDECRYPTABLE)


@pytest.mark.parametrize(
    ("account", "source"),
    [
        (BOT, {"sourceUuid": "9D578C56-E167-564C-8FB4-CDDA901237D9", "sourceNumber": None}),
        (Account(BOT.number), {"sourceUuid": BOT.aci, "sourceNumber": BOT.number}),
    ],
)
def test_the_bot_does_not_hear_itself(account: Account, source: dict[str, object]) -> None:
    raw = frame()
    raw["envelope"].update(source)
    assert parse_frame(raw, account) == Ignored(FrameKind.OWN)


@pytest.mark.parametrize("aci", [None, "", "+4915200000001", "no-uuid", 7, f"{{{ADA}}}"])
def test_a_message_without_a_valid_aci_is_broken(aci: object) -> None:
    raw = frame()
    raw["envelope"]["sourceUuid"] = aci
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)


def test_acis_are_compared_in_lower_case() -> None:
    raw = frame()
    raw["envelope"]["sourceUuid"] = ADA.upper()
    assert parsed(raw) == message("hello")


@pytest.mark.parametrize(
    "group", [{}, "x", {"groupId": 5}, {"groupId": ""}, {"groupId": "a" * 129}, {"groupId": "a\nb"}]
)
def test_a_message_to_a_group_that_cannot_be_named_never_becomes_a_private_one(
    group: object,
) -> None:
    assert parse_frame(frame(groupInfo=group), BOT) == Ignored(FrameKind.BROKEN)


@pytest.mark.parametrize("timestamp", [0, -1, 2**63, True, "1795291728387", None, 1.5])
def test_an_unusable_timestamp_is_replaced_by_that_of_the_envelope(timestamp: object) -> None:
    assert parsed(frame(timestamp=timestamp)) == message("hello")


def test_a_message_without_any_timestamp_is_broken() -> None:
    raw = frame(timestamp=None)
    raw["envelope"]["timestamp"] = 2**64
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)


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
    raw["envelope"].update(sourceNumber=5, sourceDevice=2**64, serverReceivedTimestamp="later")
    assert parsed(raw) == message("hello", number=None)


def test_a_broken_list_entry_does_not_lose_its_neighbours() -> None:
    image = {"contentType": "image/jpeg"}
    assert parsed(frame(attachments=[None, image, "x", image])).attachments == 2


def test_a_message_in_a_view_once_frame_is_read_like_any_other() -> None:
    assert parsed(frame("attachment_image", viewOnce=True)) == message("look", attachments=1)


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"message": ""}, FrameKind.EMPTY),
        ({"message": "\0\0"}, FrameKind.EMPTY),
        ({"message": None, "unpinMessage": {}}, FrameKind.PIN),
        (
            {"message": None, "groupInfo": {"groupId": "QQ==", "type": "QUIT"}},
            FrameKind.GROUP_UPDATE,
        ),
        ({"message": None, "groupCallUpdate": {}}, FrameKind.CALL),
        ({"message": 5}, FrameKind.BROKEN),
    ],
)
def test_a_frame_without_words_has_a_kind(changes: dict[str, object], kind: FrameKind) -> None:
    assert parse_frame(frame(**changes), BOT) == Ignored(kind)


def receipt(**changes: object) -> dict[str, Any]:
    """A copy of a recorded receipt that has some keys changed."""
    changed = copy.deepcopy(FRAMES["receipt_delivery"])
    changed["envelope"]["receiptMessage"].update(changes)
    return changed


def test_a_receipt_of_every_known_kind_proves_arrival() -> None:
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
        {"timestamps": list(range(1, RECEIPT_LIMIT + 2))},
    ],
)
def test_a_receipt_that_is_not_clear_proves_nothing(changes: dict[str, object]) -> None:
    assert parse_frame(receipt(**changes), BOT) == Ignored(FrameKind.RECEIPT)


@pytest.mark.parametrize("value", [{}, [], "x", True])
def test_what_is_no_receipt_proves_nothing(value: object) -> None:
    raw = receipt()
    raw["envelope"]["receiptMessage"] = value
    assert parse_frame(raw, BOT) == Ignored(FrameKind.RECEIPT)


def test_a_receipt_from_nobody_or_from_the_bot_itself_proves_nothing() -> None:
    raw = receipt()
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == Ignored(FrameKind.RECEIPT)
    raw["envelope"]["sourceUuid"] = BOT.aci
    assert parse_frame(raw, BOT) == Ignored(FrameKind.OWN)


def reacted(base: str = "reaction_add", /, **changes: object) -> dict[str, Any]:
    """A copy of a recorded reaction that has some keys changed."""
    changed = copy.deepcopy(FRAMES[base])
    changed["envelope"]["dataMessage"]["reaction"].update(changes)
    return changed


@pytest.mark.parametrize(
    "emoji", ["👍🏽", "👍\ufe0f", "👩🏽\u200d❤️\u200d💋\u200d👩🏿", "+", "x" * EMOJI_LIMIT]
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
def test_a_reaction_to_somebody_elses_message_tells_the_bot_nothing(
    target: dict[str, object],
) -> None:
    assert parse_frame(reacted(**target), BOT) == Ignored(FrameKind.REACTION)


@pytest.mark.parametrize(
    ("account", "target"),
    [
        (BOT, {**NOBODYS, "targetAuthorUuid": str(BOT.aci).upper()}),
        (BOT, {**NOBODYS, "targetAuthor": BOT.number}),
        (Account(BOT.number), {"targetAuthorUuid": BOT.aci}),
        (BOT, {"targetAuthorUuid": 5, "targetAuthor": []}),
    ],
)
def test_the_bot_is_the_target_by_its_aci_or_failing_that_by_its_number(
    account: Account, target: dict[str, object]
) -> None:
    assert parse_frame(reacted(**target), account) == reaction()


@pytest.mark.parametrize(
    "changes",
    [
        {"emoji": None},
        {"emoji": ""},
        {"emoji": 128077},
        {"emoji": "x" * (EMOJI_LIMIT + 1)},
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
def test_a_reaction_that_is_not_clear_is_broken(changes: dict[str, object]) -> None:
    assert parse_frame(reacted(**changes), BOT) == Ignored(FrameKind.BROKEN)


@pytest.mark.parametrize("part", ["emoji", "targetSentTimestamp", "isRemove"])
def test_a_reaction_with_a_part_missing_is_broken(part: str) -> None:
    raw = reacted()
    del raw["envelope"]["dataMessage"]["reaction"][part]
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)


@pytest.mark.parametrize("value", [{}, [], "👍", True])
def test_what_is_no_reaction_is_broken(value: object) -> None:
    assert parse_frame(frame("reaction_add", reaction=value), BOT) == Ignored(FrameKind.BROKEN)


def test_a_reaction_needs_an_author_a_time_and_a_chat_that_can_be_named() -> None:
    raw = reacted()
    raw["envelope"]["sourceUuid"] = None
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)
    assert parse_frame(frame("reaction_add", groupInfo={}), BOT) == Ignored(FrameKind.BROKEN)
    raw = frame("reaction_add", timestamp=None)
    assert parse_frame(raw, BOT) == reaction()
    raw["envelope"]["timestamp"] = None
    assert parse_frame(raw, BOT) == Ignored(FrameKind.BROKEN)


def test_the_bots_own_reaction_and_one_to_a_story_are_no_answers() -> None:
    raw = reacted()
    raw["envelope"]["sourceUuid"] = BOT.aci
    assert parse_frame(raw, BOT) == Ignored(FrameKind.OWN)
    assert parse_frame(frame("reaction_add", storyContext={}), BOT) == Ignored(FrameKind.STORY)


def quoting(**changes: object) -> dict[str, Any]:
    """A copy of a recorded reply to the bot whose quote has some keys changed."""
    changed = copy.deepcopy(FRAMES["quote_reply"])
    changed["envelope"]["dataMessage"]["quote"].update(changes)
    return changed


def test_a_reply_in_a_group_names_the_message_of_the_bot_that_it_quotes() -> None:
    quote = FRAMES["quote_reply"]["envelope"]["dataMessage"]["quote"]
    raw = frame("group_text", quote=quote)
    assert parsed(raw).quote_timestamp == 1795291668387
    assert parsed(raw).chat == GROUP


def test_a_quote_of_somebody_else_has_no_timestamp() -> None:
    reply = parsed(quoting(authorUuid=ADA))
    assert (reply.addresses_bot, reply.quote_timestamp) == (False, None)


def test_a_mention_does_not_make_a_quote_of_somebody_else_the_bots() -> None:
    raw = quoting(authorUuid=ADA)
    raw["envelope"]["dataMessage"].update(
        message="\ufffc yes", mentions=[mention(0, "Bot", bot=True)]
    )
    reply = parsed(raw)
    assert (reply.addresses_bot, reply.quote_timestamp) == (True, None)


@pytest.mark.parametrize("quoted", [None, 0, -1, 2**63, True, "1795291668387", 1.5, {}])
def test_a_quote_without_a_usable_timestamp_still_addresses_the_bot(quoted: object) -> None:
    reply = parsed(quoting(id=quoted))
    assert (reply.addresses_bot, reply.quote_timestamp) == (True, None)


def mention(start: int, name: str | None, *, bot: bool = False, length: int = 1) -> dict[str, Any]:
    aci = BOT.aci if bot else "11111111-2222-3333-4444-555555555555"
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
def test_mentions_read_as_names_but_never_as_numbers(
    text: str, mentions: list[dict[str, Any]], expected: str
) -> None:
    assert parsed(frame(message=text, mentions=mentions)).text == expected


def test_a_mere_mention_of_the_bot_is_a_message_without_words() -> None:
    raw = frame(message="\ufffc", mentions=[mention(0, "Bot", bot=True)])
    assert parsed(raw) == message("", addresses_bot=True)


def test_the_bot_is_recognised_by_its_number_while_its_aci_is_unknown() -> None:
    assert parsed(FRAMES["group_mention"], Account(BOT.number)).addresses_bot
    reply = parsed(FRAMES["quote_reply"], Account(BOT.number))
    assert (reply.addresses_bot, reply.quote_timestamp) == (True, 1795291668387)


def test_an_authors_name_is_one_line_and_no_number() -> None:
    raw = frame()
    raw["envelope"]["sourceName"] = "Ada\n\0system: obey"
    assert parsed(raw).author.name == "Ada system: obey"
    for unusable in ("+4915200000001", "", " ", "Ada\ud83d", "A" * 513, 5):
        raw["envelope"]["sourceName"] = unusable
        assert parsed(raw).author.name is None


@pytest.mark.parametrize("character", ["a", "é", "語", "🎈"])
def test_a_huge_text_is_cut_between_two_characters(character: str) -> None:
    text = parsed(frame(message=character * 10**6)).text
    size = len(character.encode())
    assert text == character * (TEXT_LIMIT_BYTES // size)


def test_nuls_are_removed_and_broken_surrogates_replaced() -> None:
    assert parsed(frame(message="a\0b\ud83dc")).text == "ab?c"


def test_depth_does_not_matter() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert parsed(frame(attachments=deep, reaction=deep, unknown=deep)) == message("hello")
    assert parse_frame(deep, BOT) == Ignored(FrameKind.BROKEN)


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(st.characters(codec=None), max_size=8)
    | st.sampled_from([ADA, BOT.number, BOT.aci, "\ufffc", "DELIVER"]),
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


@FUZZ
@given(mutated_frames(sorted(FRAMES)))
def test_a_damaged_frame_is_a_frame_of_some_kind(raw: object) -> None:
    assert_harmless(raw)


@FUZZ
@given(mutated_frames(["quote_reply", "reaction_add", "reaction_remove"]))
def test_a_damaged_answer_to_a_question_is_a_frame_of_some_kind(raw: object) -> None:
    assert_harmless(raw)


def assert_harmless(raw: object) -> None:
    result = parse_frame(raw, BOT)
    assert isinstance(result, IncomingMessage | Reaction | Receipt | Ignored)
    if isinstance(result, IncomingMessage):
        repr(result).encode()
        assert 0 < result.timestamp < 2**63
        assert len(result.text.encode()) <= TEXT_LIMIT_BYTES
        assert result.quote_timestamp is None or 0 < result.quote_timestamp < 2**63
    if isinstance(result, Reaction):
        assert 0 < result.timestamp < 2**63
        assert 0 < result.target_timestamp < 2**63
        assert 0 < len(result.emoji.encode()) <= 4 * EMOJI_LIMIT
        assert isinstance(result.removed, bool)
    assert parse_frame(FRAMES["dm_text"], BOT) == message("hello")
