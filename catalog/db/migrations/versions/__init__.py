"""The steps, in the order in which each names the one before it."""
