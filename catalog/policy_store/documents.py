"""Policy documents in the catalog's database.

- A document has a kind and a name. The changes of the set are numbered 1, 2, 3, …; a document's revision is
  the number of the change that made it what it is.
- Nothing is overwritten: what a document said before, and that it was removed, stays on record with author,
  time and request.
- A change is made against a version of the whole set, and fails if another change came first.
- What is read is checked against the digest that was recorded with the change: rows that were edited behind
  the catalog's back, or read while a change was being made, are never taken for a set.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from sqlalchemy import Connection, Engine, RowMapping, and_, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from catalog.base.errors import CommitConflict
from catalog.db.engine import read, write
from catalog.db.schema import lw_policy_document, lw_policy_set
from catalog.policy_store.kinds import MAX_STORED_SIZE, OF_POLICIES
from catalog.policy_store.kinds import Kind as Kind
from policy.errors import PolicyInvalid, RequestInvalid

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_SOURCE_PREFIX: Final = "ranger."
_READS: Final = 3
_documents: Final = lw_policy_document.c


@dataclass(frozen=True, slots=True, order=True)
class DocumentId:
    """Identifies a document.

    Raises:
        RequestInvalid: it cannot be the name of a document.
    """

    kind: Kind
    name: str

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise RequestInvalid(
                "The name of a policy document must have 1 to 128 ASCII letters, digits, dots, "
                "dashes and underscores, and begin with a letter or digit.",
                rule="policy-document-name",
                hint="Choose a name such as `sales-readers`.",
            )

    def __str__(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Version:
    """The version of a set of documents: the number of the last change, and the digest of all documents
    since.
    """

    revision: int
    digest: str


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a document, and its author.

    Attributes:
        id: which document.
        revision: the number of the change.
        sha256: of what it says since, in hexadecimal; None if it was removed.
        author: who made the change.
        request_id: by which request; the audit trail has it too.
        changed_at: when.
    """

    id: DocumentId
    revision: int
    sha256: str | None
    author: str
    request_id: str
    changed_at: datetime


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document after a change; null content means that it was removed."""

    change: Change
    content: bytes | None = field(repr=False)

    @classmethod
    def of(
        cls, edit: Edit, revision: int, *, author: str, request_id: str, changed_at: datetime
    ) -> StoredDocument:
        """Return the document after an edit."""
        sha256 = None if edit.content is None else digest_of(edit.content)
        return cls(Change(edit.id, revision, sha256, author, request_id, changed_at), edit.content)

    @property
    def id(self) -> DocumentId:
        """Return the document's identity."""
        return self.change.id


@dataclass(frozen=True, slots=True)
class StoredSet:
    """All documents, and the version of the set."""

    version: Version
    documents: Mapping[DocumentId, StoredDocument]

    def contents(self, *kinds: Kind) -> dict[str, bytes]:
        """Return the content of the documents of some kinds, by their titles in messages."""
        return {
            title_of(each.id): each.content
            for each in self.documents.values()
            if each.id.kind in kinds and each.content is not None
        }

    def kinds(self) -> dict[str, str]:
        """Return the kind of each document, by its title in messages."""
        return {title_of(each): each.kind.value for each in self.documents}

    def says(self, edit: Edit) -> bool:
        """Return whether a document already has the content of an edit, or is missing if that removes it."""
        there = self.documents.get(edit.id)
        return edit.content == (None if there is None else there.content)


@dataclass(frozen=True, slots=True)
class Edit:
    """A requested change of a document.

    Attributes:
        id: which document.
        content: what it is to say; None to remove it.
        expected: the revision that it has now, so that nobody's change is overwritten unseen; None if there
            is to be none yet.
        origin: what messages call the content, such as the file that it is from; by default the document's
            title.

    Raises:
        RequestInvalid: the content is too large.
    """

    id: DocumentId
    content: bytes | None = field(repr=False)
    expected: int | None
    origin: str | None = None

    def __post_init__(self) -> None:
        if self.content is not None and len(self.content) > MAX_STORED_SIZE:
            raise RequestInvalid(
                f"The policy document is larger than {MAX_STORED_SIZE} bytes.",
                rule="policy-document-size",
                hint="Split it into several documents.",
            )


