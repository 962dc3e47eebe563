"""The cache answers with what was decoded from bytes of that digest, within its bounds."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from catalog.crypto.secret import SecretBytes
from catalog.iceberg.manifests import CacheFiles, DecodedManifest, ManifestCache, decode_manifest, stored
from catalog.iceberg.manifests import cache as cache_module
from catalog.iceberg.manifests.ranges import RANGE_ROWS
from policy.errors import MetadataInvalid, RequestInvalid, StorageUnavailable
from tests.support.manifest_samples import container, entry_bytes, entry_schema, write_sample

PATH = "s3://lake/t/metadata/m.avro"


KEY = SecretBytes(bytes(32))


def manifest(name: str) -> tuple[str, bytes]:
    data = container(entry_schema(), [(1, entry_bytes(path=f"s3://lake/{name}"))])
    return hashlib.sha256(data).hexdigest(), data


def same(one: DecodedManifest, other: DecodedManifest) -> bool:
    return (
        one.header == other.header
        and one.entries.equals(other.entries)
        and one.statistics.equals(other.statistics)
    )


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names the path of every decoding; each takes long enough for others to come by."""
    seen: list[str] = []

    def counted(data: bytes, **known: object) -> DecodedManifest:
        seen.append(str(known["path"]))
        threading.Event().wait(0.05)
        return decode_manifest(data, path=str(known["path"]))

    monkeypatch.setattr(cache_module, "decode_manifest", counted)
    return seen


def test_a_manifest_is_decoded_once(decodings: list[str]) -> None:
    cache = ManifestCache(1 << 20)
    digest, data = manifest("a")
    assert cache.get(digest, data, path=PATH) is cache.get(digest, data, path="elsewhere")
    assert decodings == [PATH]


def test_threads_that_ask_at_once_wait_for_one_decoding(decodings: list[str]) -> None:
    cache = ManifestCache(1 << 20)
    digest, data = manifest("a")
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: cache.get(digest, data, path=PATH), range(32)))
    assert len(decodings) == 1
    assert len({id(each) for each in found}) == 1


