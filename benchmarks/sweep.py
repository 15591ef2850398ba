"""What a sweep costs beside trainings one by one: five sizes times four temperatures.

    python benchmarks/sweep.py ../shared/data

Both make artifacts in a store of their own, one after the other in this process, with kernels that are
compiled. A single training is what it takes to have one tokenizer and its measure without a sweep: divide the
corpus, count, balance, train, and encode the text that is held out. CPU seconds by stage.
"""

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tokmill.flows.profile import Profile, load_profile
from tokmill.flows.run.composition import compose
from tokmill.flows.run.dag import Dag, Node, Step, walk
from tokmill.flows.run.sources import resolve_sources
from tokmill.flows.run.sweeping import Grid, compose_sweep
from tokmill.tasks.core.stage import ArtifactRef
from tokmill.tasks.store import Store
from tokmill.tasks.sweep.recommendation import SweepParams
from tokmill.tasks.sweep.stage import SweepSummary

SIZES = [8_000, 16_000, 32_000, 64_000, 128_000]
TEMPERATURES = [1.0, 2.0, 3.3, 5.0]
_SINGLE = ("ingest", "hash_documents", "holdout", "count_shard", "count", "balance", "train")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path, help="folder with ntrex/*.txt and corpora/*.jsonl.zst")
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES)
    parser.add_argument("--temperatures", type=float, nargs="+", default=TEMPERATURES)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profile = _profile(asked.data.resolve(), Path(folder))
        _single(profile, 300, Path(folder) / "compiled")
        singles = {size: _single(profile, size, Path(folder) / str(size)) for size in asked.sizes}
        swept = _swept(profile, asked.sizes, asked.temperatures, Path(folder) / "swept")
    for size, spent in singles.items():
        print(f"one training of {size:,}: {_text(spent)}")
    print(f"{len(asked.sizes)} sizes times {len(asked.temperatures)} temperatures: {_text(swept)}")
    mean = sum(spent.total() for spent in singles.values()) / len(singles)
    print(f"the sweep costs {swept.total() / mean:.2f} of such trainings, on the mean of the sizes")


def _profile(data: Path, folder: Path) -> Profile:
    """Return a profile over all text: every corpus and every language is a source, a tenth is held out."""
    lines = ["[holdout]", "share = 0.1", "[train]", 'split_pattern = "o200k"', "allow_smaller = true"]
    lines += ["[ingest]", "shard_bytes = 16_000_000", "[encode]", 'end_of_document = "<|endoftext|>"']
    for file in sorted((data / "corpora").glob("*.zst")):
        lines += [f"[sources.{file.name.partition('.')[0]}]", f'files = ["{file}"]']
    for file in sorted((data / "ntrex").glob("*.txt")):
        lines += [f'[sources."{file.stem}"]', f'files = ["{file}"]', 'format = "lines"']
    lines += ["[audit.parallel]", *(f'"{file.stem}" = "{file}"' for file in _parallel(data))]
    (folder / "all.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return load_profile(folder / "all.toml")


def _parallel(data: Path) -> Sequence[Path]:
    """Return the parallel texts, English first."""
    return sorted((data / "ntrex").glob("*.txt"), key=lambda file: (file.stem != "eng", file.stem))


def _single(profile: Profile, vocab_size: int, store: Path) -> "Counter[str]":
    """Make what a tokenizer and its measure take; return CPU seconds by stage."""
    train = (profile.train or profile.training()).model_copy(update={"vocab_size": vocab_size})  # type: ignore[union-attr]
    one = profile.model_copy(update={"train": train})
    opened = Store.open(store)
    dag = compose(one, resolve_sources(one, opened), opened.path)
    wanted = [job for job in dag.jobs if job.stage.verb in _SINGLE or job.title == "encode.validation"]
    return _made(Dag(wanted, {}), opened)


def _swept(
    profile: Profile, sizes: Sequence[int], temperatures: Sequence[float], store: Path
) -> "Counter[str]":
    opened = Store.open(store)
    grid = Grid(vocab_sizes=list(sizes), temperatures=list(temperatures))
    dag = compose_sweep(profile, grid, SweepParams(), resolve_sources(profile, opened), opened.path)
    spent = _made(dag, opened)
    newest = opened.newest("sweep", profile.name)
    assert newest is not None
    print(SweepSummary.open(opened.path(newest.ref)).reason)
    print((opened.path(newest.ref) / "summary.md").read_text("utf-8"))
    return spent


def _made(dag: Dag, store: Store) -> "Counter[str]":
    spent: Counter[str] = Counter()

    def make(step: Step) -> Node:
        began = time.process_time()
        ref: ArtifactRef = store.realize(step.request()).ref
        spent[step.stage.task] += time.process_time() - began  # type: ignore[assignment]
        return ref

    walk(dag.jobs, make)
    return spent


def _text(spent: "Counter[str]") -> str:
    stages = ", ".join(f"{stage} {seconds:.1f}" for stage, seconds in spent.items())
    return f"{spent.total():.1f} s of CPU ({stages})"


if __name__ == "__main__":
    main()
