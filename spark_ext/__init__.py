"""The Spark side of Lakewarden: guarded reads and writes through the catalog's engine interface.

Users call it through `lakewarden`: `local_session`, `configure` and `rewrite_data_files`.
"""
