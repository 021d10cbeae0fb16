"""Certificates and keys of a trial on one machine."""

from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from fhe.envelope import PRIVATE, write_atomic
from secure_fl.crypto.party import new_node_key, public_half
from secure_fl.demo.flower_parties import Certificates


def write_certificates(folder: Path) -> Certificates:
    """An authority, and a certificate of it for 127.0.0.1, for an hour; for trials alone."""
    now, keys = datetime.now(UTC), [ec.generate_private_key(ec.SECP256R1()) for _ in range(2)]
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, n)]) for n in ("ca", "superlink")]
    found = Certificates(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    for place, (path, is_authority) in enumerate(
        ((found.authority, True), (found.certificate, False))
    ):
        address = x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))])
        certificate = (
            x509.CertificateBuilder()
            .subject_name(names[place])
            .issuer_name(names[0])
            .public_key(keys[place].public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(address, critical=False)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(keys[place].public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(keys[0].public_key()),
                critical=False,
            )
            .sign(keys[0], hashes.SHA256())
        )
        path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    found.key.write_bytes(
        keys[1].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return found


def write_ssh_key(folder: Path, name: str) -> Path:
    """A node's key NAME.ssh and its public half NAME.pub."""
    key = new_node_key()
    path = folder / f"{name}.ssh"
    write_atomic(path, key, mode=PRIVATE)
    path.with_suffix(".pub").write_bytes(public_half(key))
    return path
