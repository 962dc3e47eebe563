"""Decides which keys of the planned files a plan releases, and checks the caller's privileges on them.

- A file under a single key is opened as a whole by that key. A trusted engine gets the key for every allowed
  scan, and hides the other columns itself. A user's own process must be entitled to everything that the key
  opens. Files can hold dropped or renamed columns, so that is every column of every schema of the table.
- Of a file with column keys, the scan gets the footer's key, and the key of each group with a column that it
  reads or filters by. A file that is older than a field of a struct has no data of the field. If the struct
  is in a group, that group's key is released, since the rest of the struct shows where it is null.
- A position delete has paths and row numbers, and no column of the table. Its key opens no column.
- In every case, the user must be entitled to every column of a released group, so that cryptography and
  policy agree. The exception is the group of the columns that no property names, where
  `encryption.plaintext-columns` is set: as with a single key, a trusted engine gets its key for every allowed
  scan, and hides the other columns itself.
- A column that only a row filter reads is read by the policy: an engine that enforces the filter gets its
  key, whether or not the user is entitled to the column. The user must be entitled to every other column of
  the group.
- The file's key metadata, checked against its epoch, decides which columns a key opens: by field id, under
  every name of the field in any schema of the table. A field without a name has no policy, and its key is not
  released.
- A user is entitled to a column who has unmasked `select` on it. An engine that enforces a mask is entitled
  to the column, too, unless the mask is NULL: nobody needs the values then, so that nobody gets their key,
  but for a row filter that reads them.
- A user's own process also needs `release` on every key that it gets. It enforces nothing. So a column that
  is NULL for the user has to be under a column key in every file, which the process does not get.

The footer's key shows the names and types of all columns, the sizes of the encrypted ones, and the statistics
of those that are not encrypted (docs/column-keys.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from catalog.authorization.authorizer import Authorizer, Caller
from catalog.authorization.columns import (
    ACTION,
    ScanColumns,
    every_name,
    nested_in,
    refuse_altered,
    view_of,
)
from catalog.envelope.key_metadata import KeyEntry
from catalog.envelope.key_metadata_columns import Form
from catalog.envelope.scan_keys import FormKeys
from catalog.planning.request import ScanRequest
from catalog.planning.restricting import decided, enforces
from catalog.planning.rows import POSITION_DELETES
from catalog.reading.loading import LoadedTable
from policy.decision import Decision, Reason
from policy.encryption.encrypted_columns import KeyedFields
from policy.encryption.governed import COLUMNS
from policy.errors import DecryptionRefused, NotAuthorized
from policy.privileges.requests import AccessRequest
from policy.restrictions.model import UNRESTRICTED, Restriction
from policy.view import Reading, refused_key

_DATA: Final = 0

#: The key metadata of a file names primitive fields alone, so it does not say whether it covers a struct.
_NESTED: Final = "Only engines can withhold nested fields, and a policy replaces the struct, list or map"


@dataclass(frozen=True, slots=True)
class _Opened:
    """A key to release.

    Attributes:
        key_id: the master key id.
        field_ids: what it opens by itself; none for a footer's key.
        everything: whether it opens the whole of a file with columns of the table.
    """

    key_id: str
    field_ids: tuple[int, ...]
    everything: bool


def release_for(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    schema: Schema,
    columns: ScanColumns,
    reading: Reading,
    request: ScanRequest,
    planned: pa.Table,
    forms: Sequence[Form],
) -> list[FormKeys]:
    """Return the encrypted files of a scan with the keys that the caller gets, by who enforces restrictions.

    Args:
        schema: the schema that is read with.
        reading: what was decided of the columns.
        request: what was asked for.
        authorizer, caller, table, columns, planned, forms: as `release`. Errors as there.
    """
    everything = None
    # A column key can open masked columns beside those that are read.
    keyed = any(len(form.metadata.entries) > 1 for form in forms)
    alters = reading.altered is not None and (forms or caller.engine is None)
    if alters or (keyed and enforces(authorizer, caller, request)):
        everything = decided(authorizer, caller, table, schema)
    return release(authorizer, caller, table, columns, planned, forms, everything, schema)


def release(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    columns: ScanColumns,
    planned: pa.Table,
    forms: Sequence[Form],
    restriction: Restriction | None = None,
    schema: Schema | None = None,
) -> list[FormKeys]:
    """Return the encrypted files of a scan with the keys that the caller gets.

    Args:
        authorizer: decides and records.
        caller: who scans; the columns of the scan were granted already.
        table: the table.
        columns: what the scan reads and filters by, without columns that are NULL for the caller.
        planned: the files.
        forms: every encrypted file that is planned.
        restriction: what applies to all columns of the table, if it was decided that the caller's reader
            enforces it, or has nothing to enforce; else masks and row filters refuse.
        schema: the schema that is read with; by default the current one.

    Raises:
        NotAuthorized: a key, or a column that it opens beside those of the scan, is not granted; or the
            column is masked.
        DecryptionRefused: a key opens a field that no schema of the table names.
    """
    enforced = restriction or UNRESTRICTED
    nulled = _nulled(table, enforced)
    if nulled and caller.engine is None:
        today = table.metadata.schema()
        shown = {field_id: each for each in (today, schema or today) for field_id in each.field_ids}
        fields = {field_id: shown[field_id].find_field(field_id) for field_id in nulled & shown.keys()}
        named = {field_id: shown[field_id].find_column_name(field_id) for field_id in fields}
        nested = [field_id for field_id, each in fields.items() if not each.field_type.is_primitive]
        if nested:
            raise _not_withheld(authorizer, caller, table, f"{_NESTED} {named[min(nested)]!r} with NULL.")
        _require_closed(authorizer, caller, table, named, planned, forms)
    filtering = enforced.filters_by - columns.field_ids
    columns = replace(columns, field_ids=columns.field_ids | filtering)
    released = [FormKeys(form, _needed(form.metadata.entries, columns)) for form in forms]
    opened = {
        _opened(form.metadata.entries, place, whole=_has_columns(planned, form))
        for form, places in released
        for place in places
    }
    # The footers' keys were asked for before.
    asked = caller.releases({key.key_id for key in opened if key.field_ids})
    for each in sorted(opened, key=lambda key: (key.key_id, key.field_ids)):
        asked += _require_columns(authorizer, caller, table, each, restriction, filtering)
    if asked:
        authorizer.require(caller, ACTION, table.name, asked)
    return released


def _needed(entries: tuple[KeyEntry, ...], columns: ScanColumns) -> tuple[int, ...]:
    """Return the indexes of the keys that a scan needs: the footer's, and those of its column groups."""
    groups = [entry.bound.field_ids for entry in entries]
    covered = {field_id for ids in groups for field_id in ids}
    absent = columns.field_ids - covered
    read = columns.field_ids.union(*(columns.outer.get(field_id, ()) for field_id in absent))
    return tuple(place for place, ids in enumerate(groups) if place == 0 or not read.isdisjoint(ids))


