"""A catalog for PyIceberg whose tables are read and appended to by the Lakewarden client.

    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("lake", **{"py-catalog-impl": "lakewarden.PyIcebergCatalog"}, uri=uri, token=token)

- Namespaces, lists, renames, drops, and commits without data files go to `/v1`, as with PyIceberg's class.
- Loads and creations go to `/engine/v1`, so that encrypted tables are loaded, too. Scans and appends are
  those of `catalog.client`: the catalog plans, and this client checks and decrypts each file.
- What PyIceberg would read or write by itself is refused (`GuardedIO`): a scan past the client would see
  neither keys nor row filters, and would check no path.
- PyIceberg's own requests carry the token too. So they go where those of the client go, and nowhere else: the
  address is checked first, no redirect is followed, and no proxy of the environment is taken.

Source: PyIceberg 0.12, `py-catalog-impl`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, NoReturn

import pyarrow as pa
from pyiceberg.catalog.rest import CreateTableRequest, RestCatalog, TableResponse
from pyiceberg.expressions import AlwaysTrue, BooleanExpression
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.partitioning import (
    UNPARTITIONED_PARTITION_SPEC,
    PartitionSpec,
    assign_fresh_partition_spec_ids,
)
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import DataScan, FileScanTask, Table, TableProperties
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder, assign_fresh_sort_order_ids
from pyiceberg.typedef import EMPTY_DICT, Identifier, Properties
from pyiceberg.utils.properties import property_as_bool
from requests import Session

from catalog.base.identifiers import table_name
from catalog.client import connection as client
from catalog.client import frames, listing
from catalog.client.http import authorities
from catalog.client.scan import Scan
from policy.errors import NotSupportedYet, PropertyInvalid

#: Properties of PyIceberg that its own requests would heed, and those of the client not.
_FOR_REQUESTS: Final = ("auth", "credential", "rest.sigv4-enabled", "ssl")


class PyIcebergCatalog(RestCatalog):
    """A Lakewarden catalog for PyIceberg.

    Args:
        name: the name that PyIceberg knows it by.
        properties: `uri` and `token`; `engine-token`, `progress` and `s3.…` as for `lakewarden.connect`, and
            those of PyIceberg's `RestCatalog`.

    Raises:
        PropertyInvalid: `uri` or `token` is missing, or a property of PyIceberg that has no effect here.
        LakewardenError: as `lakewarden.connect`.
    """

    def __init__(self, name: str, **properties: str) -> None:
        # PyIceberg hands its properties to everything that it makes.
        engine_token = properties.pop("engine-token", None)
        _require_known(name, properties)
        s3 = {each.removeprefix("s3."): value for each, value in properties.items() if each.startswith("s3.")}
        self.lake = client.connect(
            properties["uri"],
            properties["token"],
            engine_token=engine_token,
            s3={each.replace("-", "_"): value for each, value in s3.items()},
            progress=property_as_bool(properties, "progress", True),
        )
        # It asks for the configuration, with the token: the client has checked the address before.
        super().__init__(name, **properties)

    def _create_session(self) -> Session:
        session = super()._create_session()
        session.trust_env = False
        session.max_redirects = 0
        session.verify = authorities(None) or True
        return session

    def load_table(self, identifier: str | Identifier) -> Table:
        """Load a table, encrypted or not.

        Raises:
            NoSuchTable: it does not exist; a `NoSuchTableError` of PyIceberg.
            NotAuthorized: no SELECT, UPDATE or ALTER on it, and no SELECT on a column.
        """
        name = self.identifier_to_tuple(identifier)
        _, answer = listing.loaded(self.lake._client, self._table(name).name)
        return self._response_to_table(name, TableResponse.model_validate(answer))

    def _table(self, identifier: str | Identifier) -> client.Table:
        """A table of the client."""
        *namespace, name = self.identifier_to_tuple(identifier)
        return self.lake._named(table_name(namespace, name))

    def _response_to_table(self, identifier_tuple: tuple[str, ...], table_response: TableResponse) -> Table:
        return GuardedTable(
            identifier=identifier_tuple,
            metadata=table_response.metadata,
            metadata_location=table_response.metadata_location or "",
            io=GuardedIO(".".join(identifier_tuple)),
            catalog=self,
            config=table_response.config,
        )

    def _create_table(
        self,
        identifier: str | Identifier,
        schema: Schema | pa.Schema,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
        stage_create: bool = False,
    ) -> TableResponse:
        """Create a table by the engine interface, which creates encrypted tables, too."""
        *namespace, name = self._identifier_to_validated_tuple(identifier)
        if stage_create:
            _refuse("create a table in a transaction", ".".join([*namespace, name]))
        version = int(properties.get(TableProperties.FORMAT_VERSION, TableProperties.DEFAULT_FORMAT_VERSION))
        given = self._convert_schema_if_needed(schema, version)  # type: ignore[arg-type]
        fresh = assign_fresh_schema_ids(given)
        request = CreateTableRequest(
            name=name,
            location=location.rstrip("/") if location else None,
            table_schema=fresh,
            partition_spec=assign_fresh_partition_spec_ids(partition_spec, given, fresh),
            write_order=assign_fresh_sort_order_ids(sort_order, given, fresh),
            properties=properties,
        )
        body = request.model_dump(mode="json", by_alias=True, exclude={"stage_create"}, exclude_none=True)
        answer = self.lake._client.post(
            ("engine", "v1", "namespaces", "\x1f".join(namespace), "tables"), body
        )
        return TableResponse.model_validate(answer)


class GuardedTable(Table):
    """A table of PyIceberg that is read and appended to by the Lakewarden client."""

    catalog: PyIcebergCatalog

    def scan(
        self,
        row_filter: str | BooleanExpression = AlwaysTrue(),  # noqa: B008
        selected_fields: tuple[str, ...] = ("*",),
        case_sensitive: bool = True,
        snapshot_id: int | None = None,
        options: Properties = EMPTY_DICT,
        limit: int | None = None,
    ) -> GuardedScan:
        """A scan of the table as it was loaded; see `pyiceberg.table.Table.scan`."""
        return GuardedScan(
            table_metadata=self.metadata,
            io=self.io,
            row_filter=row_filter,
            selected_fields=selected_fields,
            case_sensitive=case_sensitive,
            snapshot_id=snapshot_id,
            options=options,
            limit=limit,
            catalog=self.catalog,
            table_identifier=self._identifier,
        )

    def append(
        self,
        df: Any,
        snapshot_properties: Mapping[str, str] = EMPTY_DICT,
        branch: str | None = MAIN_BRANCH,
    ) -> None:
        """Append rows, encrypted as the table says, and load the table again.

        Args:
            df: what `lakewarden.Table.append` takes.
            snapshot_properties: entries for the snapshot's summary.
            branch: the branch to append to.

        Raises:
            LakewardenError: as `lakewarden.Table.append`.
        """
        self.catalog._table(self._identifier).append(df, branch=branch, summary=snapshot_properties)
        self.refresh()

    def to_polars(self) -> Any:
        """A LazyFrame of the table as it was loaded; see `lakewarden.Scan.to_polars`."""
        return self.scan().client_scan().to_polars(lazy=True)

    def to_bodo(self) -> Any:
        """Not supported: Bodo reads the files by itself."""
        _refuse("pass its files to Bodo", ".".join(self._identifier))

    def __datafusion_table_provider__(self, session: Any = None) -> Any:
        """Not supported: DataFusion reads the files by itself."""
        _refuse("pass its files to DataFusion", ".".join(self._identifier))


class GuardedScan(DataScan):
    """A scan of PyIceberg that is read by the client. `options` are refused: none has an effect."""

    def client_scan(self) -> Scan:
        """The scan as the client runs it."""
        assert isinstance(self.catalog, PyIcebergCatalog) and self.table_identifier is not None
        if self.options:
            _refuse(f"scan with the options {', '.join(sorted(self.options))}", self._name)
        columns = None if "*" in self.selected_fields else self._in_order()
        scan = self.catalog._table(self.table_identifier).scan(
            self.row_filter,
            columns,
            case_sensitive=self.case_sensitive,
            limit=self.limit,
            snapshot_id=self.snapshot_id,
        )
        if self.snapshot_id is not None:
            return scan
        # A table of PyIceberg is what it was when it was loaded, whatever was committed since.
        loaded = self.table_metadata.current_snapshot_id
        return scan.limited(0) if loaded is None else replace(scan, snapshot_id=loaded, own_schema=False)

    def _in_order(self) -> list[str]:
        """The selected columns, in the order of the schema, as PyIceberg returns them."""
        order = [name if self.case_sensitive else name.lower() for name in self._schema().column_names]
        known = {name: place for place, name in enumerate(order)}
        # An unknown name is the catalog's to refuse.
        return sorted(
            self.selected_fields,
            key=lambda name: known.get(name if self.case_sensitive else name.lower(), len(known)),
        )

    def _schema(self) -> Schema:
        return self.update(selected_fields=("*",)).projection()

    @property
    def _name(self) -> str:
        return ".".join(self.table_identifier or ())

    def plan_files(self) -> Iterable[FileScanTask]:
        """Not supported: a program that gets files reads them past the client."""
        _refuse("plan files", self._name)

    def to_arrow(self, dictionary_columns: tuple[str, ...] = ()) -> pa.Table:
        """All wanted rows; see `lakewarden.Scan.to_arrow`."""
        return self.to_arrow_batch_reader(dictionary_columns).read_all()

    def to_arrow_batch_reader(self, dictionary_columns: tuple[str, ...] = ()) -> pa.RecordBatchReader:
        """A reader of the wanted rows; see `lakewarden.Scan.to_reader`."""
        if dictionary_columns:
            _refuse("return dictionary-encoded columns", self._name)
        return self.client_scan().to_reader()

    def to_pandas(self, **kwargs: Any) -> Any:
        """All wanted rows as `pyarrow.Table.to_pandas` makes them, with its arguments."""
        return self._valid().to_pandas(**kwargs)

    def to_polars(self) -> Any:
        """All wanted rows as a DataFrame of Polars."""
        return frames.to_polars(self.to_arrow(), self._name)

    def count(self) -> int:
        """The number of the wanted rows; see `lakewarden.Scan.count`."""
        return self.client_scan().count()

    def _valid(self) -> pa.Table:
        rows = self.to_arrow()
        frames.validate(rows, self._name)
        return rows


class GuardedIO(FileIO):
    """Refuses to open files, which the client opens by itself after it has checked them.

    Args:
        table: whose files they are.
    """

    def __init__(self, table: str = "") -> None:
        super().__init__()
        self._table = table

    def new_input(self, location: str) -> InputFile:
        """Refuse to read a file."""
        _refuse("read files by itself", self._table)

    def new_output(self, location: str) -> OutputFile:
        """Refuse to write a file."""
        _refuse("write files by itself", self._table)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """Refuse to delete a file."""
        _refuse("delete files", self._table)


def _require_known(name: str, properties: Mapping[str, Any]) -> None:
    missing = [each for each in ("uri", "token") if not properties.get(each)]
    without_effect = [each for each in _FOR_REQUESTS if each in properties]
    if missing or without_effect:
        wrong = f"lacks {', '.join(missing)}" if missing else f"cannot have {', '.join(without_effect)}"
        raise PropertyInvalid(
            f"The catalog {name!r} {wrong}.",
            rule="catalog-properties",
            hint="Set uri, the address of the service, and token, the user's token.",
        )


def _refuse(what: str, table: str) -> NoReturn:
    raise NotSupportedYet(
        f"PyIceberg cannot {what} through lakewarden.PyIcebergCatalog.",
        table=table or None,
        rule="pyiceberg",
        hint="Use scan() and append(), SQL, or for plaintext tables PyIceberg's own catalog (type: rest).",
    )
