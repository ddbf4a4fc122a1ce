"""An answer counts as signed only when an attested key has signed the very bytes that we saw."""

import asyncio
import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.attestation.http import open_http
from bot.attestation.near_ai.signatures import (
    SECP256K1_HALF_ORDER,
    AnswerSignatures,
    SignatureAnswer,
    SignatureVerdict,
    check_signature,
)
from bot.commands.verify import NO_SIGNATURES, signatures
from conversation_store.models import ExchangeState, StoredExchange
from tests.fakes.near_ai import Signing
from tests.fakes.openai_server import (
    JSON,
    Request,
    Step,
    cut,
    held,
    openai_server,
    raw_body,
    script,
    status,
    whole,
)

SAMPLE: Final = (
    Path(__file__).parents[3] / "shared" / "fixtures" / "attestation" / "nearai/chat-signature"
)
MODEL: Final = "vendor/model:latest"
REQUEST: Final = hashlib.sha256(b"request").hexdigest()
RESPONSE: Final = hashlib.sha256(b"response").hexdigest()
HASHES: Final = f"{REQUEST}:{RESPONSE}"
TEXT: Final = f"{MODEL}:{HASHES}"

KEYS: Final = Signing()
ALGORITHMS: Final = ("ed25519", "ecdsa")


class Attested:
    """Vouches for these keys, by kind and algorithm."""

    def __init__(self, keys: Mapping[tuple[str, str], bytes]) -> None:
        self._keys = keys

    def signers(self, kind: str, algorithm: str) -> tuple[bytes, ...]:
        address = self._keys.get((kind, algorithm))
        return (address,) if address is not None else ()


EVERY_KEY: Final = Attested(
    {
        (kind, algorithm): KEYS.address(algorithm)
        for kind in ("provider_tee", "gateway")
        for algorithm in ALGORITHMS
    }
)


def signed(text: str, algorithm: str = "ed25519", kind: str | None = None) -> SignatureAnswer:
    return SignatureAnswer(
        text=text,
        signature=KEYS.sign(text, algorithm),
        signing_address=KEYS.address_text(algorithm),
        signing_algo=algorithm,
        signature_kind=kind,
    )


def checked(answer: SignatureAnswer, signers: Attested = EVERY_KEY) -> SignatureVerdict:
    return check_signature(answer, REQUEST, RESPONSE, MODEL, signers.signers)


def changed(answer: SignatureAnswer, **fields: Any) -> SignatureAnswer:
    return SignatureAnswer.model_validate({**answer.model_dump(), **fields})


def body(answer: SignatureAnswer) -> dict[str, Any]:
    return answer.model_dump(exclude_none=True)


# The genuine sample


@pytest.mark.skipif(not SAMPLE.exists(), reason="the recorded exchange is not here")
def test_the_recorded_exchange_is_proven() -> None:
    answer = SignatureAnswer.model_validate_json((SAMPLE / "signature.json").read_bytes())
    address = bytes.fromhex("6525e128afcffebf7eed05d485d7be983cdae934")
    signers = Attested({("provider_tee", "ecdsa"): address})
    hashes = [
        hashlib.sha256((SAMPLE / name).read_bytes()).hexdigest()
        for name in ("request.json", "response.sse")
    ]

    verdict = check_signature(
        answer, hashes[0], hashes[1], "Qwen/Qwen3.5-122B-A10B", signers.signers
    )

    assert (verdict.state, verdict.kind) == ("proven", "provider_tee")


# What holds


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [(TEXT, "provider_tee", ""), (HASHES, "gateway", "does not prove which model")],
)
def test_signature_of_the_models_machine_or_of_the_gateway_is_proven(
    algorithm: str, text: str, kind: str, said: str
) -> None:
    for named in (kind, None):
        verdict = checked(signed(text, algorithm, named))
        assert (verdict.state, verdict.kind) == ("proven", kind)
        assert said in verdict.message


def test_hexadecimal_may_be_written_in_capitals_and_with_its_prefix() -> None:
    answer = signed(TEXT)

    spelled = changed(
        answer,
        signature="0x" + answer.signature.upper(),
        signing_address="0x" + answer.signing_address.upper(),
    )
    assert checked(spelled).state == "proven"


# What does not


