"""A federation on disk: what each party needs to begin, and nothing that another should have.

::

    app/                   the Flower app: what flwr run sends to the nodes
    certificates/          ca.pem (for everybody), server.pem and server.key (the SuperLink's)
    flower/config.toml     where flwr finds the SuperLink; FLWR_HOME is this folder
    coordinator/           terms.json, key.pem
    sites/NAME/            terms.json, key.pem (signs), node.key and node.pub (Flower's)

A site's folder goes to that site. Its private keys are made here, by the coordinator whom the sites
trust; a site that would rather make its own sends the two public halves.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import files

LOOPBACK = "127.0.0.1"
VALID = dt.timedelta(days=825)  # the longest that common clients accept

CLIENT = '''"""The Flower app of a site; everything it does is in tacit."""

from tacit.cli.federated_client import client

__all__ = ["client"]
'''

SERVER = '''"""The Flower app of the coordinator; everything it does is in tacit."""

from tacit.cli.federated_server import server

__all__ = ["server"]
'''

PYPROJECT = """[project]
name = "federated"
version = "1.0.0"
description = "Private multi-task learning with tacit"
license = "Apache-2.0"
dependencies = []

[tool.flwr.app]
publisher = "tacit"

[tool.flwr.app.components]
serverapp = "federated.server:server"
clientapp = "federated.client:client"

[tool.flwr.app.config]
coordinator = {coordinator}
"""


@dataclass(frozen=True)
class Project:
    """The folders of a federation."""

    place: Path

    @property
    def coordinator(self) -> Path:
        """Of whoever runs the SuperLink."""
        return self.place / "coordinator"

    @property
    def sites(self) -> Path:
        """Of everybody else, one folder each."""
        return self.place / "sites"

    @property
    def certificates(self) -> Path:
        """For TLS."""
        return self.place / "certificates"

    @property
    def flower(self) -> Path:
        """FLWR_HOME."""
        return self.place / "flower"

    @property
    def app(self) -> Path:
        """What flwr run takes."""
        return self.place / "app"

    def write_app(self, address: str) -> None:
        """The app, and where flwr finds the SuperLink."""
        coordinator = json.dumps(str(self.coordinator.resolve()))
        modules = self.app / "federated"
        files.make(modules)
        files.replace_file(modules / "__init__.py", b"")
        files.replace_file(modules / "client.py", CLIENT.encode())
        files.replace_file(modules / "server.py", SERVER.encode())
        files.replace_file(
            self.app / "pyproject.toml", PYPROJECT.format(coordinator=coordinator).encode()
        )
        files.make(self.flower, 0o700)
        ca = json.dumps(str((self.certificates / "ca.pem").resolve()))
        config = (
            '[superlink]\ndefault = "tacit"\n\n'
            f'[superlink.tacit]\naddress = "{address}"\nroot-certificates = {ca}\n'
        )
        files.replace_file(self.flower / "config.toml", config.encode())

    def write_certificates(self, hosts: Sequence[str]) -> None:
        """A certificate authority of this federation alone, and the SuperLink's certificate: for
        these hosts, and for this machine, from which the SuperLink's own processes speak to it."""
        from cryptography import x509

        files.make(self.certificates, 0o700)
        authority, server = _p256(), _p256()
        ca = _certificate("tacit federation", authority.public_key(), authority, None)
        every = dict.fromkeys([*hosts, "localhost", LOOPBACK])
        names = x509.SubjectAlternativeName([_subject(host) for host in every])
        own = _certificate(hosts[0], server.public_key(), authority, names)
        _write_pem(self.certificates / "ca.pem", ca)
        _write_pem(self.certificates / "server.pem", own)
        files.replace_file(self.certificates / "server.key", _private(server), private=True)

    def write_node_key(self, site: str) -> None:
        """By which the SuperLink knows the node: P-384, in OpenSSH's form, as Flower wants it."""
        from cryptography.hazmat.primitives import serialization as form
        from cryptography.hazmat.primitives.asymmetric import ec

        home, key = self.sites / site, ec.generate_private_key(ec.SECP384R1())
        private = key.private_bytes(
            form.Encoding.PEM, form.PrivateFormat.OpenSSH, form.NoEncryption()
        )
        public = key.public_key().public_bytes(form.Encoding.OpenSSH, form.PublicFormat.OpenSSH)
        files.make(home, 0o700)
        files.replace_file(home / "node.key", private, private=True)
        files.replace_file(home / "node.pub", public + b"\n")


def _p256() -> Any:
    from cryptography.hazmat.primitives.asymmetric import ec

    return ec.generate_private_key(ec.SECP256R1())


def _private(key: Any) -> bytes:
    from cryptography.hazmat.primitives import serialization as form

    return bytes(
        key.private_bytes(form.Encoding.PEM, form.PrivateFormat.PKCS8, form.NoEncryption())
    )


def _write_pem(path: Path, certificate: Any) -> None:
    from cryptography.hazmat.primitives.serialization import Encoding

    files.replace_file(path, certificate.public_bytes(Encoding.PEM))


def _subject(host: str) -> Any:
    from cryptography import x509

    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _certificate(name: str, public: Any, authority: Any, names: Any) -> Any:
    """Signed by the authority; one without subject names is the authority's own."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes
    from cryptography.x509.oid import NameOID

    def called(text: str) -> Any:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    start = dt.datetime.now(dt.UTC) - dt.timedelta(days=1)  # for a clock that is behind
    builder = (
        x509.CertificateBuilder()
        .subject_name(called(name))
        .issuer_name(called("tacit federation"))
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + VALID)
        .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
    )
    if names is not None:
        builder = builder.add_extension(names, critical=False)
    return builder.sign(authority, hashes.SHA256())
