"""What more cores bring: every stage and the whole line with 1, 2, 4, … workers, without Prefect.

    python benchmarks/many_cores.py ../shared/data/corpora/*.jsonl.zst --megabytes 300
    python benchmarks/many_cores.py ../shared/data/corpora/*.jsonl.zst --workers 1 2 --work /var/tmp/many

The text is one source for each given file, all equally large, made like that of `runners.py`. Every run has
an empty store; runs with different numbers of workers take turns, medians are shown, and digests of all
artifacts must be equal before a figure counts. A stage's time is from when the first of its tasks begins to
when the last one ends, by their records, so stages overlap. The second table is `encode_arrow` and
`encode_batch` with the tokenizer of the run: threads inside the library. The third needs py-spy: which
functions hold Python's global lock, and for how much of a run, since only one worker at a time does that.
With `--runner processes`, memory is that of the largest process, and the lock that of the run's own.
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from whole_runs import digests, write_text

_PROFILE = """
name = "many"
{sources}
[train]
vocab_size = 32_000
special_tokens = ["<|endoftext|>"]
[encode]
end_of_document = "<|endoftext|>"
[pack]
sequence_length = 2048
formats = ["memmap"]
"""
_RATE = 100  # py-spy's looks at a run per second
_MOST_FUNCTIONS = 12


class Run(NamedTuple):
    """What one run took: seconds of wall and CPU, the peak of memory, and wall seconds of each stage."""

    wall: float
    cpu: float
    peak_bytes: int
    stages: Mapping[str, float]


def main() -> None:
    """Measure and print the tables."""
    cores = len(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files, compressed or not: a source each")
    parser.add_argument("--megabytes", type=float, default=300.0)
    parser.add_argument("--workers", nargs="+", type=int, default=[1 << i for i in range(cores.bit_length())])
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--runner", choices=("threads", "processes"), default="threads")
    parser.add_argument("--work", type=Path, help="where text and stores are; a temporary folder by default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.work) as name:
        folder = Path(name)
        num_bytes = write_sources(options.files, folder, int(options.megabytes * 1e6))
        with (folder / "many.toml").open("a", encoding="utf-8") as profile:
            profile.write(f'[execution]\nrunner = "{options.runner}"\n')
        load = os.getloadavg()[0]
        print(f"{num_bytes / 1e6:.0f} MB in {len(options.files)} sources; {cores} cores; load {load:.1f}")
        show_runs(measure(folder, options.workers, options.repeat))
        show_library(folder, options.workers, options.repeat)
        show_lock(folder, max(options.workers))


def write_sources(files: Sequence[Path], folder: Path, num_bytes: int) -> int:
    """Write a source of text for each file, and the profile; return how many bytes of text there are."""
    text = folder / "text"
    text.mkdir()
    written = sum(write_text([file], text / str(i), num_bytes // len(files)) for i, file in enumerate(files))
    sources = "\n".join(f'[sources.s{i}]\nfiles = ["text/{i}/*.jsonl"]' for i in range(len(files)))
    (folder / "many.toml").write_text(_PROFILE.format(sources=sources), encoding="utf-8")
    return written


def measure(folder: Path, workers: Sequence[int], repeat: int) -> Mapping[int, Sequence[Run]]:
    """Run with each number of workers, in turns; the store of the last run stays."""
    run(folder, workers[0])  # compiles
    expected, runs = digests(folder / "store"), defaultdict[int, list[Run]](list)
    for turn in range(repeat):
        for number in (*workers[turn % len(workers) :], *workers[: turn % len(workers)]):
            runs[number].append(run(folder, number))
            if digests(folder / "store") != expected:
                raise SystemExit(f"{number} workers made other artifacts")
    return runs


def run(folder: Path, workers: int, *before: str) -> Run:
    """Run the profile in an empty store, by another command if one is put before."""
    store = folder / "store"
    shutil.rmtree(store, ignore_errors=True)
    arguments = ["run", "many.toml", "--no-prefect", "--workers", str(workers), "--json"]
    environment = {**os.environ, "TOKMILL_STORE": str(store), "PYTHONDONTWRITEBYTECODE": ""}
    began = time.monotonic()
    with (folder / "said").open("wb") as said:
        command = [*before, sys.executable, "-m", "tokmill", *arguments]
        started = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, stderr=said
        )
        _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit(f"{workers} workers failed:\n{(folder / 'said').read_text()}")
    wall = time.monotonic() - began
    return Run(wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10, _stages(store))


def _stages(store: Path) -> dict[str, float]:
    """Return the wall seconds of each stage, from its first task's start to its last one's end."""
    spans = defaultdict[str, list[tuple[datetime, datetime]]](list)
    for path in store.glob("*/*/record.json"):
        record = json.loads(path.read_bytes())
        times = (datetime.fromisoformat(record["timings"][key]) for key in ("started", "ended"))
        spans[record["payload"]["stage"]].append(tuple(times))  # type: ignore[arg-type]
    ordered = sorted(spans.items(), key=lambda item: min(item[1]))
    return {
        stage: (max(end for _, end in times) - min(start for start, _ in times)).total_seconds()
        for stage, times in ordered
    }


def show_runs(runs: Mapping[int, Sequence[Run]]) -> None:
    """Print seconds of each stage and of the whole line, by number of workers."""
    print("\n| wall s | " + " | ".join(f"{number} workers" for number in runs) + " |")
    print("| --- |" + " ---: |" * len(runs))
    for stage in next(iter(runs.values()))[0].stages:
        _row(stage, [[one.stages[stage] for one in each] for each in runs.values()])
    _row("**whole line**", [[one.wall for one in each] for each in runs.values()])
    _row("CPU s", [[one.cpu for one in each] for each in runs.values()], ratio=False)
    _row("peak, MB", [[one.peak_bytes / 1e6 for one in each] for each in runs.values()], ratio=False)


def _row(name: str, figures: Sequence[Sequence[float]], *, ratio: bool = True) -> None:
    medians = [statistics.median(each) for each in figures]
    cells = [f"{figure:.1f} ({medians[0] / max(figure, 1e-3):.2f}×)" for figure in medians[1:]]
    plain = [f"{figure:.1f}" for figure in medians]
    print(f"| {name} | " + " | ".join([plain[0], *cells] if ratio else plain) + " |", flush=True)


def show_library(folder: Path, threads: Sequence[int], repeat: int) -> None:
    """Print the speed of the library's own threads."""
    import pyarrow as pa

    from tokmill.tokenizer import load

    tokenizer = load(next((folder / "store" / "tokenizer").iterdir()))
    files = sorted((folder / "text").glob("*/*.jsonl"))
    texts = [json.loads(line)["text"] for file in files for line in file.open(encoding="utf-8")]
    column, num_bytes = pa.array(texts, pa.large_string()), sum(len(text.encode()) for text in texts)
    calls = {
        "encode_arrow": lambda number: tokenizer.encode_arrow(column, as_text=True, num_threads=number),
        "encode_batch": lambda number: tokenizer.encode_batch(texts, as_text=True, num_threads=number),
    }
    first, *others = [call(number).ids for call in calls.values() for number in threads]
    if not all((other == first).all() for other in others):
        raise SystemExit("encode_batch or threads give other ids than encode_arrow")
    print("\n| MB/s | " + " | ".join(f"{number} threads" for number in threads) + " |")
    print("| --- |" + " ---: |" * len(threads))
    for name, call in calls.items():
        speeds = [num_bytes / 1e6 / _seconds(call, number, repeat) for number in threads]
        print(f"| {name} | " + " | ".join(f"{speed:.0f}" for speed in speeds) + " |", flush=True)