def _opened(entries: tuple[KeyEntry, ...], place: int, *, whole: bool) -> _Opened:
    bound = entries[place].bound
    return _Opened(bound.pek.master_key_id, bound.field_ids, everything=whole and len(entries) == 1)


def _has_columns(planned: pa.Table, form: Form) -> bool:
    """Return whether one of the files has columns of the table: position deletes have none."""
    contents = planned["content"].take(pa.array(form.rows))
    return bool(pc.any(pc.not_equal(contents, POSITION_DELETES)).as_py())


def _require_columns(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    key: _Opened,
    restriction: Restriction | None,
    filtering: frozenset[int],
) -> list[AccessRequest]:
    """Refuse and record a key that opens a column to which the caller is not entitled.

    Args:
        filtering: the columns that only the row filter reads, for which an engine needs no right of the user.

    Returns:
        what was granted, for the record.
    """
    if key.everything and caller.engine is None:
        names = every_name(table)
    elif caller.engine is not None and _is_rest(table, key):
        return []
    elif key.field_ids:
        known = _known(table, key.field_ids)
        names = every_name(table, known if caller.engine is None else known - filtering)
    else:
        return []
    view = view_of(authorizer, caller, table)
    reading = view.reads(names)
    if reading.refused is not None:
        raise _split(authorizer, caller, table, key, reading.refused)
    if restriction is None:
        refuse_altered(authorizer, caller, table, reading.altered)
    elif caller.engine is None:
        refuse_altered(authorizer, caller, table, view.masked(names))
    else:
        _refuse_nulled(authorizer, caller, table, key, restriction)
    return reading.required


