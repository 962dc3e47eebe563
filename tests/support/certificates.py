"""Certificates for servers and clients on this machine: each is its own authority."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def certificate(directory: Path, *, begins: int = -1, ends: int = 1) -> Path:
    """A certificate for 127.0.0.1 that vouches for itself, with its key, in one file.

    Args:
        directory: where the file is made.
        begins: days from now until it is valid.
        ends: days from now until it is not any more.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kms of a test")])
    now = datetime.datetime.now(datetime.UTC)
    alternative = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=begins))
        .not_valid_after(now + datetime.timedelta(days=ends))
        .add_extension(alternative, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    encoding = serialization.Encoding.PEM
    private = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = directory / f"{made.serial_number}.pem"
    path.write_bytes(private + made.public_bytes(encoding))
    return path


def authority(pem: Path) -> Path:
    """The certificate of such a file alone, as users hand it out."""
    path = pem.with_suffix(".ca")
    text = pem.read_text()
    path.write_text(text[text.index("-----BEGIN CERTIFICATE") :])
    return path
