"""Policies and encryption rules in force: storage, changes, evaluation."""
