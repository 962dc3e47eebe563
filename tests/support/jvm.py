"""A JVM with PySpark's jars and the plugin's, but no Spark in it: for classes that need none."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway

from spark_ext.jar import spark_jar
from spark_ext.runtime import find_java, find_spark


@contextmanager
def open_jvm() -> Iterator[JavaGateway]:
    """A running JVM; `jvm` is the root of its packages."""
    jars = find_spark(os.environ).jars
    port, token = launch_gateway(
        jarpath=str(next(jars.glob("py4j-*.jar"))),
        classpath=f"{spark_jar()}{os.pathsep}{jars}/*",
        java_path=str(find_java(os.environ)),
        javaopts=["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dfile.encoding=UTF-8"],
        die_on_exit=True,
        enable_auth=True,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    try:
        yield gateway
    finally:
        gateway.shutdown()


class Texts:
    """Lists of texts for the JVM; they go there as JSON, since py4j cannot send half of a surrogate pair."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._mapper = gateway.jvm.com.fasterxml.jackson.databind.ObjectMapper()
        self._list = gateway.jvm.java.lang.Class.forName("java.util.List")

    def __call__(self, texts: Sequence[str]) -> object:
        """A Java list of the texts."""
        return self._mapper.readValue(json.dumps(list(texts)), self._list)
