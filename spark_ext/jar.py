"""Builds the plugin's jar from the Scala sources of this package with PySpark's Scala compiler.

- A jar belongs to one Spark version, one state of the sources and one way of building: all three are in its
  name, and a change of any of them makes another jar.
- The name also holds the jar's SHA-256. What is found in the cache is compared with it before it is handed
  out; what differs was damaged and is built again.
- A jar comes into the cache under its final name in one step, and one process builds while others wait:
  a process that looks finds a whole jar or none.
- The same sources give the same bytes: entries are sorted and carry a fixed time.
- Where versions of Spark differ, each has source sets of its own (`versions/since-4.2`).
- Nothing is fetched and nothing is written outside the cache: a read-only installation without network works.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from spark_ext.errors import JarNotBuilt
from spark_ext.private_cache import private_cache
from spark_ext.runtime import SparkHome, find_java, find_spark

SOURCES: Final = Path(__file__).parent / "scala"

_RESOURCES: Final = "resources/"
_VERSIONS: Final = "versions"
#: Raised when the same sources would give another jar than before.
_BUILDER: Final = "1"
_OPTIONS: Final = ("-usejavacp", "-nobootcp", "-encoding", "UTF-8", "-deprecation", "-feature")
#: A short run on few cores: compiling the compiler itself well does not pay, deep expressions need stack.
_JVM: Final = ("-Xss8m", "-Xshare:auto", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_MANIFEST: Final = "META-INF/MANIFEST.MF"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)

Say = Callable[[str], None]


def _to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def spark_jar(
    *, environ: Mapping[str, str] | None = None, sources: Path = SOURCES, say: Say = _to_stderr
) -> Path:
    """The plugin's jar for the Spark that PySpark would start, built now if it was not built before.

    Args:
        environ: the environment variables; those of this process by default.
        sources: the directory of the Scala sources.
        say: takes a line of progress, when there is something to build.

    Returns:
        A file in the user's cache directory.

    Raises:
        SparkUnavailable: Spark or Java is missing, or there is no safe directory for the jar.
        JarNotBuilt: the sources do not compile; `say` was given what the compiler wrote.
    """
    environ = os.environ if environ is None else environ
    spark = find_spark(environ)
    files = _of_version(_read(sources), spark.version)
    cache = private_cache(environ)
    stem = f"lakewarden-spark-{spark.version}-{_digest(files)[:16]}"
    with _only_builder(cache):
        found = _cached(cache, stem)
        if found is None:
            java = find_java(environ)
            say(f"Building the plugin for Spark {spark.version}; this happens once and takes a few seconds.")
            found = _build(java, spark, files, cache, stem, say)
            say(f"Built {found.name}.")
    return found


def _read(sources: Path) -> dict[str, bytes]:
    """Source and resource files by their name below the directory, in a fixed order.

    They are read once, so that what is compiled is what the digest stands for.
    """
    found = (each for each in sources.rglob("*") if each.is_file() and not each.name.startswith("."))
    return dict(sorted((each.relative_to(sources).as_posix(), each.read_bytes()) for each in found))


def _of_version(files: Mapping[str, bytes], version: str) -> dict[str, bytes]:
    """The files for one version of Spark: all but those of source sets for other versions.

    A source set is a directory below `versions`, such as `since-4.2` or `before-4.2`.
    """
    return {name: content for name, content in files.items() if _is_for(name, version)}


def _is_for(name: str, version: str) -> bool:
    folder, *rest = name.split("/")
    if folder != _VERSIONS:
        return True
    side, _, boundary = rest[0].partition("-")
    later = _numbers(version) >= _numbers(boundary)
    return {"since": later, "before": not later}[side]


def _numbers(version: str) -> list[int]:
    """Major and minor number."""
    return [int(each) for each in version.split(".")[:2]]


def _digest(files: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256(_BUILDER.encode())
    for name, content in files.items():
        digest.update(f"\0{name}\0{len(content)}\0".encode())
        digest.update(content)
    return digest.hexdigest()


@contextmanager
def _only_builder(cache: Path) -> Iterator[None]:
    """Held by one process at a time; a process that dies lets go of it."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _cached(cache: Path, stem: str) -> Path | None:
    for each in cache.glob(f"{stem}.*.jar"):
        if _is_own(each) and each.name == f"{stem}.{_sha256(each)}.jar":
            return each
        each.unlink()
    return None


