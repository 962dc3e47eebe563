"""Builds the services of a catalog, and the service context that they share."""
