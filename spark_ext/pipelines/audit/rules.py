"""What an audit looks for."""

from __future__ import annotations

from typing import Final

from spark_ext.pipelines.items import Rule, Severity

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_BACKUP: Final = "Restore the file from a backup."
_EXAMINE: Final = "Find out who writes to the table's storage, and restore the file from a backup."

# The table, its pointer and its metadata.
UNGOVERNED: Final = Rule(
    "ungoverned",
    _W,
    "The pointer store names a table that the catalog does not govern.",
    "Adopt it with `lakewarden table adopt`, or remove it from the pointer store.",
)
POINTER_MISSING: Final = Rule(
    "pointer-missing",
    _E,
    "The table is governed, but the pointer store has no pointer for it.",
    "Put the pointer back with `lakewarden table restore`.",
)
METADATA_MISSING: Final = Rule("metadata-missing", _E, "A metadata file does not exist.", _BACKUP)
UNSEALED: Final = Rule(
    "unsealed-metadata",
    _E,
    "The pointer names metadata that was not committed through the catalog, or was rolled back.",
    "Examine it and run `lakewarden table reseal`, or go back with `lakewarden table restore`.",
)
SEAL_BROKEN: Final = Rule(
    "seal-broken", _E, "The bytes of a metadata file are not those that were sealed.", _EXAMINE
)
SEAL_MISSING: Final = Rule(
    "seal-missing",
    _E,
    "A manifest list or manifest of a sealed table has no seal.",
    "Go back with `lakewarden table restore`.",
)
WRONG_UUID: Final = Rule(
    "wrong-uuid",
    _E,
    "The metadata has the UUID of another table.",
    "Put the pointer back with `lakewarden table restore`.",
)
INVALID_METADATA: Final = Rule("invalid-metadata", _E, "A metadata file cannot be read safely.", _BACKUP)
FORMAT_VERSION: Final = Rule(
    "format-version",
    _W,
    "The table has a format version that cannot be committed to.",
    "Upgrade or rewrite the table to format version 2.",
)
MANIFEST_RECORD: Final = Rule(
    "manifest-record",
    _E,
    "A manifest list describes a manifest differently than it is.",
    "Write both again with `rewrite_manifests`.",
)
LISTED_TWICE: Final = Rule(
    "listed-twice",
    _E,
    "A snapshot lists a file or manifest twice, so that its rows are read twice.",
    "Go back with `lakewarden table restore`, or remove the file from the table and add it once.",
)
BROKEN_REF: Final = Rule(
    "broken-ref",
    _E,
    "A branch or tag names a snapshot that the table does not retain.",
    "Drop the branch or tag, or restore the metadata.",
)
# Paths.
FOREIGN_PATH: Final = Rule(
    "foreign-path",
    _E,
    "A path is outside of the table's allowed locations.",
    "Remove the file from the table, or add its location to read.allowed.data.paths.",
)
INVALID_PATH: Final = Rule(
    "invalid-path",
    _E,
    "A path is malformed, relative or ambiguous.",
    "Write the file again under a full path.",
)
IN_OTHER_TABLE: Final = Rule(
    "path-in-other-table",
    _E,
    "A file lies in the location of another table.",
    "Copy the rows into the table, and remove the file from it.",
)
OVERLAP: Final = Rule(
    "overlap",
    _W,
    "The table's location overlaps the location of another table.",
    "Move one of the tables to a location of its own.",
)
# Files.
FILE_MISSING: Final = Rule("file-missing", _E, "A file of the table does not exist.", _BACKUP)
FILE_SIZE: Final = Rule(
    "file-size", _E, "A file has another size than the table's metadata states.", _EXAMINE
)
FILE_LINK: Final = Rule(
    "file-link", _E, "A file is a link, is behind a link, or is no regular file.", _EXAMINE
)
ORPHANS: Final = Rule(
    "orphan-files",
    _N,
    "Nothing references files in the table's location.",
    "Remove them with `remove_orphan_files`, after looking at them.",
)
UNSUPPORTED_FILE: Final = Rule(
    "unsupported-file",
    _E,
    "A file has a format that cannot be read here.",
    "Rewrite the file as Parquet, and deletion vectors as position delete files.",
)
DELETE_FILE: Final = Rule(
    "delete-file",
    _E,
    "A delete file names columns or files that it cannot delete from.",
    "Rewrite the table's delete files.",
)
WRONG_STATISTICS: Final = Rule(
    "wrong-statistics",
    _E,
    "Statistics in a manifest contradict the file, so that readers can miss rows.",
    "Rewrite the file.",
)
DAMAGED_FILE: Final = Rule(
    "damaged-file", _E, "A file is damaged, or not in the format that its entry states.", _EXAMINE
)
WRONG_COLUMNS: Final = Rule(
    "wrong-columns",
    _E,
    "The columns of a file are not those of the table.",
    "Find out which program wrote the file, and rewrite it.",
)
UNKNOWN_COLUMNS: Final = Rule(
    "unknown-columns",
    _W,
    "A file describes a column in a way that Iceberg's writers do not.",
    "Rewrite the file. Readers refuse a file whose columns cannot be told apart.",
)
UNOPENED_FILE: Final = Rule(
    "unopened-file",
    _W,
    "A file cannot be opened, so that it was not checked.",
    "Let the executors read the table's storage, and run the audit again.",
)
UNCHECKED_FOOTER: Final = Rule(
    "unchecked-footer",
    _N,
    "A footer was not checked, since it is too long or of another kind.",
    "Read the file with verify=1.",
)
# Encryption.
PLAINTEXT_FILE: Final = Rule(
    "plaintext-file",
    _E,
    "A file is in plaintext, but has key metadata.",
    _EXAMINE,
)
WRONG_ENCRYPTION: Final = Rule(
    "wrong-encryption",
    _E,
    "The encryption of a file is not that of its epoch.",
    "Have an administrator examine the file, and rewrite it with `rewrite_data_files`.",
)
PLAINTEXT_STATISTICS: Final = Rule(
    "plaintext-statistics",
    _E,
    "Plaintext statistics tell of encrypted columns.",
    "Rewrite the files, or remove the statistics file.",
)
WRONG_FOOTER: Final = Rule(
    "wrong-footer", _E, "The footer of a file is not as its key metadata says.", _EXAMINE
)
WRONG_DIGEST: Final = Rule(
    "wrong-digest", _E, "The digest of a file or its footer differs from its key metadata.", _EXAMINE
)
UNREADABLE: Final = Rule("unreadable", _E, "The guarded reader refuses files of the table.", _EXAMINE)
ENCRYPTION_POLICY: Final = Rule(
    "encryption-policy",
    _E,
    "The table breaks an encryption rule in force.",
    "Set the table's encryption as the rule says, and rewrite earlier files.",
)
KEY_LOST: Final = Rule(
    "key-unusable",
    _E,
    "Files are under a key that is disabled or destroyed.",
    "Enable the key. If it is destroyed, its files are lost: remove them.",
)
KEY_ENDING: Final = Rule(
    "key-near-destruction",
    _E,
    "A key that files are under is going to be destroyed.",
    "Enable the key, or rewrap or rewrite the files first.",
)
KEY_UNUSED: Final = Rule(
    "key-unused",
    _N,
    "No retained file is under a key version that is not in force.",
    "Disable the version, and destroy it later.",
)

RULES: Final = (
    UNGOVERNED,
    POINTER_MISSING,
    METADATA_MISSING,
    UNSEALED,
    SEAL_BROKEN,
    SEAL_MISSING,
    WRONG_UUID,
    INVALID_METADATA,
    FORMAT_VERSION,
    MANIFEST_RECORD,
    LISTED_TWICE,
    BROKEN_REF,
    FOREIGN_PATH,
    INVALID_PATH,
    IN_OTHER_TABLE,
    OVERLAP,
    FILE_MISSING,
    FILE_SIZE,
    FILE_LINK,
    ORPHANS,
    UNSUPPORTED_FILE,
    DELETE_FILE,
    WRONG_STATISTICS,
    DAMAGED_FILE,
    WRONG_COLUMNS,
    UNKNOWN_COLUMNS,
    UNOPENED_FILE,
    UNCHECKED_FOOTER,
    PLAINTEXT_FILE,
    WRONG_ENCRYPTION,
    PLAINTEXT_STATISTICS,
    WRONG_FOOTER,
    WRONG_DIGEST,
    UNREADABLE,
    ENCRYPTION_POLICY,
    KEY_LOST,
    KEY_ENDING,
    KEY_UNUSED,
)