def name_in(source: str) -> str:
    """Return the name of the documents of a source of policies."""
    return _SOURCE_PREFIX + source


def source_of(document: DocumentId, sources: Collection[str]) -> str | None:
    """Return the source that a document belongs to, of the given ones; None if to none."""
    source = document.name.removeprefix(_SOURCE_PREFIX)
    is_of_one = document.kind in OF_POLICIES and document.name == name_in(source)
    return source if is_of_one and source in sources else None


def title_of(document: DocumentId) -> str:
    """Return the title of a stored document in messages."""
    return f"catalog:{document}"


def digest_of(content: bytes) -> str:
    """SHA-256, in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


#: The set before the first change.
EMPTY: Final = StoredSet(Version(0, digest_of(b"")), {})


class PolicyDocuments:
    """The policy documents of one catalog.

    Args:
        engine: the catalog's database, upgraded.
        catalog: the catalog's name.
    """

    def __init__(self, engine: Engine, catalog: str) -> None:
        self._engine = engine
        self._catalog = catalog

    def version(self) -> Version:
        """Return the current version of the set; one short query.

        Raises:
            StateUnavailable: the database does not answer.
        """
        with read(self._engine) as connection:
            return self._version(connection)

    def current(self) -> StoredSet:
        """Return the current set.

        Raises:
            PolicyInvalid: the documents are not those that were recorded.
            StateUnavailable: the database does not answer.
        """
        for _ in range(_READS):
            with read(self._engine) as connection:
                version = self._version(connection)
                documents = {each.id: each for each in map(_stored, self._last(connection))}
            if _digest(documents.values()) == version.digest:
                return StoredSet(version, documents)
        raise _not_as_recorded()

    def history(self, document: DocumentId | None = None, *, limit: int) -> Sequence[Change]:
        """Return the latest changes, newest first, of one document or of all.

        Raises:
            StateUnavailable: the database does not answer.
        """
        query = select(*_CHANGE).where(_documents.catalog == self._catalog)
        if document is not None:
            query = query.where(_documents.kind == document.kind.value, _documents.name == document.name)
        query = query.order_by(_documents.revision.desc(), _documents.kind, _documents.name).limit(limit)
        with read(self._engine) as connection:
            return tuple(map(_change, connection.execute(query).mappings()))

    def find(self, document: DocumentId, revision: int | None = None) -> StoredDocument | None:
        """Return the document after a change, by default after its last one.

        Returns:
            None if there was no such change of it.

        Raises:
            PolicyInvalid: the document is not the one that was recorded.
            StateUnavailable: the database does not answer.
        """
        query = select(lw_policy_document).where(
            _documents.catalog == self._catalog,
            _documents.kind == document.kind.value,
            _documents.name == document.name,
        )
        if revision is not None:
            query = query.where(_documents.revision == revision)
        with read(self._engine) as connection:
            row = connection.execute(query.order_by(_documents.revision.desc()).limit(1)).mappings().first()
        return None if row is None else _stored(row)

    def replace(
        self,
        base: StoredSet,
        changed: Sequence[StoredDocument],
        beside: Callable[[Connection], None] = lambda _: None,
    ) -> StoredSet:
        """Make a change.

        Args:
            base: the set that it was checked against.
            changed: the documents that change, with the revision that follows.
            beside: writes in the same transaction; its errors undo the change.

        Raises:
            CommitConflict: another change came first; nothing was changed.
            StateUnavailable: the database does not answer; nothing was changed.
            CommitStateUnknown: it may or may not have been made.
        """
        after = following(base, changed)
        try:
            with write(self._engine) as connection:
                self._advance(connection, base.version, after.version)
                connection.execute(insert(lw_policy_document), [self._row(each) for each in changed])
                beside(connection)
        except IntegrityError as error:
            raise _came_first() from error
        return after

    def _version(self, connection: Connection) -> Version:
        query = select(lw_policy_set.c.revision, lw_policy_set.c.digest).where(
            lw_policy_set.c.catalog == self._catalog
        )
        row = connection.execute(query).one_or_none()
        return EMPTY.version if row is None else Version(row.revision, row.digest)

    def _last(self, connection: Connection) -> Iterable[RowMapping]:
        """Return the last row of each existing document."""
        newest = (
            select(_documents.kind, _documents.name, func.max(_documents.revision).label("revision"))
            .where(_documents.catalog == self._catalog)
            .group_by(_documents.kind, _documents.name)
            .subquery()
        )
        is_newest = and_(
            _documents.kind == newest.c.kind,
            _documents.name == newest.c.name,
            _documents.revision == newest.c.revision,
        )
        query = (
            select(lw_policy_document)
            .join(newest, is_newest)
            .where(_documents.catalog == self._catalog, _documents.content.is_not(None))
            .order_by(_documents.kind, _documents.name)
        )
        return connection.execute(query).mappings()

    def _advance(self, connection: Connection, base: Version, after: Version) -> None:
        """Take the next number, unless another change took it before."""
        if base == EMPTY.version:
            # The primary key permits only one first change.
            row = {"catalog": self._catalog, "revision": after.revision, "digest": after.digest}
            connection.execute(insert(lw_policy_set).values(row))
            return
        taken = connection.execute(
            update(lw_policy_set)
            .where(
                lw_policy_set.c.catalog == self._catalog,
                lw_policy_set.c.revision == base.revision,
                lw_policy_set.c.digest == base.digest,
            )
            .values(revision=after.revision, digest=after.digest)
        )
        if taken.rowcount != 1:
            raise _came_first()

    def _row(self, document: StoredDocument) -> dict[str, object]:
        change = document.change
        return {
            "catalog": self._catalog,
            "kind": change.id.kind.value,
            "name": change.id.name,
            "revision": change.revision,
            "content": document.content,
            "sha256": change.sha256,
            "author": change.author,
            "request_id": change.request_id,
            "created_ms": int(change.changed_at.timestamp() * 1000),
        }


def following(base: StoredSet, changed: Iterable[StoredDocument]) -> StoredSet:
    """Return the set after a change."""
    after = dict(base.documents) | {each.id: each for each in changed}
    kept = {each: after[each] for each in sorted(after) if after[each].content is not None}
    return StoredSet(Version(base.version.revision + 1, _digest(kept.values())), kept)


#: The columns of a row that describe the change, without the content.
_CHANGE: Final = (
    _documents.kind,
    _documents.name,
    _documents.revision,
    _documents.sha256,
    _documents.author,
    _documents.request_id,
    _documents.created_ms,
)


def _digest(documents: Iterable[StoredDocument]) -> str:
    """Over kind, name, revision and content of each document, in the order of their names."""
    changes = sorted((each.change for each in documents), key=lambda change: change.id)
    return digest_of(
        "".join(f"{each.id} {each.revision} {each.sha256}\n" for each in changes).encode("ascii")
    )


def _change(row: RowMapping) -> Change:
    try:
        document = DocumentId(Kind(row["kind"]), row["name"])
    except (ValueError, RequestInvalid) as error:
        raise _not_as_recorded() from error
    return Change(
        id=document,
        revision=row["revision"],
        sha256=row["sha256"],
        author=row["author"],
        request_id=row["request_id"],
        changed_at=datetime.fromtimestamp(row["created_ms"] / 1000, UTC),
    )


def _stored(row: RowMapping) -> StoredDocument:
    change, content = _change(row), row["content"]
    if (None if content is None else digest_of(content)) != change.sha256:
        raise _not_as_recorded()
    return StoredDocument(change, content)


def _not_as_recorded() -> PolicyInvalid:
    return PolicyInvalid(
        "The policy documents in the database do not match their recorded digest.",
        rule="policy-store",
        hint="Find out who changed the database, and restore it from a backup.",
    )


def _came_first() -> CommitConflict:
    return CommitConflict(
        "Another change of the policies was made at the same time; this change was not made.",
        rule="policy-revision",
        hint="Read the policies again, then repeat the change.",
    )
