"""Runs that receive a signal, and embedded servers that do not start, are killed, or collect garbage."""

import gzip
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.small_disk import on_small_disk
from tests.test_flows.commands import clean_environment, end_all, left_after, processes_with
from tests.test_flows.served import POLL
from tokmill.flows.errors import ServeError
from tokmill.flows.prefect.app import TEMPLATE, make_database
from tokmill.flows.prefect.server import EmbeddedServer

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/environ").exists(), reason="looks for processes in /proc"
)

PROFILE = """
[sources.many]
files = ["*.txt"]
[ingest]
shard_bytes = 65536
[train]
vocab_size = 400
"""


@pytest.mark.slow
@pytest.mark.server
@pytest.mark.parametrize(
    ("number", "to_the_group", "word"),
    [
        (signal.SIGINT, True, "interrupted"),  # as from a terminal
        (signal.SIGTERM, False, "terminated"),
        (signal.SIGKILL, False, ""),
    ],
)
def test_a_signal_ends_a_run_soon_and_leaves_no_child(
    migrated_home: Path, tmp_path: Path, number: int, to_the_group: bool, word: str
) -> None:
    """On the embedded server, after `ingest`."""
    home = shutil.copytree(migrated_home, tmp_path / "prefect")
    for name in range(40):
        (tmp_path / f"{name}.txt").write_text(f"Document {name} of many, with some words. " * 2000)
    (tmp_path / "own.toml").write_text(PROFILE)
    command = [sys.executable, "-m", "tokmill", "run", "own.toml", "--workers", "1"]
    how = {"cwd": tmp_path, "env": clean_environment(PREFECT_HOME=str(home)), "start_new_session": True}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **how) as run:
        try:
            made = any(line.startswith("ingest") and "made" in line for line in run.stderr)
            (os.killpg if to_the_group else os.kill)(run.pid, number)
            code = run.wait(60)
            left = left_after(5, "PREFECT_HOME", str(home))
            end_all(left)
            said = run.stderr.read().splitlines()
        finally:
            if run.poll() is None:
                os.killpg(run.pid, signal.SIGKILL)
    assert (made, left, code) == (True, set(), 128 + number if word else -number)
    if word:
        assert said[-1].startswith(f"tokmill: {word}")
        assert "kept in tokmill-store" in said[-1]
    assert list((tmp_path / "tokmill-store" / "corpus").iterdir())


# It began a child and has come to a standstill in its main thread when the signal reaches it.
STANDSTILL = """
import os, subprocess, threading
from tokmill.flows.process import start_tethered
from tokmill.flows.cli.app import keeping, noting_signals
started = start_tethered(["http.server", "0", "--bind", "127.0.0.1"], os.environ, subprocess.DEVNULL)
with noting_signals():
    keeping(lambda: "something was kept")
    told = False
    while True:
        try:
            if not told:
                told = True
                print(started.pid, flush=True)
            threading.Event().wait()
        except KeyboardInterrupt:
            pass
"""


def test_a_command_at_a_standstill_ends_with_its_children(tmp_path: Path) -> None:
    environment, piped = clean_environment(STANDSTILL=str(tmp_path)), subprocess.PIPE
    command = [sys.executable, "-c", STANDSTILL]
    with subprocess.Popen(command, env=environment, stdout=piped, stderr=piped, text=True) as process:
        child = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGTERM)
        code = process.wait(60)
        left = left_after(0, "STANDSTILL", str(tmp_path))
        end_all(left | {child} if left else set())
        said = process.stderr.read()
    assert (code, left) == (128 + signal.SIGTERM, set())
    assert said.splitlines()[-1].startswith("tokmill: terminated (SIGTERM); something was kept")


STARTING = """
import os
from contextlib import suppress
from pathlib import Path
from tokmill.flows.prefect.server import EmbeddedServer
EmbeddedServer().wait(Path(os.environ["PREFECT_HOME"]), 300.0, print)
"""


@pytest.mark.slow
@pytest.mark.server
def test_a_server_without_room_says_why_and_what_helps(tmp_path: Path) -> None:
    home = tmp_path / "home"
    command = on_small_disk(home, "256k", f"{sys.executable} -c '{STARTING}'")
    environment = clean_environment(PREFECT_HOME=str(home))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    message = done.stderr.rpartition("flows.errors.ServeError: ")[2]
    assert done.returncode == 1
    for words in (
        "database or disk is full",
        f"its database is in {home}",
        "set PREFECT_HOME to a folder on",
    ):
        assert words in message


