"""Wildcards and quotes in names and locations are characters like any other.

The tests that are named after CVEs keep out what Apache Polaris had to mend in 1.4.1 (its security advisories
of May 2026): credentials for a staged table's unchecked location (CVE-2026-42809), names with ``*`` that
matched other tables' objects (CVE-2026-42810), names with quotes that broke out of a generated condition
(CVE-2026-42811), and a change of `write.metadata.path` alone, which was not checked (CVE-2026-42812).
Credentials are tested in `test_vended_credentials`; here is everything else that such names reach.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy import func, select

from catalog.base.identifiers import table_name
from catalog.db import schema
from catalog.db.engine import read
from catalog.planning.request import ScanRequest
from policy.errors import NotAuthorized
from policy.location.allow_list import AllowList
from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from tests.support.http_calls import SCHEMA, new_table, refused, tables_of
from tests.support.lake import ALICE, BOB, Lake, policy, standard_policies, tables
from tests.support.service import Service, open_service
from tests.support.tables import append_files
from tests.support.vectors import each_row

NOW = datetime(2030, 1, 1, tzinfo=UTC)
WRITE_PATHS = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)

#: Names that are patterns somewhere: in Ranger, IAM, SQL's LIKE, shells, regular expressions, templates.
WILD = (
    "*",
    "?",
    "%",
    "_",
    "v*",
    "vict?m",
    "vic%",
    "_ictim",
    "[v]ictim",
    "victim|x",
    "{USER}",
    "{v,w}ictim",
    "^v",
)
#: Names that end a text in SQL, JSON, CEL or a template, and go on behind it.
QUOTING = (
    "'",
    '"',
    "`",
    "''",
    "x' OR '1'='1",
    "x') || true || ('",
    "'; DROP TABLE lw_table; --",
    '","location":"file:',
    "${env:HOME}",
    "#{1+1}",
    "{{7*7}}",
    "%(name)s",
    "%s",
    ":name",
    "?1",
    "$1",
)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """Bob has all rights in his own namespaces, whose names begin with `b`, and no others."""
    mine = tables("b*")
    policies = [*standard_policies(), policy("bob-b", mine, {BOB: ["all"]})]
    with open_service(tmp_path_factory.mktemp("wild"), policies=policies) as service:
        alice = service.lake.catalog(ALICE)
        for namespace in ("db", "bobs"):
            alice.create_namespace(namespace)
        alice.create_table("db.victim", _SCHEMA)
        append_files(service.lake, table_name(["db"], "victim"))
        yield service


@pytest.fixture(scope="module")
def bob(served: Service) -> Iterator[httpx.Client]:
    with served.client(BOB) as client:
        yield client


_SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def _path(served: Service, namespace: str, table: str = "") -> str:
    url = f"{served.prefix}/namespaces/{quote(namespace, safe='')}/tables"
    return f"{url}/{quote(table, safe='')}" if table else url


def _snapshot_of(lake: Lake) -> tuple[Any, ...]:
    """What must not change of the victim's table: its state, and its files."""
    loaded = lake.services.loader.load(table_name(["db"], "victim"))
    directory = Path(loaded.record.location.canonical.removeprefix("file://"))
    files = {str(each): each.stat().st_mtime_ns for each in directory.rglob("*") if each.is_file()}
    return loaded.etag, loaded.governed, files


def _begun(lake: Lake) -> int:
    """How many writes were begun and tables staged."""
    with read(lake.services.engine) as connection:
        counts = [
            connection.scalar(select(func.count()).select_from(each))
            for each in (schema.lw_write, schema.lw_staged)
        ]
    return sum(int(count or 0) for count in counts)


# CVE-2026-42809: nothing is given out before a staged table's locations are authorized.


def _staging(served: Service, name: str, value: str) -> tuple[dict[str, Any], str]:
    body: dict[str, Any] = {"name": f"staged{_begun(served.lake)}", "schema": SCHEMA}
    if name == "location":
        return body | {"location": value}, body["name"]
    return body | {"properties": {name: value}}, body["name"]


