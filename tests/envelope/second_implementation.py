"""Key metadata once more, written from docs/key-metadata.md and sharing no code with `catalog.envelope`.

The vectors that it writes stand in modules of their own (`second_key_metadata`, `second_transport`,
`second_stock_keys`). Keys, nonces and ids are fixed, so that these always write the same.
"""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

VECTORS = Path(__file__).resolve().parent.parent / "vectors"
NOTE = (
    "Written by tests/envelope/second_implementation.py from docs/key-metadata.md. All byte strings are "
    "hexadecimal. Keys and nonces are fixed for these vectors and must never be used elsewhere."
)


def fixed(label: str, length: int) -> bytes:
    return hashlib.sha256(f"lakewarden vector {label}".encode()).digest()[:length]


def field_ids(ids: list[int]) -> bytes:
    return struct.pack(">H", len(ids)) + b"".join(struct.pack(">i", i) for i in ids)


def name_bytes(name: str) -> bytes:
    encoded = name.encode("utf-8")
    return bytes([len(encoded)]) + encoded


def binding(key: dict, peks: dict) -> bytes:
    pek = peks[key["pek"]]
    role = bytes([1 if key["field_ids"] else 0])
    return (
        role
        + bytes.fromhex(pek["id"])
        + struct.pack(">I", pek["version"])
        + name_bytes(pek["master_key_id"])
        + field_ids(key["field_ids"])
    )


def seal(key: bytes, nonce: bytes, plaintext: bytes, aad: bytes) -> bytes:
    return nonce + AESGCM(key).encrypt(nonce, plaintext, aad)


def metadata(case: dict, peks: dict) -> bytes:
    header = bytes([0xA1, case["algorithm"], case["flags"]])
    file = header + bytes.fromhex(case["table_uuid"]) + bytes.fromhex(case["file_id"])
    digest = digest_bytes(case)
    data = header + bytes([len(case["keys"])])
    for number, key in enumerate(case["keys"]):
        bound = binding(key, peks)
        aad = b"lakewarden/dek/1\0" + file + bound + digest
        nonce = fixed(f"nonce {case['name']} {number}", 12)
        wrapped = seal(pek_key(key, peks), nonce, bytes.fromhex(key["dek"]), aad)
        data += bound + bytes([len(wrapped)]) + wrapped
    return data + digest + sealed_bounds(case, peks, file, digest)


def pek_key(key: dict, peks: dict) -> bytes:
    return bytes.fromhex(peks[key["pek"]]["key"])


def digest_bytes(case: dict) -> bytes:
    parts = [("digest", ">Q"), ("footer_digest", ">I")]
    return b"".join(
        struct.pack(form, case[name]["length"]) + bytes.fromhex(case[name]["sha256"])
        for name, form in parts
        if name in case
    )


def sealed_bounds(case: dict, peks: dict, file: bytes, digest: bytes) -> bytes:
    if "bounds" not in case:
        return b""
    data, keys = b"", case["keys"]
    for number, key in enumerate(keys if len(keys) == 1 else keys[1:]):
        mine = {
            int(i): said for i, said in case["bounds"].items() if len(keys) == 1 or int(i) in key["field_ids"]
        }
        aad = b"lakewarden/bounds/1\0" + file + binding(key, peks) + digest
        plain = case.get("plain") or bounds_plaintext(mine)
        sealed = seal(pek_key(key, peks), fixed(f"bounds {case['name']} {number}", 12), plain, aad)
        data += struct.pack(">H", len(sealed)) + sealed
    return data


COUNTS = {"values": 1, "nulls": 2, "nans": 4}
ENDS = {"lower": 8, "upper": 16}


def bounds_plaintext(columns: dict[int, dict]) -> bytes:
    ids = sorted(columns)
    data = struct.pack(">H", len(ids))
    for i in ids:
        data += struct.pack(
            ">iB", i, sum(flag for name, flag in (COUNTS | ENDS).items() if name in columns[i])
        )
    for i in ids:
        data += bytes(len(bytes.fromhex(columns[i].get(name, ""))) for name in ENDS)
    for i in ids:
        data += b"".join(struct.pack(">Q", columns[i][name]) for name in COUNTS if name in columns[i])
    for i in ids:
        data += b"".join(bytes.fromhex(columns[i][name]) for name in ENDS if name in columns[i])
    while len(data) % 256:
        data += b"\0"
    return data


TABLE = fixed("table", 16).hex()
OTHER_TABLE = fixed("other table", 16).hex()
FILE = fixed("file", 16).hex()
OTHER_FILE = fixed("other file", 16).hex()
