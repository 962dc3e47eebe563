"""Jobs over many tables of a lake.

    from lakewarden import pipelines

    report = pipelines.audit(spark, tables="sales.*", verify=0.01)
    report.write("audit.html")

A name is loaded when it is used. docs/pipelines.md describes each job.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from spark_ext.pipelines.audit import audit as audit
    from spark_ext.pipelines.budget import Budget as Budget
    from spark_ext.pipelines.discover import discover as discover
    from spark_ext.pipelines.erase import erase as erase
    from spark_ext.pipelines.erase import was_erased as was_erased
    from spark_ext.pipelines.maintain import maintain as maintain
    from spark_ext.pipelines.migrate import migrate as migrate
    from spark_ext.pipelines.rekey import rekey as rekey
    from spark_ext.pipelines.report import Report as Report

_MODULES: Final = {
    "Budget": "spark_ext.pipelines.budget",
    "audit": "spark_ext.pipelines.audit",
    "erase": "spark_ext.pipelines.erase",
    "was_erased": "spark_ext.pipelines.erase",
    "Report": "spark_ext.pipelines.report",
    "discover": "spark_ext.pipelines.discover",
    "maintain": "spark_ext.pipelines.maintain",
    "migrate": "spark_ext.pipelines.migrate",
    "rekey": "spark_ext.pipelines.rekey",
}

#: Extras of pipelines that need more than `pipelines`.
_EXTRAS: Final = {"discover": "discover"}


def __getattr__(name: str) -> object:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value: object = getattr(import_module(_MODULES[name]), name)
    except ModuleNotFoundError as error:
        from lakewarden import _missing

        raise _missing(f"lakewarden.pipelines.{name}", _EXTRAS.get(name, "pipelines"), error) from error
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
