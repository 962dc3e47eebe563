"""The KMS endpoint's keys in the catalog's database.

- Each key has a wrapping key of its own, made by the catalog's KMS and bound to the key's id; versions are
  sealed by it. It is stored with the PEKs of tables (`catalog.state.pek_records`), and has the key's state.
- So the KMS is asked once a key and TTL (`catalog.envelope.peks`), and a disabled master key
  takes the KMS endpoint's keys with it.
- Sealed material is bound to its key by id and name, to version and length: exchanged rows do not open.
- A version is never changed. The last one is the current one.

Sealed material is nonce | ciphertext | tag of AES-GCM; its AAD is ASCII ``lakewarden/kms-door/1`` NUL, the 16
bytes of the key's id, the version as u32 and the length in bytes as u8, big endian, then the key's name in
ASCII.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final
from uuid import UUID, uuid4

from sqlalchemy import Connection, Row, func, insert, select
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.context import ServiceContext
from catalog.crypto.secret import SecretBytes
from catalog.db.engine import read, write
from catalog.db.schema import lw_door_key, lw_door_key_version, lw_pek
from catalog.envelope.peks import PekRecord, PekState
from catalog.kms_server.names import VersionName
from catalog.state import pek_records
from policy.errors import KeyNotUsable, RequestInvalid

_AAD: Final = b"lakewarden/kms-door/1\0"


class Denial(StrEnum):
    """What a reader without permission on a key gets: an error, or ORC's masks."""

    ERROR = "error"
    MASK = "mask"


@dataclass(frozen=True, slots=True)
class KeySpec:
    """The properties of a new key.

    Attributes:
        name: its name at the KMS endpoint.
        bits: length of its versions: 128, 192 or 256.
        description: for people.
        attributes: whatever its maker wants to be kept with it.
        denial: what a reader without the right to it gets.
    """

    name: str
    bits: int
    description: str | None
    attributes: Mapping[str, str]
    denial: Denial


@dataclass(frozen=True, slots=True)
class EndpointKey:
    """A key as the catalog stores it.

    Attributes:
        spec: what it was made with.
        versions: how many there are.
        wrapping: what seals the versions; its id is the key's.
        created_ms: when it was made.
    """

    spec: KeySpec
    versions: int
    wrapping: PekRecord = field(repr=False)
    created_ms: int

    @property
    def name(self) -> str:
        """Return the key's name at the KMS endpoint."""
        return self.spec.name

    @property
    def state(self) -> PekState:
        """Return the state of the key."""
        return self.wrapping.state

    @property
    def current(self) -> VersionName:
        """Return the version that encrypts new keys."""
        return VersionName(self.name, self.versions - 1)


