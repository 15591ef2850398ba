"""A command that fails prints one message and nothing after it."""

import subprocess
import sys

# What keeps the exception, as Prefect's states do, until the interpreter has ended.
FAILING = """
import sys, threading
import duckdb
from tokmill.flows.cli.app import app
from tokmill.flows.commands.main import main
from tokmill.tasks.core.errors import TaskError

kept = []

@app.command()
def counting():
    try:
        counted()
    except TaskError as error:
        kept.append(error)
        threading.Thread(target=wait_with, args=(kept,), daemon=True).start()
        raise

def counted():
    connection = duckdb.connect()
    rows = connection.execute("SELECT 1")
    raise TaskError("count: it failed")

def wait_with(kept):
    threading.Event().wait()

sys.exit(main(["counting"]))
"""


def test_a_command_that_fails_says_nothing_after_its_message():
    done = subprocess.run(
        [sys.executable, "-c", FAILING], capture_output=True, text=True, check=False, timeout=120
    )

    assert done.returncode == 1
    assert done.stderr.splitlines() == ["tokmill: count: it failed"]
