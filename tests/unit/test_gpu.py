"""GPU evidence and NVIDIA's tokens: which are accepted, and which check refuses the others."""

import base64
import hashlib
import hmac
import json
import ssl
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from bot.attestation.checks import Check, Report, Verdict
from bot.attestation.near_ai.nvidia import (
    LEEWAY_SECONDS,
    MAX_ANSWER_BYTES,
    MAX_GPUS,
    GpuFindings,
    NrasWord,
    verify_gpus,
    verify_nras,
)
from bot.attestation.trust import REAL, Trust
from tests.fakes.certificates import Authority
from tests.fakes.soft_gpu import NO_CHANGES, SoftGpus, SoftNras, signed_measurements

NOW: Final = 1782698817
YEAR: Final = 365 * 24 * 3600
NONCE: Final = bytes(range(32))
GPUS: Final = SoftGpus(3, now=NOW)
ONE_GPU: Final = SoftGpus(1, now=NOW)
OTHERS: Final = SoftGpus(3, now=NOW)
NRAS: Final = SoftNras("https://nras.test", now=NOW)
FOREIGN_CERTIFICATE: Final = Authority().issue().certificate_pem.encode()
TRUST: Final = Trust(nvidia_root_sha256=GPUS.root_sha256, nras_url=NRAS.issuer)

Json = dict[str, Any]


def failures(checks: tuple[Check, ...]) -> set[str]:
    return {check.name for check in Report(checks).failures}


# The GPUs' own signatures


def verified(payload: str, *, nonce: bytes = NONCE, now: int = NOW) -> GpuFindings:
    return verify_gpus(payload, nonce=nonce, now=now, trust=TRUST)


def edited(edit: Callable[[list[Json], Json], object], gpus: SoftGpus = GPUS) -> str:
    payload = json.loads(gpus.payload(NONCE))
    edit(payload["evidence_list"], payload)
    return json.dumps(payload)


def flipped(field: str, at: int) -> Callable[[list[Json], Json], None]:
    def edit(gpus: list[Json], _: Json) -> None:
        data = bytearray(base64.b64decode(gpus[0][field]))
        data[at] ^= 1
        gpus[0][field] = base64.b64encode(data).decode()

    return edit


def with_spdm(spdm: bytes) -> Callable[[list[Json], Json], None]:
    def edit(gpus: list[Json], _: Json) -> None:
        gpus[0]["evidence"] = base64.b64encode(spdm).decode()

    return edit


def with_chain(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[list[Json], Json], None]:
    def edit(gpus: list[Json], _: Json) -> None:
        pem = base64.b64decode(gpus[0]["certificate"]).rstrip(b"\0")
        end = b"-----END CERTIFICATE-----\n"
        certificates = [part + end for part in pem.split(end)[:-1]]
        gpus[0]["certificate"] = base64.b64encode(b"".join(change(certificates))).decode()

    return edit


def signed_as(**parts: bytes) -> Callable[[list[Json], Json], None]:
    return with_spdm(signed_measurements(GPUS.key(0), NONCE, **parts))


def one_of(gpus: SoftGpus, nonce: bytes, number: int) -> Json:
    one: Json = json.loads(gpus.payload(nonce))["evidence_list"][number]
    return one


def chain_of(gpus: SoftGpus, number: int) -> list[bytes]:
    """Return the PEM certificates of one GPU."""
    pem = base64.b64decode(one_of(gpus, NONCE, number)["certificate"]).rstrip(b"\0")
    return [c.public_bytes(Encoding.PEM) for c in x509.load_pem_x509_certificates(pem)]


def test_gpus_that_sign_our_nonce_under_the_trusted_root_are_proven() -> None:
    findings = verified(GPUS.payload(NONCE))
    assert [check.name for check in findings.checks] == ["gpu_chain", "gpu_nonce", "gpus"]
    assert {check.verdict for check in findings.checks} == {Verdict.PROVEN}
    assert findings.serials == GPUS.serials
    assert "3 NVIDIA GPUs" in findings.checks[-1].message


