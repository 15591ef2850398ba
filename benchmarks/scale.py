"""What many shards cost besides their text: a corpus of one short document per shard, without Prefect.

    python benchmarks/scale.py --shards 2000
    python benchmarks/scale.py --shards 100000 --only-plan

Everything that a shard costs whatever its size: to list it in the corpus, to ask the store for its artifact,
to publish that, to find it again, its record and its place in the catalog. CPU time of this process, and its
peak of memory. With `--only-plan` nothing is counted, and the corpus' list of shards is one shard, repeated.
"""

import argparse
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tokmill.flows.profile import load_profile
from tokmill.flows.run.composer import Composer
from tokmill.flows.run.dag import Dag, Job, walk
from tokmill.flows.run.planning import plan_dag
from tokmill.flows.run.sources import resolve_sources
from tokmill.tasks.core.stage import ArtifactRef, Request
from tokmill.tasks.count.stage import CountParams
from tokmill.tasks.formats.corpus import Corpus
from tokmill.tasks.ingest.stage import INGEST
from tokmill.tasks.store import Store

T = TypeVar("T")

DOCUMENT_BYTES = 49_152  # of a shard of 64 KiB on average this is always the last document
PROFILE = """
name = "many"
[sources.text]
files = ["*.txt"]
format = "lines"
[ingest]
shard_bytes = 65536
"""


def main() -> None:
    """Measure and print one line per step."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shards", type=int, default=2_000)
    parser.add_argument("--only-plan", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, 100 if asked.only_plan else asked.shards)
        measure(folder, asked.shards, only_plan=asked.only_plan)


def write(folder: Path, num_shards: int) -> None:
    """Write a profile, and text of that many shards."""
    (folder / "many.toml").write_text(PROFILE, encoding="utf-8")
    with (folder / "text.txt").open("w", encoding="utf-8") as file:
        for index in range(num_shards):
            word = f"word{index} "
            file.write(word * (DOCUMENT_BYTES // len(word) + 1) + "\n")


def measure(folder: Path, num_shards: int, *, only_plan: bool) -> None:
    """Ingest, plan, count, plan again and rebuild the catalog."""
    store, profile = Store.open(folder / "store"), load_profile(folder / "many.toml")
    repeated = folder / "repeated"

    def locate(ref: ArtifactRef) -> Path:
        return repeated if ref.kind == "corpus" and only_plan else store.path(ref)

    def counting() -> Dag:
        composer = Composer(profile, resolve_sources(profile, store), locate)
        corpus = composer.one(INGEST, profile.ingest_params(), {"files": composer.sources.files})
        return Dag(composer.jobs, {"corpus": corpus, "counts": composer.counted(corpus, CountParams())})

    def make(dag: Dag) -> ArtifactRef:
        made = dag.artifacts(walk(dag.jobs, lambda step: store.realize(step.request()).ref))["counts"]
        if not isinstance(made, ArtifactRef):
            raise SystemExit("nothing was made")
        return made

    corpus = store.realize(_request(counting().jobs[0])).ref
    if only_plan:
        shutil.copytree(store.path(corpus), repeated)
        _repeat(repeated, num_shards)
    listed = timed("list the shards", lambda: len(Corpus.open(locate(corpus)).shards("text")))
    timed("plan, nothing counted", lambda: plan_dag(counting(), store), listed)
    if only_plan:
        return
    timed("count (one document each)", lambda: make(counting()), listed)
    timed("plan, all cached", lambda: plan_dag(counting(), store), listed)
    timed("index the records anew", store.catalog.rebuild, listed)
    records = [path.stat().st_size for path in store.root.glob("counts_shard/*/record.json")]
    print(f"record: {sum(records) / len(records):.0f} bytes")
    catalog = sum(path.stat().st_size for path in store.root.glob("catalog*"))
    print(f"catalog: {catalog / len(records):.0f} bytes per artifact")


def _request(job: Job) -> Request:
    return job.steps({})[0].request()


def _repeat(corpus: Path, num_shards: int) -> None:
    """Make a corpus of one shard after the other, all of them alike but for their digests."""
    for name in ("shards", "segments"):
        path = corpus / f"{name}.parquet"
        first = pq.read_table(path).slice(0, 1)
        table = pa.concat_tables([first] * num_shards).combine_chunks()
        columns: dict[str, list[int] | list[str]] = {"shard": list(range(num_shards))}
        if name == "shards":
            columns["digest"] = [f"{index:064x}" for index in range(num_shards)]
        for column, values in columns.items():
            at = table.schema.get_field_index(column)
            field = table.schema.field(at)
            table = table.set_column(at, field, pa.array(values, field.type))
        pq.write_table(table, path)


def timed(what: str, work: Callable[[], T], number: int | None = None) -> T:
    """Do some work, and print what it takes; return what it returns."""
    began = time.process_time()
    result = work()
    seconds = time.process_time() - began
    each = f", {seconds / number * 1000:.3f} ms per shard" if number else ""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{what}: {seconds:.2f} s{each}; peak {peak:.0f} MiB", flush=True)
    return result


if __name__ == "__main__":
    main()
