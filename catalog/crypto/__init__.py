"""Cryptography that knows nothing of tables: AES-GCM, key derivation, signatures, secrets, private files."""
