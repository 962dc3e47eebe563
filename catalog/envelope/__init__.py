"""Envelope encryption: from PEKs down to the data keys of files.

- `secret`: key bytes that mask themselves.  `aead`: AES-GCM as it is used here.
- `kms`: the interface to a key management service.  `local_kms`, with `keystore`, `root_key` and
  `private_files`: the embedded default.  `aws_kms`; `vault_kms`, with `vault_identity`; `hadoop_kms`: those
  elsewhere.  `registry` and `options`: back ends by name, and what they take.
- `resilient`, with `circuit` and `kms_calls`: how a KMS elsewhere is called.
- `peks`: table keys and their cache.  `file_identity`, `key_metadata`, `dek`: data keys and their format.
- `transport`, `scan_keys`, `write_keys`: data keys on their way to and from an engine.
- `managers`: the encryption mechanisms.

The formats are written down in `docs/key-metadata.md`.
"""
