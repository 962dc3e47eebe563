"""The keys of tables (PEKs): made, used, rotated, rewrapped, disabled, destroyed."""
