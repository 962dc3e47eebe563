"""The list of Iceberg's names is that of the release that the interoperability tests run."""

from __future__ import annotations

import pytest

from tests.support.iceberg_names import iceberg_names, names_in
from tests.support.iceberg_spark import JARS

pytestmark = pytest.mark.interop


@pytest.mark.parametrize("kind", ["read", "write", "setting", "property"])
def test_the_list_has_every_name_of_the_jar(kind: str) -> None:
    jars = list(JARS.glob("*.jar"))
    if not jars:
        pytest.skip("Iceberg's Spark runtime is not there: make interop fetches it.")
    names = names_in(jars[0], kind)
    assert len(names) > 20
    assert names - iceberg_names(kind) == set()
