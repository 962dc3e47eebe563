"""Builds answers with tables.

Table metadata is large, and pyiceberg's model writes it as JSON fast. So the JSON around it is concatenated
as bytes, and nothing is parsed or copied a second time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, Self, TypeAlias

from fastapi import Response
from pyiceberg.table.metadata import TableMetadata

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.shown import shown_metadata
from catalog.http.engine_models import WriteBegun
from catalog.http.errors import error_response
from catalog.http.metadata_text import metadata_text
from catalog.http.storage_credentials import StorageAnswer
from catalog.reading.loading import LoadedTable
from catalog.service.services import Services
from catalog.writes.sessions import WriteSession
from policy.errors import PropertyInvalid
from policy.write_properties import SCAN_PLANNING_MODE
from policy.write_settings import write_settings

SnapshotMode = Literal["all", "refs"]
ReadRestrictions: TypeAlias = Mapping[str, Any]
"""`read-restrictions` of the Iceberg REST specification."""

PLANNING_MODE: Final = "scan-planning-mode"
"""Who plans scans, in the configuration of a catalog and of a table (Iceberg REST specification)."""

NO_STORE: Final = MappingProxyType({"Cache-Control": "no-store"})
"""Headers of answers with credentials: no cache gives them to another client, or when they have ended."""

_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Viewer:
    """The user that a table is loaded for, and the policies that decided.

    It is created before the table is loaded: policies that are loaded meanwhile must not be reported as those
    that decided.
    """

    caller: Caller
    authorizer: Authorizer
    policy_version: str
    storage: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, caller: Caller, services: Services, storage: Mapping[str, str] | None = None) -> Self:
        """Return the viewer for a caller and the policies in force now.

        Args:
            caller: who asks.
            services: the open catalog.
            storage: what tells the client how to reach the files.
        """
        return cls(caller, services.authorizer, services.policies.current().version, storage or {})

    def metadata(self, table: LoadedTable) -> TableMetadata:
        """Return the metadata of a table that the user gets."""
        return shown_metadata(self.authorizer, self.caller, table)

    def config(self, table: LoadedTable) -> dict[str, str]:
        """Return the `config` of a loaded table, which separates users, policies and versions for engines."""
        masks = table.governed.epochs.current.masks
        mode = table.metadata.properties.get(SCAN_PLANNING_MODE)
        return {
            **({} if mode is None else {PLANNING_MODE: mode.lower()}),
            **self.storage,
            "lakewarden.sealed": "true" if table.seal is not None else "false",
            "lakewarden.principal": self.caller.user.name,
            "lakewarden.policy-version": self.policy_version,
            "lakewarden.governed-version": str(table.governed.version),
            "lakewarden.masked-fields": ",".join(str(field_id) for field_id, _ in masks),
        }


def loaded_table(
    table: LoadedTable,
    viewer: Viewer,
    mode: SnapshotMode = "all",
    restrictions: ReadRestrictions | None = None,
    *,
    masked: Collection[int] | None = None,
    storage: StorageAnswer | None = None,
) -> Response:
    """Build the `LoadTableResult` of a table; for an engine with the write settings.

    Args:
        table: the table.
        viewer: for whom it was loaded.
        mode: which snapshots are shown.
        restrictions: what a standard client has to enforce; None for nothing.
        masked: for an engine, the columns by which it must not choose partitions, as policies mask them for
            the user; None for other clients.
        storage: the storage credential that the client asked for. Such an answer has no ETag: one that is
            kept would outlive the credential, and could be another user's.
    """
    metadata = viewer.metadata(table)
    metadata = metadata if mode == "all" else _referenced(metadata)
    more = [] if masked is None else [_settings(table), f'"masked-sources":{json.dumps(list(masked))}']
    if restrictions is not None:
        more.append(f'"read-restrictions":{json.dumps(restrictions)}')
    config = viewer.config(table)
    headers: Mapping[str, str] = {"ETag": etag_of(table, mode, restrictions, viewer.storage)}
    if storage is not None:
        config |= storage.config
        more.append(f'"storage-credentials":{storage.entries}')
        headers = NO_STORE
    body = _document(metadata_text(metadata, table), table.metadata_location, config, *more)
    return Response(body, media_type="application/json", headers=headers)


def staged_table(
    metadata: TableMetadata,
    governed: Mapping[str, str],
    signing: Mapping[str, str],
    storage: StorageAnswer | None,
) -> Response:
    """Build the `LoadTableResult` of a staged table, which has metadata and no metadata.json yet.

    Args:
        metadata: of the table.
        governed: its governed properties as the client sent them, because it commits what it is shown.
        signing: what tells the client to let the catalog sign its requests.
        storage: the storage credential that the client asked for.
    """
    shown = metadata.model_copy(update={"properties": {**metadata.properties, **governed}})
    if storage is None:
        return Response(_document(metadata_text(shown), None, dict(signing)), media_type="application/json")
    body = _document(metadata_text(shown), None, storage.config, f'"storage-credentials":{storage.entries}')
    return Response(body, media_type="application/json", headers=NO_STORE)


def staged_write(session: WriteSession, viewer: Viewer) -> Response:
    """Build the answer for a staged write, with the table that its commit creates."""
    begun = WriteBegun.of(session).model_dump_json()
    table = session.table
    shown = metadata_text(viewer.metadata(table))
    body = _document(shown, None, viewer.config(table), _settings(table), f'"write":{begun}')
    return Response(body, media_type="application/json")


def committed_table(table: LoadedTable, viewer: Viewer) -> Response:
    """Build a `CommitTableResponse`."""
    body = _document(metadata_text(viewer.metadata(table), table), table.metadata_location, None)
    return Response(body, media_type="application/json", headers={"ETag": etag_of(table, "all")})


def etag_of(
    table: LoadedTable,
    mode: SnapshotMode,
    restrictions: ReadRestrictions | None = None,
    storage: Mapping[str, str] | None = None,
) -> str:
    """Return the ETag of a table; it differs between the two snapshot modes, by what readers enforce, and by
    how they reach the files.

    It is a weak one, because it is that of every content coding (RFC 9110, section 8.8.3.3).
    """
    parts = [table.etag[1:-1]]
    if mode != "all":
        parts.append(mode)
    for each in (restrictions, storage):
        if each:
            text = json.dumps(dict(each), sort_keys=True)
            parts.append(hashlib.sha256(text.encode()).hexdigest()[:32])
    return f'W/"{"-".join(parts)}"'


def is_known(if_none_match: str | None, etag: str) -> bool:
    """Return whether the client has the answer already (RFC 9110, section 13.1.2)."""
    if if_none_match is None:
        return False
    given = {each.strip().removeprefix("W/") for each in if_none_match.split(",")}
    return etag.removeprefix("W/") in given or _ANY in given


def not_modified(etag: str) -> Response:
    """Build the answer for a client that has the current table."""
    return Response(status_code=304, headers={"ETag": etag})


def _referenced(metadata: TableMetadata) -> TableMetadata:
    """Return metadata with only those snapshots that a branch or tag points to."""
    wanted = {ref.snapshot_id for ref in metadata.refs.values()}
    kept = [snapshot for snapshot in metadata.snapshots if snapshot.snapshot_id in wanted]
    return metadata.model_copy(update={"snapshots": kept})


def _settings(table: LoadedTable) -> str:
    """Return the write settings, or the error that refuses writes: the table can still be read."""
    try:
        ordered = bool(table.metadata.sort_order().fields)
        settings = json.dumps(write_settings(table.metadata.properties, table.name, ordered=ordered))
    except PropertyInvalid as refusal:
        settings = bytes(error_response(refusal).body).decode("ascii")
    return f'"write-settings":{settings}'


def _document(
    metadata: Sequence[bytes], location: str | None, config: Mapping[str, str] | None, *more: str
) -> bytes:
    before = "{" if location is None else f'{{"metadata-location":{json.dumps(location)},'
    after = ([] if config is None else [f'"config":{json.dumps(config)}']) + list(more)
    end = "".join(f",{each}" for each in after)
    return b"".join([f'{before}"metadata":'.encode(), *metadata, f"{end}}}".encode()])