@pytest.fixture(
    params=["the victim's", "in the victim's", "around the victim's", "anywhere", "granted, over it"]
)
def unauthorized(request: pytest.FixtureRequest, served: Service) -> Iterator[str]:
    """A location that Bob may not name; in the last case he has RWStorage on it, but it overlaps a table."""
    victim = served.lake.catalog(ALICE).load_table("db.victim").location()
    found = {
        "the victim's": victim,
        "in the victim's": f"{victim}/metadata",
        "around the victim's": victim.rpartition("/")[0],
        "anywhere": f"file://{served.lake.root}/anywhere",
        "granted, over it": f"{victim}/data",
    }[request.param]
    more = []
    if request.param == "granted, over it":
        more = [_storage(f"file://{served.lake.warehouse}")]
    with _more_policies(served.lake, *more):
        yield found


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("door", "name"),
    [
        *(("iceberg", name) for name in ("location", *WRITE_PATHS)),
        *((door, name) for door in ("engine", "in process") for name in ("location", "write.metadata.path")),
    ],
)
def test_cve_2026_42809_staged_location_is_authorized_before_anything_is_given_out(
    served: Service, bob: httpx.Client, unauthorized: str, name: str, door: str
) -> None:
    body, table = _staging(served, name, unauthorized)
    before, begun = _snapshot_of(served.lake), _begun(served.lake)
    if door == "in process":
        with pytest.raises(NotAuthorized):
            served.lake.catalog(BOB).create_table_transaction(
                f"bobs.{table}",
                _SCHEMA,
                location=body.get("location"),
                properties=body.get("properties", {}),
            )
    else:
        wanted = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
        url = _path(served, "bobs") if door == "iceberg" else "/engine/v1/namespaces/bobs/staged-writes"
        more = {"stage-create": True} if door == "iceberg" else {}
        refused(bob.post(url, json=body | more, headers=wanted), 403, "NotAuthorized")
    assert (_snapshot_of(served.lake), _begun(served.lake)) == (before, begun)
    assert not (served.lake.root / "anywhere").exists()


def test_no_answer_holds_credentials(served: Service, bob: httpx.Client) -> None:
    """Clients ask for credentials or a signer; the catalog has none to give, for any location."""
    wanted = {"X-Iceberg-Access-Delegation": "vended-credentials,remote-signing"}
    body, table = {"name": "plain", "schema": SCHEMA}, "plain"
    staged = bob.post(_path(served, "bobs"), json=body | {"stage-create": True}, headers=wanted)
    created = bob.post(_path(served, "bobs"), json=body, headers=wanted)
    loaded = bob.get(_path(served, "bobs", table), headers=wanted)
    for answer in (staged, created, loaded):
        assert answer.status_code == 200, answer.text
        assert set(answer.json()) <= {"metadata", "metadata-location", "config"}
        assert all(name.startswith("lakewarden.") for name in answer.json()["config"])


# CVE-2026-42810: wildcards in names and locations match nothing but themselves.


@each_row("name", WILD)
def test_cve_2026_42810_request_is_no_pattern_to_policies(name: str) -> None:
    """Rights on `victim` say nothing of a table, column, key, engine or location that is called `*`."""
    rights = [
        policy("t", {"database": ["db"], "table": ["victim"], "column": ["id"]}, {BOB: ["select"]}),
        policy("k", {"key": ["victim"]}, {BOB: ["use"]}),
        policy("e", {"engine": ["victim"]}, {BOB: ["act"]}),
        _storage("s3://lake/victim"),
    ]
    policies = PolicySet.parse({"p": json.dumps({"policies": rights})})
    asked = [
        (Resource.column("db", "victim", name), "select"),
        (Resource.column("db", name, "id"), "select"),
        (Resource.column(name, "victim", "id"), "select"),
        (Resource.table("db", name), "_any"),
        (Resource.key(name), "use"),
        (Resource.engine(name), "act"),
        (Resource.service(name), "admin"),
    ]
    if "?" not in name:  # a location is refused with one
        asked.append((Resource.storage(f"s3://lake/{name}"), "rwstorage"))
    for resource, access in asked:
        assert not policies.decide(AccessRequest(Principal(BOB), resource, access), NOW).allowed, resource
    there = AccessRequest(Principal(BOB), Resource.column("db", "victim", "id"), "select")
    assert policies.decide(there, NOW).allowed


_ODD = st.text(st.sampled_from("ab*?%_'\"{}[]()|^$+\\.USER"), min_size=1, max_size=8)


