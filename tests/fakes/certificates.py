"""Certificates of test roots, and a certificate authority for servers on loopback.

authority = Authority()
identity = authority.issue()
asyncio.start_server(..., "127.0.0.1", 0, ssl=identity.context())
client = authority.client_context()
"""

import hashlib
import ipaddress
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from cryptography.x509.oid import NameOID

P256: Final = ec.SECP256R1()


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    certificate_pem: str
    key_sha256: bytes
    key_pem: str = field(repr=False)

    def context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.load_into(context)
        return context

    def load_into(self, context: ssl.SSLContext) -> None:
        """Make a listening server use this identity from its next connection on."""
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(self.certificate_pem + self.key_pem)
            file.flush()
            context.load_cert_chain(file.name)


@dataclass(frozen=True, slots=True)
class Certified:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey


def certify(
    common_name: str,
    moment: datetime,
    *,
    issuer: Certified | None = None,
    is_ca: bool = True,
    curve: ec.EllipticCurve = P256,
    extension: x509.ExtensionType | None = None,
    days: tuple[int, int] = (-365, 3650),
) -> Certified:
    """Return a new certificate, signed by its issuer or by itself, valid for days around a moment.

    SHA-384 goes with P-384, SHA-256 with P-256.
    """
    key = ec.generate_private_key(curve)
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common_name)])
    issuer_key = issuer.key if issuer else key
    authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(moment + timedelta(days=days[0]))
        .not_valid_after(moment + timedelta(days=days[1]))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(_key_usage(is_ca=is_ca), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(authority, critical=False)
    )
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
    digest = hashes.SHA256() if curve is P256 else hashes.SHA384()
    return Certified(builder.sign(issuer_key, digest), key)


def pem(*chain: Certified) -> str:
    return "".join(one.certificate.public_bytes(Encoding.PEM).decode() for one in chain)


def _key_usage(*, is_ca: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_ca,
        crl_sign=is_ca,
        encipher_only=False,
        decipher_only=False,
    )


class Authority:
    """Issues certificates that only its own `client_context` trusts."""

    def __init__(self) -> None:
        self._own = certify("Authority for tests", datetime.now(UTC), days=(-1, 30))

    def issue(self, *, address: str = "127.0.0.1", starts_in_days: int = -1) -> ServerIdentity:
        """Return a new server certificate with a new key.

        Args:
            address: that it is for, in addition to localhost.
            starts_in_days: from now; it is valid for 31 days.
        """
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(address))]
        )
        server = certify(
            "localhost",
            datetime.now(UTC),
            issuer=self._own,
            is_ca=False,
            extension=names,
            days=(starts_in_days, starts_in_days + 31),
        )
        key = server.key
        spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return ServerIdentity(pem(server), hashlib.sha256(spki).digest(), key_pem.decode())

    @property
    def certificate_pem(self) -> str:
        """Its own certificate, for clients that trust it."""
        return pem(self._own)

    def client_context(self) -> ssl.SSLContext:
        """Return a new context that trusts only this authority."""
        return ssl.create_default_context(cadata=self.certificate_pem)
