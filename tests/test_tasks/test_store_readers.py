"""Readers in other processes see every published artifact, whole, while a writer goes on publishing.

With TOKMILL_EVERYTHING there are fifty readers, as in issue 14, and two hundred artifacts.
"""

import subprocess
import sys

import pytest

from tests.effort import EVERYTHING
from tests.test_tasks.store_readers import READERS, SEES_EVERY
from tests.test_tasks.store_stages import catalog_rows
from tokmill.tasks.store import Store

pytestmark = pytest.mark.slow

NUM_OF_EACH, NUM_WRITTEN = (10, 200) if EVERYTHING else (1, 30)
BUSY = "the catalog is busy"  # a publication reports that its rows are left to the next query


def started(*words):
    command = [sys.executable, "-m", "tests.test_tasks.store_readers", *map(str, words)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(command, text=True, **pipes)


def answers_while_written(root):
    """Write a store among readers; return of each how it reads, how often it did, and what it saw last."""
    writer = started("write", root, NUM_WRITTEN)
    processes = [writer]
    try:
        assert writer.stdout.readline() == "begun\n"
        readers = [(how, started(how, root)) for how in READERS for _ in range(NUM_OF_EACH)]
        processes += [reader for _, reader in readers]
        assert {reader.stdout.readline() for _, reader in readers} == {"answered\n"}
        _, said = writer.communicate("go on\n")
        root.with_name("written").touch()
        assert (writer.returncode, [line for line in said.splitlines() if BUSY not in line]) == (0, [])
        ended = [(how, *reader.communicate(), reader.returncode) for how, reader in readers]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert [end for end in ended if end[2] or end[3]] == []
    return [(how, *map(int, out.split())) for how, out, _, _ in ended]


def test_no_reader_fails_or_misses_a_row_while_a_writer_publishes(tmp_path):
    root = tmp_path / "store"
    answers = answers_while_written(root)
    assert len(answers) == NUM_OF_EACH * len(READERS)
    assert all(asked > 1 for _, asked, _ in answers)
    last = {how: NUM_WRITTEN // every * every + 1 for how, every in SEES_EVERY.items()}
    assert {(how, seen) for how, _, seen in answers} == set(last.items())

    store = Store.open(root)
    found = catalog_rows(store)
    store.catalog.rebuild()
    assert catalog_rows(store) == found
    assert store.verify() == []
