"""What each reader opens for the text of a location: its storage, and the path in it.

Where the reader is installed it is asked itself. Where it is not, its own way of taking a text apart is
written down here after its source, which the docstring names. A reader that opens nothing answers None.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from urllib.parse import quote, unquote, unquote_to_bytes, urlsplit

import pyarrow as pa
import pyarrow.fs as pafs
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.session import Session
from fsspec.implementations.local import LocalFileSystem
from fsspec.utils import infer_storage_options
from py4j.java_gateway import JavaGateway
from py4j.protocol import Py4JJavaError
from pyiceberg.io.pyarrow import PyArrowFileIO

FAMILIES = {
    **dict.fromkeys(("s3", "s3a", "s3n"), "s3"),
    **dict.fromkeys(("abfs", "abfss"), "abfs"),
    **dict.fromkeys(("wasb", "wasbs"), "wasb"),
    **{each: each for each in ("gs", "oss", "hdfs", "viewfs", "file")},
}
"""Schemes that one driver of Hadoop serves."""


@dataclass(frozen=True)
class Opened:
    """What a reader goes to.

    Attributes:
        storage: whatever tells one storage from another: driver, bucket or container, host.
        path: the path there, as the reader sends it on.
    """

    storage: tuple[str, ...]
    path: str


Reader = Callable[[str], Opened | None]


@cache
def area(reader: Reader, entry: str) -> Opened | None:
    """Where the reader finds what lies in a directory (or bucket, which not every reader opens by itself)."""
    child = reader(f"{entry.removesuffix('/')}/child")
    return None if child is None else replace(child, path=child.path.removesuffix("child"))


def inside(entry: Opened | None, path: Opened | None) -> bool:
    """Whether a reader that opens `path` stays within `entry`, even on a storage that resolves paths."""
    if path is None:
        return True
    if entry is None or entry.storage != path.storage:
        return False
    return all(_below(normal(entry.path), normal(path.path)) for normal in (_resolved, _resolved_and_decoded))


def _below(directory: str, path: str) -> bool:
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def _resolved(path: str) -> str:
    return posixpath.normpath(f"/{path.lstrip('/')}")


def _resolved_and_decoded(path: str) -> str:
    while (once := unquote(path)) != path:
        path = once
    return _resolved(path.replace("\\", "/"))


def pyarrow_uri(text: str) -> Opened | None:
    """`pyarrow.fs.FileSystem.from_uri`. Hadoop's file systems need libhdfs, which PySpark does not bring."""
    try:
        # A region given means that PyArrow asks nobody for it.
        system, path = pafs.FileSystem.from_uri(f"{text}?region=eu" if text.startswith("s3:") else text)
    except (pa.ArrowInvalid, OSError, UnicodeError):
        return None
    if not isinstance(system, pafs.AzureFileSystem):
        return Opened((type(system).__name__,), path)
    return _azure_request(system.__reduce__()[1][0], path)


def _azure_request(options: dict[str, str], path: str) -> Opened:
    """What PyArrow asks which host for, seen from its requests to a server of ours.

    Where it does not know the end point, it takes the container for the account, and puts that into the path.
    """
    account, authority = options["account_name"], options["dfs_storage_authority"]
    if authority.startswith("."):
        return Opened(("azure", f"{account}{authority}".lower()), path)
    return Opened(("azure", authority.lower()), f"{account}/{path}")


def pyiceberg_arrow(text: str) -> Opened | None:
    """`PyArrowFileIO.parse_location`, and the file system that it chooses by the scheme."""
    scheme, authority, path = PyArrowFileIO.parse_location(text)
    if scheme in ("hdfs", "viewfs"):
        return Opened((scheme, authority.lower()), path)
    if FAMILIES.get(scheme) in ("abfs", "wasb"):
        return None  # the container is then `container@host`, a name that Azure has not
    return Opened((FAMILIES.get(scheme, scheme),), path)


def pyiceberg_fsspec(text: str) -> Opened | None:
    """`FsspecFileIO`: fsspec's own local file system, and the way in which adlfs, s3fs and gcsfs split paths.

    Source: `_strip_protocol` of `AzureBlobFileSystem` (adlfs), `S3FileSystem` (s3fs) and `GCSFileSystem`
    (gcsfs). adlfs takes the account from its settings, not from the text.
    """
    scheme, _, rest = text.partition("://")
    if urlsplit(text).scheme == "file":
        return Opened(("file",), LocalFileSystem._strip_protocol(text))
    if scheme in ("s3", "s3a", "gs"):
        return Opened((scheme[:2],), rest.strip("/"))
    if scheme in ("abfs", "abfss"):
        options = infer_storage_options(text)
        return Opened(("azure",), f"{options.get('username') or ''}{options['path']}".strip("/"))
    return None


