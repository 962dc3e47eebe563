"""Keys: from the master key in the KMS down to the data key of one file.

- `secret`: key bytes that mask themselves.  `aead`: AES-GCM as it is used here.
- `kms`: the interface to a key management service.  `local_kms`, with `keystore`, `root_key` and
  `private_files`: the embedded default.  `registry`: back ends by name.
- `peks`: table keys and their cache.  `file_identity`, `key_metadata`, `dek`: data keys and their format.
- `transport`, `scan_keys`, `write_keys`: data keys on their way to and from an engine.
- `managers`: the encryption mechanisms.

The formats are written down in `docs/key-metadata.md`.
"""