EARLIER: Final = one_of(GPUS, bytes(32), 2)["evidence"]
OTHERS_CHAIN: Final = chain_of(OTHERS, 0)
GPU_ATTACKS: Final[dict[str, tuple[Callable[[list[Json], Json], object], str]]] = {
    "another nonce": (lambda _, payload: payload.update(nonce="ab" * 32), "gpu_nonce"),
    "another nonce beside one GPU": (lambda gpus, _: gpus[1].update(nonce="ab" * 32), "gpu_nonce"),
    "an earlier answer": (lambda gpus, _: gpus[2].update(evidence=EARLIER), "gpu_nonce"),
    "a nonce that is overwritten": (flipped("evidence", 10), "gpu_nonce gpus"),
    "a changed measurement": (flipped("evidence", 50), "gpus"),
    "a changed signature": (flipped("evidence", -1), "gpus"),
    "another GPU's": (lambda gpus, _: gpus[0].update(evidence=gpus[1]["evidence"]), "gpus"),
    "an unknown kind": (lambda _, payload: payload.update(arch="AMPERE"), "gpus"),
    "one of another kind": (lambda gpus, _: gpus[0].update(arch="BLACKWELL"), "gpus"),
    "two firmwares": (lambda gpus, _: gpus.append(GPUS.started_again(0, NONCE)), "gpu_chain"),
    "one GPU twice": (lambda gpus, _: gpus.append(gpus[0]), "gpu_chain"),
    "one GPU of somebody else": (
        lambda gpus, _: gpus.append(one_of(OTHERS, NONCE, 0)),
        "gpu_chain",
    ),
    "no root": (with_chain(lambda chain: chain[:-1]), "gpu_chain"),
    "a gap in the chain": (with_chain(lambda chain: chain[:2] + chain[3:]), "gpu_chain"),
    "another GPU's chain above": (
        with_chain(lambda chain: chain[:1] + chain_of(GPUS, 1)[1:]),
        "gpu_chain",
    ),
    "our root under a foreign chain": (
        with_chain(lambda chain: [*OTHERS_CHAIN[:-1], chain[-1]]),
        "gpu_chain gpus",
    ),
    "many roots": (with_chain(lambda chain: chain + chain[-1:] * 4), "gpu_chain"),
    "another kind of key": (with_chain(lambda chain: [FOREIGN_CERTIFICATE, *chain[1:]]), "gpus"),
    "no certificates": (with_chain(lambda _: []), "gpus"),
    "no GPU": (lambda gpus, _: gpus.clear(), "gpus"),
    "too many GPUs": (lambda gpus, _: gpus.extend(gpus[:1] * MAX_GPUS), "gpus"),
    "no base64": (lambda gpus, _: gpus[0].update(evidence="?"), "gpus"),
    "evidence that is cut off": (with_spdm(b"\x11\xe0\x01\xff" + NONCE), "gpus"),
    "no signature": (with_spdm(b"\x11\xe0\x01\xff" + NONCE + b"\0\x11\x60"), "gpus"),
    "another request": (signed_as(request=bytes.fromhex("118301ff")), "gpus"),
    "another response": (signed_as(response=bytes.fromhex("1103") + bytes(200)), "gpus"),
}


@pytest.mark.parametrize("attack", GPU_ATTACKS)
def test_an_attack_on_the_gpus_fails_its_check(attack: str) -> None:
    edit, expected = GPU_ATTACKS[attack]
    assert failures(verified(edited(edit)).checks) == set(expected.split())


@pytest.mark.parametrize(
    "payload", ["{", "[]", GPUS.payload(NONCE).replace('"nonce"', '"nonce": "00", "nonce"', 1)]
)
def test_malformed_gpu_evidence_is_refused(payload: str) -> None:
    assert failures(verified(payload).checks) == {"gpus"}


@pytest.mark.parametrize("now", [NOW - 2 * YEAR, NOW + 11 * YEAR])
def test_certificates_are_refused_outside_their_time(now: int) -> None:
    assert failures(verified(GPUS.payload(NONCE), now=now).checks) == {"gpu_chain"}


def test_a_certificate_that_may_not_issue_others_ends_the_chain() -> None:
    gpus = SoftGpus(1, now=NOW, issued_by_ca=False)
    trust = Trust(nvidia_root_sha256=gpus.root_sha256)
    for foreign, believed in ((gpus, trust), (GPUS, REAL)):
        findings = verify_gpus(foreign.payload(NONCE), nonce=NONCE, now=NOW, trust=believed)
        assert failures(findings.checks) == {"gpu_chain"}


