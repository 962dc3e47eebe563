"""Keys for standard readers once more, after docs/key-metadata.md; no code is shared with `catalog.envelope`.

Run as a script, it writes tests/vectors/stock-keys.json; a test compares.
"""

from __future__ import annotations

import base64
import json
import struct

from second_implementation import (
    NOTE,
    OTHER_TABLE,
    TABLE,
    VECTORS,
    field_ids,
    fixed,
    name_bytes,
    seal,
)

PEK = {"id": fixed("stock pek id", 16).hex(), "version": 3, "key": fixed("stock pek", 32).hex()}


def head(table: str, pek_id: str, version: int, governed: int, role: int) -> bytes:
    ids = bytes.fromhex(table) + bytes.fromhex(pek_id)
    return b"\xc1" + ids + struct.pack(">IIB", version, governed, role)


def stock_key(role: int, key_name: str, ids: list[int]) -> dict:
    kek, kek_id = fixed(f"kek {role}", 32), fixed(f"kek id {role}", 16)
    transport_id, transport_key = fixed("stock transport id", 16), fixed("stock transport key", 32)
    first = head(TABLE, PEK["id"], PEK["version"], 7, role)
    wrapped = first + seal(
        bytes.fromhex(PEK["key"]), fixed(f"kek nonce {role}", 12), kek, b"lakewarden/kek/1\0" + first
    )
    sent_aad = (
        b"lakewarden/write-kek/1\0"
        + transport_id
        + bytes.fromhex(TABLE)
        + kek_id
        + bytes([role])
        + name_bytes(key_name)
        + field_ids(ids)
    )
    return {
        "table_uuid": TABLE,
        "pek": PEK,
        "governed_version": 7,
        "of_group": bool(role),
        "key_name": key_name,
        "field_ids": ids,
        "transport_id": transport_id.hex(),
        "transport_key": transport_key.hex(),
        "kek_id": kek_id.hex(),
        "kek": kek.hex(),
        "sent": seal(transport_key, fixed(f"sent nonce {role}", 12), kek, sent_aad).hex(),
        "wrapped": base64.b64encode(wrapped).decode(),
    }


def changed(data: bytes, at: int, byte: int) -> str:
    return base64.b64encode(data[:at] + bytes([byte]) + data[at + 1 :]).decode()


def document() -> dict:
    valid = [stock_key(0, "lake", []), stock_key(1, "pii", [2, 9])]
    data = base64.b64decode(valid[0]["wrapped"])
    other = {**PEK, "key": fixed("another pek", 32).hex()}
    refused = {
        "another PEK": {"pek": other},
        "another version of the PEK": {"pek": {**PEK, "version": 4}},
        "another table": {"table_uuid": OTHER_TABLE},
        "another governed version": {"wrapped": changed(data, 40, 8)},
        "said to be a group's": {"wrapped": changed(data, 41, 1)},
        "flipped bit of the key": {"wrapped": changed(data, 60, data[60] ^ 1)},
        "another format": {"wrapped": changed(data, 0, 0xA1)},
        "a role that is none": {"wrapped": changed(data, 41, 2)},
        "PEK version 0": {"wrapped": base64.b64encode(data[:33] + bytes(4) + data[37:]).decode()},
        "governed version 0": {"wrapped": base64.b64encode(data[:37] + bytes(4) + data[41:]).decode()},
        "truncated": {"wrapped": base64.b64encode(data[:-3]).decode()},
        "trailing bytes": {"wrapped": base64.b64encode(data + bytes(3)).decode()},
        "url-safe base64": {"wrapped": "-_" + valid[0]["wrapped"][2:]},
        "a line feed": {"wrapped": valid[0]["wrapped"] + "\n"},
        "not ASCII": {"wrapped": "é" + valid[0]["wrapped"][1:]},
        "empty": {"wrapped": ""},
    }
    cases = [{"name": name, **valid[0], **change} for name, change in refused.items()]
    for each in cases:
        del each["kek"]
    return {"note": NOTE, "valid": valid, "refused": cases}


if __name__ == "__main__":
    text = json.dumps(document(), indent=1) + "\n"
    (VECTORS / "stock-keys.json").write_text(text, encoding="utf-8")
