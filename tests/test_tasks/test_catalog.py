"""The catalog follows the files: golden rows, syncs, rebuilds, breakage, and others who hold it."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from filelock import FileLock
from pyarrow import parquet

from tasks.errors import StoreError
from tasks.stage import Outcome, Request
from tasks.store import Provenance, RunArtifact, Store, digest_bytes
from tasks.store.catalog import Catalog
from tests.test_tasks.store_stages import WriteParams, ask, ask_joined, catalog_rows, stage_of

CHECKOUT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path):
    return Store.open(tmp_path / "store")


@pytest.fixture
def told():
    return []


@pytest.fixture(scope="module")
def original(tmp_path_factory):
    """A store with two texts, one of them tagged, a joined text and a run."""
    store = Store.open(tmp_path_factory.mktemp("original"))
    store.catalog.add_run(
        "run-1", profile="smoke", parameters={"pack": {"length": 8}}, provenance=Provenance()
    )
    provenance = Provenance(git_commit="c0ffee", git_dirty=True, user="me", flow_run_id="run-1")
    one = store.realize(ask("web/0", text="ab", times=2), provenance=provenance).ref
    two = store.realize(ask("web/1", text="c")).ref
    joined = store.realize(ask_joined("all", one, two))
    store.tag(one, "prod")
    items = [RunArtifact(task="join", ref=joined.ref, cached=joined.cached)]
    store.catalog.finish_run("run-1", state="completed", artifacts=items)
    return store


@pytest.fixture
def filled(original, tmp_path, told):
    """A copy of `original`, whose catalog tells `told`."""
    store = Store.open(shutil.copytree(original.root, tmp_path / "store"))
    store.catalog = Catalog(store.layout, report=told.append)
    return store


def test_rows_by_hand(filled):
    rows = catalog_rows(filled)
    one, two = filled.resolve("text/web/0"), filled.resolve("text/web/1")
    joined = filled.resolve("joined/all")
    (artifact,) = [row for row in rows["artifacts"] if row["fingerprint"] == one.fingerprint]
    times = {column: artifact.pop(column) for column in ("started", "ended", "seconds")}
    assert times["started"] < times["ended"]
    assert artifact == {
        "fingerprint": one.fingerprint,
        "kind": "text",
        "name": "web/0",
        "label": "v1",
        "content_digest": one.content_digest,
        "stage": "write",
        "stage_version": 1,
        "num_files": 2,
        "num_bytes": 5,
        "payload": json.dumps(filled.record(one).payload, sort_keys=True, separators=(",", ":")),
        "params": '{"text":"ab","times":2,"unaccounted":0}',
        "git_commit": "c0ffee",
        "git_dirty": True,
        "user_name": "me",
        "command": "",
        "flow_run_id": "run-1",
        "deployment_id": None,
        "format_version": 1,
    }
    assert [tuple(row.values()) for row in rows["inputs"] if row["fingerprint"] == joined.fingerprint] == [
        (joined.fingerprint, "first", None, one.content_digest, "text", "web/0", one.fingerprint, None),
        (joined.fingerprint, "rest", 0, two.content_digest, "text", "web/1", two.fingerprint, None),
    ]
    assert [tuple(row.values())[1:] for row in rows["files"] if row["fingerprint"] == one.fingerprint] == [
        ("parts/first.txt", 1, digest_bytes(b"a")),
        ("text.txt", 4, digest_bytes(b"abab")),
    ]
    assert {tuple(row.values()) for row in rows["metrics"]} == {
        (one.fingerprint, "num_chars", 4.0, "4"),
        (two.fingerprint, "num_chars", 1.0, "1"),
        (joined.fingerprint, "num_parts", 2.0, "2"),
    }
    assert [tuple(row.values())[1:] for row in rows["accounts"] if row["fingerprint"] == one.fingerprint] == [
        ("web", "documents", "became", "kept", 2),
        ("web", "documents", "in", "in", 2),
    ]
    assert [(row["key"], row["number"]) for row in rows["labels"]] == [
        ("joined/all@v1", 1),
        ("text/web/0@v1", 1),
        ("text/web/1@v1", 1),
    ]
    assert [(row["key"], row["fingerprint"]) for row in rows["aliases"]] == [
        ("text/web/0@prod", one.fingerprint)
    ]
    (run,) = rows["runs"]
    assert (run["run_id"], run["profile"], run["state"], run["message"]) == (
        "run-1",
        "smoke",
        "completed",
        "",
    )
    assert run["parameters"] == '{"pack":{"length":8}}'
    assert run["started"] <= run["ended"]
    assert [tuple(row.values()) for row in rows["run_artifacts"]] == [
        ("run-1", 0, "join", "joined", "all", joined.fingerprint, False)
    ]


def test_metrics_keep_their_type(store):
    def run(params, *, out):
        return Outcome({"count": 2**60 + 1, "ratio": 0.5, "word": "x", "flag": True})

    store.realize(Request(stage_of(run), "n", WriteParams(), {}))
    found = store.catalog.query("SELECT name, value, text FROM metrics ORDER BY name")
    assert [tuple(row.values()) for row in found] == [
        ("count", float(2**60), "1152921504606846977"),
        ("flag", None, "true"),
        ("ratio", 0.5, "0.5"),
        ("word", None, "x"),
    ]


def test_versions_are_listed_with_their_aliases(filled):
    assert [(row["kind"], row["name"], row["label"], row["aliases"]) for row in filled.list()] == [
        ("joined", "all", "v1", []),
        ("text", "web/0", "v1", ["prod"]),
        ("text", "web/1", "v1", []),
    ]
    assert [row["name"] for row in filled.list(kind="text")] == ["web/0", "web/1"]
    assert [row["kind"] for row in filled.list(name="all")] == ["joined"]
    assert filled.list("text", "all") == []
    assert json.loads(json.dumps(filled.list()))[1]["num_bytes"] == 5


def test_a_rebuild_gives_the_same_rows(filled, told):
    before = catalog_rows(filled)
    filled.catalog.rebuild()
    assert catalog_rows(filled) == before
    assert told == []


def test_a_sync_takes_in_and_drops_what_changed_on_disk(filled, tmp_path):
    before = catalog_rows(filled)
    place = filled.path(filled.resolve("text/web/1"))
    place.rename(tmp_path / "away")
    assert [row["name"] for row in filled.list()] == ["all", "web/0"]
    (tmp_path / "away").rename(place)
    shutil.rmtree(filled.root / "aliases")
    assert catalog_rows(filled) == {**before, "aliases": []}


def test_an_artifact_copied_from_another_store_gets_its_label_back(filled, tmp_path):
    ref = filled.resolve("text/web/0")
    other = Store.open(tmp_path / "other")
    shutil.copytree(filled.path(ref), other.layout.artifact("text", ref.fingerprint))
    assert [(row["name"], row["label"]) for row in other.list()] == [("web/0", "v1")]
    assert other.resolve("text/web/0@v1") == ref
    taken = Store.open(tmp_path / "taken")
    taken.realize(ask("web/0", text="another"))
    shutil.copytree(filled.path(ref), taken.layout.artifact("text", ref.fingerprint))
    assert [(row["name"], row["label"]) for row in taken.list()] == [("web/0", "v1"), ("web/0", "v2")]
    assert taken.resolve("text/web/0@v2") == ref


def test_a_record_that_cannot_be_read_is_told_and_leaves_the_others(filled, told):
    place = filled.path(filled.resolve("text/web/0"))
    (place / "record.json").write_text("{")
    shutil.copytree(filled.path(filled.resolve("text/web/1")), place.with_name("copy"))
    assert [row["name"] for row in filled.list()] == ["all", "web/1"]
    assert "leaves out text/copy/record.json" in told[-1] + told[-2]
    assert f"leaves out text/{place.name}/record.json" in told[-1] + told[-2]


# -- a catalog that is not usable -------------------------------------------------------------------------


def lost(path):
    path.unlink()


def garbage(path):
    path.write_bytes(b"hello" * 1000)


def empty(path):
    path.write_bytes(b"")


def half(path):
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


def scrambled(path):
    data = path.read_bytes()
    path.write_bytes(data[:12288] + b"\1" * (len(data) - 12288))


def sql(statement):
    def change(path):
        with duckdb.connect(str(path)) as connection:
            connection.execute(statement)

    return change


@pytest.mark.parametrize(
    "harm",
    [
        lost,
        garbage,
        empty,
        half,
        scrambled,
        sql("DROP TABLE labels"),
        sql("DROP TABLE catalog_version"),
        sql("UPDATE catalog_version SET version = 0"),
        sql("ALTER TABLE files DROP COLUMN digest"),
    ],
    ids=["lost", "garbage", "empty", "half", "scrambled", "no labels", "no version", "old", "other columns"],
)
def test_an_unusable_catalog_is_made_again_and_that_is_told(filled, told, harm):
    before = catalog_rows(filled)
    harm(filled.catalog.path)
    assert catalog_rows(filled) == before
    assert len(told) == 1
    assert "made again from" in told[0]
    assert catalog_rows(filled) == before
    assert len(told) == 1


@pytest.mark.parametrize("harm", [garbage, lost])
def test_publishing_beside_an_unusable_catalog_succeeds(filled, harm):
    harm(filled.catalog.path)
    assert not filled.realize(ask("web/2", text="d")).cached
    assert len(filled.list()) == 4


@pytest.mark.parametrize(
    "question",
    [
        "SELECT",
        "SELECT * FROM nothing",
        "SELECT nothing FROM artifacts",
        "DELETE FROM artifacts",
        "SELECT 'x'::INT",
    ],
)
def test_a_wrong_question_is_an_error_and_harms_nothing(filled, told, question):
    with pytest.raises(StoreError, match="the catalog refuses the question"):
        filled.catalog.query(question)
    assert len(filled.list()) == 3
    assert told == []


def test_questions_take_parameters(filled):
    assert filled.catalog.query("SELECT ? + 1 AS n", [1]) == [{"n": 2}]
    assert filled.catalog.query("SELECT $a || 'b' AS n", {"a": "a"}) == [{"n": "ab"}]


# -- others who hold it -----------------------------------------------------------------------------------


def test_a_busy_catalog_is_an_error_that_names_the_lock(filled):
    impatient = Catalog(filled.layout, wait_seconds=0.05)
    with (
        FileLock(impatient.lock_path),
        pytest.raises(StoreError, match=r"has held .*catalog\.lock for 0\.05 s"),
    ):
        impatient.query("SELECT 1")
    assert impatient.query("SELECT 1 AS n") == [{"n": 1}]


def test_publishing_beside_a_busy_catalog_succeeds_and_the_rows_come_later(filled, told):
    filled.catalog = Catalog(filled.layout, publish_wait_seconds=0.05, report=told.append)
    with FileLock(filled.catalog.lock_path):
        ref = filled.realize(ask("web/2", text="d")).ref
        filled.tag(ref, "prod")
        filled.catalog.add_run("run-2")
    assert filled.lookup(ask("web/2", text="d")) == ref
    assert "the catalog takes it in the next time" in told[-1]
    assert [row["aliases"] for row in filled.list(name="web/2")] == [["prod"]]
    assert filled.catalog.query("SELECT state FROM runs WHERE run_id = 'run-2'") == [{"state": "running"}]


def test_another_program_that_has_the_file_open_is_told_of(filled):
    program = (
        "import duckdb, sys; c = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(filled.catalog.path)]
    impatient = Catalog(filled.layout, wait_seconds=0.05)
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "open\n"
        with pytest.raises(
            StoreError, match=r"another program has had .*catalog\.duckdb open for 0\.05 s; close it"
        ):
            impatient.query("SELECT 1")
        other.communicate()
    assert impatient.query("SELECT 1 AS n") == [{"n": 1}]


def test_processes_that_publish_at_once_lose_no_rows(tmp_path):
    program = (
        "import sys\nfrom tasks.store import Store\nfrom tests.test_tasks.store_stages import ask\n"
        "store = Store.open(sys.argv[1])\n"
        "store.catalog.add_run(sys.argv[2])\n"
        "refs = [store.realize(ask(f'{sys.argv[2]}/{n}', text=sys.argv[2] * n)).ref for n in range(1, 6)]\n"
        "store.realize(ask('both', text='shared'))\n"
        "store.catalog.finish_run(sys.argv[2], state='completed')\n"
    )
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(tmp_path), who], cwd=CHECKOUT)
        for who in ("x", "y")
    ]
    assert [child.wait() for child in children] == [0, 0]
    with duckdb.connect(str(tmp_path / "catalog.duckdb"), read_only=True) as connection:  # without a sync
        found = connection.execute("SELECT name FROM artifacts ORDER BY name").fetchall()
        runs = connection.execute("SELECT run_id, state FROM runs ORDER BY run_id").fetchall()
    assert [name for (name,) in found] == ["both", *(f"{who}/{n}" for who in "xy" for n in range(1, 6))]
    assert runs == [("x", "completed"), ("y", "completed")]


def test_a_process_killed_while_it_rebuilds_leaves_a_usable_catalog(filled):
    before = catalog_rows(filled)
    program = (
        "import sys\nfrom tasks.store import Store\nstore = Store.open(sys.argv[1])\n"
        "while True:\n    store.catalog.rebuild()\n    print('again', flush=True)\n"
    )
    for _ in range(3):
        command = [sys.executable, "-c", program, str(filled.root)]
        with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE) as child:
            child.stdout.readline()
            child.kill()
        assert catalog_rows(filled) == before


def test_threads_may_ask_and_publish_at_once(store):
    def work(number):
        store.realize(ask(f"n{number}", text=str(number)))
        answers.append(len(store.list()))

    answers = []
    threads = [threading.Thread(target=work, args=[number]) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert max(answers) == len(store.list()) == 6


# -- runs -------------------------------------------------------------------------------------------------


def test_a_run_that_failed_keeps_why(store):
    store.catalog.add_run("r", profile="p", provenance=Provenance(user="me"))
    store.catalog.finish_run("r", state="failed", message="mix: too little text")
    found = store.catalog.query("SELECT profile, state, message, user_name FROM runs")
    assert found == [
        {"profile": "p", "state": "failed", "message": "mix: too little text", "user_name": "me"}
    ]


@pytest.mark.parametrize("run_id", ["", "../x", "a/b", "x" * 64, "a b"])
def test_run_ids_that_cannot_be_files(store, run_id):
    with pytest.raises(StoreError, match="run id"):
        store.catalog.add_run(run_id)


def test_a_run_that_never_began_cannot_end(store):
    with pytest.raises(StoreError, match="there is no run r"):
        store.catalog.finish_run("r", state="completed")


# -- tables that artifacts bring along --------------------------------------------------------------------


def bring(name="audit", **tables):
    """A request for an artifact with `catalog/<table>.parquet` for each table."""

    def run(params, *, out):
        (out / "catalog").mkdir()
        for table, columns in tables.items():
            parquet.write_table(pa.table(columns), out / "catalog" / f"{table}.parquet")
        return Outcome({})

    return Request(stage_of(run, kind="audit"), name, WriteParams(text=repr((name, tables))), {})


def extra(store, table):
    found = store.catalog.query(f"SELECT * FROM {table} ORDER BY ALL")
    return [tuple(row.values())[1:] for row in found]


def test_brought_tables_are_indexed_by_fingerprint(store):
    one = store.realize(bring("one", tokens={"id": [1, 2], "text": ["a", "b"]})).ref
    two = store.realize(bring("two", tokens={"id": [3], "text": ["c"]}, sources={"name": ["web"]})).ref
    rows = catalog_rows(store, "tokens", "sources")
    assert sorted(tuple(row.values()) for row in rows["tokens"]) == sorted(
        [(one.fingerprint, 1, "a"), (one.fingerprint, 2, "b"), (two.fingerprint, 3, "c")]
    )
    assert rows["sources"] == [{"fingerprint": two.fingerprint, "name": "web"}]
    store.catalog.rebuild()
    again = catalog_rows(store, "tokens", "sources")
    assert again == rows


def test_a_brought_table_with_other_columns_widens_the_table(store):
    store.realize(bring("one", tokens={"id": pa.array([1], pa.int32())}))
    store.realize(bring("two", tokens={"text": ["b"], "id": pa.array([2**40], pa.int64())}))
    store.realize(bring("three", tokens={"id": pa.array([3], pa.int32())}))
    columns = ["fingerprint", "id", "text"]
    rows = store.catalog.query("SELECT id, text FROM tokens ORDER BY id")
    assert [tuple(row.values()) for row in rows] == [(1, None), (3, None), (2**40, "b")]
    before = store.catalog.query("SELECT * FROM tokens ORDER BY ALL")
    assert sorted(before[0]) == columns
    store.catalog.rebuild()
    assert store.catalog.query("SELECT * FROM tokens ORDER BY ALL") == before


def test_a_brought_table_goes_with_its_artifact(store):
    one = store.realize(bring("one", tokens={"id": [1]})).ref
    two = store.realize(bring("two", tokens={"id": [2]})).ref
    assert extra(store, "tokens") == [(1,), (2,)] or extra(store, "tokens") == [(2,), (1,)]
    shutil.rmtree(store.path(one))
    assert extra(store, "tokens") == [(2,)]
    shutil.rmtree(store.path(two))
    with pytest.raises(StoreError, match="tokens does not exist"):
        extra(store, "tokens")


def test_a_brought_table_that_is_damaged_is_told_and_left_out(store, told):
    store.catalog = Catalog(store.layout, report=told.append)
    ref = store.realize(bring("one", tokens={"id": [1]})).ref
    store.realize(bring("two", tokens={"id": [2]}))
    path = store.path(ref) / "catalog" / "tokens.parquet"
    path.write_bytes(b"x" * path.stat().st_size)
    store.catalog.rebuild()
    assert extra(store, "tokens") == [(2,)]
    assert "leaves out" in told[0]
    assert "tokens.parquet" in told[0]


def test_names_with_quotes_in_the_path_are_no_trouble(tmp_path):
    store = Store.open(tmp_path / "o'store")
    store.realize(bring("one", tokens={"id": [1]}))
    assert extra(store, "tokens") == [(1,)]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ({"artifacts": {"id": [1]}}, r"catalog/artifacts\.parquet: the folder holds <table>\.parquet only"),
        ({"catalog_files": {"id": [1]}}, "none of"),
        ({"Tokens": {"id": [1]}}, "matches"),
        ({"a-b": {"id": [1]}}, "matches"),
        ({"tokens": {"fingerprint": ["x"]}}, "has a column 'fingerprint', which the catalog adds"),
    ],
)
def test_tables_that_the_catalog_could_not_take_are_not_published(store, tables, message):
    with pytest.raises(StoreError, match=message):
        store.realize(bring("one", **tables))
    assert list(store.layout.artifacts()) == []


def test_a_file_that_is_no_parquet_is_not_published(store):
    def run(params, *, out):
        (out / "catalog").mkdir()
        (out / "catalog" / "tokens.parquet").write_text("x")
        return Outcome({})

    with pytest.raises(StoreError, match=r"catalog/tokens\.parquet cannot be read as Parquet"):
        store.realize(Request(stage_of(run), "n", WriteParams(), {}))
