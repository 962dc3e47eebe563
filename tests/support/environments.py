"""Python environments with one wheel and its requirements, made without a network.

The requirements are those that the wheel's metadata names for the extras. They are resolved among the
distributions that are installed here, and linked into the new environment.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import Distribution, PathDistribution, distribution
from pathlib import Path
from zipfile import Path as InZip

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
PACKAGES = ("policy", "catalog", "spark_ext", "lakewarden")

_OFFLINE = ("--no-deps", "--no-index", "--quiet")


def build_wheel(directory: Path) -> Path:
    """Build the wheel from a copy of the sources, since a build leaves files beside them."""
    source = directory / "source"
    source.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in PACKAGES:
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    _pip("wheel", *_OFFLINE, "--no-build-isolation", "--wheel-dir", str(directory), str(source))
    (wheel,) = directory.glob("lakewarden-*.whl")
    return wheel


def requirements(wheel: Path, extras: Sequence[str], others: Sequence[str] = ()) -> dict[str, Distribution]:
    """The distributions that `pip install lakewarden[EXTRAS] OTHERS` installs beside the wheel, by name."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    ours = _metadata(wheel)

    def add(each: Distribution, name: str, wanted: set[str]) -> None:
        for extra in {"", *wanted}:
            if (name, extra) in seen:
                continue
            seen.add((name, extra))
            for needed in _needed(each, extra):
                needed_name = canonicalize_name(needed.name)
                own = needed_name == "lakewarden"
                if not own:
                    found[needed_name] = distribution(needed_name)
                add(ours if own else found[needed_name], needed_name, needed.extras)

    add(ours, "lakewarden", set(extras))
    for each in others:
        found[each] = distribution(each)
        add(found[each], each, set())
    return found


def _metadata(wheel: Path) -> Distribution:
    (info,) = (each for each in InZip(wheel).iterdir() if each.name.endswith(".dist-info"))
    return PathDistribution(info)


def _needed(each: Distribution, extra: str) -> Iterator[Requirement]:
    for line in each.requires or ():
        needed = Requirement(line)
        if needed.marker is None:
            if not extra:
                yield needed
        elif needed.marker.evaluate({"extra": extra}):
            yield needed


@dataclass(frozen=True)
class Environment:
    """A Python environment in which the wheel is installed."""

    root: Path

    @property
    def python(self) -> Path:
        """The interpreter."""
        return self.root / "bin" / "python"

    def run(self, *arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run Python on these arguments, without anything of the environment that runs the tests."""
        return _run([str(self.python), "-E", *arguments], cwd, stdin)

    def command(
        self, *arguments: str, cwd: Path, environ: Mapping[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        """Run the command `lakewarden`, with these environment variables."""
        return _run([str(self.root / "bin" / "lakewarden"), *arguments], cwd, "", environ)


def environment(root: Path, wheel: Path, extras: Sequence[str], others: Sequence[str] = ()) -> Environment:
    """An environment as `pip install lakewarden[EXTRAS] OTHERS` makes it."""
    venv.create(root, symlinks=True, with_pip=False)
    made = Environment(root)
    (packages,) = root.glob("lib/python*/site-packages")
    for each in requirements(wheel, extras, others).values():
        _link(each, packages)
    _pip("--python", str(made.python), "install", *_OFFLINE, "--no-compile", str(wheel))
    return made


def _link(each: Distribution, packages: Path) -> None:
    for name in {file.parts[0] for file in each.files or () if file.parts[0] != ".."}:
        source, target = Path(str(each.locate_file(name))), packages / name
        if source.exists() and not target.exists():
            target.symlink_to(source)


def _run(
    command: list[str], cwd: Path, stdin: str, environ: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    base = {"HOME": str(cwd), "PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "COLUMNS": "200"}
    given = base | dict(environ or {})
    return subprocess.run(
        command, cwd=cwd, input=stdin, env=given, capture_output=True, text=True, check=False
    )


def _pip(*arguments: str) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", *arguments]
    done = subprocess.run(pip, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
