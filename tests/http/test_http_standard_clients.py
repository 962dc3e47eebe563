"""What a standard client gets under `/v1`: plaintext tables of which its user sees everything."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import ForbiddenError
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.table.metadata import new_table_metadata
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER

from catalog.iceberg.metadata import dump_metadata
from tests.support.http_calls import ENCRYPTED, encrypted_table, new_table, refused, tables_of
from tests.support.lake import policy, standard_policies, tables
from tests.support.service import ENGINE, Service, open_service
from tests.support.tables import SCHEMA

ROWS = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"]})
PROPERTY = "encryption.standard-clients"
#: Each writes `db`, and does not see all of it: for lack of a grant, a denial, a mask, a row filter.
PARTIAL = {
    "granted": "policy-no-match",
    "denied": "policy-deny",
    "masked": "mask",
    "filtered": "row-filter",
    "owns": "policy-no-match",
}


def _column(*columns: str) -> dict[str, Any]:
    return tables("db") | {"column": list(columns)}


def _policies() -> list[dict[str, Any]]:
    # Tables are renamed to `lax`; their restrictions stay on them.
    where = {"database": ["db", "lax"], "table": ["*"]}
    writes = ["update", "alter"]
    shown = [{"type": "select", "isAllowed": True}]
    denied = policy("name is denied", where | {"column": ["name"]}, {})
    denied["denyPolicyItems"] = [{"users": ["denied"], "accesses": shown}]
    mask = {"users": ["masked"], "accesses": shown, "dataMaskInfo": {"dataMaskType": "MASK_HASH"}}
    rows = {"users": ["filtered"], "accesses": shown, "rowFilterInfo": {"filterExpr": "id < 2"}}
    return [
        *standard_policies(),
        policy("whole", tables("db"), {"whole": ["select", *writes]}),
        policy("writes", tables("db"), {"owns": [*writes, "create", "drop"], "granted": writes}),
        policy("id alone", _column("id"), {"granted": ["select"]}),
        policy(
            "the rest", tables("db"), {each: ["select", *writes] for each in ("denied", "masked", "filtered")}
        ),
        denied,
        policy("mask", where | {"column": ["name"]}, {}, policyType=1, dataMaskPolicyItems=[mask])
        | {"policyItems": []},
        policy("rows", where, {}, policyType=2, rowFilterPolicyItems=[rows]) | {"policyItems": []},
    ]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with a namespace `db`, a plaintext table `plain` and an encrypted one `vault` in it."""
    with open_service(tmp_path_factory.mktemp("lake"), policies=_policies()) as running:
        running.lake.catalog().create_namespace("db")
        running.iceberg().create_table("db.plain", ROWS.schema).append(ROWS)
        running.lake.catalog().create_table("db.vault", ROWS.schema, properties=ENCRYPTED)
        yield running


def _table(served: Service, name: str, namespace: str = "db") -> str:
    return f"{served.prefix}/namespaces/{namespace}/tables/{name}"


def _setting(**properties: str) -> dict[str, Any]:
    updates = {name.replace("_", "-"): value for name, value in properties.items()}
    return {"requirements": [], "updates": [{"action": "set-properties", "updates": updates}]}


def test_a_table_goes_to_those_who_see_everything(served: Service) -> None:
    assert served.iceberg("whole").load_table("db.plain").scan().to_arrow().num_rows == 2
    with served.client("whole") as whole:
        assert whole.post(_table(served, "plain"), json=_setting(comment="x")).status_code == 200


@pytest.mark.parametrize(("user", "rule"), PARTIAL.items())
def test_no_answer_of_v1_has_a_table_that_the_user_does_not_see_whole(
    served: Service, user: str, rule: str
) -> None:
    location = served.lake.catalog().load_table("db.plain").metadata_location
    with served.client(user) as client:
        calls = {
            "load": client.get(_table(served, "plain")),
            "commit": client.post(_table(served, "plain"), json=_setting(comment=user)),
        }
        assert client.head(_table(served, "plain")).status_code == 204
    for answer in calls.values():
        error = refused(answer, 403, "NotAuthorized", rule)
        assert "cannot read everything in db.plain" in error["message"]
        assert "Spark plugin" in error["message"] and "Python client" in error["message"]
        assert location not in answer.text and "snapshot" not in answer.text
    assert served.lake.catalog().load_table("db.plain").properties.get("comment") != user