@given(_ODD, st.text("ab_", min_size=1, max_size=4))
@example("*", "a")
@example("{USER}", "bob")
@example("a.b", "a_b")
def test_a_name_is_granted_by_itself_alone(name: str, granted: str) -> None:
    """Whatever the request's name holds: a policy on a plain name is about exactly that name."""
    rights = policy("t", {"database": ["db"], "table": [granted], "column": ["*"]}, {BOB: ["select"]})
    policies = PolicySet.parse({"p": json.dumps({"policies": [rights]})})
    request = AccessRequest(Principal(BOB), Resource.table("db", name), "select")
    assert policies.decide(request, NOW).allowed == (name.lower() == granted)


@each_row("user", ["*", "?", "b*", "b?b", "{USER}", "{OWNER}", "{user}", "[b]ob", "%", ".*", "bob|x"])
def test_a_users_own_name_is_no_pattern(user: str) -> None:
    """`{USER}` stands for the name as it is, in names, locations and users of items.

    Names of databases are compared without case, so there it stands for no name that has capitals.
    """
    rights = [
        policy("db", {"database": ["{USER}_db"], "table": ["*"], "column": ["*"]}, {"{USER}": ["select"]}),
        policy("own", {"database": ["shared"], "table": ["*"], "column": ["*"]}, {"{OWNER}": ["select"]}),
        policy("mine", {"database": ["x"], "table": ["*"], "column": ["*"]}, {BOB: ["select"]}),
        _storage("s3://lake/home/{USER}", user="{USER}"),
    ]
    policies = PolicySet.parse({"p": json.dumps({"policies": rights})})

    def may(resource: Resource, access: str = "select", owner: str | None = None) -> bool:
        request = AccessRequest(Principal(user), resource, access, owner=owner)
        return policies.decide(request, NOW).allowed

    assert may(Resource.table(f"{user}_db", "t")) == (user == user.lower())
    assert not may(Resource.table("bob_db", "t"))
    assert not may(Resource.table("bab_db", "t"))
    assert not may(Resource.table("x", "t"))
    assert not may(Resource.table("shared", "t"))
    assert not may(Resource.table("shared", "t"), owner=BOB)
    assert not may(Resource.storage("s3://lake/home/bob"), "rwstorage")
    if "?" not in user:
        assert may(Resource.storage(f"s3://lake/home/{user}/x"), "rwstorage")


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("namespace", "table"),
    [
        ("b*", "*"),
        ("b*", "victim"),
        ("b?bs", "v*"),
        ("bob%", "%"),
        ("b_bs", "_"),
        ("b{USER}", "{USER}"),
        ("b[o]bs", "?"),
    ],
)
def test_cve_2026_42810_names_with_wildcards_reach_no_other_table(
    served: Service, bob: httpx.Client, namespace: str, table: str
) -> None:
    """Such a table is made, read, listed, renamed, purged; nobody else's is seen or touched by it."""
    lake = served.lake
    before, others = _snapshot_of(lake), _names(served)
    bob.post(f"{served.prefix}/namespaces", json={"namespace": [namespace]})
    made = new_table(bob, served.prefix, quote(namespace, safe=""), table)
    assert made.status_code == 200, made.text
    location = made.json()["metadata"]["location"]
    assert location.startswith(f"file://{lake.warehouse}/") and not set(location) & set("*?%{}[]'\"$")
    assert tables_of(bob, served.prefix, quote(namespace, safe="")) == [table]
    name = table_name([namespace], table)
    append_files(lake, name)
    assert lake.services.planner.plan(lake.caller(BOB), name, ScanRequest()).files.num_rows == 1
    for foreign in (_path(served, "d*", table), _path(served, "*", table), _path(served, "db", table)):
        refused(bob.get(foreign), 403, "NotAuthorized")
        refused(bob.delete(f"{foreign}?purgeRequested=true"), 403, "NotAuthorized")
    moved = {"namespace": [namespace], "name": f"{table}*"}
    body = {"source": {"namespace": [namespace], "name": table}, "destination": moved}
    assert bob.post(f"{served.prefix}/tables/rename", json=body).status_code == 204
    assert bob.delete(f"{_path(served, namespace, table + '*')}?purgeRequested=true").status_code == 204
    gone = bob.delete(f"{served.prefix}/namespaces/{quote(namespace, safe='')}")
    assert gone.status_code == 204, gone.text
    assert (_snapshot_of(lake), _names(served)) == (before, others)


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("location", "neighbour"),
    [
        ("t_1", "tx1/x"),
        ("t%", "tab/x"),
        ("t*", "tab/x"),
        ("t[a]b", "tab/x"),
        ("{USER}", "bob/x"),
        ("t'", "t/x"),
        ("a%2A", "a*/x"),
    ],
)
def test_cve_2026_42810_locations_with_wildcards_hold_no_other_directory(
    served: Service, location: str, neighbour: str
) -> None:
    """They overlap nothing but themselves, no list with them covers more, purging them deletes no more."""
    lake, alice, bob = served.lake, served.lake.catalog(ALICE), served.lake.catalog(BOB)
    root = f"file://{lake.root}/odd"
    beside = alice.create_table("db.beside", _SCHEMA, location=f"{root}/{neighbour}").location()
    try:
        with _more_policies(lake, _storage(f"{root}/")):
            # Bob has no right on Alice's table, so an overlap would be refused.
            odd = bob.create_table("bobs.odd", _SCHEMA, location=f"{root}/{location}").location()
        assert not AllowList.of([odd]).decide(f"{beside}/x.parquet").allowed
        with _more_policies(lake, _storage(odd)), pytest.raises(NotAuthorized):
            bob.create_table("bobs.over", _SCHEMA, location=f"{beside}/x")
        append_files(lake, table_name(["bobs"], "odd"))
        files = sorted(Path(lake.root, "odd", neighbour).rglob("*"))
        bob.purge_table("bobs.odd")
        assert sorted(Path(lake.root, "odd", neighbour).rglob("*")) == files and files
        assert alice.load_table("db.beside").location() == beside
    finally:
        alice.purge_table("db.beside")


