"""Digests of bytes, files and artifacts, and the memory of raw files' digests."""

import os
import sqlite3
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tokmill.tasks.core.errors import SourceError
from tokmill.tasks.store import FileDigests, FileEntry, content_digest, digest_bytes, digest_file

EMPTY = "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"  # b2sum -l 256 of nothing
ABC = "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319"  # b2sum -l 256 of "abc"
LONG_AGO_NS = 1_500_000_000_000_000_000


def test_digests_are_blake2b_256(tmp_path):
    (tmp_path / "abc").write_bytes(b"abc")
    assert digest_bytes(b"") == EMPTY
    assert digest_bytes(b"abc") == ABC
    assert digest_file(tmp_path / "abc") == ABC


def test_content_digest_by_hand():
    entries = [
        FileEntry(path="b", size_bytes=0, digest=EMPTY),
        FileEntry(path="a/x", size_bytes=3, digest=ABC),
    ]
    written = f'[["a/x",3,"{ABC}"],["b",0,"{EMPTY}"]]'
    assert content_digest(entries) == digest_bytes(written.encode())
    assert (
        content_digest(entries) == "afaccd9d89ae29fa1172489d1dddee8495c15bb5f3070fa0febff07f3fc4221f"
    )  # b2sum -l 256 of it
    assert content_digest([]) == digest_bytes(b"[]")


parts = st.text(st.characters(exclude_characters="/\\:\0", exclude_categories=["Cs"]), min_size=1, max_size=9)
entries = st.builds(
    FileEntry,
    path=st.lists(parts.filter(lambda part: part not in {".", ".."}), min_size=1).map("/".join),
    size_bytes=st.integers(0, 2**63 - 1),
    digest=st.sampled_from([ABC, EMPTY]),
)


@given(st.lists(entries, unique_by=lambda entry: entry.path), st.randoms())
def test_content_digest_does_not_depend_on_the_order_of_files(files, random):
    shuffled = list(files)
    random.shuffle(shuffled)
    assert content_digest(shuffled) == content_digest(files)


@given(st.lists(entries, min_size=1, unique_by=lambda entry: entry.path))
def test_content_digest_changes_with_path_size_and_digest(files):
    first, *others = files
    for change in ({"path": first.path + "x"}, {"size_bytes": first.size_bytes + 1}, {"digest": "0" * 64}):
        assert content_digest([first.model_copy(update=change), *others]) != content_digest(files)


def old_file(path, data):
    path.write_bytes(data)
    os.utime(path, ns=(LONG_AGO_NS, LONG_AGO_NS))
    return path


def remembered(store):
    with sqlite3.connect(store / ".cache" / "digests.sqlite") as memory:
        found = memory.execute("SELECT digest FROM files").fetchall()
    memory.close()
    return [digest for (digest,) in found]


def test_a_file_of_equal_size_and_time_is_not_read_again(tmp_path):
    path = old_file(tmp_path / "raw", b"abc")
    assert FileDigests(tmp_path / "store").digest(path) == ABC
    old_file(path, b"xyz")
    assert FileDigests(tmp_path / "store").digest(path) == ABC
    assert FileDigests(tmp_path / "store", rehash=True).digest(path) == digest_bytes(b"xyz")
    assert FileDigests(tmp_path / "store").digest(path) == digest_bytes(b"xyz")


def test_a_file_that_is_touched_or_resized_is_read_again(tmp_path):
    digests = FileDigests(tmp_path / "store")
    path = old_file(tmp_path / "raw", b"abc")
    assert digests.digest(path) == ABC
    path.write_bytes(b"xyz")
    os.utime(path, ns=(LONG_AGO_NS + 1, LONG_AGO_NS + 1))
    assert digests.digest(path) == digest_bytes(b"xyz")
    old_file(path, b"longer")
    assert digests.digest(path) == digest_bytes(b"longer")


def test_a_file_that_was_just_written_is_not_remembered(tmp_path):
    path = tmp_path / "raw"
    path.write_bytes(b"abc")
    assert FileDigests(tmp_path / "store").digest(path) == ABC
    assert remembered(tmp_path / "store") == []


def test_relative_and_absolute_paths_are_one_file(tmp_path, monkeypatch):
    path = old_file(tmp_path / "raw", b"abc")
    monkeypatch.chdir(tmp_path)
    digests = FileDigests(tmp_path / "store")
    assert digests.digest(path.relative_to(tmp_path)) == digests.digest(path) == ABC
    assert remembered(tmp_path / "store") == [ABC]


def test_threads_share_one_memory(tmp_path):
    digests = FileDigests(tmp_path / "store")
    paths = [old_file(tmp_path / f"raw{number}", b"abc") for number in range(20)]
    threads = [threading.Thread(target=digests.digest, args=[path]) for path in paths]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert remembered(tmp_path / "store") == [ABC] * 20


def test_a_missing_file_is_an_error_that_names_it(tmp_path):
    with pytest.raises(SourceError, match=r"nowhere cannot be read \(No such file"):
        FileDigests(tmp_path / "store").digest(tmp_path / "nowhere")


def test_a_broken_memory_is_started_again(tmp_path):
    path = old_file(tmp_path / "raw", b"abc")
    (tmp_path / ".cache").mkdir()
    (tmp_path / ".cache" / "digests.sqlite").write_bytes(b"no database" * 1000)
    assert FileDigests(tmp_path).digest(path) == ABC
    assert remembered(tmp_path) == [ABC]


def test_a_memory_that_cannot_be_used_is_named_once_and_stops_nobody(tmp_path, caplog):
    (tmp_path / ".cache" / "digests.sqlite").mkdir(parents=True)
    digests = FileDigests(tmp_path)
    assert [digests.digest(old_file(tmp_path / name, b"abc")) for name in ("a", "b")] == [ABC, ABC]
    (said,) = (record.getMessage() for record in caplog.records)
    assert "digests.sqlite cannot be used (unable to open database file)" in said
