"""Processes that publish and ask at once: nobody fails, waits for a reader, or misses what was published.

With TOKMILL_EVERYTHING twenty readers ask while two hundred artifacts are published.
"""

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.effort import EVERYTHING
from tests.test_tasks.store_stages import WriteParams, ask, catalog_rows, stage_of
from tokmill.tasks.core.stage import Outcome, Request
from tokmill.tasks.store import Store, disk

CHECKOUT = Path(__file__).parents[2]
NUM_OF_EACH, NUM_WRITTEN = (10, 200) if EVERYTHING else (1, 30)

# Publishes artifacts, every fifth joined from the first and with a run of its own; announces each in a file
# beside the store once it is published; after the first it says so, and waits for a line.
WRITER = """
import sys
from pathlib import Path
from tests.test_tasks.store_stages import ask, ask_joined
from tokmill.tasks.store import Store, disk
from tokmill.tasks.store.runs import Found, RunArtifact

root, number = Path(sys.argv[1]), int(sys.argv[2])
store = Store.open(root)

def announce(done):
    root.with_name("announced.part").write_text(str(done))
    root.with_name("announced.part").replace(root.with_name("announced"))

first = store.realize(ask("web/0", text="0")).ref
announce(1)
print("begun", flush=True)
sys.stdin.readline()
for done in range(1, number + 1):
    if done % 5:
        store.realize(ask(f"web/{done}", text=str(done)))
    else:
        store.catalog.add_run(f"run-{done}")
        ref = store.realize(ask_joined(f"all/{done}", first, text=str(done))).ref
        made = [RunArtifact(task="join", ref=ref, how="made")]
        store.catalog.finish_run(f"run-{done}", state="completed", found=Found(made))
    announce(done + 1)
"""

# Asks until everything is written, and once more; sees at least what was announced before it asked, never
# less than before, and each artifact whole. Lineage and runs show every fifth.
READER = """
import sys
from pathlib import Path
from tokmill.tasks.store import Store, lineage

root, how = Path(sys.argv[1]), sys.argv[2]

def query(store):
    (row,) = store.catalog.query('''
        SELECT (SELECT count(DISTINCT fingerprint) FROM artifacts) AS number,
               (SELECT count(*) FROM artifacts a ANTI JOIN labels l USING (fingerprint))
             + (SELECT count(*) FROM artifacts a ANTI JOIN files f USING (fingerprint))
             + (SELECT count(*) FROM artifacts a ANTI JOIN inputs i USING (fingerprint)) AS partial''')
    assert row["partial"] == 0, row
    return row["number"]

def users(store):
    graph = lineage(store, store.resolve("text/web/0"), "down")
    return sum(node.kind == "joined" for node in graph.nodes.values()) * 5 + 1

def runs(store):
    return len(store.catalog.query("SELECT run_id FROM runs WHERE state = 'completed'")) * 5 + 1

least, asked, ended = 0, 0, False
while not ended:
    ended = root.with_name("written").exists()
    sure = int(root.with_name("announced").read_text())
    if how != "query":
        sure -= (sure - 1) % 5
    seen = globals()[how](Store.open(root))
    assert seen >= max(sure, least), f"{how}: {seen} seen, {sure} announced, {least} seen before"
    if not asked:
        print("answered", flush=True)
    least, asked = seen, asked + 1
print(asked > 1, least)
"""


def started(program, *words):
    """Start a program of this checkout."""
    command = [sys.executable, "-c", program, *map(str, words)]
    pipes = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen(command, cwd=CHECKOUT, text=True, **pipes)


@pytest.mark.slow
def test_no_reader_fails_or_misses_a_row_while_a_writer_publishes(tmp_path):
    root = tmp_path / "store"
    with started(WRITER, root, NUM_WRITTEN) as writer:
        assert writer.stdout.readline() == "begun\n"
        readers = [started(READER, root, how) for how in ("query", "users", "runs") * NUM_OF_EACH]
        answered = [reader.stdout.readline() for reader in readers]
        writer.communicate("go on\n")
    root.with_name("written").touch()
    ended = [(*reader.communicate(), reader.wait()) for reader in readers]

    assert (writer.returncode, answered) == (0, ["answered\n"] * len(readers))
    assert ended == [(f"True {NUM_WRITTEN + 1}\n", "", 0)] * len(readers)
    store = Store.open(root)
    rows = catalog_rows(store)
    store.catalog.rebuild()
    assert catalog_rows(store) == rows
    assert store.verify() == []


OTHER = """
import duckdb, sys
connection = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "to-read")
count = lambda: connection.execute("SELECT count(*) FROM artifacts").fetchone()[0]
print(count(), flush=True)
sys.stdin.readline()
print(count(), flush=True)
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["to-read", "to-write"])
def test_another_program_that_has_the_catalog_open_neither_blocks_nor_is_blocked(tmp_path, how):
    store = Store.open(tmp_path)
    store.realize(ask())
    store.list()
    with started(OTHER, store.catalog.path, how) as other:
        assert other.stdout.readline() == "1\n"
        store.realize(ask("two", text="d"))
        store.catalog.rebuild()
        assert len(store.list()) == 2
        assert other.communicate("\n")[0] == "1\n"  # it reads on in the file that it opened


def in_threads(*work):
    threads = [threading.Thread(target=each) for each in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_threads_that_ask_for_the_same_make_it_once(tmp_path):
    num_runs, realized = [], []

    def run(params, *, out):
        num_runs.append(1)
        (out / "text.txt").write_text("x")
        return Outcome({})

    request = Request(stage_of(run), "n", WriteParams(), {})
    in_threads(*[lambda: realized.append(Store.open(tmp_path).realize(request))] * 6)
    assert len(num_runs) == 1
    assert sorted(each.cached for each in realized) == [False, True, True, True, True, True]


def test_threads_that_publish_different_versions_get_different_labels(tmp_path):
    store, seen = Store.open(tmp_path), []

    def work(text):
        store.realize(ask("n", text=text))
        seen.append(len(store.list()))

    in_threads(*[lambda text=text: work(text) for text in "abcdef"])
    assert [row["label"] for row in store.list()] == ["v1", "v2", "v3", "v4", "v5", "v6"]
    assert max(seen) == 6


def test_a_file_that_is_being_written_is_not_swept(tmp_path: Path) -> None:
    ended = threading.Event()

    def sweep() -> None:
        while not ended.is_set():
            disk.sweep_unfinished(tmp_path)

    with ThreadPoolExecutor(3) as pool:
        sweepers = [pool.submit(sweep) for _ in range(3)]
        try:
            for _ in range(500):
                disk.replace(tmp_path / "lease.json", b"whole", flush=False)
        finally:
            ended.set()
    assert [sweeper.result() for sweeper in sweepers] == [None] * 3
    assert [path.name for path in tmp_path.iterdir()] == ["lease.json"]
