"""A software stand-in for an Intel TDX machine: own certificates, own collateral, own quotes.

    soft = SoftTdx()
    quote = soft.quote(report_data, mr_td=bytes(48), rtmrs=[bytes(48)] * 4)
    collateral = Collateral.parse(soft.collateral)
    findings = verify_td(..., lambda _: collateral, now=soft.now, trust=soft.trust)

The PKI has the shape of Intel's (root, PCK platform CA, PCK certificate with the SGX extension,
TCB signing certificate, CRLs) and signs TCB info, QE identity and quotes of version 4. Intel's own
root does not vouch for them. Certificates are valid from a year before `now` to ten years after,
CRLs from a day before to a year after, TCB info and QE identity from a day before to 29 days after.
Nothing here says anything about hardware or about Intel's signatures.
"""

import hashlib
import json
import os
import struct
import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils

from bot.attestation.trust import Trust
from tests.fakes.certificates import Certified, certify, pem

MEASUREMENT_SIZE: Final = 48

_SGX_OID: Final = "1.2.840.113741.1.13.1"
_QE_VENDOR_ID: Final = bytes.fromhex("939a7233f79c4ca9940a0db3957f0607")
_QE_MRSIGNER: Final = b"\x5e" * 32
_QE_ATTRIBUTES: Final = b"\x11" + bytes(15)
_QE_ISV_PROD_ID: Final = 2
_QE_ISV_SVN: Final = 4
_TEE_TCB_SVN: Final = bytes([5, 1, 2]) + bytes(13)  # byte 1 selects the TDX module identity TDX_01
_TDX_COMPONENT_SVNS: Final = bytes([5, 0, 2]) + bytes(13)
_CPUSVN: Final = bytes([5] * 16)
_PCESVN: Final = 11
_TCB_EVALUATION: Final = 99
_MR_SEAM: Final = bytes.fromhex(
    "7bf063280e94fb051f5dd7b1fc59ce9aac42bb961df8d44b709c9b0ff87a7b4d"
    "f648657ba6d1189589feab1d5a3c9a9d"
)
"""Measurement of TDX module 1.5.16, which genuine machines run."""
_SEPT_VE_DISABLE: Final = 1 << 28
_XFAM: Final = 0x602E7


