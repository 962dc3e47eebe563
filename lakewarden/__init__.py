"""The public face of Lakewarden.

    import lakewarden

    lake = lakewarden.connect("http://127.0.0.1:8181", token)      # reads and writes without Spark
    spark = lakewarden.local_session("lake")                       # Spark on a catalog in a directory
    builder = lakewarden.configure(builder, uri=uri, token=token)  # Spark on a service

A name is loaded when it is used. If it needs a module that is not installed, the `ImportError` names the
extra to install. `import lakewarden` fails with an `ImportError` if a file of the user, such as `catalog.py`,
hides one of Lakewarden's packages.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from catalog.base.errors import CommitConflict as CommitConflict
    from catalog.base.errors import NoSuchTable as NoSuchTable
    from catalog.client.connection import Connection as Connection
    from catalog.client.connection import Table as Table
    from catalog.client.connection import connect as connect
    from catalog.client.errors import CatalogUnavailable as CatalogUnavailable
    from catalog.client.errors import DataFileDamaged as DataFileDamaged
    from catalog.client.errors import DataFileMissing as DataFileMissing
    from catalog.client.errors import TableChanged as TableChanged
    from catalog.client.pyiceberg_catalog import PyIcebergCatalog as PyIcebergCatalog
    from lakewarden import pipelines as pipelines
    from policy.errors import CommitStateUnknown as CommitStateUnknown
    from policy.errors import DecryptionRefused as DecryptionRefused
    from policy.errors import EncryptionPolicyViolation as EncryptionPolicyViolation
    from policy.errors import InvalidInput as InvalidInput
    from policy.errors import KeyNotUsable as KeyNotUsable
    from policy.errors import KmsUnavailable as KmsUnavailable
    from policy.errors import LakewardenError as LakewardenError
    from policy.errors import LocationInvalid as LocationInvalid
    from policy.errors import LocationNotAllowed as LocationNotAllowed
    from policy.errors import MetadataInvalid as MetadataInvalid
    from policy.errors import MetadataTampered as MetadataTampered
    from policy.errors import MetadataUnsealed as MetadataUnsealed
    from policy.errors import NotAuthenticated as NotAuthenticated
    from policy.errors import NotAuthorized as NotAuthorized
    from policy.errors import NotSupportedYet as NotSupportedYet
    from policy.errors import PolicyInvalid as PolicyInvalid
    from policy.errors import PropertyInvalid as PropertyInvalid
    from policy.errors import Refused as Refused
    from policy.errors import RequestInvalid as RequestInvalid
    from policy.errors import StateUnavailable as StateUnavailable
    from policy.errors import StorageUnavailable as StorageUnavailable
    from policy.errors import Unavailable as Unavailable
    from policy.errors import UnsupportedFormatVersion as UnsupportedFormatVersion
    from spark_ext.configuration import configure as configure
    from spark_ext.errors import SparkUnavailable as SparkUnavailable
    from spark_ext.local import local_session as local_session
    from spark_ext.rewriting import rewrite_data_files as rewrite_data_files

    __version__: str

#: The names of each module, and the extras that its dependencies belong to.
_EXPORTS: Final = (
    ("catalog.client.connection", "client", "Connection Table connect"),
    ("catalog.client.pyiceberg_catalog", "client", "PyIcebergCatalog"),
    ("spark_ext.configuration", "spark", "configure"),
    ("spark_ext.local", "service,spark", "local_session"),
    ("spark_ext.rewriting", "pipelines", "rewrite_data_files"),
    ("spark_ext.errors", "spark", "SparkUnavailable"),
    (
        "policy.errors",
        "client",
        "CommitStateUnknown DecryptionRefused EncryptionPolicyViolation InvalidInput KeyNotUsable "
        "KmsUnavailable LakewardenError LocationInvalid LocationNotAllowed MetadataInvalid MetadataTampered "
        "MetadataUnsealed NotAuthenticated NotAuthorized NotSupportedYet PolicyInvalid PropertyInvalid "
        "Refused RequestInvalid StateUnavailable StorageUnavailable Unavailable UnsupportedFormatVersion",
    ),
    ("catalog.base.errors", "client", "CommitConflict NoSuchTable"),
    ("catalog.client.errors", "client", "CatalogUnavailable DataFileDamaged DataFileMissing TableChanged"),
)
_MODULES: Final = {name: (module, extra) for module, extra, names in _EXPORTS for name in names.split()}
_PACKAGES: Final = ("policy", "catalog", "spark_ext")


def __getattr__(name: str) -> object:
    if name == "__version__":
        from importlib import metadata

        return metadata.version("lakewarden")
    if name == "pipelines":
        return import_module("lakewarden.pipelines")
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, extra = _MODULES[name]
    try:
        value = getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise _missing(f"lakewarden.{name}", extra, error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES, "__version__", "pipelines"})


def main() -> None:
    """The command `lakewarden`: run it, and end the process with its exit code."""
    try:
        from spark_ext.cli.main import main as run

        run()
    except ModuleNotFoundError as error:
        extra = "spark" if (error.name or "").startswith(("pyspark", "py4j")) else "service"
        sys.exit(str(_missing("This command", extra, error)))


def _missing(what: str, extra: str, error: ModuleNotFoundError) -> ImportError:
    """The error that names the extra to install. A module of Lakewarden is in no extra: `error` is raised."""
    if error.name is None or error.name.partition(".")[0] in _PACKAGES:
        raise error
    return ImportError(
        f"{what} needs the module {error.name}, which is not installed. "
        f"Run: pip install 'lakewarden[{extra}]'",
        name=error.name,
    )


def _refuse_hidden_packages() -> None:
    """Refuse to work where Python finds other modules under the names of Lakewarden's packages."""
    root = Path(__file__).resolve().parent.parent
    for name in _PACKAGES:
        loaded = sys.modules.get(name)
        found = find_spec(name) if loaded is None else getattr(loaded, "__spec__", None)
        origin = None if found is None else found.origin
        if origin is None or Path(origin).resolve() != root / name / "__init__.py":
            raise ImportError(
                f"Lakewarden needs its package {name!r}, but Python finds {origin or 'another module'} under "
                f"this name. Rename that file, or start Python in another directory.",
                name=name,
            )


_refuse_hidden_packages()
