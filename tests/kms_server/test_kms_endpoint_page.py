"""The examples of docs/kms-endpoint.md work as they stand there."""

from __future__ import annotations

import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import httpx
import pytest

from policy.principal import Principal
from policy.privileges.requests import AccessRequest, Resource
from policy.ranger import PolicySet
from tests.spark.test_stock_orc import CREATE
from tests.support.kms_endpoint import encrypted
from tests.support.lake import ALICE, lake_settings
from tests.support.service import Service

pytestmark = pytest.mark.nightly

PAGE: Final = (Path(__file__).parents[2] / "docs" / "kms-endpoint.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The page's blocks of a language."""
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_statement_is_the_one_that_stock_spark_runs() -> None:
    assert blocks("sql") == [f"{CREATE}\n"]


def test_the_settings_enable_the_kms_endpoint(tmp_path: Path) -> None:
    (block,) = blocks("toml")
    file = tmp_path / "lakewarden.toml"
    file.write_text(f'data_dir = "{tmp_path}"\n{block}')
    settings = lake_settings(tmp_path).load(file, {})
    assert (settings.kms_endpoint.enabled, settings.kms_endpoint.pseudo) == (True, False)


def test_the_policy_lets_its_readers_decrypt_and_nothing_else() -> None:
    (block,) = blocks("json")
    policies = PolicySet.parse({"page.json": block})
    reader, key = Principal("ann", frozenset({"hr"})), Resource.key("door/pii")
    granted = {
        right: policies.decide(AccessRequest(reader, key, right), datetime.now(UTC)).allowed
        for right in ("use", "release", "rotate", "destroy")
    }
    assert granted == {"use": False, "release": True, "rotate": False, "destroy": False}
    other = AccessRequest(reader, Resource.key("pii"), "release")
    assert not policies.decide(other, datetime.now(UTC)).allowed


def test_the_requests_make_and_roll_keys(served: Service) -> None:
    lines = [line for block in blocks("sh") for line in block.splitlines() if line.startswith("curl ")]
    assert len(lines) == 3
    answers = [_sent(served, line) for line in lines]
    assert [each.status_code for each in answers] == [201, 200, 201]
    assert answers[1].json()["versionName"] == "pii@1"
    with served.client("mallory") as mallory:
        path = "/kms/v1/keyversion/{0}@0/_eek?eek_op=decrypt"
        kinds = [
            mallory.post(path.format(name), json=encrypted(name)).json()["RemoteException"]["exception"]
            for name in ("pii", "pii_masked")
        ]
    assert kinds == ["SecurityException", "AuthorizationException"]


def _sent(served: Service, line: str) -> httpx.Response:
    """A line for curl, sent without it."""
    words = shlex.split(line)
    assert words[:3] == ["curl", "-X", "POST"] and words[4::2] == ["-H", "-H", "-d"]
    assert (words[5], words[7]) == ("$AUTH", "$JSON")
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {served.token(ALICE)}"}
    url = words[3].replace("$URL", served.url)
    return httpx.post(url, content=words[9], headers=headers, timeout=30)


@pytest.mark.parametrize("name", ["docs/rest-api.md", "docs/operations.md", "docs/kms.md"])
def test_other_pages_lead_here(name: str) -> None:
    assert "kms-endpoint.md" in (Path(__file__).parents[2] / name).read_text("utf-8")
