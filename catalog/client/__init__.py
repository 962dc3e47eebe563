"""Reading and writing tables without Spark: asks the catalog over HTTP, does files with PyArrow."""