def test_a_server_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    environment = clean_environment(PREFECT_HOME=str(tmp_path / "home"))
    with pytest.raises(ServeError, match="PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS"):
        EmbeddedServer(environment).wait(tmp_path, 0.01, print)
    assert not processes_with("PREFECT_HOME", str(tmp_path / "home"))


@pytest.mark.slow
@pytest.mark.server
def test_a_server_that_is_killed_is_replaced_at_its_address(migrated_home: Path, tmp_path: Path) -> None:
    home, notes = shutil.copytree(migrated_home, tmp_path / "home"), list[str]()
    server = EmbeddedServer(clean_environment(PREFECT_HOME=str(home)))
    try:
        server.wait(home, 120.0, notes.append)
        (killed,) = processes_with("PREFECT_HOME", str(home))
        os.kill(killed, signal.SIGKILL)
        until = time.monotonic() + 120
        while not notes or not answers(server.url):
            assert time.monotonic() < until, "no other server answers"
            POLL.wait(0.1)
    finally:
        server.stop()
    assert notes == ["Prefect's embedded server has ended (exit code -9); another one is started"]
    assert not processes_with("PREFECT_HOME", str(home))


@pytest.mark.slow
@pytest.mark.server
def test_the_template_of_a_database_becomes_what_migration_makes(tmp_path: Path) -> None:
    """The constraints of a table have no order, which differs from one migration to the next."""
    tables, words = [], re.compile(r"[^\s,]+").findall
    for name in ("restored", "migrated"):
        (tmp_path / name).mkdir()
        if name == "restored":
            make_database(url_of(tmp_path / name / "prefect.db"))
        with closing(sqlite3.connect(migrate(tmp_path / name))) as database:
            made = database.execute("SELECT type, name, sql FROM sqlite_master ORDER BY 1, 2").fetchall()
            version = database.execute("SELECT * FROM alembic_version").fetchall()
        tables.append([version, *((kind, name, sorted(words(sql or ""))) for kind, name, sql in made)])
    assert tables[0] == tables[1]


def migrate(home: Path, revision: str = "head") -> Path:
    """Migrate the database in a home by Prefect's own command; return its file."""
    command = [sys.executable, "-m", "prefect", "server", "database", "upgrade", "-y", "-r", revision]
    subprocess.run(command, env=clean_environment(PREFECT_HOME=str(home)), check=True, capture_output=True)
    return home / "prefect.db"


def write_template(home: Path, revision: str = "a3b9c7d2e5f1") -> None:
    """Write the template anew, by the last migration of the oldest supported Prefect, in an empty home."""
    with closing(sqlite3.connect(migrate(home, revision))) as database:
        TEMPLATE.write_bytes(gzip.compress("\n".join(database.iterdump()).encode(), mtime=0))


def test_a_database_is_made_only_where_there_is_none(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    there, new = tmp_path / "there.db", tmp_path / "new.db"
    there.write_bytes(b"own")
    others = ("sqlite+aiosqlite:///:memory:", f"postgresql:///{tmp_path}/pg", "sqlite:///relative.db")
    for url in (url_of(there), url_of(tmp_path / "absent" / "x.db"), url_of(new), url_of(new), *others):
        make_database(url)
    assert {path.name for path in tmp_path.iterdir()} == {"there.db", "new.db"}
    assert there.read_bytes() == b"own"
    assert new.read_bytes()[:20] == b"SQLite format 3\0\x10\0\2\2"  # in WAL mode


def url_of(file: Path) -> str:
    """Return the URL by which Prefect names a database."""
    return f"sqlite+aiosqlite:///{file}"


def answers(url: str) -> bool:
    """Whether a server answers at an address."""
    try:
        return httpx.get(f"{url}/health").is_success
    except httpx.HTTPError:
        return False


# Garbage that waits for SQLite does not stop the server's event loop, which goes on allocating.
COLLECTING = """
import sqlite3, sys, threading
from tokmill.flows.prefect.app import collect_elsewhere

def connect():
    found = sqlite3.connect(sys.argv[1], isolation_level=None, check_same_thread=False, timeout=10)
    found.execute("PRAGMA journal_mode = WAL")
    return found

def leave_a_cursor_in_a_cycle(connection):
    cycle = [connection.execute("SELECT 1 UNION SELECT 2")]
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
kept = [[number] for number in range(3_000_000)]
holding.execute("ROLLBACK")
thread.join()
print(ends)
"""


@pytest.mark.slow
def test_the_main_thread_goes_on_while_a_cursor_cannot_be_freed(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COLLECTING, str(tmp_path / "database")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout == "['begun']\n", done.stderr
