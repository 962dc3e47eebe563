"""Objects in S3 and compatible stores, through PyArrow's file system.

Rules:

- A key is the location's segments joined by `/`, byte for byte. PyArrow hands such a path to the AWS SDK,
  which encodes it for the wire exactly once; neither decodes it. What they would normalise (empty and dot
  segments) no `Location` contains.
- Connecting, waiting and the number of attempts are bounded by `S3Options`, so that a dead store is an error
  and not a hang.
- An object becomes visible as a whole when its upload is completed.

PyArrow has no way to send `If-None-Match`, so `create` asks first and puts then: of two writers of one name
at the same moment the later one wins. The catalog's names contain 128 random bits, so two writers have one
name only if one of them means to overwrite, and who may write the bucket can do that at any time; the digest
kept by the catalog tells. Removing an object leaves an empty marker object for its directory when nothing
else is left in it; markers do not show up in listings. A listing is held in memory as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cached_property

import pyarrow.fs as pafs
from pydantic import BaseModel, ConfigDict, Field, SecretStr, model_validator
from pyiceberg.io import InputStream, OutputStream

from catalog.storage.base import StoredObject
from catalog.storage.errors import already_exists, no_object, too_large, translated
from catalog.storage.streams import ObjectInput, ObjectOutput
from policy.errors import LocationNotAllowed, StorageUnavailable
from policy.location.location import Location


class S3Options(BaseModel):
    """How to reach the object store.

    Attributes:
        endpoint: URL of a store other than Amazon's, such as ``http://127.0.0.1:9000``.
        region: region of the buckets; without one the AWS SDK's own rules choose.
        access_key_id: with `secret_access_key`, fixed credentials. Without, the standard chain of the AWS SDK
            applies: environment, configuration files, instance role.
        secret_access_key: see `access_key_id`.
        session_token: for temporary credentials.
        connect_timeout: seconds until an attempt to connect is given up.
        request_timeout: seconds without a byte until a request is given up.
        max_attempts: how often a request is tried in all.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoint: str | None = None
    region: str | None = None
    access_key_id: str | None = None
    secret_access_key: SecretStr | None = None
    session_token: SecretStr | None = None
    connect_timeout: float = Field(default=5.0, gt=0)
    request_timeout: float = Field(default=5.0, gt=0)
    max_attempts: int = Field(default=3, ge=1)

    @model_validator(mode="after")
    def _credentials_are_whole(self) -> S3Options:
        if (self.access_key_id is None) != (self.secret_access_key is None):
            raise ValueError("give access_key_id and secret_access_key together")
        if self.session_token is not None and self.secret_access_key is None:
            raise ValueError("session_token needs access_key_id and secret_access_key")
        return self


class S3Storage:
    """`Storage` for the scheme ``s3``; nothing is contacted before the first use."""

    def __init__(self, options: S3Options | None = None) -> None:
        """Takes the options; without any, the AWS SDK's own configuration applies."""
        self._options = S3Options() if options is None else options

    @cached_property
    def _s3(self) -> pafs.S3FileSystem:
        options = self._options
        return pafs.S3FileSystem(
            access_key=options.access_key_id,
            secret_key=_reveal(options.secret_access_key),
            session_token=_reveal(options.session_token),
            region=options.region,
            endpoint_override=options.endpoint,
            connect_timeout=options.connect_timeout,
            request_timeout=options.request_timeout,
            retry_strategy=pafs.AwsStandardS3RetryStrategy(max_attempts=options.max_attempts),
            allow_delayed_open=True,  # a small object is one request, instead of a multipart upload
        )

    def read(self, location: Location, *, limit: int) -> bytes:
        """See `Storage.read`; checks the size before it fetches a byte."""
        with translated(location), self._s3.open_input_file(_path(location)) as file:
            size = file.size()
            if size > limit:
                raise too_large(location, limit)
            data: bytes = file.read(size)
        if len(data) != size:
            raise StorageUnavailable(
                "The object changed while it was being read.",
                path=location.canonical,
                rule="storage-fault",
                hint="Objects of a table must never be overwritten. Find out who overwrote it, then "
                "try again.",
            )
        return data

    def open_input(self, location: Location) -> InputStream:
        """See `Storage.open_input`."""
        with translated(location):
            return ObjectInput(self._s3.open_input_file(_path(location)), location)

    def create(self, location: Location, data: bytes) -> None:
        """See `Storage.create`, and the module's note on two writers of one name."""
        with self.open_output(location) as stream:
            stream.write(data)

    def open_output(self, location: Location) -> OutputStream:
        """See `Storage.open_output`, and the module's note on two writers of one name."""
        if self.exists(location):
            raise already_exists(location)
        with translated(location):
            file = self._s3.open_output_stream(_path(location))

        def discard() -> None:
            with suppress(FileNotFoundError):
                file.close()  # PyArrow cannot abort an upload, only complete it
                self._s3.delete_file(_path(location))

        return ObjectOutput(file, location, finish=file.close, discard=discard)

    def exists(self, location: Location) -> bool:
        """See `Storage.exists`."""
        with translated(location):
            return bool(self._s3.get_file_info(_path(location)).type == pafs.FileType.File)

    def size(self, location: Location) -> int:
        """See `Storage.size`."""
        with translated(location), self._s3.open_input_file(_path(location)) as file:
            return int(file.size())

    def is_gone(self, location: Location) -> bool:
        """See `Storage.is_gone`: the bucket does not exist."""
        with translated(location):
            return bool(self._s3.get_file_info(location.authority).type == pafs.FileType.NotFound)

    def delete(self, location: Location) -> None:
        """See `Storage.delete`; objects below the name stay."""
        with translated(location), suppress(FileNotFoundError):
            self._s3.delete_file(_path(location))

    def list_prefix(self, location: Location) -> Iterator[StoredObject]:
        """See `Storage.list_prefix`."""
        with translated(location):
            found = self._listing("/".join((location.authority, *location.segments)))
        for info in found:
            if info.type == pafs.FileType.File:
                yield StoredObject(Location.parse(f"s3://{info.path}"), info.size, info.mtime)

    def delete_prefix(self, location: Location) -> None:
        """See `Storage.delete_prefix`."""
        if self.exists(location):
            raise _not_a_directory(location)
        base = _path(location)
        with translated(location), suppress(FileNotFoundError):
            for info in self._listing(base):
                if info.type == pafs.FileType.File and _needs_own_request(info.path):
                    self._s3.delete_file(info.path)
            self._s3.delete_dir(base)

    def _listing(self, base: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(base, recursive=True, allow_not_found=True)
        listing: list[pafs.FileInfo] = self._s3.get_file_info(selector)
        return listing


def _path(location: Location) -> str:
    """PyArrow's name of an object: bucket and key."""
    if not location.segments:
        raise no_object(location)
    return "/".join((location.authority, *location.segments))


def _needs_own_request(path: str) -> bool:
    """Return whether a key cannot appear in the XML of a bulk delete.

    A key with dot segments stays in it: its own request would be for another key, once normalised on the way.
    """
    dotted = any(name in ("", ".", "..") for name in path.split("/"))
    return not dotted and any(character < " " for character in path)


def _not_a_directory(location: Location) -> LocationNotAllowed:
    return LocationNotAllowed(
        "An object has the name of a directory.",
        path=location.canonical,
        rule="regular-file",
        hint="Delete that object, then try again.",
    )


def _reveal(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