@pytest.mark.parametrize("user", PARTIAL)
def test_who_does_not_see_everything_loads_through_the_engine_interface(served: Service, user: str) -> None:
    """Under `/v1`, an engine gets row filters and masks, and no table of which a column is not granted."""
    with served.client(user, engine=ENGINE) as engine:
        answer = engine.get(_table(served, "plain"))
        assert engine.post("/engine/v1/tables/db/plain/load").status_code == 200
    if PARTIAL[user] in ("mask", "row-filter"):
        assert answer.json()["read-restrictions"]
    else:
        refused(answer, 403, "NotAuthorized", PARTIAL[user])
    with served.client(user) as own:
        assert own.post("/engine/v1/tables/db/plain/load").status_code == 200
        assert own.post("/engine/v1/tables/db/plain/alter", json=ALTER).status_code == 200


ALTER = {"changes": [{"action": "set-property", "name": "note", "value": "x"}]}


def test_a_name_that_a_column_had_counts(served: Service) -> None:
    """Files and old snapshots keep the values under a name that is denied."""
    alices = served.lake.catalog()
    table = alices.create_table("db.renamed", ROWS.schema)
    table.append(ROWS)
    served.lake.set_policies([each for each in _policies() if each["name"] not in ("mask", "name is denied")])
    table.update_schema().rename_column("name", "label").commit()
    served.lake.set_policies(_policies())
    with served.client("denied") as client:
        refused(client.get(_table(served, "renamed")), 403, "NotAuthorized", "policy-deny")


def test_a_dropped_table_comes_back_to_those_alone_who_see_everything(served: Service) -> None:
    alices = served.lake.catalog()
    location = alices.create_table("db.gone", ROWS.schema).metadata_location
    alices.drop_table("db.gone")
    grants = {"owns": ["rwstorage"]}
    everywhere = policy("storage", {"storage-type": ["*"], "storage-url": ["*"]}, grants)
    served.lake.set_policies([*_policies(), everywhere])
    body = {"name": "gone", "metadata-location": location}
    with served.client("owns") as client:
        answer = client.post(f"{served.prefix}/namespaces/db/register", json=body)
    refused(answer, 403, "NotAuthorized", "policy-no-match")
    assert not alices.table_exists("db.gone")


def test_a_table_of_another_catalog_is_registered_by_those_alone_who_see_everything(served: Service) -> None:
    where = served.lake.root / "foreign"
    (where / "metadata").mkdir(parents=True)
    schema, spec, order = SCHEMA, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER
    metadata = new_table_metadata(schema, spec, order, f"file://{where}", {})
    file = where / "metadata" / "00000.metadata.json"
    file.write_bytes(dump_metadata(metadata))
    everywhere = {"storage-type": ["*"], "storage-url": ["*"]}
    served.lake.set_policies([*_policies(), policy("storage", everywhere, {"owns": ["rwstorage"]})])
    body = {"name": "foreign", "metadata-location": f"file://{file}"}
    with served.client("owns") as client:
        answer = client.post(f"{served.prefix}/namespaces/db/register", json=body)
    refused(answer, 403, "NotAuthorized", "policy-no-match")
    assert not served.lake.catalog().table_exists("db.foreign")


def test_a_repeated_request_shows_the_table_to_those_alone_who_still_see_everything(served: Service) -> None:
    headers = {"Idempotency-Key": "01a203fe-6deb-7b5a-86e7-309dc5393d93"}
    url, body = _table(served, "plain"), _setting(again="x")
    served.lake.set_policies(_policies())
    with served.client("whole") as client:
        assert client.post(url, json=body, headers=headers).status_code == 200
        assert client.post(url, json=body, headers=headers).status_code == 200
        denied = policy("no more", _column("name"), {})
        denied["denyPolicyItems"] = [
            {"users": ["whole"], "accesses": [{"type": "select", "isAllowed": True}]}
        ]
        served.lake.set_policies([*_policies(), denied])
        refused(client.post(url, json=body, headers=headers), 403, "NotAuthorized", "policy-deny")
    served.lake.set_policies(_policies())