def _nulled(table: LoadedTable, restriction: Restriction) -> frozenset[int]:
    """Return the fields that nobody has to read, with what is nested in them, less what the filter reads."""
    inside = (
        nested_in(schema, field_id) for field_id in restriction.nulled for schema in table.metadata.schemas
    )
    return frozenset().union(*inside) - restriction.filters_by


def _refuse_nulled(
    authorizer: Authorizer, caller: Caller, table: LoadedTable, key: _Opened, restriction: Restriction
) -> None:
    """Refuse and record a key that opens a column that is NULL for the caller, or a former masked column."""
    closed = _nulled(table, restriction).intersection(key.field_ids)
    schema = table.metadata.schema()
    former = frozenset(key.field_ids) - set(schema.field_ids)
    view = view_of(authorizer, caller, table)
    masked = view.first_masked(every_name(table, former)) if former else None
    if closed:
        masked = schema.find_column_name(min(closed))
    if masked is None:
        return
    reason = Reason(
        "mask", f"The key {key.key_id!r} also opens the column {masked!r}, whose values a policy withholds."
    )
    authorizer.record(caller, ACTION, table.name, Decision.deny(reason))
    raise NotAuthorized(
        f"{caller.principal.name} is not authorized ({ACTION}): {reason.detail}",
        table=table.name,
        rule=reason.rule,
        hint=f"Put the column under another key in {COLUMNS}.",
    )


def _require_closed(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    nulled: Mapping[int, str | None],
    planned: pa.Table,
    forms: Sequence[Form],
) -> None:
    """Refuse and record the plan of a user's own process if a file shows a column that is NULL for the user.

    These columns are in the current schema or in that of the snapshot, and named as there.

    A file from before the column is refused, too: its key metadata does not tell it from one that has the
    column in plaintext.
    """
    encrypted = {row for form in forms for row in form.rows.tolist()}
    data = set(pc.indices_nonzero(pc.equal(planned["content"], _DATA)).to_pylist())
    keyed = (
        frozenset().union(*(entry.bound.field_ids for entry in form.metadata.entries[1:]))
        for form in forms
        if not data.isdisjoint(form.rows.tolist())
    )
    if data <= encrypted and all(nulled.keys() <= each for each in keyed):
        return
    raise _not_withheld(
        authorizer,
        caller,
        table,
        f"A policy replaces the column {nulled[min(nulled)]!r} with NULL, and a file has its values under no "
        "column key.",
    )


def _not_withheld(authorizer: Authorizer, caller: Caller, table: LoadedTable, why: str) -> NotAuthorized:
    """Record that files would show a user's own process a column, and return the error."""
    reason = Reason("mask", why)
    authorizer.record(caller, ACTION, table.name, Decision.deny(reason))
    return NotAuthorized(
        f"{caller.principal.name} is not authorized ({ACTION}): {reason.detail}",
        table=table.name,
        rule=reason.rule,
        hint="Read through an engine, which withholds the values.",
    )


def _is_rest(table: LoadedTable, key: _Opened) -> bool:
    """Return whether a key opens what an epoch encrypts without naming it."""
    others = [each.others for each in table.governed.epochs.entries]
    return any(each == KeyedFields(key.key_id, key.field_ids) for each in others if each is not None)


def _known(table: LoadedTable, field_ids: tuple[int, ...]) -> frozenset[int]:
    """Check that a schema of the table names each field."""
    wanted = frozenset(field_ids)
    unknown = wanted - {field_id for schema in table.metadata.schemas for field_id in schema.field_ids}
    if unknown:
        raise DecryptionRefused(
            f"A file has a key for the field id {min(unknown)}, which is in no schema of the table.",
            table=table.name,
            rule="unknown-column",
            hint="Restore the table's metadata with `lakewarden table restore`.",
        )
    return wanted


def _split(
    authorizer: Authorizer,
    caller: Caller,
    table: LoadedTable,
    key: _Opened,
    refused: tuple[AccessRequest, Decision],
) -> NotAuthorized:
    _, decision = refused
    reason = refused_key(key.key_id, refused)
    authorizer.record(caller, ACTION, table.name, Decision.deny(reason, *decision.reasons))
    hint = (
        "Ask for the select permission on that column too, or for a separate key for the column you read."
        if key.field_ids
        else "Read through an engine, which withholds columns, or ask for the select permission on it."
    )
    return NotAuthorized(
        f"{caller.principal.name} is not authorized ({ACTION}): {reason.detail}",
        table=table.name,
        rule=decision.reasons[0].rule,
        hint=hint,
    )
