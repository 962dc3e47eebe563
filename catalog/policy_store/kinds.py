"""The kinds of policy documents and their size, which the command line names without a database."""

from enum import StrEnum
from typing import Final

#: The maximum size of a document, in bytes.
MAX_STORED_SIZE: Final = 16 * 1024 * 1024


class Kind(StrEnum):
    """What a document holds: in Ranger's JSON policies and roles, attributes of users, or tags of resources;
    or rules for encryption.
    """

    RANGER = "ranger"
    USERS = "users"
    ENCRYPTION = "encryption"
    TAGS = "tags"


#: The kinds of documents that decide together; in a file, they are told apart by their form.
OF_POLICIES: Final = (Kind.RANGER, Kind.USERS, Kind.TAGS)
