"""The packages of a server, and the folder that it serves."""

import json
import os
from pathlib import Path

import pytest

from tokmill.flows.doctor.report import look_at_packages, out_of_bounds
from tokmill.flows.errors import ProfileError, ServeError
from tokmill.flows.prefect.up import last_served, lock_store
from tokmill.flows.profile.served import SERVED, ServedFolder, require_served


def test_packages_that_pip_passed_the_bounds_of_are_named() -> None:
    assert look_at_packages() == []
    (finding,) = out_of_bounds(["sqlalchemy<2", "numpy>=2", "tokmill; extra == 'none'"])
    assert finding.text.startswith("sqlalchemy 2.")
    assert "<2" in finding.text


def test_a_place_is_named_after_folder_and_store(tmp_path: Path) -> None:
    here = ServedFolder.of(tmp_path, tmp_path / "store")
    (tmp_path / "link").symlink_to(tmp_path)

    assert ServedFolder.of(tmp_path / "link", tmp_path / "store") == here
    names = {
        here.name,
        ServedFolder.of(tmp_path, tmp_path / "other").name,
        ServedFolder.of(tmp_path / "sub", here.store).name,
    }
    assert len(names) == 3
    assert ServedFolder.of(Path("/"), tmp_path).name.startswith("folder-")


def test_a_store_is_served_once_and_the_second_is_told_where(tmp_path: Path) -> None:
    served, logs = ServedFolder.of(tmp_path, tmp_path / "store"), tmp_path / "store" / ".up"
    with lock_store(served, "http://127.0.0.1:4200", logs):
        other = ServedFolder.of(tmp_path / "other", tmp_path / "store")
        with (
            pytest.raises(
                ServeError, match=rf"{tmp_path}.* at http://127.0.0.1:4200 \(process {os.getpid()}\)"
            ),
            lock_store(other, "http://127.0.0.1:4300", logs),
        ):
            pass
        assert json.loads((logs / "up.json").read_text("utf-8"))["deployment"] == served.name
    with lock_store(served, "http://127.0.0.1:4200", logs):
        assert last_served(logs) is not None
    assert last_served(logs) is None


@pytest.mark.parametrize("profile", ["own.toml", "sub/own.toml", "quickstart", "sub/../own.toml"])
def test_profiles_of_the_served_folder_and_shipped_ones_are_taken(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SERVED, str(tmp_path))
    monkeypatch.chdir(tmp_path)

    require_served(profile)


@pytest.mark.parametrize(
    "profile", ["/etc/passwd", "../own.toml", "link/own.toml", "~/own.toml", "/etc/own.toml"]
)
def test_a_profile_elsewhere_is_refused_whether_it_exists_or_not(
    profile: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = tmp_path / "served"
    served.mkdir()
    (tmp_path / "own.toml").touch()
    (served / "link").symlink_to(tmp_path)
    monkeypatch.chdir(served)
    monkeypatch.setenv(SERVED, str(served))

    with pytest.raises(ProfileError, match=r"outside the served folder.*--allow-profiles"):
        require_served(profile)

    monkeypatch.setenv(SERVED, "")
    require_served(profile)
