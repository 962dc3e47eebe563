"""What a table is after a statement, from what is known of it before."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Final

from policy.encryption import governed as governed_names
from policy.encryption.downgrade import could_downgrade, downgrades_files, uncovers
from policy.encryption.encrypted_columns import (
    followed,
    require_column_left,
    require_sources,
    resolve_columns,
)
from policy.encryption.file_formats import WRITE_FORMAT, FileFormat, written_format
from policy.encryption.requested import Requested, for_change
from policy.encryption.specification import EncryptionSpec
from policy.location.allow_list import AllowList
from policy.location.location import Location
from policy.sql_lint import protection
from policy.sql_lint.context import TableFacts
from policy.sql_lint.denials import Refusal
from policy.sql_lint.statements import Column, CreateTable

#: An allow-list never goes back to this: see `requested`.
_ANYWHERE: Final = Location.parse("file:///lakewarden/unknown")


def made(
    statement: CreateTable, change: Requested, location: Location | None, owner: str, *, hive: bool
) -> TableFacts:
    """A new table.

    Raises:
        Refusal: its query returns two columns with the same name.
    """
    columns = nested = leaves = None
    if statement.columns is not None:
        columns = tuple(each.name[-1] for each in statement.columns)
        nested = tuple(name for each in statement.columns for name in each.inside)
        leaves = protection.leaves_of(statement.columns)
    elif statement.query is not None and statement.query.outputs is not None:
        columns = _columns_of(statement.query.outputs, hive=hive)
        leaves = protection.leaves_of(Column((each,)) for each in columns)
    return TableFacts(
        owner=owner,
        columns=columns,
        nested=nested,
        leaves=leaves,
        allowed=change.allowed,
        spec=change.spec,
        file_format=written_format(statement.properties) or FileFormat.AVRO,
        location=location,
        default_location=location is None,
        partitions=_dotted(statement.sources),
    )


def like(facts: TableFacts, source: TableFacts) -> TableFacts:
    """A new table with the columns and partitioning of another one."""
    leaves = source.leaves
    if leaves is not None:
        current = [each for each in leaves if each.is_current]
        leaves = protection.leaves_of(Column(tuple(each.name.split("."))) for each in current)
    partitions = tuple(
        each for each in source.partitions if each in (*(source.columns or ()), *(source.nested or ()))
    )
    return replace(facts, columns=source.columns, nested=source.nested, leaves=leaves, partitions=partitions)


def replaced(
    before: TableFacts,
    asked: Requested,
    statement: CreateTable,
    governed: Mapping[str, str],
    location: Location | None,
    table: str,
) -> tuple[Requested, TableFacts]:
    """What governs a table that is replaced, and what is known of it then.

    Columns leave the lists of encrypted, plaintext and masked columns if the new table does not have them.

    Args:
        before: the table.
        asked: what the statement asks for, by the lists in force.
        statement: what the table becomes.
        governed: the governed properties that it sets.
        location: where it puts the table.
        table: dotted name, for errors.

    Raises:
        EncryptionPolicyViolation: no column with a key is left.
        Refusal: the query returns two columns with the same name.
    """
    after = replace(
        made(statement, asked, location, before.owner or "", hive=False),
        owner=before.owner,
        location=location or before.location,
        default_location=before.default_location and location is None,
        file_format=format_said(statement.properties, ()) or before.file_format,
        partitions=tuple(dict.fromkeys((*before.partitions, *_dotted(statement.sources)))),
    )
    after = replace(after, leaves=protection.kept_leaves(before, after))
    if before.spec is None or before.allowed is None:
        return asked, replace(after, allowed=None, spec=None)
    names = {*(after.columns or ()), *(after.nested or ())}
    listed = (before.spec.columns, before.spec.masks, before.spec.plaintext_columns)
    if any(listed) and (after.columns is None or after.nested is None):
        return replace(asked, unprotects=asked.unprotects or bool(governed)), replace(after, spec=None)
    left = followed(before.spec, lambda column: column if column in names else None)
    spec = asked.spec
    if governed_names.MASKS not in governed and spec.masks == before.spec.masks:
        spec = replace(spec, masks=left.masks)
    if governed_names.PLAINTEXT_COLUMNS not in governed and spec.encrypts:
        spec = replace(spec, plaintext_columns=left.plaintext_columns)
    if governed_names.COLUMNS not in governed and spec.columns == before.spec.columns:
        spec = replace(spec, columns=left.columns)
        require_column_left(before.spec, spec, table)
    # Whether a column keeps its type, and so its field id, is not known.
    repeated = bool(spec.plaintext_columns) and governed_names.PLAINTEXT_COLUMNS in governed
    emptied = before.spec.columns and not left.columns and left.plaintext_columns is None
    covers_less = not spec.encrypts if emptied else uncovers(left, spec)
    unprotects = covers_less or downgrades_files(left, spec) or (repeated and left.encrypts)
    return replace(asked, spec=spec, unprotects=unprotects), replace(after, spec=spec)


def partitioned_by(facts: TableFacts, sources: Iterable[tuple[str, ...]]) -> TableFacts:
    """A table that is partitioned by more columns from then on."""
    return replace(facts, partitions=tuple(dict.fromkeys((*facts.partitions, *_dotted(sources)))))


def _dotted(names: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(".".join(each) for each in names)


def _columns_of(outputs: tuple[str, ...], *, hive: bool) -> tuple[str, ...]:
    """The columns of a table that a query makes: Hive's are in lower case."""
    folded = tuple(each.lower() for each in outputs)
    if len(set(folded)) < len(folded):
        raise Refusal("columns", "The query returns two columns with the same name.", "Rename one with AS.")
    return folded if hive else outputs


