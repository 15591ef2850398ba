"""The command `train`: what is measured, and what is shown of it."""

import argparse
import tempfile
from pathlib import Path

from side_by_side import tables, texts
from side_by_side.checks import SameMerges
from side_by_side.names import OURS, TRAINERS, TRAINING_TEXTS
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import compile_kernels
from side_by_side.reports import Report, progress
from side_by_side.rounds import Job, Limits, one_by_one

REFERENCE = "tokenizers"
SAME_TIES = (*OURS, "gigatoken")
OWN_CUTS = ("sentencepiece", "gigabpe")  # gigabpe takes each line of a file by itself
_PHASES = ("train",)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns the exit status."""
    sides = [side for side in TRAINERS if side in {*OURS, REFERENCE, *(options.peer or TRAINERS)}]
    names = [*options.text, *map(str, options.files)] or list(TRAINING_TEXTS)
    report = Report("train", sides, options.out)
    compile_kernels()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tokmill-benchmarks-") as made:
        for num_threads in options.threads:
            found: list[Outcome] = []
            for name in names:
                found += _measure(name, num_threads, sides, options, Path(made))
            outcomes += found
            where = f"{options.vocab_size:,} tokens, {num_threads} thread{'s' if num_threads > 1 else ''}"
            title = f"{where}: how many times as fast as a peer, CPU time"
            report.section(title, tables.ratios(found, "train"))
            report.section(f"{where}: the same, wall time", tables.ratios(found, "train", "wall"))
            report.section(f"{where}: peak memory as part of a peer's", tables.memory(found))
            report.section(f"{where}: figures", tables.figures(found, _PHASES))
            report.add(found)
    return report.finish(lambda plots: plots.trainings(outcomes))


def _measure(
    name: str, num_threads: int, sides: list[str], options: argparse.Namespace, folder: Path
) -> list[Outcome]:
    text, path = texts.load(name, int(options.megabytes * 1e6)), folder / "text"
    text.write(path)
    progress(name, f"{len(text.data) / 1e6:.0f} MB", f"{num_threads} thread(s)")
    case = Case(f"{options.vocab_size}", Path(name).name, len(text.data), len(text), num_threads)
    made_with = {"vocab_size": options.vocab_size, "num_threads": num_threads}
    job = Job(case, "trainers", path, made_with, _PHASES)
    check = SameMerges(REFERENCE, SAME_TIES, OWN_CUTS)
    return one_by_one(job, sides, check, Limits(options.repeat, options.patience, options.timeout))
