"""What a first run costs: CPU and wall time without machine code and with it, and what each kernel takes.

    python benchmarks/first_run.py
    python benchmarks/first_run.py smoke --repeat 3 --json first_run.json

Runs are made without Prefect, in processes, stores and caches of their own: first with an empty cache of
machine code, then with what that run kept. Tables show medians; a kernel's seconds are CPU time without those
of kernels that were compiled for it. Results must have equal ids and digests, cold and warm. Installing comes
before, and is not counted. The interpreter that runs this needs tokmill.
"""

import argparse
import collections
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

_SHOWN = 15


class Spent(NamedTuple):
    """A run: seconds, CPU seconds of each kernel that it compiled, and what it made."""

    cpu: float
    wall: float
    kernels: Mapping[str, float]
    digests: Mapping[str, str]


def main() -> None:
    """Measure and print the tables, or be one of the runs."""
    if sys.argv[1:2] == ["--noting"]:
        _run_noting(Path(sys.argv[2]), sys.argv[3:])
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("profiles", nargs="*", default=["smoke", "quickstart"], help="default: both examples")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", type=Path, help="also write all figures to a file")
    asked = parser.parse_args()
    found = {profile: _turns(profile, asked.repeat) for profile in asked.profiles}
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors\n")
    print("| profile | cold: CPU s | wall s | kernels | their CPU s | warm: CPU s | wall s |")
    print("| --- |" + " ---: |" * 6)
    for profile, (cold, warm) in found.items():
        compiling = statistics.median(sum(each.kernels.values()) for each in cold)
        figures = [_median(cold, "cpu"), _median(cold, "wall"), len(cold[0].kernels), compiling]
        shown = [*figures, _median(warm, "cpu"), _median(warm, "wall")]
        print(f"| {profile} | " + " | ".join(f"{figure:.3g}" for figure in shown) + " |")
    for profile, (cold, _) in found.items():
        _show_kernels(profile, cold)
    if asked.json:
        asked.json.write_text(json.dumps(found, indent=1))


def _turns(profile: str, repeat: int) -> tuple[list[Spent], list[Spent]]:
    """Run a profile with an empty cache and with a filled one, each so many times."""
    cold, warm = [], []
    for _ in range(repeat):
        with tempfile.TemporaryDirectory() as folder:
            cold.append(_run(profile, Path(folder), "cold"))
            warm.append(_run(profile, Path(folder), "warm"))
        if cold[-1].digests != warm[-1].digests or warm[-1].kernels:
            raise SystemExit(f"{profile}: the second run made other artifacts, or compiled again")
    return cold, warm


def _run(profile: str, folder: Path, name: str) -> Spent:
    noted, store = folder / f"{name}.json", folder / name
    command = [sys.executable, __file__, "--noting", str(noted)]
    own = {"TOKMILL_KERNEL_CACHE": str(folder / "kernels"), "PYTHONDONTWRITEBYTECODE": ""}
    environment = os.environ | own
    before, began = os.times(), time.perf_counter()
    subprocess.run(
        [*command, "run", profile, "--no-prefect", "--store", str(store)],
        check=True,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    wall, after = time.perf_counter() - began, os.times()
    cpu = after.children_user + after.children_system - before.children_user - before.children_system
    return Spent(cpu, wall, json.loads(noted.read_text()), _digests(store))


def _digests(store: Path) -> Mapping[str, str]:
    records = (json.loads(path.read_text()) for path in store.rglob("record.json"))
    return {record["fingerprint"]: record["content_digest"] for record in records}


def _run_noting(noted: Path, arguments: Sequence[str]) -> None:
    """Run `tokmill`, note the CPU time of each kernel that is compiled, and end."""
    from tokmill.__main__ import main as tokmill
    from tokmill.tokenizer.jit import Compilation
    from tokmill.tokenizer.jit.machine_code import reporting

    spent: dict[str, float] = collections.defaultdict(float)
    begun: list[float] = []

    def note(done: Compilation) -> None:
        if done.seconds is None:
            begun.append(time.thread_time())
        elif not done.cached:
            spent[done.kernel] += (seconds := time.thread_time() - begun.pop())
            begun[:] = [start + seconds for start in begun]

    with reporting(note):
        sys.argv = ["tokmill", *arguments]
        try:
            status = tokmill()
        except SystemExit as ended:
            status = ended.code
    noted.write_text(json.dumps(spent))
    sys.exit(status)


def _median(runs: Sequence[Spent], field: str) -> float:
    return statistics.median(getattr(each, field) for each in runs)


def _show_kernels(profile: str, cold: Sequence[Spent]) -> None:
    seconds = {kernel: statistics.median(run.kernels[kernel] for run in cold) for kernel in cold[0].kernels}
    slowest = sorted(seconds.items(), key=lambda item: -item[1])
    print(f"\n| {profile}: kernel | CPU s |\n| --- | ---: |")
    for kernel, spent in slowest[:_SHOWN]:
        print(f"| `{kernel.removeprefix('tokmill.')}` | {spent:.2f} |")
    rest = slowest[_SHOWN:]
    print(f"| {len(rest)} others | {sum(spent for _, spent in rest):.2f} |")


if __name__ == "__main__":
    main()
