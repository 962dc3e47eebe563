"""The kinds of policy documents, apart from the database: the command line names them without it."""

from enum import StrEnum


class Kind(StrEnum):
    """What a document holds: policies and roles in Ranger's JSON, or rules for encryption."""

    RANGER = "ranger"
    ENCRYPTION = "encryption"