def _is_own(file: Path) -> bool:
    """Whether it is a regular file that nobody but this user can change."""
    found = file.lstat()
    return stat.S_ISREG(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _build(
    java: Path, spark: SparkHome, files: Mapping[str, bytes], target: Path, stem: str, say: Say
) -> Path:
    with tempfile.TemporaryDirectory(dir=target, prefix="build-") as scratch:
        sources, classes, packed = (Path(scratch) / name for name in ("sources", "classes", "packed.jar"))
        _write(sources, {name: content for name, content in files.items() if name.endswith(".scala")})
        compile_sources(java, spark, sources, classes, say=say)
        _pack(packed, _contents(classes, files), spark.version)
        packed.chmod(0o600)
        return packed.rename(target / f"{stem}.{_sha256(packed)}.jar")


def _write(directory: Path, files: Mapping[str, bytes]) -> None:
    for name, content in files.items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)


def compile_sources(
    java: Path,
    spark: SparkHome,
    sources: Path,
    classes: Path,
    *,
    options: Sequence[str] = (),
    say: Say = _to_stderr,
) -> None:
    """Compile Scala sources against Spark's own jars.

    Args:
        java: the command.
        spark: whose jars and compiler are used.
        sources: a directory; every Scala file below it is compiled.
        classes: the directory to write class files into; it is made.
        options: further options of the compiler.
        say: takes what the compiler wrote.

    Raises:
        JarNotBuilt: they do not compile.
    """
    classes.mkdir()
    names = sorted(each.relative_to(sources).as_posix() for each in sources.rglob("*.scala"))
    command = [str(java), *_JVM, "-cp", f"{spark.jars}/*", "scala.tools.nsc.Main", *_OPTIONS, *options]
    ran = subprocess.run(
        [*command, "-d", str(classes.absolute()), *names],
        cwd=sources,
        capture_output=True,
        text=True,
        errors="replace",
    )
    wrote = (ran.stdout + ran.stderr).strip()
    for line in wrote.splitlines():
        say(line)
    if ran.returncode != 0:
        raise JarNotBuilt(
            f"The plugin does not compile against Spark {spark.version}: {_first_error(wrote)}",
            rule="jar-build",
            hint="Reinstall Lakewarden and PySpark. If that does not help, report the compiler's output.",
        )


def _first_error(wrote: str) -> str:
    lines = wrote.splitlines() or ["the compiler wrote nothing."]
    return next((line for line in lines if ": error:" in line), lines[-1])


def _contents(classes: Path, files: Mapping[str, bytes]) -> dict[str, bytes]:
    """What goes into the jar: class files, and what lies below the directory of resources."""
    compiled = {
        each.relative_to(classes).as_posix(): each.read_bytes()
        for each in classes.rglob("*")
        if each.is_file()
    }
    resources = {
        name.removeprefix(_RESOURCES): content
        for name, content in files.items()
        if name.startswith(_RESOURCES) and not name.endswith(".scala")
    }
    return compiled | resources


def _pack(jar: Path, contents: Mapping[str, bytes], spark_version: str) -> None:
    manifest = f"Manifest-Version: 1.0\r\nBuilt-For-Spark: {spark_version}\r\n\r\n"
    with zipfile.ZipFile(jar, "x", zipfile.ZIP_DEFLATED) as archive:
        _add(archive, _MANIFEST, manifest.encode())
        for name, content in sorted(contents.items()):
            _add(archive, name, content)


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.external_attr = 0o644 << 16
    archive.writestr(entry, content)
