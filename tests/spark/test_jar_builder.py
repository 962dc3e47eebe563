"""The plugin's jar: built once for each Spark and state of the sources, and never taken from a stranger."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from subprocess import PIPE

import pytest

from spark_ext import jar, runtime
from spark_ext.errors import JarNotBuilt, SparkUnavailable
from spark_ext.jar import SOURCES, spark_jar

ROOT = Path(__file__).parents[2]
ONE = "package lakewarden.sample\n\nobject Sample { val answer = 1 }\n"


#: Stands in for Java where only the cache matters: its compiler copies the last source in a moment.
QUICK_JAVA = """\
#!/bin/sh
[ "$1" = -version ] && { echo 'openjdk version "17.0.1"' >&2; exit; }
while [ $# -gt 0 ]; do [ "$1" = -d ] && classes=$2; last=$1; shift; done
cp "$last" "$classes/Sample.class"
"""


class Builder:
    """Builds small sources with a cache of its own."""

    def __init__(self, root: Path) -> None:
        self.sources = root / "scala"
        self.sources.mkdir()
        (self.sources / "Sample.scala").write_text(ONE)
        self.cache = root / "cache"
        self.environ = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "TMPDIR": str(root / "tmp")}
        (root / "tmp").mkdir()
        self.root = root
        self.said: list[str] = []

    def build(self, **environ: str) -> Path:
        return spark_jar(environ={**self.environ, **environ}, sources=self.sources, say=self.said.append)

    def with_java(self, script: str) -> None:
        """Put a script in Java's place."""
        java = self.root / "jdk" / "bin" / "java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text(script)
        java.chmod(0o755)
        self.environ["JAVA_HOME"] = str(self.root / "jdk")

    def built(self) -> bool:
        """Whether something was built since the last question."""
        said, self.said = self.said, []
        return bool(said)


@pytest.fixture
def builder(tmp_path: Path) -> Builder:
    return Builder(tmp_path)


@pytest.fixture
def quick(builder: Builder) -> Builder:
    builder.with_java(QUICK_JAVA)
    return builder


def test_a_jar_is_built_once_and_says_so(quick: Builder) -> None:
    first = quick.build()
    assert quick.said[0].startswith("Building the plugin for Spark 4.")
    assert quick.built()
    assert quick.build() == first
    assert not quick.built()


@pytest.mark.nightly
def test_a_jar_holds_classes_and_resources_and_no_sources(builder: Builder) -> None:
    services = builder.sources / "resources" / "META-INF" / "services"
    services.mkdir(parents=True)
    (services / "some.Interface").write_text("lakewarden.sample.Sample\n")
    first = builder.build()
    with zipfile.ZipFile(first) as archive:
        assert {"META-INF/MANIFEST.MF", "lakewarden/sample/Sample.class"} <= set(archive.namelist())
        assert archive.read("META-INF/services/some.Interface") == b"lakewarden.sample.Sample\n"
        assert not [name for name in archive.namelist() if name.endswith(".scala")]


def built_twice(builder: Builder) -> tuple[bytes, bytes]:
    """Two jars of the same sources, which have got another time meanwhile."""
    first = builder.build()
    content = first.read_bytes()
    first.unlink()
    os.utime(builder.sources / "Sample.scala", (0, 0))
    assert builder.build() == first
    return content, first.read_bytes()


def test_the_same_classes_give_the_same_bytes(quick: Builder) -> None:
    first, second = built_twice(quick)
    assert first == second


@pytest.mark.nightly
def test_the_compiler_gives_the_same_bytes(builder: Builder) -> None:
    first, second = built_twice(builder)
    assert first == second


def test_another_state_of_the_sources_is_another_jar(quick: Builder) -> None:
    first = quick.build()
    (quick.sources / "Sample.scala").write_text(ONE.replace("1", "2"))
    second = quick.build()
    assert first.name != second.name and quick.built()


def test_a_jar_belongs_to_one_version_of_spark(quick: Builder, tmp_path: Path) -> None:
    other = _spark_home(tmp_path / "spark", "4.2.9")
    assert quick.build(SPARK_HOME=str(other)).name != quick.build().name


def test_a_damaged_jar_is_built_again(quick: Builder) -> None:
    first = quick.build()
    content = first.read_bytes()
    first.write_bytes(content[:-1])
    assert quick.built()
    assert quick.build() == first and quick.built()
    assert first.read_bytes() == content


def test_a_planted_jar_with_a_digest_of_its_own_is_not_taken_from_a_shared_directory(
    quick: Builder,
) -> None:
    planted = quick.build()
    directory = planted.parent
    directory.chmod(0o777)
    built = quick.build()
    assert built.parent != directory
    assert stat.S_IMODE(built.parent.stat().st_mode) == 0o700


def test_a_jar_that_others_may_write_is_not_taken(quick: Builder) -> None:
    first = quick.build()
    first.chmod(0o666)
    quick.built()
    assert stat.S_IMODE(quick.build().stat().st_mode) == 0o600 and quick.built()


def test_a_link_in_place_of_a_jar_is_not_followed(quick: Builder, tmp_path: Path) -> None:
    first = quick.build()
    elsewhere = first.rename(tmp_path / "elsewhere.jar")
    first.symlink_to(elsewhere)
    assert not quick.build().is_symlink()


def test_a_directory_above_the_cache_that_others_may_write_is_not_used(quick: Builder) -> None:
    quick.cache.mkdir()
    quick.cache.chmod(0o777)
    assert quick.cache not in quick.build().parents


def test_no_private_directory_means_no_jar(quick: Builder, tmp_path: Path) -> None:
    quick.cache.mkdir()
    quick.cache.chmod(0o777)
    (tmp_path / "tmp" / f"lakewarden-{os.getuid()}").mkdir(mode=0o777)
    (tmp_path / "tmp" / f"lakewarden-{os.getuid()}").chmod(0o777)
    with pytest.raises(SparkUnavailable, match="others may write") as refused:
        quick.build()
    assert refused.value.rule == "jar-cache" and refused.value.hint
    assert not quick.said


def test_a_cache_that_cannot_be_made_gives_way_to_a_private_temporary_directory(
    quick: Builder, tmp_path: Path
) -> None:
    quick.cache.write_text("a file in the way")
    assert quick.build().is_relative_to(tmp_path / "tmp")


def test_of_processes_that_ask_at_once_one_builds_and_all_get_its_jar(quick: Builder) -> None:
    # The compiler waits until all three ask, and a little more, so that all would be at it if none waited.
    asking = quick.root / "asking"
    asking.mkdir()
    all_ask = f"until [ $(ls {asking} | wc -l) = 3 ]; do sleep 0.05; done; sleep 0.3; "
    quick.with_java(QUICK_JAVA.replace("cp ", f"{all_ask}cp "))
    code = (
        "import os; from pathlib import Path; from spark_ext.jar import spark_jar\n"
        f"Path({str(asking)!r}, str(os.getpid())).touch()\n"
        f"print(spark_jar(sources=Path({str(quick.sources)!r})))"
    )
    command = [sys.executable, "-c", code]
    running = [
        subprocess.Popen(command, stdout=PIPE, stderr=PIPE, text=True, env=quick.environ, cwd=ROOT)
        for _ in range(3)
    ]
    wrote = [process.communicate() for process in running]
    assert [process.returncode for process in running] == [0, 0, 0]
    assert {out.strip() for out, _ in wrote} == {str(quick.build())}
    assert sum(err.count("Building the plugin") for _, err in wrote) == 1 and not quick.built()
    assert sorted(each.suffix for each in quick.build().parent.iterdir()) == ["", ".jar"]


def test_a_builder_that_died_leaves_nothing_that_counts(quick: Builder) -> None:
    directory = quick.cache / "lakewarden"
    directory.mkdir(mode=0o700, parents=True)
    (directory / "build-dead").mkdir()
    (directory / "build-dead" / "packed.jar").write_bytes(b"half a jar")
    with zipfile.ZipFile(quick.build()) as archive:
        assert archive.testzip() is None


def test_sources_that_cannot_be_written_are_enough(quick: Builder) -> None:
    for each in [*quick.sources.rglob("*"), quick.sources]:
        each.chmod(0o555 if each.is_dir() else 0o444)
    before = sorted(quick.sources.rglob("*"))
    assert quick.build().exists()
    assert sorted(quick.sources.rglob("*")) == before


@pytest.mark.nightly
def test_sources_that_do_not_compile_are_reported_with_file_and_line(builder: Builder) -> None:
    (builder.sources / "Sample.scala").write_text('object Sample {\n  val answer: Int = ""\n}\n')
    with pytest.raises(JarNotBuilt, match=r"Sample\.scala:2: error: type mismatch") as refused:
        builder.build()
    assert refused.value.rule == "jar-build"
    assert any("type mismatch" in line for line in builder.said)
    assert not list((builder.cache / "lakewarden").glob("*.jar"))


def test_each_version_of_spark_has_its_source_sets(builder: Builder) -> None:
    (builder.sources / "Sample.scala").unlink()
    for name in ("since-4.1", "since-4.3", "since-4.10", "before-4.3", "before-4.10"):
        folder = builder.sources / "versions" / name
        folder.mkdir(parents=True)
        (folder / f"{name}.scala").write_text("")
    files = jar._read(builder.sources)
    chosen = {
        version: {each.rpartition("/")[2].removesuffix(".scala") for each in jar._of_version(files, version)}
        for version in ("4.1.4", "4.3.0", "4.10.1")
    }
    assert chosen == {
        "4.1.4": {"since-4.1", "before-4.3", "before-4.10"},
        "4.3.0": {"since-4.1", "since-4.3", "before-4.10"},
        "4.10.1": {"since-4.1", "since-4.3", "since-4.10"},
    }


def test_the_sources_are_part_of_the_package() -> None:
    assert (SOURCES / "lakewarden" / "spark" / "LakewardenCatalog.scala").is_file()


def test_no_java_is_one_clear_sentence(builder: Builder, tmp_path: Path) -> None:
    environ = {"PATH": str(tmp_path), "JAVA_HOME": ""}
    with pytest.raises(SparkUnavailable, match="there is no java on PATH") as refused:
        builder.build(**environ)
    assert "17 or newer" in refused.value.message and "apt-get install" in (refused.value.hint or "")


def test_java_home_wins_and_a_wrong_one_is_named(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME is set, and .*/jdk/bin/java does not run"):
        builder.build(JAVA_HOME=str(tmp_path / "jdk"))


def test_an_old_java_is_refused(builder: Builder) -> None:
    builder.with_java("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    with pytest.raises(SparkUnavailable, match=r"needs Java 17 or newer; .* is Java 11"):
        builder.build()


def test_a_spark_home_without_spark_is_named(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match="no Spark with Scala") as refused:
        builder.build(SPARK_HOME=str(tmp_path))
    assert "SPARK_HOME" in (refused.value.hint or "")


def test_a_spark_that_the_plugin_is_not_made_for_is_refused(builder: Builder, tmp_path: Path) -> None:
    with pytest.raises(SparkUnavailable, match=r"version 3\.5\.1; the plugin supports"):
        builder.build(SPARK_HOME=str(_spark_home(tmp_path / "spark", "3.5.1")))


def test_pyspark_that_is_not_installed_is_named(builder: Builder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "find_spec", lambda name: None)
    builder.environ.pop("SPARK_HOME", None)
    with pytest.raises(SparkUnavailable, match="PySpark is not installed"):
        builder.build()


@pytest.mark.nightly
def test_the_plugin_compiles_without_a_warning(tmp_path: Path) -> None:
    environ: Mapping[str, str] = os.environ
    said: list[str] = []
    java, spark = runtime.find_java(environ), runtime.find_spark(environ)
    jar._write(tmp_path / "sources", jar._of_version(jar._read(SOURCES), spark.version))
    jar.compile_sources(
        java, spark, tmp_path / "sources", tmp_path / "classes", options=["-Werror"], say=said.append
    )
    assert said == []


def _spark_home(root: Path, version: str) -> Path:
    """The jars of the installed Spark, said to be of another version."""
    jars = root / "jars"
    jars.mkdir(parents=True)
    for each in runtime.find_spark(os.environ).jars.iterdir():
        core = each.name.startswith("spark-core_2.13-")
        (jars / (f"spark-core_2.13-{version}.jar" if core else each.name)).symlink_to(each)
    return root