def test_unsigned_count_of_unused_bits_in_a_signature_must_be_zero() -> None:
    gpus = next(one for one in (SoftGpus(1, now=NOW) for _ in range(100)) if has_even_end(one))
    ders = [ssl.PEM_cert_to_DER_cert(pem.decode()) for pem in chain_of(gpus, 0)[:-1]]
    which = next(at for at, der in enumerate(ders) if der[-1] % 2 == 0)
    signature = x509.load_der_x509_certificate(ders[which]).signature
    changed = bytearray(ders[which])
    changed[-len(signature) - 1] = 1
    pem = ssl.DER_cert_to_PEM_cert(bytes(changed)).encode()
    attack = with_chain(lambda chain: [*chain[:which], pem, *chain[which + 1 :]])
    trust = Trust(nvidia_root_sha256=gpus.root_sha256)
    findings = verify_gpus(edited(attack, gpus), nonce=NONCE, now=NOW, trust=trust)
    assert failures(findings.checks) == {"gpu_chain"}


def has_even_end(gpus: SoftGpus) -> bool:
    """Return whether a signature leaves its last bit unused; of random ones every second does."""
    return any(
        ssl.PEM_cert_to_DER_cert(pem.decode())[-1] % 2 == 0 for pem in chain_of(gpus, 0)[:-1]
    )


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_no_bit_signed_by_a_gpu_can_be_flipped(data: st.DataObject) -> None:
    payload = json.loads(ONE_GPU.payload(NONCE))
    spdm = bytearray(base64.b64decode(payload["evidence_list"][0]["evidence"]))
    spdm[data.draw(st.integers(0, len(spdm) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    payload["evidence_list"][0]["evidence"] = base64.b64encode(spdm).decode()
    assert failures(one_verified(payload).checks)


# The library warns of an odd certificate before it refuses it.
@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")
@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_bit_of_a_gpus_certificates_can_be_flipped(data: st.DataObject) -> None:
    chain = chain_of(ONE_GPU, 0)
    which = data.draw(st.integers(0, len(chain) - 1))
    der = bytearray(ssl.PEM_cert_to_DER_cert(chain[which].decode()))
    der[data.draw(st.integers(0, len(der) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    chain[which] = ssl.DER_cert_to_PEM_cert(bytes(der)).encode()
    payload = json.loads(ONE_GPU.payload(NONCE))
    payload["evidence_list"][0]["certificate"] = base64.b64encode(b"".join(chain)).decode()
    assert failures(one_verified(payload).checks)


def one_verified(payload: Json) -> GpuFindings:
    trust = Trust(nvidia_root_sha256=ONE_GPU.root_sha256)
    return verify_gpus(json.dumps(payload), nonce=NONCE, now=NOW, trust=trust)


# NVIDIA's tokens


class Word(NamedTuple):
    checks: tuple[Check, ...]
    expires_at: int | None


def tokens_verified(
    tokens: bytes, *, keys: bytes = NRAS.keys, now: int = NOW, nonce: bytes = NONCE
) -> Word:
    word = NrasWord(tokens, keys)
    return Word(*verify_nras(word, nonce=nonce, serials=GPUS.serials, now=now, trust=TRUST))


def tokens(
    *, overall: Mapping[str, Any] = NO_CHANGES, gpu: Mapping[str, Any] = NO_CHANGES
) -> bytes:
    return NRAS.attest(json.loads(GPUS.payload(NONCE)), overall=overall, gpu=gpu)


def test_tokens_of_nvidias_service_are_proven_until_the_first_expires() -> None:
    findings = tokens_verified(tokens(gpu={"exp": NOW + 600}))
    assert [(check.name, check.verdict) for check in findings.checks] == [
        ("gpu_tokens", Verdict.PROVEN),
        ("gpu_firmware", Verdict.PROVEN),
    ]
    assert findings.expires_at == NOW + 600
    assert not failures(tokens_verified(tokens(gpu={"exp": NOW + 600}), now=NOW + 599).checks)


def test_tokens_are_valid_a_little_ahead_of_our_clock_and_never_after_their_end() -> None:
    assert not failures(tokens_verified(tokens(), now=NOW - LEEWAY_SECONDS).checks)
    assert failures(tokens_verified(tokens(), now=NOW - LEEWAY_SECONDS - 1).checks)
    assert not failures(tokens_verified(tokens(), now=NOW + 3599).checks)
    assert failures(tokens_verified(tokens(), now=NOW + 3600).checks)


CLAIM_ATTACKS: Final[list[tuple[str, Json, str]]] = [
    ("overall", {"iss": "https://nras.evil"}, "issuer"),
    ("gpu", {"iss": "https://nras.evil"}, "issuer"),
    ("overall", {"iss": None}, "issuer"),
    ("overall", {"eat_nonce": "ab" * 32}, "nonce"),
    ("gpu", {"eat_nonce": "ab" * 32}, "nonce"),
    ("gpu", {"eat_nonce": [NONCE.hex()]}, "claim"),
    ("overall", {"exp": NOW}, "expired"),
    ("gpu", {"exp": NOW - 1}, "expired"),
    ("overall", {"exp": None}, "claim"),
    ("overall", {"exp": str(NOW + 60)}, "claim"),
    ("overall", {"nbf": NOW + 61}, "not valid yet"),
    ("gpu", {"iat": NOW + 61}, "not valid yet"),
    ("overall", {"submods": {}}, "overall token names"),
    ("gpu", {"ueid": "1"}, "other GPUs"),
    ("gpu", {"ueid": None}, "other GPUs"),
]


@pytest.mark.parametrize(("token", "claims", "reason"), CLAIM_ATTACKS)
def test_tokens_with_another_claim_are_refused(token: str, claims: Json, reason: str) -> None:
    assert_refused(tokens_verified(tokens(**{token: claims})), reason)


def test_tokens_on_fewer_or_more_gpus_are_refused() -> None:
    for payload in (
        edited(lambda gpus, _: gpus.pop()),
        edited(lambda gpus, _: gpus.append(gpus[0])),
    ):
        assert_refused(tokens_verified(NRAS.attest(json.loads(payload))), "other GPUs")


def assert_refused(findings: Word, reason: str) -> None:
    assert failures(findings.checks) == {"gpu_tokens"}
    assert reason in findings.checks[0].message
    assert findings.checks[1].verdict is Verdict.NOT_CHECKED
    assert findings.expires_at is None


DOUBTS: Final[list[dict[str, Mapping[str, Any]]]] = [
    {"overall": {"x-nvidia-overall-att-result": False}},
    {"overall": {"x-nvidia-overall-att-result": "true"}},
    {"overall": {"x-nvidia-overall-att-result": None}},
    {"gpu": {"measres": "comparison-fail"}},
    {"gpu": {"dbgstat": "enabled"}},
    {"gpu": {"secboot": False}},
    {"gpu": {"secboot": "true"}},
    {"gpu": {"secboot": None}},
    {"gpu": {"x-nvidia-error-details": {"code": 4013, "message": "INVALID_EVIDENCE_SIGNATURE"}}},
]


@pytest.mark.parametrize("changes", DOUBTS, ids=str)
def test_doubts_of_nvidia_fail_the_firmware(changes: dict[str, Mapping[str, Any]]) -> None:
    findings = tokens_verified(tokens(**changes))
    assert failures(findings.checks) == {"gpu_firmware"}


# Forged tokens


def segments(answer: bytes) -> tuple[str, dict[str, str]]:
    (_, overall), gpus = json.loads(answer)
    return overall, gpus


def signed_by(header: Json, sign: Callable[[bytes], bytes]) -> Callable[[str], str]:
    """Return a function that puts another header and signature around a token's claims."""

    def forge(token: str) -> str:
        claims = token.split(".")[1]
        text = f"{_base64url(json.dumps(header).encode())}.{claims}"
        return f"{text}.{_base64url(sign(text.encode()))}"

    return forge


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def foreign(algorithm: str, key: Any, kid: str) -> Callable[[str], str]:
    return lambda token: jwt.encode(
        jwt.decode(token, options={"verify_signature": False}), key, algorithm, {"kid": kid}
    )


KID: Final = str(json.loads(NRAS.keys)["keys"][0]["kid"])
P384: Final = ec.generate_private_key(ec.SECP384R1())
P256: Final = ec.generate_private_key(ec.SECP256R1())
ZEROS: Final = bytes(96)
SECRET_KEY: Final = signed_by(
    {"alg": "HS256", "kid": KID}, lambda text: hmac.digest(NRAS.keys, text, hashlib.sha256)
)
FORGERIES: Final[dict[str, tuple[Callable[[str], str], str]]] = {
    "by nobody": (signed_by({"alg": "none", "kid": KID}, lambda _: b""), "signature"),
    "with the public key as a secret": (SECRET_KEY, "signature"),
    "with another key under NVIDIA's name": (foreign("ES384", P384, KID), "signature"),
    "on another curve": (foreign("ES256", P256, KID), "signature"),
    "with a key that is not in the set": (foreign("ES384", P384, "another"), "key set"),
    "without the name of a key": (signed_by({"alg": "ES384"}, lambda _: ZEROS), "key set"),
    "by zeros": (signed_by({"alg": "ES384", "kid": KID}, lambda _: ZEROS), "signature"),
    "with half a letter": (lambda token: token + "\ud800", "cannot be read"),
    "not at all": (lambda _: "a.b", "signature"),
    "as one GPU's token": (lambda _: segments(tokens())[1]["GPU-0"], "overall token names"),
}


@pytest.mark.parametrize("how", FORGERIES)
def test_an_overall_token_that_is_signed_otherwise_is_refused(how: str) -> None:
    change, reason = FORGERIES[how]
    overall, gpus = segments(tokens())
    answer = json.dumps([["JWT", change(overall)], gpus]).encode()
    assert_refused(tokens_verified(answer), reason)


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"{", "cannot be read"),
        (b'{"error": "busy"}', "cannot be read"),
        (json.dumps([["JWT", segments(tokens())[0]], {}]).encode(), "cannot be read"),
        (b" " * (MAX_ANSWER_BYTES + 1), "too much"),
    ],
    ids=["no JSON", "an error", "no GPU", "too long"],
)
def test_an_answer_without_tokens_is_refused(answer: bytes, reason: str) -> None:
    assert_refused(tokens_verified(answer), reason)


def swapped_tokens() -> Iterator[bytes]:
    """Put a GPU's token of another answer, then that of another GPU, in its place."""
    overall, gpus = segments(tokens())
    other = segments(tokens(gpu={"jti": "another"}))[1]["GPU-1"]
    for changed in ({"GPU-1": other}, {"GPU-0": gpus["GPU-1"], "GPU-1": gpus["GPU-0"]}):
        yield json.dumps([["JWT", overall], gpus | changed]).encode()


def test_a_gpus_token_in_another_place_is_refused() -> None:
    for answer in swapped_tokens():
        assert_refused(tokens_verified(answer), "overall token names")


def test_only_a_readable_key_of_the_right_curve_in_the_set_signs() -> None:
    public = jwt.algorithms.ECAlgorithm.to_jwk(P256.public_key(), as_dict=True)
    keys = json.dumps({"keys": [{"kid": KID, **public}]}).encode()
    assert_refused(tokens_verified(tokens(), keys=keys), "key set")
    assert_refused(tokens_verified(tokens(), keys=b"<html>"), "cannot be read")


SIGNED_ANSWER: Final = tokens()


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_bit_of_a_token_can_be_flipped(data: st.DataObject) -> None:
    overall, gpus = segments(SIGNED_ANSWER)
    which = data.draw(st.sampled_from(["JWT", *gpus]))
    token = bytearray((overall if which == "JWT" else gpus[which]).encode())
    token[data.draw(st.integers(0, len(token) - 1))] ^= 1 << data.draw(st.integers(0, 6))
    changed = token.decode()
    answer = (
        [["JWT", changed], gpus] if which == "JWT" else [["JWT", overall], {**gpus, which: changed}]
    )
    assert failures(tokens_verified(json.dumps(answer).encode()).checks) == {"gpu_tokens"}
