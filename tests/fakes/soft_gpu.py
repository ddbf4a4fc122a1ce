"""Software stand-ins for NVIDIA's GPUs and for its attestation service, under authorities of ours.

    gpus, nras = SoftGpus(), SoftNras("https://localhost:1")
    payload = gpus.payload(nonce)
    answer = nras.answer(payload)
    trust = Trust(nvidia_root_sha256=gpus.root_sha256, nras_url=nras.issuer)

The GPUs' evidence has the shape of recorded evidence: an SPDM request with the nonce, a response,
a signature, and a chain of five certificates whose root NVIDIA has never seen. The service signs
everything without a look.
"""

import base64
import hashlib
import json
import os
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import jwt
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.hazmat.primitives.serialization import Encoding

from bot.attestation.near_ai.nvidia import NrasWord
from tests.fakes.certificates import Certified, certify, pem

REQUEST: Final = bytes.fromhex("11e001ff")
RESPONSE: Final = bytes.fromhex("1160000040c00d00") + bytes(64)
P384: Final = ec.SECP384R1()
NO_CHANGES: Final[Mapping[str, Any]] = {}


class SoftGpus:
    """The GPUs of one machine.

    Attributes:
        root_sha256: of the DER certificate that all chains end in.
        serials: of the GPUs' own certificates, in order.
    """

    def __init__(
        self,
        count: int = 2,
        *,
        now: int | None = None,
        issued_by_ca: bool = True,
        like: "SoftGpus | None" = None,
    ) -> None:
        """Make them.

        Args:
            count: how many.
            now: Unix seconds from which on, less a year, their certificates are valid for ten.
            issued_by_ca: whether the certificate above a GPU's own may issue any.
            like: GPUs of another machine, to use the same authorities.
        """
        moment = datetime.fromtimestamp(time.time() if now is None else now, UTC)
        self._authorities: tuple[Certified, Certified, Certified] = (
            like._authorities if like else _authorities(moment)
        )
        batch, family, root = self._authorities
        self._chains: Final = [
            (*_own(moment, batch, issued_by_ca), batch, family, root) for _ in range(count)
        ]
        der = root.certificate.public_bytes(Encoding.DER)
        self.root_sha256: Final = hashlib.sha256(der).digest()
        self.serials: Final = tuple(c[0].certificate.serial_number for c in self._chains)

    def key(self, number: int) -> ec.EllipticCurvePrivateKey:
        return self._chains[number][0].key

    def started_again(self, number: int, nonce: bytes) -> dict[str, str]:
        """Return the evidence of a GPU after a start with firmware that has another key."""
        _, *above = self._chains[number]
        moment = above[0].certificate.not_valid_before_utc + timedelta(days=365)
        firmware = _issue("Soft GPU FMC", moment, issuer=above[0], is_ca=False)
        return _evidence((firmware, *above), nonce)

    def payload(self, nonce: bytes) -> str:
        evidence = [_evidence(chain, nonce) for chain in self._chains]
        return json.dumps({"arch": "HOPPER", "evidence_list": evidence, "nonce": nonce.hex()})


class SoftNras:
    """NVIDIA's attestation service, which approves every GPU.

    Attributes:
        issuer: the issuer in its tokens.
        keys: its key set, JSON.
    """

    def __init__(self, issuer: str, *, now: int | None = None) -> None:
        """Start with a key of its own.

        Args:
            issuer: its address.
            now: Unix seconds at which tokens are issued; None: the clock at each token.
        """
        self.issuer: Final = issuer
        self._now = now
        self._key = ec.generate_private_key(ec.SECP384R1())
        self._kid = f"soft-{os.urandom(8).hex()}"
        public = jwt.algorithms.ECAlgorithm.to_jwk(self._key.public_key(), as_dict=True)
        self.keys: Final = json.dumps({"keys": [{"kid": self._kid, **public}]}).encode()

    def answer(self, payload: str) -> NrasWord:
        """Return tokens and keys for the evidence of a report."""
        return NrasWord(self.attest(json.loads(payload)), self.keys)

    def attest(
        self,
        payload: Any,
        *,
        overall: Mapping[str, Any] = NO_CHANGES,
        gpu: Mapping[str, Any] = NO_CHANGES,
    ) -> bytes:
        """Return the JSON of `POST /v3/attest/gpu`.

        Args:
            payload: what was posted.
            overall: claims of the overall token in place of the good ones; None leaves one out.
            gpu: the same of every GPU's token.
        """
        base = self._claims(payload["nonce"])
        tokens = {
            f"GPU-{number}": self.sign({**base, **_good_gpu(evidence), **gpu})
            for number, evidence in enumerate(payload["evidence_list"])
        }
        claims = base | {
            "sub": "NVIDIA-PLATFORM-ATTESTATION",
            "x-nvidia-overall-att-result": True,
            "submods": {name: _digest(token) for name, token in tokens.items()},
        }
        return json.dumps([["JWT", self.sign({**claims, **overall})], tokens]).encode()

    def sign(self, claims: Mapping[str, Any]) -> str:
        """Return a token with these claims; None leaves a claim out."""
        said = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode(said, self._key, "ES384", {"kid": self._kid})

    def _claims(self, nonce: str) -> dict[str, Any]:
        now = int(time.time()) if self._now is None else self._now
        times = {"iat": now, "nbf": now, "exp": now + 3600}
        return {"iss": self.issuer, "eat_nonce": nonce, "x-nvidia-ver": "2.0", **times}


def signed_measurements(
    key: ec.EllipticCurvePrivateKey,
    nonce: bytes,
    *,
    request: bytes = REQUEST,
    response: bytes = RESPONSE,
) -> bytes:
    message = request + nonce + b"\0" + response
    r, s = utils.decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA384())))
    return message + r.to_bytes(48) + s.to_bytes(48)


def _evidence(chain: tuple[Certified, ...], nonce: bytes) -> dict[str, str]:
    return {
        "arch": "HOPPER",
        "certificate": base64.b64encode(_pem(chain)).decode(),
        "evidence": base64.b64encode(signed_measurements(chain[0].key, nonce)).decode(),
        "nonce": nonce.hex(),
    }


def _good_gpu(evidence: Mapping[str, str]) -> dict[str, Any]:
    leaf = x509.load_pem_x509_certificate(base64.b64decode(evidence["certificate"]))
    return {
        "ueid": str(leaf.serial_number),
        "hwmodel": "GH100",
        "measres": "success",
        "dbgstat": "disabled",
        "secboot": True,
    }


def _digest(token: str) -> list[object]:
    return ["DIGEST", ["SHA-256", hashlib.sha256(token.encode()).hexdigest()]]


def _authorities(moment: datetime) -> tuple[Certified, Certified, Certified]:
    root = _issue("Soft Device Identity CA", moment)
    family = _issue("Soft GPU Identity", moment, issuer=root)
    return _issue("Soft Provisioner ICA", moment, issuer=family), family, root


def _own(moment: datetime, batch: Certified, issued_by_ca: bool) -> tuple[Certified, Certified]:
    rom = _issue("Soft GPU BROM", moment, issuer=batch, is_ca=issued_by_ca)
    return _issue("Soft GPU FMC", moment, issuer=rom, is_ca=False), rom


def _issue(
    common_name: str, moment: datetime, *, issuer: Certified | None = None, is_ca: bool = True
) -> Certified:
    return certify(common_name, moment, issuer=issuer, is_ca=is_ca, curve=P384)


def _pem(chain: tuple[Certified, ...]) -> bytes:
    # Recorded chains of one driver end in NUL bytes.
    return pem(*chain).encode() + bytes(5)