class SoftTdx:
    """Soft machine: a root of trust, its collateral, and a quoting enclave.

    Attributes:
        fmspc: its kind of platform.
        now: unix seconds at which its evidence is valid.
        collateral: JSON with the fields of dcap_qvl.QuoteCollateralV3.
        root_der: the root certificate.
        trust: accepts its root.
    """

    def __init__(
        self,
        tcb_status: str = "UpToDate",
        *,
        fmspc: bytes = bytes.fromhex("f00000000001"),
        now: int | None = None,
        revoked: bool = False,
        evaluations: tuple[int, int] = (_TCB_EVALUATION, _TCB_EVALUATION),
    ) -> None:
        """Set up one machine whose only TCB level has a status.

        Args:
            tcb_status: UpToDate, SWHardeningNeeded, ConfigurationNeeded, OutOfDate, Revoked, ...
            fmspc: its kind of platform, six bytes.
            now: unix seconds around which everything is valid; None: the clock.
            revoked: whether the CRL names the machine's own certificate.
            evaluations: TCB evaluation data numbers of the TCB info and of the QE identity.
        """
        self.fmspc: Final = fmspc
        self.now: Final = int(time.time()) if now is None else now
        moment = datetime.fromtimestamp(self.now, UTC)

        root = certify("Soft SGX Root CA", moment)
        # dcap_qvl reads "ca=platform" from this common name.
        pck_ca = certify("Intel SGX PCK Platform CA", moment, issuer=root)
        extension = x509.UnrecognizedExtension(
            x509.ObjectIdentifier(_SGX_OID), _sgx_extension(fmspc)
        )
        self._pck = certify(
            "Soft PCK Certificate", moment, issuer=pck_ca, is_ca=False, extension=extension
        )
        tcb_signer = certify("Soft SGX TCB Signing", moment, issuer=root, is_ca=False)

        tcb_info = _compact_json(
            _tcb_info(tcb_status, fmspc, moment) | {"tcbEvaluationDataNumber": evaluations[0]}
        )
        qe_identity = _compact_json(
            _qe_identity(moment) | {"tcbEvaluationDataNumber": evaluations[1]}
        )
        signer_chain = pem(tcb_signer, root)
        fields = {
            "pck_crl_issuer_chain": pem(pck_ca, root),
            "root_ca_crl": _crl(root, moment).hex(),
            "pck_crl": _crl(pck_ca, moment, *([self._pck] if revoked else [])).hex(),
            "tcb_info_issuer_chain": signer_chain,
            "tcb_info": tcb_info,
            "tcb_info_signature": _raw_signature(tcb_signer.key, tcb_info.encode()).hex(),
            "qe_identity_issuer_chain": signer_chain,
            "qe_identity": qe_identity,
            "qe_identity_signature": _raw_signature(tcb_signer.key, qe_identity.encode()).hex(),
        }
        self.collateral: Final = json.dumps(fields)
        self.root_der: Final = root.certificate.public_bytes(serialization.Encoding.DER)
        self.trust: Final = Trust(intel_root=self.root_der)
        self._pck_chain = pem(self._pck, pck_ca, root).encode()

    def quote(
        self,
        report_data: bytes,
        mr_td: bytes,
        rtmrs: Sequence[bytes],
        mr_config_id: bytes = bytes(MEASUREMENT_SIZE),
        *,
        debug: bool = False,
        mr_signer_seam: bytes = bytes(MEASUREMENT_SIZE),
        mr_owner: bytes = bytes(MEASUREMENT_SIZE),
    ) -> bytes:
        """Return a signed TDX quote (version 4), about 4 kB; `debug` sets the TD's debug bit."""
        started = struct.pack("<QQ", _SEPT_VE_DISABLE | debug, _XFAM)
        measured = b"".join((mr_td, mr_config_id, mr_owner, bytes(MEASUREMENT_SIZE), *rtmrs))
        signed = _quote_header() + _td_report(
            _MR_SEAM + mr_signer_seam, started + measured, report_data
        )
        signature = self._signature_section(signed)
        return signed + struct.pack("<I", len(signature)) + signature

    def _signature_section(self, signed: bytes) -> bytes:
        attestation_key = ec.generate_private_key(ec.SECP256R1())
        public_point = attestation_key.public_key().public_bytes(
            serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        )[1:]
        auth_data = os.urandom(32)
        qe_report = _qe_report(bound_to=hashlib.sha256(public_point + auth_data).digest())
        pck_chain = struct.pack("<HI", 5, len(self._pck_chain)) + self._pck_chain
        certification = (
            qe_report
            + _raw_signature(self._pck.key, qe_report)
            + struct.pack("<H", len(auth_data))
            + auth_data
            + pck_chain
        )
        return (
            _raw_signature(attestation_key, signed)
            + public_point
            + struct.pack("<HI", 6, len(certification))
            + certification
        )


# Quote parts


def _quote_header() -> bytes:
    return struct.pack("<HHIHH", 4, 2, 0x81, 0, 0) + _QE_VENDOR_ID + bytes(20)


def _td_report(module: bytes, measured: bytes, report_data: bytes) -> bytes:
    seam_attributes = bytes(8)
    return b"".join((_TEE_TCB_SVN, module, seam_attributes, measured, report_data))


def _qe_report(bound_to: bytes) -> bytes:
    return b"".join(
        (
            bytes(16),  # cpu svn
            bytes(4),  # misc select
            bytes(28),
            _QE_ATTRIBUTES,
            os.urandom(32),  # mr_enclave
            bytes(32),
            _QE_MRSIGNER,
            bytes(96),
            struct.pack("<HH", _QE_ISV_PROD_ID, _QE_ISV_SVN),
            bytes(60),
            bound_to,
            bytes(32),
        )
    )


# Signed JSON of the collateral


def _tcb_info(status: str, fmspc: bytes, now: datetime) -> dict[str, Any]:
    issued, next_update = _json_period(now)
    module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
    level = {
        "tcb": {
            "sgxtcbcomponents": _components(_CPUSVN),
            "pcesvn": _PCESVN,
            "tdxtcbcomponents": _components(_TDX_COMPONENT_SVNS),
        },
        "tcbDate": issued,
        "tcbStatus": status,
        "advisoryIDs": [] if status == "UpToDate" else ["INTEL-SA-99999"],
    }
    return {
        "id": "TDX",
        "version": 3,
        "issueDate": issued,
        "nextUpdate": next_update,
        "fmspc": fmspc.hex().upper(),
        "pceId": "0000",
        "tcbType": 0,
        "tdxModule": module,
        "tdxModuleIdentities": [
            {"id": "TDX_01", **module, "tcbLevels": [_up_to_date_level(isv_svn=4, date=issued)]}
        ],
        "tcbLevels": [level],
    }


