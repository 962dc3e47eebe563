"""The privileges that each operation requires, as requests to the policies."""
