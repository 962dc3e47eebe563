"""Checkpoints: signed heads of all chains, in a separate chain.

- A checkpoint names each chain that grew since the checkpoint before it, with number and hash of the last
  record. It has the number and hash of the checkpoint before it. Any process can make the next one.
- So two chains protect each record: its own, and one that other processes continue. To remove the end of a
  chain or a whole chain, an attacker has to make all later checkpoints again.
- With a key outside of the database, checkpoints are signed (Ed25519, RFC 8032). Users who can write the
  database, but do not have the key, cannot make checkpoints. They can only restore an older copy of the whole
  database. Copies of checkpoints elsewhere detect this (`catalog.audit.verify`).
- With a key there is always a checkpoint: the first one is made with the catalog.
- If the last checkpoint that a process saw is gone, the process says so in the next one (`lost`).
- Pruning old records removes the earlier checkpoints. The new first checkpoint (`start`) names all chains,
  for each chain the last pruned record, and the segments of the archive (`catalog.audit.segments`).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from sqlalchemy import Connection, Engine, bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.audit.records import GENESIS, Row, canonical, digest
from catalog.db.engine import read, write
from catalog.db.schema import lw_audit_chain, lw_audit_checkpoint
from catalog.kms.root_key import KeyFile, subkey
from policy.errors import KmsUnavailable, StateUnavailable

#: The maximum number of chains in one checkpoint; the next one names the others.
MAX_HEADS: Final = 1_000

#: The number of records of this process after which a checkpoint is due early.
_RECORDS: Final = 10_000

_HASHED: Final = ("number", "at_ms", "writer", "content", "previous_hash", "public_key")
#: What a signature says that its hash is, so that none can be taken for another.
CHECKPOINT: Final = "lakewarden/audit-checkpoint/1\n"
SEGMENT: Final = "lakewarden/audit-segment/1\n"


@dataclass(frozen=True, slots=True)
class Head:
    """A record of a chain, or a checkpoint, by number and hash.

    Attributes:
        sequence: its number.
        hash: its hash.
        at_ms: for the end of a chain, the latest time in it, in milliseconds since 1970 UTC; else 0.
    """

    sequence: int
    hash: str
    at_ms: int = 0

    @property
    def fields(self) -> list[object]:
        """Return the head as JSON."""
        return [self.sequence, self.hash, self.at_ms]


@dataclass(frozen=True, slots=True)
class Archived:
    """The segments of the archive, as a checkpoint names them.

    Attributes:
        first: number of the first segment that is kept.
        last: number of the last one.
        hash: its hash; it contains the hash of the segment before it.
    """

    first: int
    last: int
    hash: str

    @property
    def fields(self) -> list[object]:
        """Return the segments as JSON."""
        return [self.first, self.last, self.hash]


@dataclass(frozen=True, slots=True)
class Content:
    """The content of a checkpoint.

    Attributes:
        heads: by writer, the last record of each chain that grew since the checkpoint before.
        pruned: by writer, the last record that was pruned.
        before_ms: the pruning kept records from this time on, in milliseconds since 1970 UTC.
        start: whether no checkpoint before this one is needed. From this one on, checkpoints name all chains.
        lost: the last checkpoint that its maker had seen, if that is gone.
        archived: the segments of the archive; None if there is none, or if `start` is false.
    """

    heads: Mapping[str, Head]
    pruned: Mapping[str, Head]
    before_ms: int | None = None
    start: bool = False
    lost: Head | None = None
    archived: Archived | None = None

    def text(self) -> str:
        """Return the text that is stored and hashed."""
        return canonical(self.document())

    def document(self) -> dict[str, object]:
        """Return the content as JSON."""
        return {
            "heads": {writer: head.fields for writer, head in self.heads.items()},
            "pruned": {writer: head.fields for writer, head in self.pruned.items()},
            "before_ms": self.before_ms,
            "start": self.start,
            "lost": None if self.lost is None else self.lost.fields,
            # Only where there is an archive, so that the hashes of other checkpoints stay.
            **({} if self.archived is None else {"archived": self.archived.fields}),
        }

    @classmethod
    def parse(cls, text: str) -> Content:
        """Parse a text that `text` returned.

        Raises:
            ValueError: it is something else.
        """
        found = json.loads(text)
        try:
            lost, archived = found["lost"], found.get("archived")
            content = cls(
                heads={str(writer): _head(each) for writer, each in found["heads"].items()},
                pruned={str(writer): _head(each) for writer, each in found["pruned"].items()},
                before_ms=None if found["before_ms"] is None else int(found["before_ms"]),
                start=found["start"] is True,
                lost=None if lost is None else _head(lost),
                archived=None if archived is None else _archived(archived),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError("not the content of a checkpoint") from error
        if content.text() != text:
            raise ValueError("not the canonical form of a checkpoint")
        return content


class Signer:
    """Signs checkpoints with a key that is not in the database.

    Args:
        key_file: a private file of 64 hexadecimal digits, as `catalog.kms.root_key.KeyFile` makes it.

    Raises:
        StateUnavailable: the file is missing, open to others, or not a key file.
    """

    def __init__(self, key_file: Path) -> None:
        try:
            source = KeyFile(key_file)
            root = source.derive(source.describe())
        except KmsUnavailable as error:
            raise StateUnavailable(
                f"The signing key of the audit log cannot be used: {error.message}",
                path=str(key_file),
                rule="audit-key",
                hint="Restore the file of `audit.key_file`, or remove the setting.",
            ) from error
        # A separate key is derived, in case the file is used for other purposes.
        self._key = Ed25519PrivateKey.from_private_bytes(subkey(root, "audit-checkpoints").reveal())
        public = self._key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        self.public_key: Final = public.hex()

    def sign(self, hashed: str, what: str = CHECKPOINT) -> str:
        """Return the signature of a hash in hexadecimal; `what` says of what it is the hash."""
        return self._key.sign(_signed(hashed, what)).hex()


def is_signed(checkpoint: Row, what: str = CHECKPOINT) -> bool:
    """Return whether a checkpoint or segment has a valid signature by the public key that it names.

    The caller decides whether the key is trusted.
    """
    try:
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(str(checkpoint["public_key"])))
        key.verify(bytes.fromhex(str(checkpoint["signature"])), _signed(str(checkpoint["hash"]), what))
    except (ValueError, InvalidSignature):
        return False
    return True


def checkpoint_hash(checkpoint: Row) -> str:
    """Return the hash of all fields of a checkpoint except the hash and the signature."""
    return digest({name: checkpoint[name] for name in _HASHED})


class Checkpointer:
    """Makes the next checkpoint when it is due; not thread-safe.

    Args:
        engine: the catalog's database, upgraded.
        signer: signs checkpoints; without it they are not signed.
        now_ms: the time, in milliseconds since 1970 UTC.
        every_s: seconds between checkpoints.
    """

    def __init__(
        self, engine: Engine, signer: Signer | None, now_ms: Callable[[], int], every_s: float
    ) -> None:
        self._engine = engine
        self._signer = signer
        self._now_ms = now_ms
        self._every_s = every_s
        self._next_at = time.monotonic()
        self._records = 0
        self._last: Head | None = None

    def written(self, records: int) -> None:
        """Record that this process wrote records."""
        self._records += records

    def is_due(self) -> bool:
        """Return whether the next checkpoint is due."""
        return self._records >= _RECORDS or time.monotonic() >= self._next_at

    def begin(self, writer: str) -> None:
        """Make the first checkpoint, if there is none.

        Raises:
            StateUnavailable, CommitStateUnknown: the database does not answer.
        """
        with read(self._engine) as connection:
            is_new = last_checkpoint(connection) is None
        if is_new:
            self.make(writer)

    def make(self, writer: str) -> int | None:
        """Make the first checkpoint, or the next one if a chain has grown since the last one.

        Returns:
            its number; or None if nothing has changed, or another process was faster.

        Raises:
            StateUnavailable, CommitStateUnknown: the database does not answer.
        """
        self._next_at = time.monotonic() + self._every_s
        self._records = 0
        try:
            with write(self._engine) as connection:
                made = self._make(connection, writer)
        except IntegrityError:
            return None
        self._last = made or self._last
        return None if made is None else made.sequence

    def _make(self, connection: Connection, writer: str) -> Head | None:
        heads = _changed(connection)
        lost = None if _is_there(connection, self._last) else self._last
        if not heads and lost is None and last_checkpoint(connection) is not None:
            return None
        content = Content(heads, {}, lost=lost)
        return put(connection, content, self._signer, writer, self._now_ms())


def put(connection: Connection, content: Content, signer: Signer | None, writer: str, at_ms: int) -> Head:
    """Write the next checkpoint, inside a transaction.

    Raises:
        sqlalchemy.exc.IntegrityError: another process was faster.
    """
    before = last_checkpoint(connection)
    row: Row = {
        "number": 1 if before is None else before.sequence + 1,
        "at_ms": at_ms,
        "writer": writer,
        "content": content.text(),
        "previous_hash": GENESIS if before is None else before.hash,
        "public_key": None if signer is None else signer.public_key,
    }
    row["hash"] = checkpoint_hash(row)
    row["signature"] = None if signer is None else signer.sign(str(row["hash"]))
    connection.execute(insert(lw_audit_checkpoint).values(**row))
    _note(connection, content.heads)
    return Head(int(str(row["number"])), str(row["hash"]))


def last_checkpoint(connection: Connection) -> Head | None:
    """Return number and hash of the last checkpoint."""
    column = lw_audit_checkpoint.c
    found = connection.execute(
        select(column.number, column.hash).order_by(column.number.desc()).limit(1)
    ).first()
    return None if found is None else Head(found.number, found.hash)


def _changed(connection: Connection) -> dict[str, Head]:
    column = lw_audit_chain.c
    query = select(lw_audit_chain).where(column.sequence > column.checkpointed)
    found = connection.execute(query.order_by(column.writer).limit(MAX_HEADS))
    return {row.writer: Head(row.sequence, row.hash, row.at_ms) for row in found}


def _is_there(connection: Connection, checkpoint: Head | None) -> bool:
    if checkpoint is None:
        return True
    column = lw_audit_checkpoint.c
    query = select(column.hash).where(column.number == checkpoint.sequence)
    found = connection.execute(query).scalar_one_or_none()
    return found == checkpoint.hash or (found is None and _is_pruned(connection, checkpoint.sequence))


def _is_pruned(connection: Connection, number: int) -> bool:
    """Return whether a checkpoint is older than the first one in the database."""
    first = connection.execute(
        select(lw_audit_checkpoint).order_by(lw_audit_checkpoint.c.number).limit(1)
    ).first()
    try:
        return first is not None and first.number > number and Content.parse(first.content).start
    except ValueError:
        return False


def _note(connection: Connection, heads: Mapping[str, Head]) -> None:
    if heads:
        column = lw_audit_chain.c
        statement = (
            update(lw_audit_chain)
            .where(column.writer == bindparam("chain"), column.checkpointed < bindparam("up_to"))
            .values(checkpointed=bindparam("up_to"))
        )
        named = [{"chain": writer, "up_to": head.sequence} for writer, head in heads.items()]
        connection.execute(statement, named)


def _head(value: Any) -> Head:
    sequence, hashed, at_ms = value
    if type(sequence) is not int or type(at_ms) is not int or not isinstance(hashed, str):
        raise TypeError("not a number, a hash and a time")
    return Head(sequence, hashed, at_ms)


def _archived(value: Any) -> Archived:
    first, last, hashed = value
    if type(first) is not int or type(last) is not int or not isinstance(hashed, str):
        raise TypeError("not two numbers and a hash")
    return Archived(first, last, hashed)


def _signed(hashed: str, what: str) -> bytes:
    return (what + hashed).encode("ascii")
