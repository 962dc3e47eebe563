"""Rules of the Iceberg table format that pyiceberg does not check."""
