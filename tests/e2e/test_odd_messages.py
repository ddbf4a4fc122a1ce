"""Messages without words, and mentions without names: a model reads what a person would see."""

from typing import Any, Final

import pytest

from tests.e2e.running_bot import story, world
from tests.e2e.test_over_rest import guest
from tests.fakes.signal_frames import data_message, message_frame
from tests.fakes.signal_side import ADA

ACI: Final = "b59181c9-0000-4000-8000-00000000000b"
CARD: Final = {
    "name": {"display": "Grace Hopper", "given": "Grace", "family": "Hopper"},
    "phone": [{"value": "+4915112345678", "type": "MOBILE"}],
    "email": [{"value": "grace@example.org"}],
    "organization": "Navy",
}
WORDLESS: Final[list[tuple[dict[str, Any], str]]] = [
    ({"sticker": {"packId": "9a32", "stickerId": 3, "emoji": "🎉"}}, "[sticker] 🎉"),
    ({"sticker": {"packId": "9a32", "stickerId": 3}}, "[sticker]"),
    (
        {"contacts": [CARD]},
        "[contact card] Grace Hopper, Navy, +4915112345678, grace@example.org",
    ),
    (
        {"contacts": [{"name": {"givenName": "Al"}}, {"name": "?", "phone": [{"value": 5}]}]},
        "[contact card] Al\n[contact card] without a name",
    ),
    (
        {"pollCreate": {"question": "Lunch?", "allowMultiple": False, "options": ["yes", "no"]}},
        "[poll] Lunch? (yes / no)",
    ),
    ({"pollCreate": {"question": "!clear\n[x]", "options": None}}, "[poll] !clear (x)"),
    ({"payment": {"note": "for lunch", "receipt": "AAAA"}}, "[payment] for lunch"),
    ({"payment": {"note": None, "receipt": "AAAA"}}, "[payment]"),
]


@pytest.mark.parametrize(("data", "words"), WORDLESS)
async def test_a_message_without_words_is_passed_to_the_model(
    data: dict[str, Any], words: str
) -> None:
    async with story() as here:
        account = here.signal.account
        sent = data_message(account, 1_795_291_728_387, None) | data
        await here.signal.push(message_frame(account, ADA, sent))
        assert (await here.answer()).text.endswith(words)


async def test_the_same_is_so_over_the_rest_api() -> None:
    async with world() as here, guest(here) as there:
        account = there.api.account
        for number, (data, words) in enumerate(WORDLESS[:7], start=1):
            sent = data_message(account, 1_795_291_728_387 + number, None) | data
            await there.api.push(message_frame(account, ADA, sent))
            assert (await there.answer(number)).text.endswith(words)


def mention(name: str, aci: str = ACI) -> dict[str, Any]:
    return {"mentions": [{"name": name, "uuid": aci, "number": None, "start": 4, "length": 1}]}


@pytest.mark.parametrize(
    ("name", "aci", "shown"),
    [
        (ACI, ACI, "@someone"),
        (ACI.upper(), ACI, "@someone"),
        (f"PNI:{ACI}", ACI, "@someone"),
        ("+4915112345678", ACI, "@someone"),
        ("Grace", ACI, "@Grace"),
        (ADA.aci, ADA.aci, "@Ada"),
    ],
)
async def test_a_mention_shows_a_name_and_never_an_id(name: str, aci: str, shown: str) -> None:
    async with story() as here:
        account = here.signal.account
        data = data_message(account, 1_795_291_728_387, "Ask \ufffc please") | mention(name, aci)
        await here.signal.push(message_frame(account, ADA, data))
        assert (await here.answer()).text.endswith(f"Ask {shown} please")