def test_a_refusal_is_in_the_audit_trail(served: Service) -> None:
    with served.client("masked") as client:
        client.get(_table(served, "plain"))
    with served.client() as alice:
        records = alice.get("/admin/v1/audit").json()["records"]
    mine = [each for each in records if each["principal"] == "masked" and not each["allowed"]]
    assert ("table.load", "db.plain", "mask") in {
        (each["action"], each["resource"], each["reasons"][0]["rule"]) for each in mine
    }


def test_an_encrypted_table_is_not_loaded_without_an_engine(served: Service) -> None:
    location = served.lake.catalog().load_table("db.vault").location()
    with served.client() as alice:
        for answer in (
            alice.get(_table(served, "vault")),
            alice.post(_table(served, "vault"), json=_setting(comment="x")),
        ):
            error = refused(answer, 403, "NotAuthorized", "standard-client")
            for way in ("Spark plugin", "Python client", "docs/stock-readers.md", f"{PROPERTY}=load"):
                assert way in error["message"]
            assert location not in answer.text
    with served.client(engine=ENGINE) as spark:
        assert spark.get(_table(served, "vault")).status_code == 200


@pytest.mark.parametrize("staged", [False, True])
def test_an_encrypted_table_is_not_created_by_a_standard_client(served: Service, staged: bool) -> None:
    more = {"properties": ENCRYPTED, "stage-create": staged}
    with served.client() as alice:
        answer = new_table(alice, served.prefix, "db", "new", **more)
        refused(answer, 403, "NotAuthorized", "standard-client")
        assert str(served.lake.warehouse) not in answer.text
        assert "new" not in tables_of(alice, served.prefix, "db")
    with served.client(engine=ENGINE) as spark:
        assert new_table(spark, served.prefix, "db", f"by-engine-{staged}", **more).status_code == 200


def test_rows_are_not_written_before_a_standard_clients_ctas_is_refused(served: Service) -> None:
    before = _files(served)
    with pytest.raises(ForbiddenError, match="standard-client"):
        served.iceberg().create_table_transaction("db.ctas", ROWS.schema, properties=ENCRYPTED)
    with pytest.raises(ForbiddenError, match="standard-client"):
        served.iceberg().load_table("db.vault").append(ROWS)
    assert _files(served) == before


def _files(served: Service) -> set[str]:
    return {str(each) for each in served.lake.warehouse.rglob("*") if each.is_file()}


def test_a_staged_plaintext_table_is_not_completed_as_an_encrypted_one(served: Service) -> None:
    """The properties of the commit count, not those of the beginning."""
    with (
        pytest.raises(ForbiddenError, match="standard-client"),
        served.iceberg().create_table_transaction("db.turned", ROWS.schema) as transaction,
    ):
        transaction.set_properties(ENCRYPTED)
    assert not served.lake.catalog().table_exists("db.turned")


def test_a_standard_client_does_not_encrypt_a_table_whose_location_it_has(served: Service) -> None:
    with served.client() as alice:
        new_table(alice, served.prefix, "db", "turned-later")
        encrypt = {"requirements": [], "updates": [{"action": "set-properties", "updates": ENCRYPTED}]}
        answer = alice.post(_table(served, "turned-later"), json=encrypt)
        refused(answer, 403, "NotAuthorized", "standard-client")
        assert alice.get(_table(served, "turned-later")).status_code == 200


