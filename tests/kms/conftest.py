"""A local KMS, its key file, and a clock that is moved by hand."""

from tests.support.local_kms import clock, context, far, key_file, kms

__all__ = ["clock", "context", "far", "key_file", "kms"]