def _qe_identity(now: datetime) -> dict[str, Any]:
    issued, next_update = _json_period(now)
    return {
        "id": "TD_QE",
        "version": 2,
        "issueDate": issued,
        "nextUpdate": next_update,
        "miscselect": "00000000",
        "miscselectMask": "FFFFFFFF",
        "attributes": _QE_ATTRIBUTES.hex(),
        "attributesMask": "FBFFFFFFFFFFFFFF" + "00" * 8,
        "mrsigner": _QE_MRSIGNER.hex(),
        "isvprodid": _QE_ISV_PROD_ID,
        "tcbLevels": [_up_to_date_level(isv_svn=_QE_ISV_SVN, date=issued)],
    }


def _up_to_date_level(isv_svn: int, date: str) -> dict[str, Any]:
    return {"tcb": {"isvsvn": isv_svn}, "tcbDate": date, "tcbStatus": "UpToDate"}


def _components(svns: bytes) -> list[dict[str, int]]:
    return [{"svn": svn} for svn in svns]


def _json_period(now: datetime) -> tuple[str, str]:
    issued, next_update = now - timedelta(days=1), now + timedelta(days=29)
    return _iso(issued), _iso(next_update)


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _compact_json(value: dict[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))


# Certificates


def _crl(authority: Certified, now: datetime, *revoked: Certified) -> bytes:
    builder = (
        x509.CertificateRevocationListBuilder()
        .issuer_name(authority.certificate.subject)
        .last_update(now - timedelta(days=1))
        .next_update(now + timedelta(days=365))
        .add_extension(x509.CRLNumber(1), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()),
            critical=False,
        )
    )
    for entry in revoked:
        builder = builder.add_revoked_certificate(
            x509.RevokedCertificateBuilder()
            .serial_number(entry.certificate.serial_number)
            .revocation_date(now - timedelta(days=2))
            .build()
        )
    return builder.sign(authority.key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


def _raw_signature(key: ec.EllipticCurvePrivateKey, data: bytes) -> bytes:
    """Sign with ECDSA P-256 / SHA-256 and return r || s, 32 bytes each, as quotes carry it."""
    r, s = utils.decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


# DER of the SGX extension in the PCK certificate


def _sgx_extension(fmspc: bytes) -> bytes:
    components = [_attribute(f"2.{n}", _der_int(svn)) for n, svn in enumerate(_CPUSVN, start=1)]
    tcb = _der_sequence(
        *components,
        _attribute("2.17", _der_int(_PCESVN)),
        _attribute("2.18", _der_octets(_CPUSVN)),
    )
    return _der_sequence(
        _attribute("1", _der_octets(os.urandom(16))),
        _attribute("2", tcb),
        _attribute("3", _der_octets(bytes(2))),  # PCE id
        _attribute("4", _der_octets(fmspc)),
        _attribute("5", _der(0x0A, b"\x01")),  # SGX type: scalable
    )


def _attribute(suffix: str, value: bytes) -> bytes:
    return _der_sequence(_der_oid(f"{_SGX_OID}.{suffix}"), value)


def _der(tag: int, body: bytes) -> bytes:
    size = len(body)
    if size < 0x80:
        return bytes([tag, size]) + body
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + body


def _der_sequence(*items: bytes) -> bytes:
    return _der(0x30, b"".join(items))


def _der_octets(value: bytes) -> bytes:
    return _der(0x04, value)


def _der_int(value: int) -> bytes:
    return _der(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _der_oid(dotted: str) -> bytes:
    first, second, *rest = (int(part) for part in dotted.split("."))
    body = bytes([first * 40 + second])
    for arc in rest:
        groups = [arc & 0x7F]
        while arc := arc >> 7:
            groups.append(0x80 | (arc & 0x7F))
        body += bytes(reversed(groups))
    return _der(0x06, body)
