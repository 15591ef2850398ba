"""A store's files on disk: what is written, and what may be read."""

from pathlib import Path

import pytest

from tokmill.tasks.store import disk


def test_a_name_can_be_created_once(tmp_path: Path) -> None:
    disk.create(tmp_path / "folder" / "name", b"first")

    with pytest.raises(FileExistsError):
        disk.create(tmp_path / "folder" / "name", b"second")
    disk.replace(tmp_path / "folder" / "name", b"third")

    assert disk.read(tmp_path / "folder" / "name", 10) == b"third"
    assert [entry.name for entry in disk.entries(tmp_path / "folder")] == ["name"]


def test_states_tell_links_from_what_they_lead_to(tmp_path: Path) -> None:
    disk.create(tmp_path / "file", b"four")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")

    assert disk.state(tmp_path / "file")[:2] == ("file", 4)
    assert disk.state(tmp_path).kind == "folder"
    assert disk.state(tmp_path / "link").kind == "other"
    assert disk.is_taken(tmp_path / "lost")
    with pytest.raises(OSError, match="is a link"):
        disk.read(tmp_path / "link", 10)


def test_a_missing_folder_has_no_entries(tmp_path: Path) -> None:
    assert disk.entries(tmp_path / "missing") == []
