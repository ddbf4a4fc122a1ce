"""End-to-end encryption: only the attested model reads requests, only its answers are accepted."""

import json
from pathlib import Path
from typing import Final

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from bot.attestation.errors import ModelNotVerified
from bot.attestation.near_ai.encryption import (
    FIELD_PRIME,
    RequestKeys,
    montgomery_private_key,
    montgomery_public_key,
    open_field,
    request_keys,
)
from tests.fakes.near_ai_encryption import EncryptedModel, seal_field

VECTORS: Final = (
    Path(__file__).parents[3] / "shared" / "fixtures" / "attestation" / "nearai/e2ee-vectors.json"
)
SEED: Final = bytes(range(32))
MODEL_KEY: Final = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()
MODEL: Final = montgomery_private_key(SEED)
NOT_OURS: Final = "this is not encrypted to this key"
SEALED: Final = seal_field(MODEL_KEY, "exactly this")

SMALL_ORDERS: Final = tuple(
    (y + (sign << 255)).to_bytes(32, "little") for y in (0, 1, FIELD_PRIME - 1) for sign in (0, 1)
)
ORDER_8: Final = (
    bytes.fromhex("26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05"),
    bytes.fromhex("c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a"),
)


class Keyless:
    def encryption_key(self) -> bytes | None:
        return None


class Misconfigured:
    def encryption_key(self) -> bytes | None:
        return bytes(32)


def client_key(keys: RequestKeys) -> bytes:
    return bytes.fromhex(keys.headers["x-client-pub-key"])


@pytest.mark.skipif(not VECTORS.exists(), reason="the recorded vectors are not here")
def test_the_official_vector_opens() -> None:
    (vector,) = (
        case for case in json.loads(VECTORS.read_text())["cases"] if case["algorithm"] == "ed25519"
    )
    key = montgomery_private_key(bytes.fromhex(vector["private_seed"]))
    public_key = montgomery_public_key(bytes.fromhex(vector["public_key"]))

    assert open_field(key, vector["ciphertext"]) == vector["plaintext"]
    assert public_key.public_bytes_raw() == key.public_key().public_bytes_raw()


@given(st.text())
def test_a_sealed_field_is_read_by_the_model_and_its_answer_by_the_request(text: str) -> None:
    keys = RequestKeys(MODEL_KEY)
    assert open_field(MODEL, keys.seal(text)) == text
    assert keys.open(seal_field(client_key(keys), text)) == text


def test_an_empty_field_stays_empty_and_half_a_character_is_a_question_mark() -> None:
    keys = RequestKeys(MODEL_KEY)
    assert (keys.seal(""), keys.open("")) == ("", "")
    assert open_field(MODEL, keys.seal("a\ud83db")) == "a?b"


def test_the_same_words_never_look_the_same() -> None:
    keys = RequestKeys(MODEL_KEY)

    assert len({keys.seal("Yes."), keys.seal("Yes."), RequestKeys(MODEL_KEY).seal("Yes.")}) == 3


@given(st.integers(0, len(SEALED) - 1), st.characters(codec="utf-8"))
def test_no_character_of_a_field_can_be_another_one(place: int, character: str) -> None:
    changed = SEALED[:place] + character + SEALED[place + 1 :]
    if changed != SEALED:
        with pytest.raises(ValueError, match=NOT_OURS):
            open_field(MODEL, changed)


@pytest.mark.parametrize("spelled", [SEALED.upper(), " " + SEALED, SEALED[:64] + " " + SEALED[64:]])
def test_a_field_has_one_spelling(spelled: str) -> None:
    with pytest.raises(ValueError, match=NOT_OURS):
        open_field(MODEL, spelled)


@given(st.text(min_size=1) | st.binary(min_size=1, max_size=200).map(bytes.hex))
def test_plain_field_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=NOT_OURS):
        RequestKeys(MODEL_KEY).open(text)


def test_an_answer_to_another_request_and_an_echo_are_refused() -> None:
    theirs, ours = RequestKeys(MODEL_KEY), RequestKeys(MODEL_KEY)
    for sealed in (seal_field(client_key(theirs), "not for us"), ours.seal("an echo")):
        with pytest.raises(ValueError, match=NOT_OURS):
            ours.open(sealed)


@pytest.mark.parametrize(
    "key",
    [
        b"",
        MODEL_KEY[:31],
        MODEL_KEY + b"\0",
        (2).to_bytes(32, "little"),  # no point of the curve
        FIELD_PRIME.to_bytes(32, "little"),
        (FIELD_PRIME + 3).to_bytes(32, "little"),  # y = 3 in a second spelling
        *ORDER_8,
        *SMALL_ORDERS,
    ],
)
def test_an_invalid_or_weak_public_key_is_refused(key: bytes) -> None:
    with pytest.raises(ValueError, match=r"key|invertible"):
        RequestKeys(key)


@pytest.mark.parametrize("u", [0, 1, FIELD_PRIME - 1, FIELD_PRIME, FIELD_PRIME + 9])
def test_a_field_from_a_sender_without_a_secret_is_refused(u: int) -> None:
    with pytest.raises(ValueError, match=NOT_OURS):
        open_field(MODEL, u.to_bytes(32, "little").hex() + SEALED[64:])


async def test_every_request_has_keys_of_its_own() -> None:
    model = EncryptedModel()
    first, second = [await request_keys(model.encryption_key) for _ in range(2)]

    assert client_key(first) != client_key(second)
    assert first.headers == {
        "x-signing-algo": "ed25519",
        "x-encryption-version": "2",
        "x-encrypt-all-fields": "true",
        "x-client-pub-key": client_key(first).hex(),
        "x-model-pub-key": MODEL_KEY.hex(),
    }


@pytest.mark.parametrize("model", [Keyless(), Misconfigured()])
async def test_without_a_usable_key_nothing_begins(model: Keyless | Misconfigured) -> None:
    with pytest.raises(ModelNotVerified) as caught:
        await request_keys(model.encryption_key)

    assert str(caught.value).startswith("I have not sent your message to the model, because")
