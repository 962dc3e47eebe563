"""Decisions only: values in, decisions out; no I/O, no clock, no network."""