def test_the_setting_of_a_table_lets_standard_clients_browse_and_alter(served: Service) -> None:
    with served.client() as alice:
        assert encrypted_table(alice, "db", "open", **{PROPERTY: "load"}).status_code == 200
        shown = alice.get(_table(served, "open")).json()["metadata"]["properties"]
        assert shown[PROPERTY] == "load"
        assert alice.post(_table(served, "open"), json=_setting(comment="x")).status_code == 200
        more = {"properties": ENCRYPTED | {PROPERTY: "load"}}
        staged = new_table(alice, served.prefix, "db", "staged", **more, **{"stage-create": True})
        refused(staged, 403, "NotAuthorized", "standard-client")
    with served.client("denied") as denied:
        refused(denied.get(_table(served, "open")), 403, "NotAuthorized", "policy-deny")


def test_a_setting_that_is_changed_begins_no_encryption_epoch(served: Service) -> None:
    catalog = served.lake.catalog()
    table = catalog.create_table("db.epochs", ROWS.schema, properties=ENCRYPTED)
    with table.transaction() as change:
        change.set_properties({PROPERTY: "load"})
    loaded = served.lake.services.loader.load(catalog._name("db.epochs"))
    assert loaded.governed.version == 2 and len(loaded.governed.epochs.entries) == 1
    assert loaded.governed.to_properties()[PROPERTY] == "load"


@pytest.mark.parametrize("where", ["table", "namespace"])
def test_letting_standard_clients_in_takes_unprotect(served: Service, where: str) -> None:
    """Ann can alter the table and the namespace."""
    ann = [*_policies(), policy("ann", {"database": ["*"]}, {"ann": ["alter"]})]
    served.lake.set_policies([*ann, policy("ann-tables", tables("db"), {"ann": ["alter"]})])
    with served.client("ann") as client:
        if where == "namespace":
            url, body = f"{served.prefix}/namespaces/db/properties", {"updates": {PROPERTY: "load"}}
        else:
            url = "/engine/v1/tables/db/vault/alter"
            body = {"changes": [{"action": "set-property", "name": PROPERTY, "value": "load"}]}
        refused(client.post(url, json=body), 403, "NotAuthorized")


@pytest.mark.nightly
def test_namespace_and_catalog_decide_where_the_table_says_nothing(tmp_path_factory: Any) -> None:
    root = tmp_path_factory.mktemp("open")
    with open_service(root, STANDARD_CLIENTS="load") as served, served.client() as alice:
        lake = served.lake.catalog()
        for namespace, properties in {"says": {PROPERTY: "refuse"}, "silent": {}}.items():
            lake.create_namespace(namespace, properties)
            encrypted_table(alice, namespace, "t")
            encrypted_table(alice, namespace, "strict", **{PROPERTY: "refuse"})
            encrypted_table(alice, namespace, "open", **{PROPERTY: "load"})
        got = {
            (namespace, name): alice.get(_table(served, name, namespace)).status_code
            for namespace in ("says", "silent")
            for name in ("t", "strict", "open")
        }
    assert got == {
        ("says", "t"): 403,
        ("says", "strict"): 403,
        ("says", "open"): 200,
        ("silent", "t"): 200,
        ("silent", "strict"): 403,
        ("silent", "open"): 200,
    }


def test_a_namespace_that_lets_standard_clients_in_is_not_a_way_around(served: Service) -> None:
    """Renaming an encrypted table into it needs unprotect on the table."""
    served.lake.catalog().create_namespace("lax", {PROPERTY: "load"})
    served.lake.catalog().create_table("db.moved", ROWS.schema, properties=ENCRYPTED)
    mover = [
        policy("mover", tables("db"), {"mover": ["select", "alter"]}),
        policy("mover-lax", tables("lax"), {"mover": ["create"]}),
    ]
    served.lake.set_policies([*_policies(), *mover])
    source, target = {"namespace": ["db"], "name": "moved"}, {"namespace": ["lax"], "name": "moved"}
    body = {"source": source, "destination": target}
    with served.client("mover") as client:
        refused(client.post(f"{served.prefix}/tables/rename", json=body), 403, "NotAuthorized")
    with served.client() as alice:
        assert alice.post(f"{served.prefix}/tables/rename", json=body).status_code == 204
        assert alice.get(_table(served, "moved", "lax")).status_code == 200
