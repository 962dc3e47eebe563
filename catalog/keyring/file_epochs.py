"""Checks files against the encryption epochs of their table, equal ones together.

A new file is judged by the epoch in force, a planned one by that of its sequence number
(`policy.encryption.epochs`).
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from catalog.envelope.key_metadata_columns import Form, read_forms, stated
from catalog.state.table_state import Governed, TableRecord
from policy.decision import Decision
from policy.encryption.epochs import FOREIGN_PEK, check_new_file, check_sealed_file
from policy.errors import DecryptionRefused, EncryptionPolicyViolation, LakewardenError


@dataclass(frozen=True, slots=True)
class CheckedFiles:
    """The files of one scan, each checked against the epoch of its sequence number.

    Attributes:
        paths: where they are.
        forms: those that are encrypted, by form; the others are in plaintext.
    """

    paths: pa.ChunkedArray
    forms: tuple[Form, ...]


def check_new(table: TableRecord, governed: Governed, added: pa.Table) -> None:
    """Check files that a commit adds against the epoch in force.

    Args:
        table: the table.
        governed: what governs it.
        added: `content`, `file_path` and `key_metadata` of the files.

    Raises:
        EncryptionPolicyViolation: a file does not fit the epoch.
        DecryptionRefused: key metadata is malformed, or under a key that the epoch does not name.
    """
    for rows, keys, deletes in stated(added, _forms(table, added)):
        decision = check_new_file(governed.epochs, keys, deletes=deletes)
        if not decision.allowed:
            hint = "Write encrypted tables with the Spark plugin or the Python client."
            raise _unfit(decision, table, added, int(rows[0]), hint)


def check_planned(table: TableRecord, governed: Governed, planned: pa.Table) -> CheckedFiles:
    """Return the files of one scan with all of their keys, each checked against the epoch of its sequence
    number.

    Args:
        table: the table.
        governed: what governs it.
        planned: `content`, `file_path`, `key_metadata` and `file_sequence_number` of the files.

    Raises:
        EncryptionPolicyViolation: a file does not fit the epoch of its sequence number.
        DecryptionRefused: key metadata is malformed, or under a key that the epoch does not name.
    """
    paths, key_metadata = planned["file_path"], planned["key_metadata"]
    if not governed.ever_encrypted and key_metadata.null_count == planned.num_rows:
        # Every epoch is plaintext, and so is every file: no file needs a separate check.
        return CheckedFiles(paths, ())
    forms = _forms(table, planned)
    for rows, keys, deletes in stated(planned, forms):
        numbers = planned["file_sequence_number"].take(pa.array(rows))
        for number in numbers.unique().to_pylist():
            decision = check_sealed_file(governed.epochs, number, keys, deletes=deletes)
            if not decision.allowed:
                row = int(rows[numbers.index(number).as_py()])
                raise _unfit(decision, table, planned, row, "Have an administrator examine it.")
    return CheckedFiles(paths, tuple(forms))


def _forms(table: TableRecord, files: pa.Table) -> list[Form]:
    """Group the encrypted files by form."""
    try:
        return read_forms(files["key_metadata"], files["file_path"])
    except DecryptionRefused as refusal:
        refusal.table = str(table.name)
        raise


def _unfit(decision: Decision, table: TableRecord, files: pa.Table, row: int, hint: str) -> LakewardenError:
    """Return a file that does not match its epoch: wrong key or wrong form."""
    rule = decision.reasons[0].rule
    error = DecryptionRefused if rule == FOREIGN_PEK else EncryptionPolicyViolation
    path = files["file_path"][row].as_py()
    return error(decision.explanation, table=str(table.name), path=path, rule=rule, hint=hint)
