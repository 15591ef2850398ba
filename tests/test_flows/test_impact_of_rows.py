"""Impact of single rows says of every packing what tracing finds in it: for each row of each file.

One store has versions whose shards hold other documents at the same places: a file before the others lost a
row, text was held out, rows were quarantined and dropped when they were encoded.
"""

import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.test_flows.corpora import words
from tests.test_flows.in_process import InProcess
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.takedown.impact import Affected, impact_of
from tokmill.tasks.tracing import Origins, trace_document

pytestmark = pytest.mark.slow

PROFILE = """
name = "rows"
[sources.web]
files = ["web/*.jsonl"]
on_error = "quarantine"
[sources.news]
files = ["news.jsonl"]
[train]
vocab_size = 280
[encode]
min_tokens = 4
[pack]
sequence_length = 32
"""
QUARANTINED, DROPPED = 3, 5


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> InProcess:
    folder, generator = tmp_path_factory.mktemp("rows"), random.Random(3)
    (folder / "web").mkdir()
    (folder / "profile.toml").write_text(PROFILE)
    for name in ("web/a", "web/b", "news"):
        rows = [json.dumps({"text": words(generator, 8)}) for _ in range(12)]
        if name == "web/b":
            rows[QUARANTINED], rows[DROPPED] = '{"text": ', '{"text": "x"}'
        (folder / f"{name}.jsonl").write_text("".join(f"{row}\n" for row in rows))
    runs = InProcess.at(folder / "store")
    runs.run(folder / "profile.toml")
    runs.run(folder / "profile.toml", "holdout.share=0.3", "mix.seed=4")
    first = folder / "web" / "a.jsonl"
    first.write_text(first.read_text().split("\n", 2)[2])
    runs.run(folder / "profile.toml")
    return runs


def rows_of(made: InProcess) -> Iterator[tuple[str, str, int]]:
    folder = made.store.root.parent
    for source, path in (("web", "web/a"), ("web", "web/b"), ("news", "news")):
        for row in range(10):
            yield source, str(folder / f"{path}.jsonl"), row


def affected(made: InProcess, path: str, row: int) -> dict[str, Affected]:
    return {each.reference: each for each in impact_of(made.store, f"{path}:{row}").artifacts}


def packings(made: InProcess) -> dict[str, ArtifactRef]:
    rows = made.store.catalog.query(
        "SELECT label, kind, name, fingerprint, content_digest FROM artifacts"
        " WHERE kind = 'packed' ORDER BY name, label"
    )
    return {f"packed/{row['name']}@{row.pop('label')}": ArtifactRef(**row) for row in rows}


def test_as_many_sequences_are_told_as_tracing_finds(made: InProcess) -> None:
    """The rows of the first file are others in the last version, which alone has its digest."""
    known = packings(made)
    assert [*known] == [f"packed/rows{version}" for version in ("@v1", "@v2", "@v3", ".validation@v1")]
    told, traced = {}, {}
    for source, path, row in rows_of(made):
        name = Path(path).name
        found = affected(made, path, row)
        for reference in [*known] if name != "a.jsonl" else ["packed/rows@v3"]:
            origins = Origins.of(made.store, known[reference])
            (document,) = trace_document(origins, f"{source}:{name}:{row}")
            number = len({piece.sequence for piece in document.pieces})
            traced[reference, name, row] = (number > 0, number)
            each = found[reference]
            told[reference, name, row] = (each.holds == "contains", each.sequences or 0)
    assert told == traced


def test_a_row_is_in_one_part_of_the_corpus_and_in_what_was_made_of_it(made: InProcess) -> None:
    sides = set()
    for source, path, row in rows_of(made):
        found = affected(made, path, row)
        if source != "news":
            continue
        parts = {
            name: found[f"corpus/rows.{name}@v1"].holds == "contains" for name in ("training", "validation")
        }
        assert sum(parts.values()) == 1
        (side,) = [name for name, holds in parts.items() if holds]
        (other,) = {*parts} - {side}
        assert found[f"corpus/rows.{other}@v1"].why == f"it is in the {side} part"
        assert (found["encoded/rows.validation@v1"].holds == "contains") == (side == "validation")
        sides.add(side)
    assert sides == {"training", "validation"}


@pytest.mark.parametrize(("row", "why"), [(QUARANTINED, "quarantined: broken_json"), (DROPPED, "")])
def test_a_row_that_came_to_no_shard_is_in_no_tokens(made: InProcess, row: int, why: str) -> None:
    path = made.store.root.parent / "web" / "b.jsonl"
    found = affected(made, str(path), row)

    assert found["corpus/rows@v1"].why == why
    assert (found["corpus/rows@v1"].holds == "contains") == (not why)
    kinds = {each.kind for each in found.values() if each.holds == "contains"}
    assert kinds <= {"corpus"}
