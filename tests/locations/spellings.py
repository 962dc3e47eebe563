"""Strategies for paths: what attackers and careless writers make of a location, and what honest ones do."""

from __future__ import annotations

from functools import cache

from hypothesis import strategies as st

from policy.location.schemes import SCHEMES

_AZURE, _BLOB = "acme.dfs.core.windows.net", "acme.blob.core.windows.net"
ENTRIES = [
    "s3://bucket/wh/t1", "s3a://bucket/wh/t1/", "s3://bucket", "s3://bucket/a b,c/p=a%2Fb/100%",
    "gs://acme-lake/wh/t1", "gs://acme-lake", "gs://acme_lake.example.com/été",
    "oss://acme-lake/wh/t1", "oss://acme-lake",
    f"abfss://data@{_AZURE}/wh/t1", f"abfs://data@{_AZURE}", "abfss://$web@ACME.dfs.core.chinacloudapi.cn/a",
    "abfss://data@acme.z1.dfs.storage.azure.net/wh", f"wasbs://data@{_BLOB}/wh/t1", f"wasb://data@{_BLOB}",
    "hdfs://nn1.example.com:8020/wh/t1", "hdfs://ns1/wh", "hdfs://NN1/wh", "viewfs://cluster-a/wh/t1",
    "file:///wh/t1", "file:/wh/t1/", "file:///wh/%7Euser",
]  # fmt: skip
"""Entries of allowed lists, of every scheme and form."""

_SEPARATORS = ["/", "/", "/", "//", "\\", "%2F", "%2f", "%5C", "%252F", "／", "∕", "⁄", "＼"]
_DOTS = [
    "..", ".", "...", "%2e", "%2E%2e", ".%2e", "%252e%252e", "%u002e", "．．", "‥", "․․", "․", ". .",
    "..;", "..;x=1", "+..", ".. ",
]  # fmt: skip
_NAMES = [
    "wh", "t1", "t2", "data", "a b", "p=1", "f.parquet", "x" * 40, "x" * 250, "é", "e\u0301", "東京",
    "👩\u200d🚀", "C:", "c%3A", "~", ".reserved", ".inodes",
]  # fmt: skip
_CUTS = [
    "?", "#", "?x=", "#x", ";", ";v=1", "%3F", "%23", "\x00", "%00", "\n", "%0A", "\t", "\r", " ",
    "%20", "+", "\ufeff", "\u200b", "\u202e", "%E2%80%AE", "\ud800", "%ff", "%C0%AE", "%", "%zz", "%2",
    "*", "{a,..}", "[", "]", "|", ":", "@", ",", "=", "&", "$", '"', "'",
]  # fmt: skip
_AUTHORITIES = [
    "bucket", "BUCKET", "bucket:80", "user@bucket", "u:p@bucket", "acme-lake", "other", "[::1]",
    "127.0.0.1", "nn1.example.com:8020", "nn1.example.com", "NS1", "ns1", "cluster-a", f"data@{_AZURE}",
    f"data@{_AZURE}:443", f"data@{_BLOB}", f"other@{_AZURE}", "localhost", "",
]  # fmt: skip
_SPELLINGS = [spelling for rules in SCHEMES for spelling in rules.spellings]
_SCHEMES = [*_SPELLINGS, "S3", "s3 ", "", "http", "gcs", "webhdfs"]
_PIECES = st.one_of(
    st.sampled_from(_SEPARATORS), st.sampled_from(_NAMES), st.sampled_from(_DOTS), st.sampled_from(_CUTS),
    st.sampled_from(_SEPARATORS), st.characters(), st.text(max_size=4),
)  # fmt: skip


_LETTERS = st.characters(whitelist_categories=("L", "N", "So"), max_codepoint=0x1F9FF)
_ODD = st.sampled_from([
    *" =,*+@:~-_$&!()'[]^`|<>\"",
    "%20", "%2F", "%25_", "%3A", "%C3%A9", "%40", "👩🏽\u200d🚀", "🏳️\u200d🌈", "é", "e\u0301",
])  # fmt: skip
_VALUES = st.lists(st.one_of(_LETTERS, _ODD), min_size=1, max_size=6).map("".join)


@cache
def _respelled(entry: str) -> st.SearchStrategy[str]:
    """The entry as it is, in another spelling that means the same, or in one that does not."""
    scheme, _, rest = entry.partition(":")
    authority, slash, path = (
        rest.removeprefix("//").partition("/") if rest.startswith("//") else ("", "", rest)
    )
    equal = next(rules.spellings for rules in SCHEMES if scheme in rules.spellings)
    spelled = st.sampled_from(equal)
    bare = path.rstrip("/")
    capitals = st.sampled_from([authority.upper(), authority.swapcase()])
    marks = st.sampled_from(["", "/", "///", "////", "\\\\"])
    same = st.builds(lambda other: f"{other}:{rest}", spelled)
    other = st.one_of(
        st.builds(lambda other: f"{other}:{rest}", st.sampled_from(_SCHEMES)),
        st.builds(lambda other, host: f"{other}://{host}{slash}{path}", spelled, capitals),
        st.builds(lambda host: f"{scheme}://{host}{slash}{path}", st.sampled_from(_AUTHORITIES)),
        st.builds(lambda cut: f"{scheme}://{authority}{slash}{bare[:cut]}", st.integers(0, len(bare))),
        st.builds(lambda mark: f"{scheme}:{mark}{authority}{slash}{path}", marks),
    )
    return st.integers(0, 3).flatmap(lambda number: other if number == 0 else same)


@cache
def paths(entry: str) -> st.SearchStrategy[str]:
    """Paths that begin like the entry, more or less, and go on in any way."""
    harmless = st.lists(st.sampled_from([*_NAMES, "/"]) | _VALUES, max_size=4).map("".join)
    one = st.builds(lambda *parts: "".join(parts), harmless, _PIECES, harmless)
    many = st.lists(_PIECES, max_size=6).map("".join)
    rest = st.integers(0, 3).flatmap(lambda number: many if number == 0 else one if number == 1 else harmless)
    mark = st.sampled_from(["/", "/", "/", ""])
    return st.builds(lambda *parts: "".join(parts), _respelled(entry), mark, rest)


_FIELDS = st.builds(
    lambda name, value: f"{name}={value}x", st.sampled_from(["p", "ts", "été", "region"]), _VALUES
)


@cache
def odd_paths(entry: str) -> st.SearchStrategy[str]:
    """Files as honest writers name them: partitions with values, encoded or not, and a file's name."""
    bare = entry.rstrip("/")
    directories = st.lists(_FIELDS, min_size=1, max_size=3).map("/".join)
    return st.builds(
        lambda between, name: f"{bare}/{between}/{name}",
        directories,
        st.sampled_from(["f.parquet", "00000-0-1a2b.parquet", "_delta 1.orc"]),
    )
