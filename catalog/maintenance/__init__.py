"""Maintains tables: rewrites, old encryption epochs, clean-up of garbage, and the encryption report."""
