"""Envelope encryption: from PEKs down to the data keys of files.

- `peks`: PEKs and their cache.
- `file_ids`, `data_keys`, `key_metadata`, `key_metadata_columns`, `file_digests`: data keys and their format.
- `encrypted_statistics`, `scan_statistics`: the bounds and counts of encrypted columns.
- `transport`, `scan_keys`, `write_keys`: data keys in transport to and from an engine.
- `parquet_key_tools`: keys in the format of Parquet's key tools.
- `mechanisms`, `registry`: the encryption mechanisms, and how to load them by name.

The formats are specified in `docs/key-metadata.md`. The KMS back ends are in `catalog.kms`.
"""
