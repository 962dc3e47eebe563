"""The cases of key metadata, written by the second implementation of its format.

Run as a script, it writes tests/vectors/key-metadata.json; a test compares.
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
    bounds_plaintext,
    field_ids,
    fixed,
    metadata,
)

PEKS = {
    "whole": {
        "id": fixed("pek 1", 16).hex(),
        "version": 1,
        "master_key_id": "lake",
        "key": fixed("k1", 32).hex(),
    },
    "pii": {
        "id": fixed("pek 2", 16).hex(),
        "version": 7,
        "master_key_id": "pii",
        "key": fixed("k2", 32).hex(),
    },
    "arn": {
        "id": fixed("pek 3", 16).hex(),
        "version": 4294967295,
        "master_key_id": "arn:aws:kms:eu-west-1:111122223333:key/one",
        "key": fixed("k3", 32).hex(),
    },
}


def key(pek: str, length: int, ids: list[int] | None = None) -> dict:
    return {"pek": pek, "field_ids": ids or [], "dek": fixed(f"dek {pek} {length}", length).hex()}


def case(name: str, keys: list[dict], *, algorithm: int = 1, flags: int = 0, **more: object) -> dict:
    made = {
        "name": name,
        "table_uuid": TABLE,
        "file_id": FILE,
        "path": f"s3://b/t/data/part-0-{FILE}.parquet",
    }
    made |= {"algorithm": algorithm, "flags": flags, "keys": keys} | more
    made["key_metadata"] = metadata(made, PEKS).hex()
    made["parquet_aad_prefix"] = (b"lakewarden/file/1\0" + bytes.fromhex(TABLE + FILE)).hex()
    return made


def valid_cases() -> list[dict]:
    return [
        case("uniform 256", [key("whole", 32)]),
        case("uniform 192", [key("whole", 24)]),
        case("uniform 128", [key("whole", 16)]),
        case("uniform, CTR", [key("whole", 32)], algorithm=2),
        case("plaintext footer", [key("whole", 32), key("pii", 32, [3])], flags=1),
        case(
            "two column groups", [key("whole", 32), key("pii", 32, [2, 9]), key("arn", 32, [4, 2147483647])]
        ),
        case("column group under the footer's PEK", [key("whole", 32), key("whole", 16, [0])]),
        case("largest group names", [key("arn", 32), key("pii", 32, list(range(1, 300)))]),
        case("ORC", [key("whole", 32)], algorithm=3),
        case(
            "ORC with a digest", [key("whole", 16), key("pii", 16, [3])], algorithm=3, flags=2, digest=DIGEST
        ),
        case("stock readers", [key("whole", 32)], flags=8),
        case("digest", [key("whole", 32)], algorithm=2, flags=2, digest=DIGEST),
        case("digest of an empty file", [key("whole", 32)], flags=2, digest=DIGEST | {"length": 0}),
        case("footer digest", KEYED, flags=16, footer_digest=FOOTER),
        case(
            "footer digest, plaintext footer, CTR",
            KEYED,
            algorithm=2,
            flags=17,
            footer_digest=FOOTER | {"length": 2**32 - 1},
        ),
        case("digest of the least footer", KEYED, flags=16, footer_digest=FOOTER | {"length": 12}),
        case("both digests", KEYED, flags=18, digest=DIGEST, footer_digest=FOOTER),
        case("bounds", [key("whole", 32)], flags=4, bounds=BOUNDS),
        case("bounds of no column", [key("whole", 32)], flags=4, bounds={}),
        case(
            "bounds of groups",
            [key("whole", 32), key("pii", 32, [2, 9]), key("arn", 32, [4])],
            flags=4,
            bounds={"2": BOUNDS["1"], "9": {"nulls": 0}},
        ),
        case("bounds beyond one block", [key("whole", 32)], flags=4, bounds=MANY),
        case(
            "everything",
            [key("whole", 32), key("pii", 32, [1, 3])],
            algorithm=2,
            flags=31,
            digest=DIGEST,
            footer_digest=FOOTER,
            bounds=BOUNDS,
        ),
    ]


DIGEST = {"length": 2**40 + 7, "sha256": fixed("bytes of a file", 32).hex()}
FOOTER = {"length": 70_007, "sha256": fixed("bytes of a footer", 32).hex()}
KEYED = [key("whole", 32), key("pii", 32, [3])]
BOUNDS = {
    "1": {"values": 10, "nulls": 2, "nans": 0, "lower": "01000000", "upper": "ff000000"},
    "3": {"values": 2**63 - 1, "lower": "", "upper": b"zebra".hex()},
}
MANY = {
    str(i): {"values": i, "nulls": 0, "lower": fixed("low", 16).hex(), "upper": fixed("high", 16).hex()}
    for i in range(1, 20)
}


def refused(name: str, why: str, data: bytes, *, stage: str = "parse", **changed: str) -> dict:
    made = {"name": name, "why": why, "stage": stage, "table_uuid": TABLE, "path": f"data/{FILE}.parquet"}
    return made | {"key_metadata": data.hex()} | changed


def moved_cases(good: bytes, grouped: bytes) -> list[dict]:
    """Well formed, but bound to something else: refused when a key is opened."""
    table = "the AAD names the table"
    flipped = [(4 + 5, "PEK id"), (4 + 18, "PEK version"), (len(good) - 50, "nonce"), (len(good) - 1, "tag")]
    cases = [
        refused("moved to another table", table, good, stage="open", table_uuid=OTHER_TABLE),
        refused(
            "moved to another file",
            "the AAD names the file",
            good,
            stage="open",
            path=f"x/{OTHER_FILE}.parquet",
        ),
        refused(
            "algorithm changed", "the AAD covers the header", good[:1] + b"\x02" + good[2:], stage="open"
        ),
        refused("footer flag set", "the AAD covers the header", good[:2] + b"\x01" + good[3:], stage="open"),
        refused(
            "key name changed", "the AAD names the key", good.replace(b"\x04lake", b"\x04lakf"), stage="open"
        ),
        refused(
            "field id changed",
            "the AAD names the columns",
            grouped.replace(field_ids([2, 9]), field_ids([2, 8])),
            stage="open",
        ),
    ]
    for offset, what in flipped:
        data = good[:offset] + bytes([good[offset] ^ 1]) + good[offset + 1 :]
        cases.append(refused(f"bit flipped in the {what}", "it is authenticated", data, stage="open"))
    return cases


def malformed_cases(good: bytes, grouped: bytes) -> list[dict]:
    entry = good[4:]
    groups = {name: entry_bytes(grouped, name) for name in ("whole", "pii", "arn")}
    head = good[:3]
    one_id = groups["pii"].replace(field_ids([2, 9]), field_ids([9, 2]))
    twice = groups["pii"].replace(field_ids([2, 9]), field_ids([2, 2]))
    negative = groups["pii"].replace(field_ids([2, 9]), field_ids([-1, 9]))
    shared = groups["arn"].replace(field_ids([4, 2147483647]), field_ids([4, 9]))
    bad_name = good.replace(b"\x04lake", b"\x04l\xffke")
    no_name = good.replace(b"\x04lake", b"\x00")
    unwrapped = good[:-61] + b"\x3b" + good[-60:-1]
    version_0 = good[:21] + b"\0\0\0\0" + good[25:]
    return [
        refused("empty", "there is no header", b""),
        refused("header alone", "at least one key", head),
        refused("no keys", "at least one key", head + b"\0"),
        refused("format 1 of Iceberg", "the first byte is never 0x01", b"\x01" + good[1:]),
        refused("a later format", "unknown", b"\xa2" + good[1:]),
        refused("unknown algorithm", "1, 2 or 3", good[:1] + b"\x04" + good[2:]),
        refused("algorithm 0", "1, 2 or 3", good[:1] + b"\x00" + good[2:]),
        refused("unknown flag", "other flags are 0", good[:2] + b"\x80" + good[3:]),
        refused("truncated by one byte", "nothing may be missing", good[:-1]),
        refused("truncated in the name", "nothing may be missing", good[:27]),
        refused("trailing byte", "nothing may follow", good + b"\0"),
        refused("count too large", "nothing may be missing", head + b"\x02" + entry),
        refused("count too small", "nothing may follow", grouped[:3] + b"\x01" + grouped[4:]),
        refused("two footer keys", "exactly one", head + b"\x02" + entry + entry),
        refused(
            "column group first", "the footer key is first", head + b"\x02" + groups["pii"] + groups["whole"]
        ),
        refused("column group alone", "the footer key is first", head + b"\x01" + groups["pii"]),
        refused(
            "groups in the wrong order",
            "ascending by first field id",
            head + b"\x03" + groups["whole"] + groups["arn"] + groups["pii"],
        ),
        refused("field ids descending", "ascending", head + b"\x02" + groups["whole"] + one_id),
        refused("field id twice", "ascending", head + b"\x02" + groups["whole"] + twice),
        refused("negative field id", "not negative", head + b"\x02" + groups["whole"] + negative),
        refused(
            "field id in two groups",
            "one key a column",
            head + b"\x03" + groups["whole"] + groups["pii"] + shared,
        ),
        refused(
            "role 0 with field ids", "the footer key has none", head + b"\x01" + b"\0" + groups["pii"][1:]
        ),
        refused(
            "role 1 without field ids", "a column key has some", head + b"\x02" + entry + b"\1" + entry[1:]
        ),
        refused("role 2", "0 or 1", head + b"\x01" + b"\2" + entry[1:]),
        refused("key name not ASCII", "a master key id", bad_name),
        refused("no key name", "a master key id", no_name),
        refused("PEK version 0", "1 or more", version_0),
        refused("wrapped key of 59 bytes", "44, 52 or 60", unwrapped),
        refused(
            "file without id in its name",
            "the id is in the base name",
            good,
            stage="open",
            path="x/part-0.parquet",
        ),
        {"name": "10 MB", "why": "at most 65536 bytes", "stage": "parse", "table_uuid": TABLE}
        | {"path": f"data/{FILE}.parquet", "key_metadata": good.hex(), "then_zero_bytes": 10_000_000},
    ]


def section_cases(by_name: dict[str, bytes]) -> list[dict]:
    """What follows the keys: cut, stretched, left out, moved or changed."""
    plain, good = by_name["uniform 256"], by_name["bounds"]
    digest, groups, orc = by_name["digest"], by_name["bounds of groups"], by_name["ORC"]
    start = len(plain)
    cut = struct.pack(">H", 283) + good[start + 2 : start + 2 + 283]
    twelve = groups[-286 - 286 : -286]
    bounds_flag, digest_flag = bytes([4]), bytes([2])
    return [
        refused("digest flag without a digest", "the digest is missing", plain[:2] + digest_flag + plain[3:]),
        refused("digest without its flag", "nothing may follow", digest[:2] + b"\0" + digest[3:]),
        refused("digest cut", "40 bytes", digest[:-1]),
        refused("bounds flag without bounds", "one for each key", plain[:2] + bounds_flag + plain[3:]),
        refused("bounds without their flag", "nothing may follow", good[:2] + b"\0" + good[3:]),
        refused("bounds of 283 bytes", "28 more than a multiple of 256", good[:start] + cut),
        refused("bounds of no bytes", "at least 284", good[:start] + b"\0\0"),
        refused("bounds of a tag alone", "at least 284", good[:start] + b"\0\x1c" + bytes(28)),
        refused("bounds of one group alone", "one for each key", groups[: -2 - 284]),
        refused("bounds cut", "nothing may be missing", good[:-1]),
        refused("bounds with a byte behind", "nothing may follow", good + b"\0"),
        refused("ORC with a plaintext footer", "flag 0x01 is Parquet's", orc[:2] + b"\1" + orc[3:]),
        refused("ORC for stock readers", "flag 0x08 is Parquet's", orc[:2] + b"\x08" + orc[3:]),
        refused(
            "ORC with a key of 24 bytes",
            "44 or 60",
            by_name["uniform 192"][:1] + b"\3" + by_name["uniform 192"][2:],
        ),
        refused("flag 0x20", "other flags are 0", plain[:2] + b"\x20" + plain[3:]),
        refused("digest changed", "the AAD covers it", digest[:-1] + bytes([digest[-1] ^ 1]), stage="open"),
        refused(
            "length in the digest changed",
            "the AAD covers it",
            digest[:-33] + bytes([digest[-33] ^ 1]) + digest[-32:],
            stage="open",
        ),
        refused(
            "digest taken away", "the AAD covers the flags", digest[:2] + b"\0" + digest[3:-40], stage="open"
        ),
        refused(
            "bounds taken away", "the AAD covers the flags", good[:2] + b"\0" + good[3:start], stage="open"
        ),
        refused(
            "stock readers' flag set",
            "the AAD covers the flags",
            plain[:2] + b"\x08" + plain[3:],
            stage="open",
        ),
        refused(
            "bounds changed",
            "they are authenticated",
            good[:-20] + bytes([good[-20] ^ 1]) + good[-19:],
            stage="bounds",
        ),
        refused(
            "a wrapped key in place of bounds",
            "the AAD has another name",
            good[:start] + good[start : start + 2] + good[start - 60 : start] + good[-224:],
            stage="bounds",
        ),
        refused(
            "bounds of one group in place of another's",
            "the AAD names the columns",
            groups[:-286] + twelve,
            stage="bounds",
        ),
        refused(
            "bounds of another file",
            "the AAD names the file",
            good[:start] + foreign_bounds(),
            stage="bounds",
        ),
    ]


def footer_cases(by_name: dict[str, bytes]) -> list[dict]:
    """The digest of a footer: cut, changed, taken away, or where none can be."""
    good, plain, bare = (
        by_name[name] for name in ("footer digest", "plaintext footer", "column group under the footer's PEK")
    )
    clear, single = by_name["footer digest, plaintext footer, CTR"], by_name["uniform 256"]
    both, digest = by_name["both digests"], by_name["digest"]
    flag, length, covered = b"\x10", len(good) - 36, "the AAD covers it"

    def flipped(data: bytes, at: int) -> bytes:
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    return [
        refused("footer's digest flag alone", "36 bytes", bare[:2] + flag + bare[3:]),
        refused("footer's digest without its flag", "nothing may follow", good[:2] + b"\0" + good[3:]),
        refused("footer's digest cut", "36 bytes", good[:-1]),
        refused("footer's digest with a byte behind", "nothing may follow", good + b"\0"),
        refused("footer of 11 bytes", "at least 12", good[:length] + b"\0\0\0\x0b" + good[-32:]),
        refused("footer of no bytes", "at least 12", good[:length] + bytes(4) + good[-32:]),
        refused("footer's digest in ORC", "flag 0x10 is Parquet's", good[:1] + b"\3" + good[2:]),
        refused(
            "footer's digest without column keys",
            "there is an entry of role 1",
            single[:2] + flag + single[3:] + good[-36:],
        ),
        refused("a file's digest as a footer's", "36 bytes", digest[:2] + flag + digest[3:]),
        refused("length of the footer changed", covered, flipped(good, length + 3), stage="open"),
        refused("digest of the footer changed", covered, flipped(good, len(good) - 1), stage="open"),
        refused("signed footer's digest changed", covered, flipped(clear, len(clear) - 1), stage="open"),
        refused(
            "footer's digest taken away",
            "the AAD covers the flags",
            good[:2] + b"\0" + good[3:-36],
            stage="open",
        ),
        refused(
            "footer's digest put in",
            "the AAD covers the flags",
            plain[:2] + b"\x11" + plain[3:] + good[-36:],
            stage="open",
        ),
        refused(
            "file's digest taken away beside the footer's",
            "the AAD covers the flags",
            both[:2] + flag + both[3:-76] + both[-36:],
            stage="open",
        ),
    ]


def foreign_bounds() -> bytes:
    """The sealed bounds of the same key and columns, of another file."""
    made = {"name": "foreign", "table_uuid": TABLE, "file_id": OTHER_FILE, "algorithm": 1, "flags": 4}
    return metadata(made | {"keys": [key("whole", 32)], "bounds": BOUNDS}, PEKS)[-286:]


def plaintext_cases() -> list[dict]:
    """Sealed rightly, but the plaintext is not as it should be."""
    good = bounds_plaintext({1: BOUNDS["1"]})
    one = struct.pack(">HiB", 1, 1, 2)
    columns = {
        "flag of a column is unknown": struct.pack(">HiB", 1, 1, 0x20) + bytes(2),
        "column without flags": struct.pack(">HiB", 1, 1, 0) + bytes(2),
        "columns descending": struct.pack(">HiBiB", 2, 3, 2, 1, 2) + bytes(4 + 16),
        "column twice": struct.pack(">HiBiB", 2, 3, 2, 3, 2) + bytes(4 + 16),
        "negative column": struct.pack(">HiB", 1, -1, 2) + bytes(2 + 8),
        "length without a flag": one + b"\1\0" + bytes(8),
        "count beyond 2^63": one + bytes(2) + b"\x80" + bytes(7),
        "more columns than bytes": struct.pack(">H", 65_535),
        "bounds beyond the end": struct.pack(">HiB", 1, 1, 24) + b"\xff\xff",
        "padding is not zero": good[:-1] + b"\1",
        "padding of a whole block": good + bytes(256),
    }
    made = []
    for name, plain in columns.items():
        filled = plain + bytes(-len(plain) % 256)
        built = {
            "name": name,
            "table_uuid": TABLE,
            "file_id": FILE,
            "algorithm": 1,
            "flags": 4,
            "plain": filled,
        }
        data = metadata(built | {"keys": [key("whole", 32)], "bounds": {}}, PEKS)
        made.append(refused(f"bounds: {name}", "one encoding for one meaning", data, stage="bounds"))
    built = {
        "name": "uncovered",
        "table_uuid": TABLE,
        "file_id": FILE,
        "algorithm": 1,
        "flags": 4,
        "plain": good,
    }
    data = metadata(built | {"keys": [key("whole", 32), key("pii", 32, [2])], "bounds": {}}, PEKS)
    return [
        *made,
        refused("bounds of a column that the key does not cover", "its own columns", data, stage="bounds"),
    ]


def entry_bytes(data: bytes, pek: str) -> bytes:
    """The first entry under a PEK; every wrapped key of these vectors has 60 bytes."""
    id_at = data.index(bytes.fromhex(PEKS[pek]["id"]))
    name_end = id_at + 21 + data[id_at + 20]
    ids_end = name_end + 2 + 4 * int.from_bytes(data[name_end : name_end + 2], "big")
    return data[id_at - 1 : ids_end + 61]


def file_id_cases() -> dict:
    hex_id = "00112233445566778899aabbccddeeff"
    return {
        "valid": [
            {"location": f"{hex_id}.parquet", "file_id": hex_id},
            {"location": hex_id, "file_id": hex_id},
            {"location": f"s3://bucket/a/data/p=1%2F2/part-00000-{hex_id}.zstd.parquet", "file_id": hex_id},
            {"location": f"file:///w/{'f' * 32}-{hex_id}.orc", "file_id": hex_id},
        ],
        "refused": [
            "part-00000.parquet",
            f"part{hex_id}.parquet",
            f"{hex_id.upper()}.parquet",
            f"{hex_id[:-1]}.parquet",
            f"{hex_id}0.parquet",
            f"{hex_id}-part.parquet",
            f"{hex_id}.parquet\n",
            f"{hex_id}.",
            f"{hex_id}..parquet",
            f"{hex_id}/",
            f"{hex_id}/part-0.parquet",
            "",
        ],
    }


def key_metadata_document() -> dict:
    valid = valid_cases()
    by_name = {made["name"]: bytes.fromhex(made["key_metadata"]) for made in valid}
    good, grouped = by_name["uniform 256"], by_name["two column groups"]
    return {
        "note": NOTE,
        "peks": PEKS,
        "valid": valid,
        "refused": [
            *malformed_cases(good, grouped),
            *moved_cases(good, grouped),
            *section_cases(by_name),
            *footer_cases(by_name),
            *plaintext_cases(),
        ],
        "file_ids": file_id_cases(),
    }


if __name__ == "__main__":
    text = json.dumps(key_metadata_document(), indent=1) + "\n"
    (VECTORS / "key-metadata.json").write_text(text, encoding="utf-8")
