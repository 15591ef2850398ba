"""Garbage that waits for SQLite does not stop the server's event loop."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sqlite3, sys, threading
from tokmill.flows.prefect.app import collect_elsewhere

def connect():
    found = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False, timeout=10)
    found.execute("PRAGMA journal_mode = WAL")
    return found

def leave_a_cursor_in_a_cycle(connection):
    cursor = connection.execute("SELECT 1 UNION SELECT 2")
    cycle = [cursor]
    cycle.append(cycle)

holding, waiting, ends = connect(), connect(), []

def begin():
    try:
        waiting.execute("BEGIN IMMEDIATE")
        ends.append("begun")
    except sqlite3.OperationalError as error:
        ends.append(str(error))

collect_elsewhere()
holding.execute("BEGIN IMMEDIATE")
leave_a_cursor_in_a_cycle(waiting)
thread = threading.Thread(target=begin)
thread.start()
kept = [[number] for number in range(3_000_000)]  # as an event loop that goes on allocating
holding.execute("ROLLBACK")
thread.join()
print(ends)
"""


@pytest.mark.slow
def test_the_main_thread_goes_on_while_a_cursor_cannot_be_freed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "database")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    assert done.stdout == "['begun']\n", done.stderr
