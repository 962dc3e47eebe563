"""The demonstration keeps to a directory of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.errors import RequestInvalid
from spark_ext.demo.workspace import prepare, remove


def test_new_directory_is_made(tmp_path: Path) -> None:
    place = prepare(tmp_path / "new" / "demo")
    assert place.is_dir()
    remove(place)
    assert not place.exists()


def test_directory_of_an_earlier_demonstration_is_emptied(tmp_path: Path) -> None:
    place = prepare(tmp_path)
    (place / "lake").mkdir()
    (place / "lake" / "lakewarden.db").write_text("old")
    assert prepare(tmp_path) == place
    assert not (place / "lake").exists()


@pytest.mark.parametrize("name", ["lake", "notes.txt"])
def test_directory_of_somebody_else_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("mine")
    with pytest.raises(RequestInvalid, match="contains files that no demonstration created"):
        prepare(tmp_path)
    assert (tmp_path / name).read_text() == "mine"


def test_what_was_put_beside_a_demonstration_is_not_removed(tmp_path: Path) -> None:
    place = prepare(tmp_path / "demo")
    (place / "notes.txt").write_text("mine")
    with pytest.raises(RequestInvalid, match="contains files that no demonstration created"):
        prepare(place)
    with pytest.raises(RequestInvalid, match="contains files that no demonstration created"):
        remove(place)
    assert (place / "notes.txt").read_text() == "mine"


def test_file_in_the_place_of_a_directory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RequestInvalid, match="cannot be used"):
        prepare(tmp_path / "file")
