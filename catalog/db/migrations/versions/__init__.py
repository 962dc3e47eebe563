"""The migrations; each names the one before it."""
