"""The command `families_train`: what is measured, and what is shown of it."""

import argparse
import itertools
import tempfile
from collections.abc import Sequence
from pathlib import Path

from side_by_side import tables, texts
from side_by_side.checks import SamePieces
from side_by_side.names import FAMILY_TRAININGS, OURS
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import compile_kernels
from side_by_side.reports import Report, progress
from side_by_side.rounds import Job, Limits, one_by_one

_TEXTS = ("ntrex", "everything")
_SIZES = (8_000, 32_000)
_PHASES = ("train",)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns the exit status."""
    kinds = options.kind or list(FAMILY_TRAININGS)
    names = [*options.text, *map(str, options.files)] or list(_TEXTS)
    peers = sorted({FAMILY_TRAININGS[kind] for kind in kinds})
    report = Report("families_train", [OURS[0], *peers], options.out)
    compile_kernels()
    outcomes: list[Outcome] = []
    cases = itertools.product(kinds, options.vocab_size or _SIZES, options.threads)
    with tempfile.TemporaryDirectory(prefix="tokmill-benchmarks-") as folder:
        for kind, vocab_size, num_threads in cases:
            found = [
                outcome
                for name in names
                for outcome in _measure(name, kind, vocab_size, num_threads, options, Path(folder))
            ]
            _show(report, f"{kind}, {vocab_size:,} pieces, threads: {num_threads}", found)
            outcomes += found
    return report.finish(lambda plots: plots.trainings(outcomes))


def _show(report: Report, where: str, found: Sequence[Outcome]) -> None:
    report.section(f"{where}: how many times as fast, CPU time", tables.ratios(found, "train"))
    report.section(f"{where}: the same, wall time", tables.ratios(found, "train", "wall"))
    report.section(f"{where}: peak memory as part of the peer's", tables.memory(found))
    report.section(f"{where}: figures", tables.figures(found, _PHASES))
    report.add(found)


def _measure(
    name: str, kind: str, vocab_size: int, num_threads: int, options: argparse.Namespace, folder: Path
) -> list[Outcome]:
    text, path = texts.load(name, int(options.megabytes * 1e6)), folder / "text"
    text.write(path)
    progress(kind, name, f"{vocab_size:,} pieces, {len(text.data) / 1e6:.0f} MB, {num_threads} thread(s)")
    case = Case(f"{kind} {vocab_size}", Path(name).name, len(text.data), len(text), num_threads)
    made_with = {"kind": kind, "vocab_size": vocab_size, "num_threads": num_threads}
    job = Job(case, "family_trainers", path, made_with, _PHASES)
    peer = FAMILY_TRAININGS[kind]
    limits = Limits(options.repeat, options.patience, options.timeout)
    return one_by_one(job, [OURS[0], peer], SamePieces(peer), limits)
