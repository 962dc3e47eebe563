"""What counts or lists the files of a table is refused to users who do not see its rows or partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform

from catalog.authorization.authorizer import Caller
from catalog.base.identifiers import TableName
from catalog.maintenance.expiry import ExpiryRequest
from catalog.service.services import Services
from policy.errors import NotAuthorized
from tests.support.lake import CAROL, Lake, policy, standard_policies
from tests.support.table_keys import load
from tests.support.tables import append_files, make, name_of

COUNTING: dict[str, Callable[[Services, Caller, TableName], Any]] = {
    "epochs": lambda services, caller, name: services.old_epochs.report(caller, name),
    "forbid-old-epochs": lambda services, caller, name: services.old_epochs.forbid(caller, name),
    "garbage": lambda services, caller, name: services.garbage.collect(caller, name),
    "dangling deletes": lambda services, caller, name: services.manifests.remove_dangling(caller, name),
    "manifests": lambda services, caller, name: services.manifests.rewrite(caller, name),
    "snapshots": lambda services, caller, name: services.expiry.expire(
        caller, name, ExpiryRequest(retain_last=1, older_than_ms=2**62)
    ),
}


def test_a_user_under_a_row_filter_gets_no_counts(lake: Lake, request: pytest.FixtureRequest) -> None:
    request.addfinalizer(lambda: lake.set_policies(standard_policies()))
    table = make(lake)
    for _ in range(2):
        append_files(lake, name_of(table))
    resources = {"database": ["db"], "table": ["*"]}
    item = {"users": [CAROL], "accesses": [{"type": "select"}], "rowFilterInfo": {"filterExpr": "id = 1"}}
    rights = policy("writes", resources, {CAROL: ["update", "alter", "drop"]})
    rows = policy("rows", resources, {}, policyType=2, rowFilterPolicyItems=[item])
    lake.set_policies([*standard_policies(), rights, rows])
    before = load(lake, name_of(table)).metadata_location
    for what, call in COUNTING.items():
        with pytest.raises(NotAuthorized) as refusal:
            call(lake.services, lake.caller(CAROL, "spark"), name_of(table))
        assert refusal.value.rule == "row-filter", what
    assert load(lake, name_of(table)).metadata_location == before
    lake.set_policies([*standard_policies(), rights])
    for what, call in COUNTING.items():
        if what != "forbid-old-epochs":
            assert call(lake.services, lake.caller(CAROL, "spark"), name_of(table)) is not None, what


def test_paths_are_listed_for_users_who_see_the_columns_of_partitions(
    lake: Lake, request: pytest.FixtureRequest
) -> None:
    """Standard clients make directories of partition values."""
    request.addfinalizer(lambda: lake.set_policies(standard_policies()))
    spec = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"))
    resources = {"database": ["db"], "table": ["*"]}
    rights = policy("writes", resources, {CAROL: ["update", "alter", "drop"]})
    column, item = resources | {"column": ["id"]}, {"users": [CAROL], "accesses": [{"type": "select"}]}
    fixed = item | {"dataMaskInfo": {"dataMaskType": "mask-to-fixed-value"}}
    mask = policy("hides", column, {}, policyType=1, dataMaskPolicyItems=[fixed])
    denial = policy("hides", column, {}, denyPolicyItems=[item])
    collect, caller = COUNTING["garbage"], lake.caller(CAROL, "spark")
    partitioned, plain = (name_of(make(lake, **how)) for how in ({"partition_spec": spec}, {}))
    for hiding, rule in ((mask, "mask"), (denial, "policy-deny")):
        lake.set_policies([*standard_policies(), rights, hiding])
        with pytest.raises(NotAuthorized) as refusal:
            collect(lake.services, caller, partitioned)
        assert refusal.value.rule == rule
        assert collect(lake.services, caller, plain) is not None
    lake.set_policies([*standard_policies(), rights])
    assert collect(lake.services, caller, partitioned) is not None
