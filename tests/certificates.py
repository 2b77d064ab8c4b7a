"""A certificate authority of the tests, and what it signs."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    pkcs12,
)
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Signed:
    """A certificate with its key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(Encoding.PEM).decode()

    @property
    def key_pem(self) -> str:
        return self._key_pem(NoEncryption())

    def key_pem_under(self, password: str) -> str:
        return self._key_pem(BestAvailableEncryption(password.encode()))

    def pkcs12(self, password: str) -> bytes:
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(
            b"srm", self.key, self.certificate, None, encryption
        )

    def _key_pem(self, encryption: NoEncryption | BestAvailableEncryption) -> str:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()


class Authority:
    """Signs certificates of brokers and clients."""

    def __init__(self, name: str = "tests") -> None:
        self._name = name

    @cached_property
    def own(self) -> Signed:
        return _sign(self._name, None, (), is_authority=True)

    def broker(self, *names: str) -> Signed:
        """Sign a certificate for a broker at these names or addresses."""
        return _sign("broker", self.own, names)

    def client(self, name: str, *, days: int = 1) -> Signed:
        """Sign a certificate that is good for so many days; negative ones have expired."""
        return _sign(name, self.own, (), days=days)


def _sign(
    name: str,
    issuer: Signed | None,
    names: tuple[str, ...],
    *,
    days: int = 1,
    is_authority: bool = False,
) -> Signed:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=30))
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if names:
        alternatives = x509.SubjectAlternativeName([_alternative(one) for one in names])
        builder = builder.add_extension(alternatives, critical=False)
    return Signed(builder.sign(issuer.key if issuer else key, hashes.SHA256()), key)


def _alternative(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
