"""A certificate authority for servers on loopback.

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


class Authority:
    """Issues certificates that only its own `client_context` trusts."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Authority for tests")])
        constraints = x509.BasicConstraints(ca=True, path_length=0)
        self._certificate = self._sign(self._name, self._key.public_key(), constraints)

    def issue(self, *, address: str = "127.0.0.1", starts_in_days: int = -1) -> ServerIdentity:
        """Return a new server certificate with a new key.

        Args:
            address: that it is for, in addition to localhost.
            starts_in_days: from now; it is valid for 31 days.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
        constraints = x509.BasicConstraints(ca=False, path_length=None)
        names = x509.SubjectAlternativeName(
            [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(address))]
        )
        certificate = self._sign(
            subject, key.public_key(), constraints, names, starts_in_days=starts_in_days
        )
        spki = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        key_pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return ServerIdentity(_pem(certificate), hashlib.sha256(spki).digest(), key_pem.decode())

    @property
    def certificate_pem(self) -> str:
        """Its own certificate, for clients that trust it."""
        return _pem(self._certificate)

    def client_context(self) -> ssl.SSLContext:
        """Return a new context that trusts only this authority."""
        return ssl.create_default_context(cadata=self.certificate_pem)

    def _sign(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePublicKey,
        *extensions: x509.ExtensionType,
        starts_in_days: int = -1,
    ) -> x509.Certificate:
        start: Final = datetime.now(UTC) + timedelta(days=starts_in_days)
        issuer_key = self._key.public_key()
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + timedelta(days=31))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key), critical=False
            )
        )
        for extension in extensions:
            critical = isinstance(extension, x509.BasicConstraints)
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()
