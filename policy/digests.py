"""Names for sets of documents."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def digest_of_documents(documents: Mapping[str, bytes | str]) -> str:
    """SHA-256 over documents and their names, in hexadecimal; their order does not matter.

    Args:
        documents: texts, or bytes of UTF-8, by name.
    """
    digest = hashlib.sha256()
    for name in sorted(documents):
        data = documents[name]
        content = data if isinstance(data, bytes) else data.encode("utf-8", "surrogatepass")
        for part in (name.encode("utf-8", "surrogatepass"), content):
            digest.update(len(part).to_bytes(8, "big") + part)
    return digest.hexdigest()