def test_a_column_called_like_a_wildcard_is_that_column(served: Service) -> None:
    """Select on `id` alone: the column `*` is another one, and is not all of them."""
    columns = pa.schema([(name, pa.int64()) for name in ("id", "ssn", "*", "s?n", "%", "{USER}")])
    served.lake.catalog(ALICE).create_table("db.columns", columns)
    only = policy("id", {"database": ["db"], "table": ["columns"], "column": ["id"]}, {"dan": ["select"]})
    name, planner = table_name(["db"], "columns"), served.lake.services.planner
    with _more_policies(served.lake, only):
        caller = served.lake.caller("dan")
        planner.plan(caller, name, ScanRequest(columns=("id",)))
        for column in ("ssn", "*", "s?n", "%", "{USER}"):
            with pytest.raises(NotAuthorized):
                planner.plan(caller, name, ScanRequest(columns=(column,)))


def test_audit_records_are_found_by_the_whole_name(served: Service) -> None:
    with served.client(ALICE) as alice:
        for table in ("db.*", "db.v%", "db.vict_m", "%", "*"):
            found = alice.get("/admin/v1/audit", params={"table": table, "limit": 1000}).json()["records"]
            assert not [each for each in found if each["resource"] == "db.victim"], table
        for user in ("%", "a*", "al_ce"):
            params: dict[str, str | int] = {"principal": user, "limit": 1000}
            assert alice.get("/admin/v1/audit", params=params).json()["records"] == []


# CVE-2026-42811: quotes end nothing.


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize("text", QUOTING)
def test_cve_2026_42811_names_with_quotes_come_back_as_they_are(
    served: Service, bob: httpx.Client, text: str
) -> None:
    """Through the database, JSON, errors and the audit trail; and nothing else answers to them."""
    namespace, table = f"b{text}", text
    known, lake = _names(served), served.lake
    before = _snapshot_of(lake)
    made = bob.post(
        f"{served.prefix}/namespaces", json={"namespace": [namespace], "properties": {text: text}}
    )
    assert made.status_code == 200, made.text
    assert new_table(bob, served.prefix, quote(namespace, safe=""), table).status_code == 200
    assert tables_of(bob, served.prefix, quote(namespace, safe="")) == [table]
    url = f"{served.prefix}/namespaces/{quote(namespace, safe='')}"
    assert bob.get(url).json()["properties"] == {text: text}
    commit = {"requirements": [], "updates": [{"action": "set-properties", "updates": {text: text}}]}
    assert bob.post(_path(served, namespace, table), json=commit).status_code == 200
    shown = bob.get(_path(served, namespace, table)).json()["metadata"]
    assert shown["properties"][text] == text
    assert not set(shown["location"].removeprefix(f"file://{lake.root}")) & set("'\"`;${}%:?")
    error = refused(bob.get(_path(served, namespace, f"{table}2")), 404, "NoSuchTable")
    assert error["table"] == f"{namespace}.{table}2"
    with served.client(ALICE) as alice:
        params: dict[str, str | int] = {"table": f"{namespace}.{table}", "limit": 1}
        [entry] = alice.get("/admin/v1/audit", params=params).json()["records"]
        assert entry["resource"] == f"{namespace}.{table}"
        assert alice.get("/admin/v1/audit/verify").json()["intact"]
    assert bob.delete(f"{_path(served, namespace, table)}?purgeRequested=true").status_code == 204
    assert bob.delete(url).status_code == 204
    assert (_snapshot_of(lake), _names(served)) == (before, known)


