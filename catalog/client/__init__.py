"""Reads and writes tables without Spark: asks the catalog over HTTP, and opens files with PyArrow."""
