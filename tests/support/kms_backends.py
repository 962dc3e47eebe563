"""KMS back ends as their behaviour suite uses them: a client, and the administrator's side of its KMS."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from catalog.crypto.secret import SecretBytes
from catalog.kms.interface import KmsClient
from catalog.kms.local import LocalKms
from catalog.kms.root_key import LEAST_SCRYPT_LOG2_N, KeyFile, Passphrase, RootDescription, RootKeySource


@dataclass
class Backend:
    """A client, and what only the KMS's administrator can do.

    Attributes:
        client: the client.
        lake: id of a master key that is there.
        pii: id of another one.
        again: makes another client of the same KMS.
        disable: makes a master key unusable.
        enable: makes it usable again.
        rotate: gives a master key a new version.
        version_of: what a wrapped key says of the version of its master key.
        stop: ends the KMS; nothing answers any more.
    """

    client: KmsClient
    lake: str
    pii: str
    again: Callable[[], KmsClient]
    disable: Callable[[str], object]
    enable: Callable[[str], object]
    rotate: Callable[[str], object]
    version_of: Callable[[bytes], object]
    stop: Callable[[], object]


class CheapPassphrase(Passphrase):
    """At the lowest cost that a keystore may ask for, and derived once for a description."""

    def __init__(self, passphrase: SecretBytes) -> None:
        super().__init__(passphrase)
        self._derived: dict[str, SecretBytes] = {}

    def describe(self) -> RootDescription:
        return super().describe().model_copy(update={"log2_n": LEAST_SCRYPT_LOG2_N})

    def derive(self, description: RootDescription) -> SecretBytes:
        found = self._derived.get(description.salt)
        if found is None:
            found = self._derived[description.salt] = super().derive(description)
        return found


@contextmanager
def local_with_key_file(directory: Path) -> Iterator[Backend]:
    """The local KMS, opened by a key file."""
    yield _local(directory, KeyFile.create(directory / "root.key"))


@contextmanager
def local_with_passphrase(directory: Path) -> Iterator[Backend]:
    """The local KMS, opened by a passphrase."""
    yield _local(directory, CheapPassphrase(SecretBytes(b"correct horse battery")))


def _local(directory: Path, root: RootKeySource) -> Backend:
    path = directory / "keystore.json"
    client = LocalKms.create(path, root)
    client.create_master_key("lake")
    client.create_master_key("pii")
    return Backend(
        client,
        "lake",
        "pii",
        again=lambda: LocalKms(path, root),
        disable=client.disable_master_key,
        enable=client.enable_master_key,
        rotate=client.rotate_master_key,
        version_of=lambda wrapped: wrapped[1:5],
        stop=path.unlink,
    )
