"""Provenance: what is known of the code, the machine and the run, and that not knowing is no failure."""

import shutil
import subprocess
import sys

import pytest

from tokmill.tasks.store import Provenance
from tokmill.tasks.store.provenance import digest_of_changes, git_state


def git(folder, *arguments):
    identity = ["-c", "user.name=me", "-c", "user.email=me@example.com"]
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path):
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    git(tmp_path, "init")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "a.py").write_text("a = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    return tmp_path


def test_a_changed_file_and_a_new_one_make_it_dirty(checkout):
    (checkout / "tasks" / "a.py").write_text("a = 2\n")
    assert git_state(checkout)[1] is True
    git(checkout, "checkout", "tasks/a.py")
    assert git_state(checkout)[1] is False
    (checkout / "tasks" / "b.py").write_text("")
    assert git_state(checkout)[1] is True


def test_changes_have_a_digest_that_new_files_change_too(checkout):
    (checkout / "tasks" / "a.py").write_text("a = 2\n")
    changed = digest_of_changes(checkout)
    (checkout / "tasks" / "b.py").write_text("b = 1\n")
    with_new = digest_of_changes(checkout)
    (checkout / "tasks" / "b.py").write_text("b = 2\n")
    with_another = digest_of_changes(checkout)
    (checkout / "notes.txt").write_text("no code")

    assert len({changed, with_new, with_another}) == 3
    assert digest_of_changes(checkout) == with_another


def test_without_a_checkout_git_is_not_even_called(tmp_path, monkeypatch):
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/called\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "installed").mkdir()
    assert git_state(tmp_path / "installed") == (None, None)
    assert not (tmp_path / "called").exists()


@pytest.mark.parametrize("behaviour", ["exit 1", "kill -9 $$", "echo"])
def test_a_git_that_fails_is_no_failure(tmp_path, monkeypatch, behaviour):
    program = tmp_path / "git"
    program.write_text(f"#!/bin/sh\n{behaviour}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / ".git").mkdir()
    assert git_state(tmp_path) == (None, None)


def test_what_is_collected():
    found = Provenance.collect(flow_run_id="run", deployment_id="deployment")
    assert (found.flow_run_id, found.deployment_id) == ("run", "deployment")
    assert Provenance.collect().flow_run_id is None
    assert found.packages.keys() >= {"duckdb", "pyarrow", "pydantic"}
    assert found.python.endswith(
        f"{sys.version_info.major}.{sys.version_info.minor}.{sys.version_info.micro}"
    )
    assert found.user
    assert found.command
    assert (found.git_commit is None) == (found.git_dirty is None)