def _seconds(call, number: int, repeat: int) -> float:  # type: ignore[no-untyped-def]
    times = []
    for _ in range(repeat):
        began = time.monotonic()
        call(number)
        times.append(time.monotonic() - began)
    return statistics.median(times)


def show_lock(folder: Path, workers: int) -> None:
    """Print for how much of a run the global lock is held, and by what."""
    spy = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    if not Path(spy).exists():
        print("\npy-spy is not installed (pip install py-spy): what holds the global lock is not shown")
        return
    samples = folder / "samples"
    how = [spy, "record", "--gil", "--format", "raw", "--rate", str(_RATE), "--output", str(samples), "--"]
    wall = run(folder, workers, *how).wall
    held = Counter[str]()
    for line in samples.read_text().splitlines():
        stack, _, number = line.rpartition(" ")
        held[_innermost(stack.split(";"))] += int(number)
    share = sum(held.values()) / _RATE / wall
    print(f"\nThe global lock is held for {share:.0%} of a run with {workers} workers ({wall:.0f} s).\n")
    print("| held by | of the run |\n| --- | ---: |")
    for name, number in held.most_common(_MOST_FUNCTIONS):
        print(f"| `{name}` | {number / _RATE / wall:.1%} |")


def _innermost(stack: Sequence[str]) -> str:
    """Return the innermost function of tokmill's own in a stack, or the innermost of all."""
    own = [frame for frame in stack if any(part in frame for part in ("flows/", "tasks/", "tokenizer/"))]
    return re.sub(r":\d+\)$", ")", (own or stack)[-1])


if __name__ == "__main__":
    main()