def iceberg_java(text: str) -> Opened | None:
    """Iceberg's own FileIOs: authority and path by position, `?` and `#` cut off, nothing decoded.

    Source: `S3URI`, `GCSLocation`, `ADLSLocation`, `OSSURI` of Iceberg. A version of `ADLSLocation` keeps the
    account and puts its own endpoint after it.
    """
    parts = text.split("://")
    if len(parts) != 2 or parts[0] in ("file", "hdfs", "viewfs"):
        return None
    authority, _, path = parts[1].partition("/")
    path = path.split("?")[0].split("#")[0]
    if FAMILIES[parts[0]] in ("abfs", "wasb"):
        container, _, host = authority.partition("@")
        return Opened(("azure", container, host.split(".")[0].lower()), path)
    return Opened((FAMILIES[parts[0]], authority), path)


def generic_url(text: str) -> Opened | None:
    """A program that takes URLs apart and decodes the path once, as SDKs for HTTP do."""
    parts = urlsplit(text)
    try:
        path = unquote_to_bytes(parts.path).decode()
    except UnicodeDecodeError:
        return None
    return Opened((FAMILIES.get(parts.scheme, parts.scheme), parts.netloc.lower()), path)


class Boto3:
    """boto3, given bucket and key as `urlsplit` finds them; what is asked for is read off the request."""

    def __init__(self) -> None:
        self._client = Session().create_client(
            "s3", region_name="eu-west-1", config=Config(signature_version=UNSIGNED)
        )

    def __call__(self, text: str) -> Opened | None:
        parts = urlsplit(text)
        if FAMILIES.get(parts.scheme) != "s3":
            return None
        asked = {"Bucket": parts.netloc, "Key": parts.path[1:]}
        try:
            url = urlsplit(self._client.generate_presigned_url("get_object", asked))
        except (BotoCoreError, ValueError):
            return None
        return Opened((url.netloc.replace(f"{parts.netloc}.", ""), parts.netloc), unquote(url.path))


class HadoopPath:
    """Hadoop's `Path`, out of PySpark's jars: what every Hadoop file system is given."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._path = gateway.jvm.org.apache.hadoop.fs.Path

    def __call__(self, text: str) -> Opened | None:
        try:
            uri = self._path(text).toUri()
        except Py4JJavaError:
            return None
        # `FileSystem.checkPath` and the cache of file systems compare authorities without case.
        return Opened((FAMILIES.get(uri.getScheme(), ""), str(uri.getAuthority()).lower()), uri.getPath())


class JavaUri:
    """`java.net.URI`, normalised and decoded: what SDKs and some file systems in Java begin with."""

    def __init__(self, gateway: JavaGateway) -> None:
        self._uri = gateway.jvm.java.net.URI

    def __call__(self, text: str) -> Opened | None:
        try:
            uri = self._uri(text).normalize()
        except Py4JJavaError:
            return None
        return Opened(
            (FAMILIES.get(uri.getScheme(), ""), str(uri.getAuthority()).lower()), str(uri.getPath())
        )


def uri_encoded(reader: Reader) -> Reader:
    """The reader, given the text as programs do that encode what no URI may have, but no escape again."""
    return lambda text: reader(quote(text, safe=":/@%+,;=!*'()$&~[]"))


def python_readers() -> dict[str, Reader]:
    """Every reader that needs no JVM, by name."""
    return {
        "pyarrow": pyarrow_uri,
        "pyarrow, encoded": uri_encoded(pyarrow_uri),
        "pyiceberg, pyarrow": pyiceberg_arrow,
        "pyiceberg, fsspec": pyiceberg_fsspec,
        "iceberg": iceberg_java,
        "url": generic_url,
        "boto3": Boto3(),
    }


def java_readers(gateway: JavaGateway) -> dict[str, Reader]:
    """Every reader that is a class of Java, by name."""
    uri = JavaUri(gateway)
    return {"hadoop": HadoopPath(gateway), "java uri": uri, "java uri, encoded": uri_encoded(uri)}
