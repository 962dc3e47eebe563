"""Errors that keep Spark from running with Lakewarden, in the tree of `policy.errors`.

Unavailable
└── SparkUnavailable    Spark, Java or the plugin's jar is missing or cannot be used
    └── JarNotBuilt     the plugin's sources do not compile against this Spark
"""

from __future__ import annotations

from policy.errors import Unavailable


class SparkUnavailable(Unavailable):
    """Spark, Java or the plugin's jar is missing or cannot be used; nothing was started."""


class JarNotBuilt(SparkUnavailable):
    """The plugin's sources do not compile against the Spark that is installed."""