def test_without_a_verified_report_a_signature_is_unattested_or_wrong() -> None:
    answer = signed(TEXT)
    forged = changed(answer, signature=bytes(64).hex())
    assert checked(answer, Attested({})).state == "unattested"
    assert checked(forged, Attested({})).state == "wrong"
    assert checked(changed(answer, signing_algo="none")).state == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        f"{MODEL}:{RESPONSE}:{REQUEST}",
        f"{MODEL}:{REQUEST}:{'0' * 64}",
        f"{MODEL}:{'0' * 64}:{RESPONSE}",
        f"another-model:{HASHES}",
        f" {TEXT}",
        f"{MODEL}:{HASHES.upper()}",
        f"{MODEL}",
        "",
    ],
)
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_genuine_signature_of_something_else_is_wrong(algorithm: str, text: str) -> None:
    assert checked(signed(text, algorithm)).state == "wrong"


@pytest.mark.parametrize(
    ("text", "kind"), [(TEXT, "gateway"), (HASHES, "provider_tee"), (TEXT, "chutes"), (TEXT, "")]
)
def test_a_kind_that_is_not_the_shape_of_the_text_is_wrong(text: str, kind: str) -> None:
    assert checked(signed(text, kind=kind)).state == "wrong"


@pytest.mark.parametrize(("text", "other"), [(TEXT, "gateway"), (HASHES, "provider_tee")])
def test_a_key_that_is_attested_for_the_other_kind_does_not_count(text: str, other: str) -> None:
    only_other = Attested({(other, "ed25519"): KEYS.address("ed25519")})
    both = Attested({("provider_tee", "ed25519"): bytes(32), ("gateway", "ed25519"): bytes(32)})

    assert checked(signed(text), only_other).state == "unattested"
    assert checked(signed(text), both).state == "wrong"


@given(data=st.data())
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("field", ["signature", "signing_address"])
def test_no_byte_of_signature_or_address_can_be_another_one(
    data: st.DataObject, algorithm: str, field: str
) -> None:
    answer = signed(TEXT, algorithm)
    value = bytearray.fromhex(getattr(answer, field).removeprefix("0x"))
    value[data.draw(st.integers(0, len(value) - 1))] ^= data.draw(st.integers(1, 255))

    assert checked(changed(answer, **{field: value.hex()})).state == "wrong"


@given(st.binary(max_size=100), st.binary(max_size=40), st.sampled_from(["ed25519", "ecdsa"]))
def test_signatures_and_addresses_of_any_length_are_wrong(
    signature: bytes, address: bytes, algorithm: str
) -> None:
    answer = SignatureAnswer(
        text=TEXT,
        signature=signature.hex(),
        signing_address=address.hex(),
        signing_algo=algorithm,
    )

    assert checked(answer).state == "wrong"
    assert checked(answer, Attested({})).state == "wrong"


def test_another_spelling_of_a_signature_is_wrong() -> None:
    answer = signed(TEXT, "ecdsa")
    mirrored = bytearray.fromhex(answer.signature[2:])
    order = 2 * SECP256K1_HALF_ORDER + 1
    mirrored[32:64] = (order - int.from_bytes(mirrored[32:64], "big")).to_bytes(32, "big")
    mirrored[64] ^= 27 ^ 28
    undocumented = [answer.signature[:-2] + f"{v:02x}" for v in (0, 1, 26, 29, 255)]

    for signature in (mirrored.hex(), *undocumented):
        assert checked(changed(answer, signature=signature)).state == "wrong"


# Asking the endpoint


async def asked(
    *steps: Step, exchange_id: str = "chatcmpl-1", total_seconds: float = 10.0
) -> tuple[SignatureVerdict, list[Request]]:
    """Return the verdict and the requests of a check at an endpoint that answers in these steps."""
    quick: dict[str, Any] = {"FIRST_PAUSE_SECONDS": 0.001, "TOTAL_SECONDS": total_seconds}
    async with openai_server() as server, open_http() as http:
        server.signature_handler = script(*steps)
        signatures = AnswerSignatures(
            http,
            server.base_url,
            "sk-1",
            MODEL,
            EVERY_KEY.signers,
        )
        with patch.multiple("bot.attestation.near_ai.signatures", **quick):
            return await signatures.check(exchange_id, REQUEST, RESPONSE), server.received


SIGNED: Final = whole(body(signed(TEXT)))


