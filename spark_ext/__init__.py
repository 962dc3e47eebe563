"""The Spark side of Lakewarden: guarded reads and writes through the catalog's engine interface.

    from spark_ext import configure, local_session

`local_session(directory)` starts a catalog and Spark on it; `configure(builder, uri=…, token=…)` makes Spark
use a catalog that is served elsewhere. `rewrite_data_files(session, "lake.sales")` brings files to what their
tables' properties say.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_ext.configuration import configure
    from spark_ext.local import local_session
    from spark_ext.rewriting import rewrite_data_files

__all__ = ["configure", "local_session", "rewrite_data_files"]

_MODULES: Final = {
    "configure": "spark_ext.configuration",
    "local_session": "spark_ext.local",
    "rewrite_data_files": "spark_ext.rewriting",
}


def __getattr__(name: str) -> object:
    """PySpark is imported when it is needed: most commands of the command line do without."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)
