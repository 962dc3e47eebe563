"""The HTTP service: Iceberg REST, what engines call, and administration."""
