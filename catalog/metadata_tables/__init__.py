"""Metadata tables: what Iceberg tells of a table's snapshots, manifests and files, as rows for one user."""
