"""What Prefect costs a run: the same profile with and without it, in turns, at several sizes of text.

    python benchmarks/orchestration.py ../shared/data/corpora/*.jsonl.zst --megabytes 30 300 --repeat 5
    python benchmarks/orchestration.py ../shared/data/corpora/*.jsonl.zst --shards 1000 --megabytes 65

Orchestration is the CPU time of a run on Prefect and of its server, beyond that of a run without Prefect. It
is divided into the run's part and the server's; what the idle server uses is not counted. The sides take
turns, a table shows medians, and digests of all artifacts must be equal before a figure counts. CPU time is
shown because a busy machine changes it least; `PREFECT_API_URL` of the caller is not used. How it is measured
is in `whole_runs.py`.
"""

import argparse
import os
import shutil
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from whole_runs import Spent, idle_share, run, server, write_profile, write_text

_SIDES = ("no-prefect", "threads")


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="+", type=Path, help="JSONL files, compressed or not")
    parser.add_argument("--megabytes", nargs="+", type=float, default=[30.0, 300.0])
    parser.add_argument("--shards", type=int, help="into how many shards the text is cut; by default few")
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--work", type=Path, help="where text and stores are; a temporary folder by default")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=asked.work) as name:
        folder = Path(name)
        with server(folder / "prefect") as environment:
            write_profile(folder)
            _warm_up(asked.files, folder, environment)
            idle = idle_share(environment)
            print(f"load {os.getloadavg()[0]:.1f}; an idle server uses {idle:.1%} of a core", flush=True)
            print("| text, MB | side | CPU s, each run | median | of it the server's | orchestration |")
            print("| ---: | --- | --- | ---: | ---: | ---: |")
            for megabytes in asked.megabytes:
                num_bytes = int(megabytes * 1e6)
                write_profile(folder, num_bytes // asked.shards if asked.shards else None)
                write_text(asked.files, folder / "text", num_bytes)
                _show(megabytes, _turns(folder, environment, asked.repeat, asked.workers), idle)
                shutil.rmtree(folder / "text")
            print(f"\nload {os.getloadavg()[0]:.1f}")


def _warm_up(files: Sequence[Path], folder: Path, environment: Mapping[str, str]) -> None:
    """Compile kernels, and have the server used once, with little text."""
    write_text(files, folder / "text", 1_000_000)
    for side in _SIDES:
        run(folder, environment, side, 1, "--set", "train.vocab_size=2000")
    shutil.rmtree(folder / "text")


def _turns(
    folder: Path, environment: Mapping[str, str], repeat: int, workers: int
) -> Mapping[str, Sequence[Spent]]:
    """Run both sides in turns."""
    spent: dict[str, list[Spent]] = {side: [] for side in _SIDES}
    expected = None
    for _ in range(repeat):
        for side in _SIDES:
            measured, digests = run(folder, environment, side, workers)
            expected = expected or digests
            if digests != expected:
                raise SystemExit(f"{side} made other artifacts")
            spent[side].append(measured)
    return spent


def _show(megabytes: float, spent: Mapping[str, Sequence[Spent]], idle: float) -> None:
    without = statistics.median(each.cpu for each in spent[_SIDES[0]])
    for side, runs in spent.items():
        alone = side == _SIDES[0]
        totals = [each.cpu if alone else each.with_server(idle) for each in runs]
        median, server_part = (
            statistics.median(totals),
            statistics.median(total - each.cpu for total, each in zip(totals, runs, strict=True)),
        )
        each_run = " ".join(f"{total:.1f}" for total in totals)
        share = "" if alone else f"{median - without:.1f} s = {(median - without) / median:.1%}"
        part = "" if alone else f"{server_part:.1f}"
        print(f"| {megabytes:g} | {side} | {each_run} | {median:.1f} | {part} | {share} |", flush=True)


if __name__ == "__main__":
    main()
