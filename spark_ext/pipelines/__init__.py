"""Jobs over many tables of a lake: audit, discover, migrate, re-key, maintain, erase.

from lakewarden import pipelines

report = pipelines.audit(spark, tables="sales.*")
"""
