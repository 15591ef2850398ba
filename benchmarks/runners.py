"""What each runner costs: one profile with every runner, one worker and two, and without Prefect.

    python benchmarks/runners.py ../shared/data/corpora/*.jsonl.zst --gigabytes 2 --work /var/tmp/runners

The text is copies of the given documents, each turned around at another place and with words of its own, so
that no two are equal. Every run has a store of its own, and all use one Prefect server; how their CPU time is
measured is in `whole_runs.py`. The server's counts as far as it is beyond what it uses during a run without
Prefect. Orchestration is what a run and the server use beyond the first runner named, which should be
`no-prefect`. Digests of all artifacts must be equal before a figure counts.

The last table is the stages' CPU time, without Prefect and in one thread, for estimates of larger corpora.
"""

import argparse
import os
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

from whole_runs import Spent, run, server, write_profile, write_text

RUNNERS = ("no-prefect", "threads", "processes", "dask", "ray")


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files, compressed or not")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--shard-megabytes", type=int, default=64)
    parser.add_argument("--runners", nargs="+", choices=RUNNERS, default=RUNNERS)
    parser.add_argument("--workers", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--only-stages", action="store_true", help="only the tables of the stages")
    parser.add_argument("--work", type=Path, help="where text and stores are; a temporary folder by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        folder = Path(name)
        num_bytes = write_text(asked.files, folder / "text", int(asked.gigabytes * 1e9))
        write_profile(folder, asked.shard_megabytes << 20)
        print(f"{num_bytes / 1e9:.2f} GB of text; load {os.getloadavg()[0]:.1f}", flush=True)
        if not asked.only_stages:
            with server(folder / "prefect") as environment:
                compare(folder, environment, asked.runners, asked.workers)
        show_stages(folder, num_bytes)


def compare(
    folder: Path, environment: Mapping[str, str], runners: Sequence[str], workers: Sequence[int]
) -> None:
    """Run the profile in all ways, and print a row for each."""
    run(folder, environment, "no-prefect", 1, "--set", 'sources.large.files=["text/00000.jsonl"]')  # compiles
    print("| runner | workers | wall s | CPU s | server's CPU s | orchestration |")
    print("| --- " + "| ---: " * 5 + "|")
    expected = None
    for number in workers:
        without: Spent | None = None
        for runner in runners:
            spent, digests = run(folder, environment, runner, number)
            expected = expected or digests
            if digests != expected:
                raise SystemExit(f"{runner} with {number} workers made other artifacts")
            without = without or spent
            total = spent.with_server(without.server / without.watched)
            share = (total - without.cpu) / total
            times = f"{spent.wall:.0f} | {spent.cpu:.0f} | {total - spent.cpu:.1f}"
            print(f"| {runner} | {number} | {times} | {share:.1%} |", flush=True)


def show_stages(folder: Path, num_bytes: int) -> None:
    """Run the stages one after the other in this process, and print their CPU time."""
    from tokmill.flows.profile import load_profile
    from tokmill.flows.run.composition import compose
    from tokmill.flows.run.dag import Node, Step, walk
    from tokmill.flows.run.sources import resolve_sources
    from tokmill.tasks.store import Store

    os.chdir(folder)
    store, spent, tasks = Store.open(folder / "store"), defaultdict[str, float](float), Counter[str]()
    profile = load_profile(Path("large.toml"))

    def make(step: Step) -> Node:
        began = time.process_time()
        ref = store.realize(step.request()).ref
        spent[step.stage.verb] += time.process_time() - began
        tasks[step.stage.verb] += 1
        return ref

    walk(compose(profile, resolve_sources(profile, store), store.path).jobs, make)
    print("\n| stage | tasks | CPU s | MB of text per CPU s |\n| --- | ---: | ---: | ---: |")
    for verb, seconds in spent.items():
        print(f"| {verb} | {tasks[verb]} | {seconds:.1f} | {num_bytes / 1e6 / max(seconds, 0.01):.0f} |")
    sizes = Counter[str]()
    for record in store.root.glob("*/*/record.json"):
        for file in record.parent.iterdir():
            sizes[record.parent.parent.name] += file.stat().st_size
        sizes["(records)"] += record.stat().st_size
    print("\n| kind | bytes per byte of text |\n| --- | ---: |")
    for kind, size in sorted(sizes.items()):
        print(f"| {kind} | {size / num_bytes:.4f} |")


if __name__ == "__main__":
    main()
