"""One JVM for the readers that are classes of Java."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from py4j import java_gateway, protocol
from py4j.java_gateway import JavaGateway

from tests.locations.readers import Reader, java_readers, python_readers
from tests.support.jvm import open_jvm


@pytest.fixture(scope="module", autouse=True)
def errors_of_any_jvm() -> Iterator[None]:
    """PySpark teaches py4j to ask *its* JVM about each exception, of other JVMs too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(java_gateway, "get_return_value", protocol.get_return_value)
        yield


@pytest.fixture(scope="session")
def jvm() -> Iterator[JavaGateway]:
    """A JVM with the plugin's classes and Hadoop's."""
    with open_jvm() as gateway:
        yield gateway


@pytest.fixture(scope="session")
def readers(jvm: JavaGateway) -> dict[str, Reader]:
    """Every reader, by name."""
    return {**python_readers(), **java_readers(jvm)}
