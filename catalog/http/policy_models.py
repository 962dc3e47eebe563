"""Bodies and answers about the policies that the catalog stores itself."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Final

from pydantic import Field

from catalog.http.base_models import Answer, OwnBody
from catalog.policy_store.changes import Prepared
from catalog.policy_store.documents import Change, DocumentId, Edit, Kind, StoredDocument, StoredSet

#: The maximum number of documents in one request.
MAX_EDITS: Final = 100


class DocumentAnswer(Answer):
    """A policy document, without its content."""

    kind: Kind
    name: str
    revision: int
    sha256: str
    bytes: int
    author: str
    changed_at: datetime

    @classmethod
    def of(cls, document: StoredDocument) -> DocumentAnswer:
        """Convert a document to an answer."""
        change, content = document.change, document.content or b""
        return cls(
            kind=change.id.kind,
            name=change.id.name,
            revision=change.revision,
            sha256=change.sha256 or "",
            bytes=len(content),
            author=change.author,
            changed_at=change.changed_at,
        )


class DocumentList(Answer):
    """All documents, and the number of the last change."""

    revision: int
    documents: list[DocumentAnswer]

    @classmethod
    def of(cls, found: StoredSet) -> DocumentList:
        """Convert documents to an answer."""
        documents = [DocumentAnswer.of(each) for each in found.documents.values()]
        return cls(revision=found.version.revision, documents=documents)


class ChangeAnswer(Answer):
    """A change of a document; a change without `sha256` removed it."""

    kind: Kind
    name: str
    revision: int
    sha256: str | None
    author: str
    request_id: str
    changed_at: datetime

    @classmethod
    def of(cls, change: Change) -> ChangeAnswer:
        """Convert a change to an answer."""
        return cls.model_validate(asdict(change) | {"kind": change.id.kind, "name": change.id.name})


class ChangeList(Answer):
    """Changes, newest first."""

    changes: list[ChangeAnswer]

    @classmethod
    def of(cls, changes: Iterable[Change]) -> ChangeList:
        """Convert changes to an answer."""
        return cls(changes=[ChangeAnswer.of(each) for each in changes])


class EditBody(OwnBody):
    """The change of one document.

    `content` is its new text, null to remove it. `expected-revision` is the revision that is replaced or
    removed, null for a new document.
    """

    kind: Kind
    name: str
    content: str | None
    expected_revision: Annotated[int, Field(ge=1, le=2**62)] | None

    def to_edit(self) -> Edit:
        """Convert the body to an edit.

        Raises:
            RequestInvalid: a name is not valid, or a text is too long.
        """
        content = None if self.content is None else self.content.encode("utf-8")
        return Edit(DocumentId(self.kind, self.name), content, self.expected_revision)


class ChangeBody(OwnBody):
    """Several documents that change together; `dry-run` only shows the result."""

    changes: Annotated[list[EditBody], Field(max_length=MAX_EDITS)]
    dry_run: bool = False
    force: bool = False


class EffectAnswer(Answer):
    """The effect of a change on the policies in force: titles of policies, roles and encryption rules."""

    added: list[str]
    removed: list[str]
    changed: list[str]


class ChangedAnswer(Answer):
    """A change that was made, or with `dry-run` a change that is possible.

    `version` names the policies in force with it. `lockout` says who could no longer administer the catalog.
    Documents whose content does not change are not among `changes`.
    """

    dry_run: bool
    revision: int
    version: str
    encryption_version: str
    changes: list[ChangeAnswer]
    effect: EffectAnswer
    lockout: str | None

    @classmethod
    def of(cls, prepared: Prepared, *, dry_run: bool) -> ChangedAnswer:
        """Convert a change to an answer."""
        return cls(
            dry_run=dry_run,
            revision=prepared.after.stored.version.revision,
            version=prepared.after.policies.version,
            encryption_version=prepared.after.encryption.version,
            changes=[ChangeAnswer.of(each.change) for each in prepared.changed],
            effect=EffectAnswer.model_validate(prepared.effect),
            lockout=prepared.lockout,
        )
