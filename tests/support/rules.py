"""Encryption rules for tests."""

from __future__ import annotations

import json
from typing import Any

from catalog.policy_store.documents import DocumentId, Edit, Kind
from policy.encryption_rules import EncryptionRules
from tests.support.lake import ALICE, Lake

_DOCUMENT = DocumentId(Kind.ENCRYPTION, "test")


def rule(name: str, **fields: Any) -> dict[str, Any]:
    """A rule on every table that must be encrypted, but for what `fields` say."""
    return {"name": name, "databases": ["*"], "tables": ["*"], "mustEncrypt": True, **fields}


def tag(name: str, *columns: str, **fields: Any) -> dict[str, Any]:
    """A tag on columns of every table, but for what `fields` say."""
    return {"tag": name, "databases": ["*"], "tables": ["*"], "columns": list(columns), **fields}


def text_of(*rules: dict[str, Any], tags: tuple[dict[str, Any], ...] = ()) -> str:
    """The document that says these rules and tags."""
    return json.dumps({"rules": list(rules), "tags": list(tags)}, indent=1)


def rules_of(*rules: dict[str, Any], tags: tuple[dict[str, Any], ...] = ()) -> EncryptionRules:
    """The rules of one document."""
    return EncryptionRules.parse({"rules.json": text_of(*rules, tags=tags)})


def put_rules(lake: Lake, *rules: dict[str, Any], tags: tuple[dict[str, Any], ...] = ()) -> None:
    """Put these rules, and no others, in force."""
    known = lake.services.policy_documents.current().documents.get(_DOCUMENT)
    content = text_of(*rules, tags=tags).encode() if rules else None
    if known is None and content is None:
        return
    edit = Edit(_DOCUMENT, content, None if known is None else known.change.revision)
    lake.services.policy_changes.make([edit], lake.caller(ALICE), lambda prepared: None)
