"""Checks, authorizes and publishes commits of all clients."""
