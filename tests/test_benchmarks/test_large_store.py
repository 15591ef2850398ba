"""What commands say of a store with many artifacts is what its records say, read one by one.

`benchmarks/large_store.py` makes the store: here a thousand artifacts with eleven thousand inputs, and with
TOKMILL_EVERYTHING a hundred thousand with a million. What the commands cost is measured there, not here.
"""

from collections import defaultdict
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from large_store import LargeStore

from tests.effort import EVERYTHING
from tokmill.flows.commands.artifacts import listed
from tokmill.tasks.store import Record, Store, lineage
from tokmill.tasks.store.record import read_record
from tokmill.tasks.takedown.impact import Impact, impact_of

pytestmark = pytest.mark.slow

NUM_ARTIFACTS = 100_000 if EVERYTHING else 1_000
CORPUS = "corpus-0001"  # the last one of the small store, which has fewer than ten runs of it
ROWS_OF_A_SHARD = 100


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Store, LargeStore, Path]:
    """A store, what made it, and where its text would be."""
    folder = tmp_path_factory.mktemp("large")
    store = Store(folder / "store")
    large = LargeStore(store, folder / "text")
    large.fill(NUM_ARTIFACTS)
    return store, large, folder / "text"


@pytest.fixture(scope="module")
def store(made: tuple[Store, LargeStore, Path]) -> Store:
    return made[0]


@pytest.fixture(scope="module")
def records(store: Store) -> dict[str, Record]:
    """Every record, read from its file, by fingerprint."""
    found = [read_record(path) for path in store.layout.artifacts()]
    return {record.fingerprint: record for record in found}


def made_from(records: dict[str, Record]) -> dict[tuple[str, str], list[tuple[str, str]]]:
    """The users of each content, with the role in which they used it."""
    users = defaultdict[tuple[str, str], list[tuple[str, str]]](list)
    for record in records.values():
        for entry in record.inputs:
            if entry.kind is not None:
                users[entry.kind, entry.digest].append((record.fingerprint, entry.role))
    return users


def below(records: dict[str, Record], roots: set[str]) -> set[str]:
    """All that was made from some artifacts, and they themselves."""
    users, found, waiting = made_from(records), set(roots), list(roots)
    while waiting:
        record = records[waiting.pop()]
        new = {user for user, _ in users[record.kind, record.content_digest]} - found
        found |= new
        waiting += new
    return found


def test_every_artifact_is_in_the_catalog_and_sound(
    made: tuple[Store, LargeStore, Path], records: dict[str, Record]
) -> None:
    store, large, _ = made
    assert len(records) == large.num_artifacts >= NUM_ARTIFACTS
    (row,) = store.catalog.query("SELECT count(*) AS a, (SELECT count(*) FROM inputs) AS i FROM artifacts")
    assert (row["a"], row["i"]) == (large.num_artifacts, large.num_inputs)
    assert large.num_inputs > 10 * large.num_artifacts
    assert store.verify() == []


def test_lineage_down_is_what_the_records_say(store: Store, records: dict[str, Record]) -> None:
    root = store.resolve(f"corpus/{CORPUS}")
    users = made_from(records)
    found = below(records, {root.fingerprint})
    graph = lineage(store, root, "down")
    assert set(graph.nodes) == found
    contents = {(records[key].kind, records[key].content_digest): key for key in found}
    expected = {(maker, user, role) for content, maker in contents.items() for user, role in users[content]}
    assert {(edge.source, edge.target, edge.role) for edge in graph.edges} == expected
    assert len(graph.edges) == len(expected)


@pytest.mark.parametrize(("kind", "every"), [(None, False), (None, True), ("card", False), ("counts", True)])
def test_a_limit_leaves_what_was_made_last(store: Store, kind: str | None, every: bool) -> None:
    whole = listed(store, kind, every=every)
    most = len(whole.rows) // 3 + 1
    few = listed(store, kind, every=every, most=most)
    last = sorted(row["ended"] for row in whole.rows)[-most:]
    assert sorted(row["ended"] for row in few.rows) == last
    assert few.rows == [row for row in whole.rows if row in few.rows]
    assert few.num_beyond == len(whole.rows) - most
    assert (whole.num_beyond, few.num_hidden) == (0, whole.num_hidden)


def test_impact_of_a_file_is_what_the_records_say(
    made: tuple[Store, LargeStore, Path], records: dict[str, Record]
) -> None:
    store, _, text = made
    shards = shard_artifacts(store, records, range(10, 20))
    expected = below(records, {store.resolve(f"corpus/{CORPUS}").fingerprint} | shards)
    found = impact_of(store, str(text / CORPUS / "part-1.jsonl"))
    assert {each.fingerprint for each in found.artifacts} == expected
    assert impact_of(store, found.files[0].digest) == found
    held = {each.fingerprint: each for each in found.artifacts}
    encoded = {key for key in shards if records[key].kind == "encoded_shard"}
    assert {held[key].holds for key in encoded} == {"contains"}
    assert sequences(found) == {250}  # a quarter of the documents, four to a sequence


def shard_artifacts(store: Store, records: dict[str, Record], numbers: range) -> set[str]:
    """The artifacts that were made from the text of some shards of the corpus."""
    table = pq.read_table(store.path(store.resolve(f"corpus/{CORPUS}")) / "shards.parquet")
    digests = {table["digest"][number].as_py() for number in numbers}
    return {
        key
        for key, record in records.items()
        if any(entry.kind is None and entry.digest in digests for entry in record.inputs)
    }


def sequences(found: Impact) -> set[int | None]:
    return {each.sequences for each in found.artifacts if each.kind == "packed"}