def requested(
    facts: TableFacts,
    governed: Mapping[str, str],
    removed: frozenset[str],
    master_key_id: str | None,
    table: str,
    said: FileFormat | None,
) -> Requested:
    """What governs an existing table next; where its present state is not known, at its widest.

    Raises:
        Refusal: the allow-list goes back to a location that is not known.
    """
    resets = governed_names.ALLOWED_PATHS in removed
    place = facts.location or (None if resets else _ANYWHERE)
    if facts.allowed is not None and facts.spec is not None and place is not None:
        written = said or facts.file_format
        return for_change(
            facts.allowed, facts.spec, governed, removed, place, master_key_id, table, file_format=written
        )
    if resets:
        raise Refusal(
            "state-unknown",
            "The statement resets the allow-list to the table's location, which is unknown.",
            "Pass --live to look it up, or set read.allowed.data.paths.",
        )
    return _widest(governed, removed, master_key_id, table, said)


def _widest(
    governed: Mapping[str, str],
    removed: frozenset[str],
    key: str | None,
    table: str,
    file_format: FileFormat | None,
) -> Requested:
    """All that a change could bring or take away, whatever governs the table now."""
    nothing = EncryptionSpec.parse({}, catalog_master_key_id=key)
    given = for_change(
        AllowList.of([]), nothing, governed, frozenset(), _ANYWHERE, key, table, file_format=file_format
    )
    keys = set(given.new_keys)
    if removed and key is not None:
        keys.add(key)
    touched = bool(removed or file_format) or given.unprotects or could_downgrade(governed)
    return replace(given, new_keys=tuple(sorted(keys)), unprotects=touched)


def changed(facts: TableFacts, change: Requested, said: FileFormat | None) -> TableFacts:
    """A table after a change of its properties."""
    certain = facts.allowed is not None and facts.spec is not None
    return replace(
        facts,
        allowed=change.allowed if certain else None,
        spec=change.spec if certain else None,
        file_format=said or facts.file_format,
    )


def format_said(ordinary: Mapping[str, str], removals: Collection[str]) -> FileFormat | None:
    """The format that new files get by a change of properties; None if it says nothing of it."""
    if WRITE_FORMAT not in ordinary and WRITE_FORMAT not in removals:
        return None
    return written_format(ordinary) or FileFormat.AVRO


def check_sources(statement: CreateTable, spec: EncryptionSpec, facts: TableFacts, table: str) -> None:
    """Check that encrypted columns exist, and are not partition sources, unless the table shows their values.

    Raises:
        Refusal: a source does not exist.
        PropertyInvalid: an encrypted column does not exist.
        EncryptionPolicyViolation: an encrypted column is a source.
    """
    names = [*(facts.columns or ()), *(facts.nested or ())]
    sources = [".".join(each) for each in statement.sources]
    unknown = [each for each in sources if facts.columns is not None and not _has(each, names)]
    if unknown:
        raise Refusal(
            "partition-spec", f"The table has no column {unknown[0][:80]!a}.", "Correct the column name."
        )
    check_encrypted_sources(statement.sources, spec, facts, table)


def check_encrypted_sources(
    sources: Iterable[tuple[str, ...]], spec: EncryptionSpec, facts: TableFacts, table: str
) -> None:
    """Check that no column that partitions a table is encrypted, unless the table shows their values.

    Raises:
        PropertyInvalid: an encrypted column does not exist.
        EncryptionPolicyViolation: an encrypted column is a source.
    """
    if spec.encrypts:
        names = [*(facts.columns or ()), *(facts.nested or ())]
        ids = {name: number for number, name in enumerate(names, start=1)}
        folded = {name.lower(): number for name, number in ids.items()}
        dotted = [".".join(each) for each in sources]
        numbered = [(each, folded.get(each.lower(), 0)) for each in dotted]
        require_sources(spec, resolve_columns(spec, ids), numbered, table)


def encrypted_sources(sources: Iterable[tuple[str, ...]], spec: EncryptionSpec) -> bool:
    """Whether one of some columns is encrypted, by their names in any letter case."""
    lower = replace(
        spec,
        columns=tuple(replace(each, columns=_lower(each.columns)) for each in spec.columns),
        plaintext_columns=None if spec.plaintext_columns is None else _lower(spec.plaintext_columns),
    )
    return any(lower.key_of(".".join(each).lower()) is not None for each in sources)


def _lower(columns: Iterable[str]) -> tuple[str, ...]:
    return tuple(each.lower() for each in columns)


def _has(column: str, names: Iterable[str]) -> bool:
    return column.lower() in {each.lower() for each in names}
