"""Meanings of rules whose messages are made at run time, and advice by class of error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

#: Rules whose messages are known at run time alone. A test refuses entries that are missing or not needed.
MEANINGS: Final[Mapping[str, str]] = {
    "added-file-origin": "A client added files to an encrypted table whose origin the catalog cannot verify.",
    "credential-read": "A location that an issued storage credential can read.",
    "credential-write": "A location that an issued storage credential can write.",
    "delete-file": "A position delete file does not have the form that readers need.",
    "delete-reference": "A position delete file refers to a data file that its branch does not have.",
    "engine-signature": "The signature of an engine's request is missing, malformed or wrong.",
    "engine-signature-stale": (
        "The signature of an engine's request was made too long ago, or by a clock that is wrong."
    ),
    "erased-columns": "An erasure does not say which columns identify the people.",
    "erased-rows": "How many rows a certificate of erasure covers.",
    "internal-error": (
        "An error that Lakewarden did not expect. An answer has the id of the request and no detail."
    ),
    "java": "No Java runtime was found, or the one that was found does not run.",
    "key-group-split": "Tables of one key group were given different keys.",
    "kms-configuration": "The settings of the KMS cannot be used.",
    "launch-configuration": "The settings that Spark was launched with do not permit to trust the catalog.",
    "metadata-column": "A metadata column cannot be used in this statement.",
    "must-encrypt": "An encryption rule requires that the table or column is encrypted.",
    "not-erased": "Why a certificate of erasure does not cover a table.",
    "not-in-effect": "A property would have no effect in this release.",
    "old-epochs-forbidden": "Files of earlier encryption epochs are refused from now on.",
    "plaintext-footer": "An encryption rule forbids that footers of Parquet files are in plaintext.",
    "policy": "A policy cannot be applied to the table.",
    "rekey": "A table cannot be moved to another key.",
    "resource-name": "The name of a resource is malformed.",
    "stream-start": "A stream starts at a snapshot or time that the table does not have.",
}

#: What to do, by class of error, where the code that raises the error gives no advice. A class inherits it.
ADVICE: Final[Mapping[str, str]] = {
    "LakewardenError": "Read the message. It names the values involved.",
    "InvalidInput": "Correct what the message names, and try again.",
    "NotSupportedYet": "Leave out what the message names, or use the alternative that it names.",
    "PolicyInvalid": "Correct the policy document. The message names the policy and the field.",
    "MetadataInvalid": (
        "Restore the file from a backup, or write the metadata again with the tool that made it."
    ),
    "Refused": "Ask the owner of the table, or an administrator of the catalog.",
    "NotAuthorized": (
        "Ask an administrator for a policy that grants the privilege. "
        "`lakewarden policy check` shows which policy decides, and why."
    ),
    "LocationNotAllowed": (
        "Use a location below the allowed ones, or ask for `read.allowed.data.paths` to be extended."
    ),
    "MetadataTampered": (
        "Find out who wrote the file. `lakewarden table restore` restores the last sealed metadata."
    ),
    "NotAuthenticated": "Use a token that is valid. Create one with `lakewarden token issue`.",
    "Unavailable": "Try again. If it fails again, look at `/readyz` and the log of the service.",
    "CommitStateUnknown": (
        "Load the table, and look whether the commit is in its history, before you repeat it."
    ),
    "CommitConflict": "Load the table again, and repeat the change on its new state.",
}

#: For decisions that no error class carries.
DECISION_ADVICE: Final = (
    "Part of a decision: it is in audit records, and in the answers of `lakewarden policy check`."
)
