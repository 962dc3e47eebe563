"""The cache answers with what was decoded from bytes of that digest, within its bounds."""

from __future__ import annotations

import hashlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from catalog.iceberg.manifests import DecodedManifest, ManifestCache, decode_manifest
from catalog.iceberg.manifests import cache as cache_module
from policy.errors import MetadataInvalid
from tests.support.manifest_samples import container, entry_bytes, entry_schema, write_sample

PATH = "s3://lake/t/metadata/m.avro"


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


class TestDirectory:
    def test_another_process_finds_it(self, tmp_path: Path, decodings: list[str]) -> None:
        data, _ = write_sample(tmp_path, 100)
        digest = hashlib.sha256(data).hexdigest()
        first = ManifestCache(1 << 20, tmp_path / "cache").get(digest, data, path=PATH)
        second = ManifestCache(1 << 20, tmp_path / "cache").get(digest, data, path=PATH)
        assert same(first, second)
        assert len(decodings) == 1

    @pytest.mark.parametrize("damage", ["flip", "cut", "empty"])
    def test_a_damaged_file_is_passed_over_and_mended(
        self, tmp_path: Path, decodings: list[str], damage: str
    ) -> None:
        digest, data = manifest("a")
        sound = ManifestCache(1 << 20, tmp_path).get(digest, data, path=PATH)
        (file,) = tmp_path.iterdir()
        content = file.read_bytes()
        flipped = content[:-40] + bytes([content[-40] ^ 1]) + content[-39:]
        file.write_bytes({"flip": flipped, "cut": content[:-9], "empty": b""}[damage])
        assert same(ManifestCache(1 << 20, tmp_path).get(digest, data, path=PATH), sound)
        assert file.read_bytes() == content
        assert len(decodings) == 2

    def test_it_stays_within_its_bound(self, tmp_path: Path) -> None:
        cache = ManifestCache(0, tmp_path, max_directory_bytes=20_000)
        for number in range(8):
            cache.get(*manifest(str(number)), path=PATH)
        sizes = [file.stat().st_size for file in tmp_path.iterdir()]
        assert sizes
        assert sum(sizes) <= 20_000

    def test_files_are_for_their_owner_alone(self, tmp_path: Path) -> None:
        ManifestCache(0, tmp_path / "cache").get(*manifest("a"), path=PATH)
        (file,) = (tmp_path / "cache").iterdir()
        assert (file.stat().st_mode & 0o777, file.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    def test_a_directory_that_is_gone_costs_time_alone(self, tmp_path: Path) -> None:
        cache = ManifestCache(0, tmp_path / "cache")
        (tmp_path / "cache").rmdir()
        assert cache.get(*manifest("a"), path=PATH).entries.num_rows == 1
