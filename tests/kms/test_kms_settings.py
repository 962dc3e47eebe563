"""The settings of KMSs beside the main one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from catalog.service.replicas import digests_of
from catalog.settings.catalog import Settings
from policy.errors import RequestInvalid
from tests.support.lake import lake_settings
from tests.support.vectors import each_row

AWS = {"OTHER_KMS__AWS__KIND": "aws", "OTHER_KMS__AWS__OPTIONS__REGION": "eu-central-1"}


def settings(root: Path, **overrides: Any) -> Settings:
    return lake_settings(root, **{**AWS, **overrides})


def test_other_kmss_have_names_options_and_limits_of_their_own(tmp_path: Path) -> None:
    found = settings(tmp_path, OTHER_KMS__AWS__CALLS__ATTEMPTS=2, KMS__NAME="first").other_kms["aws"]
    assert (found.kind, found.calls.attempts) == ("aws", 2)


@each_row(
    ("name", "value", "shown"),
    [
        ("OTHER_KMS__AWS__PEK_TTL_S", "5", "other_kms.aws"),
        ("OTHER_KMS__AWS__NAME", "x", "other_kms.aws"),
        ("OTHER_KMS__AWS__DEFAULT_MASTER_KEY_ID", "x", "other_kms.aws"),
        ("OTHER_KMS__AWS__OPTIONS__REGIN", "x", "other_kms.aws.options.regin"),
        ("OTHER_KMS__A.B__KIND", "aws", "other_kms"),
        ("OTHER_KMS__LOCAL__KIND", "aws", "other_kms.local"),
        ("KMS__NAME", "aws", "other_kms.aws"),
        ("KMS__NAME", "A B", "kms.name"),
    ],
)
def test_what_would_be_ignored_or_is_ambiguous_is_refused(
    tmp_path: Path, name: str, value: str, shown: str
) -> None:
    with pytest.raises(RequestInvalid) as refused:
        settings(tmp_path, **{name: value})
    assert shown in refused.value.message


def test_replicas_compare_other_kmss_without_their_options(tmp_path: Path) -> None:
    ours, other = (
        digests_of(settings(tmp_path, OTHER_KMS__AWS__OPTIONS__REGION=region), "forbid")
        for region in ("eu-central-1", "eu-west-1")
    )
    assert ours == other
    without = digests_of(lake_settings(tmp_path), "forbid")
    assert {name for name in ours.keys() | without.keys() if ours.get(name) != without.get(name)} >= {
        "other_kms.aws.kind"
    }