def test_the_least_recently_used_goes_first(decodings: list[str]) -> None:
    (one, a), (two, b), (three, c) = (manifest(name) for name in "abc")
    size = decode_manifest(a, path=PATH).nbytes
    cache = ManifestCache(2 * size + size // 2)
    for digest, data in ((one, a), (two, b), (one, a), (three, c), (one, a), (two, b)):
        cache.get(digest, data, path=digest)
        assert cache.nbytes <= 2 * size + size // 2
    assert decodings == [one, two, three, two]


def test_what_is_larger_than_the_cache_is_not_kept(decodings: list[str]) -> None:
    cache = ManifestCache(0)
    digest, data = manifest("a")
    cache.get(digest, data, path=PATH)
    cache.get(digest, data, path=PATH)
    assert (len(decodings), cache.nbytes) == (2, 0)


def test_a_failure_is_not_kept() -> None:
    cache = ManifestCache(1 << 20)
    bad = b"garbage"
    for _ in range(2):
        with pytest.raises(MetadataInvalid):
            cache.get(hashlib.sha256(bad).hexdigest(), bad, path=PATH)


def test_a_digest_is_wanted() -> None:
    with pytest.raises(ValueError, match="SHA-256"):
        ManifestCache(1).get("../../etc/passwd", b"", path=PATH)


def cache_in(directory: Path, key: SecretBytes = KEY, **options: int) -> ManifestCache:
    """A cache that keeps every manifest on disk, as another process would open it."""
    return ManifestCache(1 << 20, CacheFiles(directory, lambda: key, **options), stored_from=0)


class TestDirectory:
    @pytest.mark.nightly
    def test_another_process_finds_it(self, tmp_path: Path, decodings: list[str]) -> None:
        data, _ = write_sample(tmp_path, 10_000)
        digest = hashlib.sha256(data).hexdigest()
        first = cache_in(tmp_path / "cache").get(digest, data, path=PATH)
        second = cache_in(tmp_path / "cache").get(digest, data, path=PATH)
        decoded = decode_manifest(data, path=PATH)
        assert same(first, decoded)
        assert same(second, decoded)
        assert len(decodings) == 1
        ids = frozenset({1, 2, 3, 999})
        assert second.stats(ids) == decoded.stats(ids)

    @pytest.mark.nightly
    def test_some_ranges_are_those_rows(self, tmp_path: Path) -> None:
        data, _ = write_sample(tmp_path, 10_000)
        digest, decoded = hashlib.sha256(data).hexdigest(), decode_manifest(data, path=PATH)
        cache = cache_in(tmp_path / "cache")
        cache.get(digest, data, path=PATH)
        for chosen in ([], [0], [1, 2], [0, 2]):
            rows = pa.array([row for row in range(10_000) if row // RANGE_ROWS in chosen], pa.int64())
            part = cache.get(digest, data, path=PATH, ranges=chosen)
            assert len(part) == len(rows)
            assert part.entries.equals(decoded.entries.take(rows))
            assert part.statistics.equals(decoded.statistics.take(rows))
            ids = frozenset({1, 2, 999})
            for field_id, found in part.stats(ids).items():
                every = decoded.stats(ids)[field_id]
                assert list(astuple(found)) == [each.take(rows) for each in astuple(every)]

    @pytest.mark.parametrize("damage", ["flip", "cut", "empty", "entry"])
    def test_a_damaged_file_is_passed_over_and_mended(
        self, tmp_path: Path, decodings: list[str], damage: str
    ) -> None:
        digest, data = manifest("a")
        sound = cache_in(tmp_path).get(digest, data, path=PATH)
        (file,) = tmp_path.iterdir()
        content = file.read_bytes()
        flipped = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
        entry = content.replace(b"s3://lake/a", b"s3://lake/b", 1)
        file.write_bytes({"flip": flipped, "cut": content[:-9], "empty": b"", "entry": entry}[damage])
        assert same(cache_in(tmp_path).get(digest, data, path=PATH), sound)
        assert file.read_bytes() == content
        assert len(decodings) == 2

    def test_what_is_found_damaged_when_it_is_used_is_an_error_once(self, tmp_path: Path) -> None:
        data, _ = write_sample(tmp_path, 100)
        digest = hashlib.sha256(data).hexdigest()
        cache_in(tmp_path / "cache").get(digest, data, path=PATH)
        (file,) = (tmp_path / "cache").iterdir()
        sound = decode_manifest(data, path=PATH)
        for _, place in json.loads(_footer(file))["blocks"].items():
            content = bytearray(file.read_bytes())
            content[place[0] + place[1] // 2] ^= 1
            file.write_bytes(content)
            cache = cache_in(tmp_path / "cache")
            for _ in range(2):
                with contextlib.suppress(StorageUnavailable):
                    found = cache.get(digest, data, path=PATH)
                    assert same(found, sound)
                    assert found.stats(frozenset({1, 2, 3})) == sound.stats(frozenset({1, 2, 3}))
            assert same(cache.get(digest, data, path=PATH), sound)

    def test_a_file_of_another_key_counts_for_nothing(self, tmp_path: Path, decodings: list[str]) -> None:
        digest, data = manifest("a")
        forged = cache_in(tmp_path, SecretBytes(b"f" * 32))
        forged.get(digest, manifest("b")[1], path=PATH)
        assert cache_in(tmp_path).get(digest, data, path=PATH).entries["file_path"].to_pylist() == [
            "s3://lake/a"
        ]

    def test_a_file_with_ranges_of_another_length_counts_for_nothing(
        self, tmp_path: Path, decodings: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A release can change the length; it would take other entries for those of a range."""
        digest, data = manifest("a")
        expected = cache_in(tmp_path).get(digest, data, path=PATH)
        monkeypatch.setattr(stored, "RANGE_ROWS", 8)
        assert same(cache_in(tmp_path).get(digest, data, path=PATH), expected)
        assert len(decodings) == 2

    def test_a_file_of_another_manifest_counts_for_nothing(self, tmp_path: Path) -> None:
        (one, a), (two, b) = manifest("a"), manifest("b")
        cache = cache_in(tmp_path)
        cache.get(one, a, path=PATH)
        cache.get(two, b, path=PATH)
        by_name = {file.name[:64]: file for file in tmp_path.iterdir()}
        by_name[one].write_bytes(by_name[two].read_bytes())
        assert cache_in(tmp_path).get(one, a, path=PATH).entries["file_path"].to_pylist() == ["s3://lake/a"]

    def test_it_stays_within_its_bound(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, max_bytes=60_000)
        for number in range(20):
            cache.get(*manifest(str(number)), path=PATH)
            sizes = [file.stat().st_size for file in tmp_path.iterdir()]
            assert 0 < sum(sizes) <= 60_000

    def test_processes_that_share_it_exceed_its_bound_by_a_sixteenth_each(self, tmp_path: Path) -> None:
        processes = [cache_in(tmp_path, max_bytes=60_000) for _ in range(3)]
        for number in range(30):
            processes[number % 3].get(*manifest(str(number)), path=PATH)
            assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 60_000 * 19 // 16

    def test_other_files_in_it_stay_and_do_not_stop_it(self, tmp_path: Path) -> None:
        """A file system of its own has the directory `lost+found`; a mistake names one with other files."""
        (tmp_path / "lost+found").mkdir()
        (tmp_path / "letter.txt").write_bytes(bytes(50_000))
        (tmp_path / f"{'0' * 64}.v1.arrow").write_bytes(bytes(50_000))
        (tmp_path / f".{'0' * 16}.tmp").write_bytes(bytes(50_000))
        for file in tmp_path.iterdir():
            os.utime(file, (0, 0))
        cache = cache_in(tmp_path, max_bytes=60_000)
        for number in range(20):
            cache.get(*manifest(str(number)), path=PATH)
        names = {file.name for file in tmp_path.iterdir()}
        assert {"lost+found", "letter.txt"} < names
        assert f"{manifest('19')[0]}.v2.blocks" in names
        assert not any(name.endswith((".tmp", ".arrow")) for name in names)

    @pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
    def test_a_directory_that_others_can_write_is_refused(self, tmp_path: Path, mode: int) -> None:
        """Attack: a file that is mapped is made shorter, which ends the process (SIGBUS)."""
        (tmp_path / "cache").mkdir()
        (tmp_path / "cache").chmod(mode)
        with pytest.raises(RequestInvalid, match="can be written by other users"):
            cache_in(tmp_path / "cache")

    def test_what_is_no_directory_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "cache").write_bytes(b"")
        with pytest.raises(RequestInvalid, match="cannot be used"):
            cache_in(tmp_path / "cache")

    def test_what_is_larger_than_the_directory_can_be_is_not_written(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path, max_bytes=100)
        assert cache.get(*manifest("a"), path=PATH).entries.num_rows == 1
        assert not list(tmp_path.iterdir())

    def test_files_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        cache_in(tmp_path / "cache").get(*manifest("a"), path=PATH)
        (file,) = (tmp_path / "cache").iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    def test_a_directory_that_is_gone_costs_time_alone(self, tmp_path: Path) -> None:
        cache = cache_in(tmp_path / "cache")
        (tmp_path / "cache").rmdir()
        assert cache.get(*manifest("a"), path=PATH).entries.num_rows == 1

    def test_an_index_that_is_damaged_counts_for_nothing(self, tmp_path: Path) -> None:
        index = np.arange(10, dtype=np.uint64)
        cache_in(tmp_path).keep_index("0" * 64, index)
        found = cache_in(tmp_path).index("0" * 64)
        assert found is not None
        assert found.tolist() == index.tolist()
        (file,) = tmp_path.iterdir()
        content = bytearray(file.read_bytes())
        content[70] ^= 1
        file.write_bytes(content)
        assert cache_in(tmp_path).index("0" * 64) is None


def _footer(file: Path) -> bytes:
    content = file.read_bytes()
    length = int.from_bytes(content[-40:-32], "big")
    return content[-40 - length : -40]
