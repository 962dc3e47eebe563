"""Keys in transport once more, made from docs/key-metadata.md; no code is shared with `catalog.envelope`.

Run as a script, it writes tests/vectors/transport.json; a test compares.
"""

from __future__ import annotations

import json
import struct

from second_implementation import (
    FILE,
    NOTE,
    OTHER_FILE,
    OTHER_TABLE,
    TABLE,
    VECTORS,
    field_ids,
    fixed,
    name_bytes,
    seal,
)


def transported(purpose: str, number: int, label: dict, length: int) -> dict:
    transport_id, transport_key = fixed(f"{purpose} id", 16), fixed(f"{purpose} key", 32)
    role = bytes([1 if label["field_ids"] else 0])
    aad = (
        f"lakewarden/{purpose}/1".encode()
        + b"\0"
        + transport_id
        + bytes.fromhex(TABLE + FILE)
        + role
        + name_bytes(label["key_name"])
        + field_ids(label["field_ids"])
    )
    nonce = struct.pack(">QI", 0, number) if purpose == "scan" else fixed(f"write nonce {number}", 12)
    dek = fixed(f"transported {length}", length)
    return {
        "purpose": purpose,
        "transport_id": transport_id.hex(),
        "transport_key": transport_key.hex(),
        "table_uuid": TABLE,
        "file_id": FILE,
        **label,
        "dek": dek.hex(),
        "wrapped": seal(transport_key, nonce, dek, aad).hex(),
    }


def transport_document() -> dict:
    footer = {"key_name": "lake", "field_ids": []}
    column = {"key_name": "pii", "field_ids": [2, 9]}
    valid = [
        transported("scan", 0, footer, 32),
        transported("scan", 1, column, 16),
        transported("scan", 4294967295, footer, 24),
        transported("write", 0, footer, 32),
        transported("write", 1, column, 24),
    ]
    first = valid[0]
    changes = {
        "another purpose": {"purpose": "write"},
        "another transport key": {"transport_key": fixed("other key", 32).hex()},
        "another transport id": {"transport_id": fixed("other id", 16).hex()},
        "another table": {"table_uuid": OTHER_TABLE},
        "another file": {"file_id": OTHER_FILE},
        "another key name": {"key_name": "pii"},
        "a column key instead of the footer key": {"field_ids": [2]},
        "truncated": {"wrapped": first["wrapped"][:-2]},
        "trailing byte": {"wrapped": first["wrapped"] + "00"},
        "nonce alone": {"wrapped": first["wrapped"][:24]},
        "empty": {"wrapped": ""},
        "flipped bit": {"wrapped": "01" + first["wrapped"][2:]},
    }
    refused_cases = [{"name": name, **first, **changed} for name, changed in changes.items()]
    for made in refused_cases:
        del made["dek"]
    return {"note": NOTE, "valid": valid, "refused": refused_cases}


if __name__ == "__main__":
    text = json.dumps(transport_document(), indent=1) + "\n"
    (VECTORS / "transport.json").write_text(text, encoding="utf-8")