class EndpointKeyStore:
    """Creates, finds and opens the KMS endpoint's keys.

    Args:
        context: the parts that services share.
    """

    def __init__(self, context: ServiceContext) -> None:
        self._context = context
        self._master_key_id = context.settings.kms_endpoint.master_key_id or context.master_key_id

    def create(self, spec: KeySpec, author: str) -> EndpointKey:
        """Create a key with its version 0.

        Raises:
            RequestInvalid: there is one of that name.
            KeyNotUsable, KmsUnavailable: the master key cannot be used.
        """
        if self.find(spec.name) is not None:
            raise _taken(spec.name)
        key_id = uuid4()
        wrapping = self._context.kms_keys.create(
            self._master_key_id, table_id="", table_uuid=key_id, pek_id=key_id
        )
        made = EndpointKey(spec, 1, wrapping, self._context.now_ms())
        sealed = self._new_material(made, 0)
        row = {
            **{each.name: getattr(spec, each.name) for each in fields(spec)},
            "attributes": json.dumps(dict(spec.attributes), sort_keys=True),
            "id": str(key_id),
            "catalog": self._context.catalog,
            "author": author,
        }
        try:
            with write(self._context.engine) as connection:
                connection.execute(insert(lw_door_key).values(row))
                pek_records.add(connection, self._context.catalog, [wrapping], made.created_ms)
                self._add_version(connection, made, 0, sealed, author)
        except IntegrityError as error:
            raise _taken(spec.name) from error
        return made

    def roll(self, key: EndpointKey, author: str) -> EndpointKey:
        """Add a version to a key.

        Raises:
            CommitConflict: another request did so at the same time.
            KeyNotUsable, KmsUnavailable: its master key cannot be used.
        """
        version = key.versions
        sealed = self._new_material(key, version)
        try:
            with write(self._context.engine) as connection:
                self._add_version(connection, key, version, sealed, author)
        except IntegrityError as error:
            raise CommitConflict(
                f"Another request added a version to the key {key.name!r} at the same time.",
                rule="key-version",
                hint="Read the key again, then try again.",
            ) from error
        return replace(key, versions=version + 1)

    def move(self, key: EndpointKey, to: PekState) -> EndpointKey:
        """Set the state of a key; takes effect with its next use.

        Raises:
            CommitConflict: another request changed it at the same time.
            StateUnavailable: the database does not answer.
        """
        with write(self._context.engine) as connection:
            if not pek_records.move(connection, key.wrapping, to):
                raise pek_records.changed_meanwhile()
        return replace(key, wrapping=replace(key.wrapping, state=to))

    def find(self, name: str) -> EndpointKey | None:
        """Return the key of a name, or None.

        Raises:
            StateUnavailable: the database does not answer.
        """
        mine = (lw_door_key.c.catalog == self._context.catalog, lw_door_key.c.name == name)
        with read(self._context.engine) as connection:
            row = connection.execute(_KEYS.where(*mine)).one_or_none()
        return None if row is None else _key(row)

    def names(self) -> list[str]:
        """Return the names of all keys, in order.

        Raises:
            StateUnavailable: the database does not answer.
        """
        query = select(lw_door_key.c.name).where(lw_door_key.c.catalog == self._context.catalog)
        with read(self._context.engine) as connection:
            return list(connection.scalars(query.order_by(lw_door_key.c.name)))

    def open(self, key: EndpointKey, version: int) -> SecretBytes:
        """Return the material of one version; it never leaves the catalog.

        Raises:
            KeyNotUsable: there is no such version, or its master key is disabled or gone.
            DecryptionRefused: the stored material was changed.
            KmsUnavailable: the KMS does not answer.
        """
        rows = lw_door_key_version.c
        query = select(rows.sealed).where(rows.key_id == str(key.wrapping.id), rows.version == version)
        with read(self._context.engine) as connection:
            sealed = connection.scalar(query)
        if sealed is None:
            raise KeyNotUsable(
                f"The key {key.name!r} has no version {version}.",
                rule="key-version",
                hint="Use an existing version.",
            )
        opened = self._context.peks.get(key.wrapping).aead.open(sealed, _aad(key, version))
        return SecretBytes(opened)

    def _new_material(self, key: EndpointKey, version: int) -> bytes:
        material = secrets.token_bytes(key.spec.bits // 8)
        return self._context.peks.get(key.wrapping, for_writing=True).aead.seal(material, _aad(key, version))

    def _add_version(
        self, connection: Connection, key: EndpointKey, version: int, sealed: bytes, author: str
    ) -> None:
        values = {
            "key_id": str(key.wrapping.id),
            "version": version,
            "sealed": sealed,
            "author": author,
            "created_ms": self._context.now_ms(),
        }
        connection.execute(insert(lw_door_key_version).values(values))


def made_ms(connection: Connection, catalog: str) -> dict[UUID, int]:
    """Return when the current version of each key was made, in milliseconds since 1970, by the keys' ids."""
    versions = lw_door_key_version.c
    query = select(versions.key_id, func.max(versions.created_ms)).join(
        lw_door_key, lw_door_key.c.id == versions.key_id
    )
    rows = connection.execute(query.where(lw_door_key.c.catalog == catalog).group_by(versions.key_id))
    return {UUID(key_id): at_ms for key_id, at_ms in rows}


_COUNT: Final = (
    select(func.count())
    .select_from(lw_door_key_version)
    .where(lw_door_key_version.c.key_id == lw_door_key.c.id)
    .correlate(lw_door_key)
    .scalar_subquery()
)
_SPEC: Final = [lw_door_key.c[each.name] for each in fields(KeySpec)]
_KEYS: Final = select(lw_pek, *_SPEC, _COUNT.label("versions")).join(
    lw_door_key, lw_door_key.c.id == lw_pek.c.id
)


def _key(row: Row[Any]) -> EndpointKey:
    attributes = json.loads(row.attributes)
    spec = KeySpec(row.name, row.bits, row.description, attributes, Denial(row.denial))
    return EndpointKey(spec, row.versions, pek_records.from_row(row, UUID(row.id)), row.created_ms)


def _aad(key: EndpointKey, version: int) -> bytes:
    numbers = version.to_bytes(4, "big") + bytes([key.spec.bits // 8])
    return _AAD + key.wrapping.id.bytes + numbers + key.name.encode("ascii")


def _taken(name: str) -> RequestInvalid:
    return RequestInvalid(
        f"The key {name!r} already exists.", rule="key-name", hint="Choose another name, or roll the key."
    )
