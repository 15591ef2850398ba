"""A catalog that is broken, busy, or asked by many at once: nothing is lost, and what is wrong is told."""

import os
import shutil
import sqlite3
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path

import duckdb
import pytest

from tests.small_disk import permitted_mounts
from tests.test_tasks.store_stages import ask, ask_joined, catalog_rows
from tokmill.tasks.core import database
from tokmill.tasks.core.errors import StoreError
from tokmill.tasks.store import Store
from tokmill.tasks.store.catalog import Catalog
from tokmill.tasks.store.disk import ProcessLock
from tokmill.tasks.store.tables import VERSION

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with two texts, one of them tagged, a joined text and a run."""
    store = Store.open(tmp_path_factory.mktemp("original"))
    store.catalog.add_run("run-1")
    one, two = store.realize(ask("web/0", text="ab")).ref, store.realize(ask("web/1", text="c")).ref
    store.realize(ask_joined("all", one, two))
    store.tag(one, "prod")
    store.catalog.finish_run("run-1", state="completed")
    return store


@pytest.fixture
def told():
    return []


@pytest.fixture(autouse=True)
def impatience(monkeypatch):
    for wait in ("_REBUILD_SECONDS", "_UPDATE_SECONDS", "_QUESTION_SECONDS"):
        monkeypatch.setattr(f"tokmill.tasks.store.catalog.{wait}", 0.05)


@pytest.fixture
def filled(original, tmp_path, told):
    """A copy of `original`, whose catalog tells `told`."""
    store = Store.open(shutil.copytree(original.root, tmp_path / "store"))
    store.catalog = Catalog(store.layout, report=told.append)
    return store


def of_sqlite(path):
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE artifacts (name TEXT)")
    connection.close()


def a_fifo(path):
    path.unlink()
    os.mkfifo(path)


def sql(statement):
    def change(path):
        with duckdb.connect(str(path)) as connection:
            connection.execute(statement)

    return change


OTHER_RUNS = "ALTER TABLE runs RENAME COLUMN state TO condition"


HARMS = {
    "lost": Path.unlink,
    "garbage": lambda path: path.write_bytes(b"hello" * 1000),
    "empty": lambda path: path.write_bytes(b""),
    "sqlite": of_sqlite,
    "fifo": a_fifo,
    "half": lambda path: os.truncate(path, path.stat().st_size // 2),
    "scrambled": lambda path: path.write_bytes(path.read_bytes()[:12288].ljust(path.stat().st_size, b"\1")),
    "no version": sql("DROP TABLE catalog_version"),
    "earlier": sql(f"UPDATE catalog_version SET version = {VERSION - 1}; {OTHER_RUNS}"),
    "later": sql(f"UPDATE catalog_version SET version = {VERSION + 1}; {OTHER_RUNS}"),
    "other columns": sql("ALTER TABLE files DROP COLUMN digest"),
}


@pytest.mark.slow
@pytest.mark.parametrize("harm", HARMS)
def test_an_unusable_catalog_is_made_again_and_that_is_told(filled, told, harm):
    before = catalog_rows(filled)
    HARMS[harm](filled.catalog.path)
    assert catalog_rows(filled) == before
    assert ["made again from" in line for line in told] == [True] * (harm != "lost")
    assert catalog_rows(filled) == before
    assert len(told) == (harm != "lost")


def test_a_question_that_memory_does_not_suffice_for_is_no_fault_of_the_catalog(filled, told, monkeypatch):
    monkeypatch.setitem(database._NO_EXTENSIONS, "memory_limit", "40MB")
    monkeypatch.setattr(database, "_idle", [])
    with pytest.raises(StoreError, match="Out of Memory"):
        filled.catalog.query("SELECT list(repeat('x', 1000) || i) FROM range(1000000) t(i)")
    assert told == []


def test_what_a_catalog_defines_reads_no_file_and_hides_no_function(filled, tmp_path):
    (tmp_path / "secret").write_text("secret")
    read = f"SELECT content FROM read_text('{tmp_path / 'secret'}')"
    sql(f"CREATE MACRO upper(text) AS 'hidden'; CREATE VIEW other AS {read}")(filled.catalog.path)
    assert filled.catalog.ask("SELECT upper(name) FROM artifacts WHERE name = 'all'").rows == [("ALL",)]
    for question in ("FROM other", read):
        with pytest.raises(StoreError, match="DuckDB rejects"):
            filled.catalog.ask(question)


def test_an_earlier_catalog_that_may_not_be_replaced_still_answers(filled):
    filled.list()
    sql(f"UPDATE catalog_version SET version = {VERSION - 1}; {OTHER_RUNS}")(filled.catalog.path)
    filled.layout.catalog_lock.unlink(missing_ok=True)
    filled.layout.catalog_lock.mkdir(parents=True)  # no lock can be taken
    assert len(filled.list()) == 3
    with duckdb.connect(str(filled.catalog.path), read_only=True) as catalog:
        assert catalog.execute("SELECT version FROM catalog_version").fetchone() == (VERSION - 1,)


def test_files_of_others_beside_the_runs_are_no_runs(filled, told):
    for name in ("notes.txt", "._run-1.json"):  # as macOS puts beside each file of a share
        (filled.layout.runs / name).write_bytes(b"\0")
    assert filled.catalog.query("SELECT run_id FROM runs") == [{"run_id": "run-1"}]
    assert (told, filled.verify()) == ([], [])


# -- others who hold it -----------------------------------------------------------------------------------


@contextmanager
def held(path):
    lock = ProcessLock(path)
    assert lock.try_acquire()
    yield
    lock.release()


def test_a_busy_catalog_is_an_error_for_who_replaces_it_and_nobody_else(filled):
    with held(filled.layout.catalog_lock):
        with pytest.raises(StoreError, match=r"has held .*catalog\.lock for 0\.05 s"):
            filled.catalog.rebuild()
        shutil.rmtree(filled.path(filled.resolve("text/web/1")))
        assert [row["name"] for row in filled.catalog.versions()] == ["all", "web/0"]
    filled.catalog.rebuild()


def test_publishing_beside_a_busy_catalog_succeeds_and_the_rows_come_later(filled, told):
    filled.catalog.add_run("run-2")
    with held(filled.layout.catalog_lock):
        ref = filled.realize(ask("web/2", text="d")).ref
        filled.tag(ref, "prod")
        filled.catalog.finish_run("run-2", state="completed")
    assert filled.lookup(ask("web/2", text="d")) == ref
    assert "the next query adds them" in told[-1]
    assert [row["aliases"] for row in filled.list(name="web/2")] == [["prod"]]
    assert filled.catalog.query("SELECT state FROM runs WHERE run_id = 'run-2'") == [{"state": "completed"}]


@pytest.mark.slow
def test_a_store_that_may_only_be_read_answers_questions(filled):
    """Bound to itself without the right to write; what is new is taken in for each question alone."""
    shutil.rmtree(filled.path(filled.resolve("text/web/1")))
    program = (
        "import sys\nfrom tokmill.tasks.store import Store\nfrom tests.test_tasks.store_stages import ask\n"
        "store = Store.open(sys.argv[1])\n"
        "print([row['name'] for row in store.list()], store.lookup(ask('web/1', text='c')))\n"
        "print(*store.verify(), sep='\\n')\n"
    )
    lines = read_only_lines(filled.root, program)
    assert lines[0] == "['all', 'web/0'] None"
    assert [line.partition(": ")[0] for line in lines[1:]] == ["catalog"]


def read_only_lines(root, program):
    """What a program prints that sees a store as a file system that may only be read."""
    script = 'mount --bind "$0" "$0" && mount -o remount,ro,bind "$0" && exec "$1" -c "$2" "$0"'
    command = [*permitted_mounts(), "sh", "-c", script, str(root), sys.executable, program]
    done = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