# CVE-2026-42812: a change of where metadata goes is checked, whatever else is changed with it or not.


@pytest.mark.rows_by_day(3)
@pytest.mark.parametrize(
    ("door", "name"),
    [*(("iceberg", name) for name in ("location", *WRITE_PATHS)), ("engine", "write.metadata.path")],
)
def test_cve_2026_42812_changing_nothing_but_a_write_path_is_authorized(
    served: Service, bob: httpx.Client, unauthorized: str, name: str, door: str
) -> None:
    """Refused before a byte is written there; the metadata that is in force stays where it was."""
    table = f"moving{_begun(served.lake)}"
    new_table(bob, served.prefix, "bobs", table)
    before, victim = bob.get(_path(served, "bobs", table)).text, _snapshot_of(served.lake)
    if door == "engine":
        change = {"action": "set-property", "name": name, "value": unauthorized}
        answer = bob.post(f"/engine/v1/tables/bobs/{table}/alter", json={"changes": [change]})
    else:
        setting = {"action": "set-properties", "updates": {name: unauthorized}}
        moving = {"action": "set-location", "location": unauthorized}
        commit = {"requirements": [], "updates": [moving if name == "location" else setting]}
        answer = bob.post(_path(served, "bobs", table), json=commit)
    refused(answer, 403, "NotAuthorized")
    assert bob.get(_path(served, "bobs", table)).text == before
    assert _snapshot_of(served.lake) == victim
    assert not (served.lake.root / "anywhere").exists()
    bob.delete(f"{_path(served, 'bobs', table)}?purgeRequested=true")


def test_metadata_goes_where_it_was_authorized_to(served: Service, bob: httpx.Client) -> None:
    """The same change passes with the right, so that it was the right that stopped it."""
    elsewhere = f"file://{served.lake.root}/authorized"
    new_table(bob, served.prefix, "bobs", "authorized")
    setting = {"action": "set-properties", "updates": {"write.metadata.path": elsewhere}}
    with _more_policies(served.lake, _storage(elsewhere)):
        answer = bob.post(_path(served, "bobs", "authorized"), json={"updates": [setting]})
    assert answer.status_code == 200, answer.text
    assert answer.json()["metadata-location"].startswith(f"{elsewhere}/")


def _names(served: Service) -> dict[str, list[str]]:
    """Every table of every namespace, as Alice sees them."""
    catalog = served.lake.catalog(ALICE)
    return {
        ".".join(namespace): [".".join(each) for each in catalog.list_tables(namespace)]
        for namespace in catalog.list_namespaces()
    }


def _storage(url: str, user: str = BOB) -> dict[str, Any]:
    resources = {"storage-type": ["iceberg"], "storage-url": [url]}
    found = policy(f"storage-{url}", resources, {user: ["rwstorage"]})
    found["resources"]["storage-url"]["isRecursive"] = True
    return found


class _more_policies:
    """Further policies, for as long as the block lasts."""

    def __init__(self, lake: Lake, *more: dict[str, Any]) -> None:
        self._lake, self._more = lake, more
        self._usual = [*standard_policies(), policy("bob-b", tables("b*"), {BOB: ["all"]})]

    def __enter__(self) -> None:
        self._lake.set_policies([*self._usual, *self._more])

    def __exit__(self, *raised: object) -> None:
        self._lake.set_policies(self._usual)
