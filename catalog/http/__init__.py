"""The HTTP service: the Iceberg REST API, the engine API and the administration API."""
