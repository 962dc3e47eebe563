"""Commits of delete files by the catalog's own commits, whatever the files hold.

What engines cannot commit yet is put together here: equality deletes, and deletes of whatever partition. The
files are encrypted as the table's data files are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pyiceberg.manifest import DataFile, DataFileContent
from pyiceberg.table.snapshots import Operation

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.commits.snapshot_producer import SnapshotProducer
from catalog.service.services import Services
from catalog.snapshot_checks.inspection import Origin
from catalog.state.open_writes import publishing
from catalog.writes.data_files import data_file_of
from catalog.writes.new_files import NewFile
from catalog.writes.sessions import WriteSession
from catalog.writes.transport import rewrapper_of

#: Where pyiceberg's record of a file has these.
_CONTENT, _EQUALITY_IDS = 0, 14
POSITIONS: Final = DataFileContent.POSITION_DELETES
EQUALITY: Final = DataFileContent.EQUALITY_DELETES


class DeleteCommit:
    """A commit of delete files, in one snapshot.

    Args:
        services: of the catalog.
        caller: who deletes.
        session: the write whose files they are.
    """

    def __init__(self, services: Services, caller: Caller, session: WriteSession) -> None:
        self._services = services
        self._caller = caller
        self._session = session
        self._files: list[DataFile] = []

    @property
    def _name(self) -> TableName:
        return self._session.table.record.name

    def add(self, file: NewFile, content: DataFileContent, equality_ids: Sequence[int] = ()) -> None:
        """Add a file.

        Args:
            file: the file, as data; position deletes that say which files they are for as what they are.
            content: what it is.
            equality_ids: the columns that an equality delete compares.
        """
        keyring = self._services.writes._context.keyring
        table = self._session.table
        made = data_file_of(table, file, self._session.prefix, rewrapper_of(keyring, table, self._row))
        made._data[_CONTENT] = content
        made._data[_EQUALITY_IDS] = list(equality_ids) or None
        self._files.append(made)

    def commit(self) -> None:
        """Commit the files that were added."""
        context = self._services.writes._context
        table = context.loader.load_sealed(self._name)
        producer = SnapshotProducer(context, table, "main", table.metadata.current_snapshot())
        made = producer.make(Operation.DELETE, self._files, {})
        with publishing(self._row.id, made.snapshot.snapshot_id):
            self._services.writes._tables._committer.commit(
                self._caller,
                self._name,
                made.requirements,
                made.updates,
                origin=Origin.WRITE,
                written=made.written,
                under=table.governed.version,
            )

    @property
    def _row(self) -> Any:
        return self._services.writes._find(self._caller, self._session.id)