async def test_the_signature_is_asked_for_by_the_name_of_the_answer() -> None:
    verdict, requests = await asked(SIGNED)

    assert verdict.state == "proven"
    (request,) = requests
    assert request.path == (
        "/v1/signature/chatcmpl-1?model=vendor%2Fmodel%3Alatest&signing_algo=ed25519"
    )
    assert request.headers["authorization"] == "Bearer sk-1"


@pytest.mark.parametrize(
    "trouble",
    [status(404), status(429), status(408), status(500), status(503), cut],
)
async def test_a_signature_that_is_not_there_yet_is_waited_for(trouble: Step) -> None:
    verdict, requests = await asked(trouble, trouble, trouble, SIGNED)

    assert verdict.state == "proven"
    assert len(requests) == 4


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        (status(404), "no signature for this answer, or not yet"),
        (status(429, headers={"retry-after": "9" * 999}), "in trouble"),
        (status(429, headers={"retry-after": "²"}), "in trouble"),
        (status(503), "in trouble"),
        (cut, "did not answer"),
        (held(asyncio.Event()), "did not answer"),
        (raw_body(b"x" * 70_000, content_type=JSON), "did not answer"),
    ],
)
async def test_a_signature_that_never_comes_is_missing(trouble: Step, said: str) -> None:
    verdict, _ = await asked(*[trouble] * 1000, total_seconds=0.5)

    assert (verdict.state, verdict.kind) == ("missing", "")
    assert said in verdict.message


@pytest.mark.parametrize(
    "refusal",
    [
        whole({"error_code": "STREAM_DISCONNECTED", "message": "gone"}),
        whole([]),
        whole({**body(signed(TEXT)), "signature": "no hex"}),
        whole({**body(signed(TEXT)), "text": "x" * 2000}),
        raw_body(b"<html>", content_type="text/html"),
        raw_body(b"[" * 60_000, content_type=JSON),
        status(400),
        status(307, headers={"location": "http://127.0.0.1:1/"}),
    ],
)
async def test_a_refusal_is_final(refusal: Step) -> None:
    verdict, requests = await asked(refusal, SIGNED)

    assert verdict.state == "missing"
    assert len(requests) == 1


@pytest.mark.parametrize(
    ("exchange_id", "paths"),
    [
        ("a/../../../models?x=#", ["a%2F..%2F..%2F..%2Fmodels%3Fx%3D%23"]),
        ("\r\nx: y", ["%0D%0Ax%3A%20y"]),
        ("\ud83d", ["%3F"]),
        ("", []),
        ("..", []),
        ("x" * 129, []),
    ],
)
async def test_a_name_from_outside_stays_one_part_of_the_address_or_is_not_asked_for(
    exchange_id: str, paths: list[str]
) -> None:
    verdict, requests = await asked(SIGNED, exchange_id=exchange_id)

    asked_for = [request.path.partition("?")[0] for request in requests]
    assert asked_for == [f"/v1/signature/{path}" for path in paths]
    assert verdict.state == ("proven" if paths else "missing")


# The words of `!verify last`


def stored(state: ExchangeState, kind: str = "", words: str = "") -> StoredExchange:
    return StoredExchange(1, 1, "chatcmpl-1", "00" * 32, "11" * 32, state, kind, words)


PROVEN: Final = stored("proven", "provider_tee", "The model's machine has signed.")
WRONG: Final = stored("wrong", "gateway", "The signature is of another key.")
MISSING: Final = stored("missing", words="The endpoint has none.")


@pytest.mark.parametrize(
    ("exchanges", "paragraphs"),
    [
        ([PROVEN], ["The model's machine has signed."]),
        (
            [PROVEN, stored("waiting"), PROVEN],
            [
                "In 2 of 3 cases: The model's machine has signed.",
                "In 1 of 3 cases: The signature is not checked yet. Ask again in a minute.",
            ],
        ),
        ([WRONG], ["The signature is of another key.\nDo not rely on the answer."]),
        ([MISSING], ["The endpoint has none.\nSo nothing proves which model answered."]),
    ],
)
def test_each_signature_is_explained(
    exchanges: list[StoredExchange], paragraphs: list[str]
) -> None:
    title, *found, ending = signatures(exchanges).split("\n\n")
    assert ("I asked the model" in title) == (len(exchanges) > 1)
    assert found == paragraphs
    assert "!verify" in ending
    assert signatures([]) == NO_SIGNATURES
