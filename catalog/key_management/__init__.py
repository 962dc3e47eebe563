"""Manages the keys of tables (PEKs): creates, rotates, rewraps, disables and destroys them."""
