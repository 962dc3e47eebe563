"""Rules of the Iceberg table format that pyiceberg leaves to its callers."""
