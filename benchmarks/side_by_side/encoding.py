"""The command `encode`: what is measured, and what is shown of it."""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from side_by_side import single, start, tables, texts, vocabularies
from side_by_side.checks import SameDocuments
from side_by_side.names import ENCODERS, HARD, OURS, PROSE, VOCABULARIES
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import compile_kernels
from side_by_side.reports import Report, progress
from side_by_side.rounds import Job, Limits, together

REFERENCE = "tiktoken"
_PHASES = ("cold", "warm")


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns the exit status."""
    sides = [side for side in ENCODERS if side in {*OURS, REFERENCE, *(options.peer or ENCODERS)}]
    vocabulary_names = options.vocab or list(VOCABULARIES)
    report = Report("encode", sides, options.out)
    compile_kernels()
    with tempfile.TemporaryDirectory(prefix="tokmill-benchmarks-") as made:
        folder = Path(made)
        for name in vocabulary_names:
            vocabularies.write_files(name, folder / name)
        prose, hard = chosen_texts(options)
        prose_outcomes = measure(prose, vocabulary_names, sides, options, folder)
        _show_prose(report, prose_outcomes, vocabulary_names, options.threads)
        hard_outcomes = measure(hard, vocabulary_names, sides, options, folder)
        if hard_outcomes:
            title = "Hard input: MB/s of CPU time, cold (and part of the side's own speed on English)"
            report.section(title, tables.beside_prose(hard_outcomes, prose_outcomes, "cold"))
            report.add(hard_outcomes)
        if _wants("single", options):
            singles = single.measure(vocabulary_names[-1], sides, options.repeat, folder)
            report.section(*single.table(singles))
            report.add(singles)
        if _wants("start", options):
            starts = start.measure(vocabulary_names[-1], sides, options.repeat, folder)
            report.section(*start.table(starts))
            report.add(starts)
    return report.finish(lambda plots: plots.speeds(prose_outcomes, _PHASES, "encoded"))


def chosen_texts(options: argparse.Namespace) -> tuple[list[str], list[str]]:
    """Return the names of prose and of hard input; what is named goes before parts."""
    named = [*options.text, *map(str, options.files)]
    if named:
        return [name for name in named if name not in HARD], [name for name in named if name in HARD]
    parts = options.part or ["prose", "hard"]
    return list(PROSE) if "prose" in parts else [], list(HARD) if "hard" in parts else []


def measure(
    names: Sequence[str],
    vocabulary_names: Sequence[str],
    sides: Sequence[str],
    options: argparse.Namespace,
    folder: Path,
) -> list[Outcome]:
    """Measure every vocabulary, number of threads and text."""
    limits = Limits(options.repeat, options.patience, options.timeout)
    outcomes = []
    for number, name in enumerate(names):
        text = texts.load(name, int(options.megabytes * 1e6))
        path = folder / f"text-{number}"
        text.write(path)
        for vocabulary in vocabulary_names:
            for num_threads in options.threads:
                case = Case(vocabulary, Path(name).name, len(text.data), len(text), num_threads)
                progress(vocabulary, name, f"{num_threads} thread(s)")
                files = str(folder / vocabulary)
                made_with = {"vocabulary": vocabulary, "files": files, "num_threads": num_threads}
                job = Job(case, "encoders", path, made_with, _PHASES)
                outcomes += together(job, sides, SameDocuments(REFERENCE, "ids"), limits)
    return outcomes


def _show_prose(
    report: Report, outcomes: Sequence[Outcome], vocabulary_names: Sequence[str], threads: Sequence[int]
) -> None:
    for vocabulary in vocabulary_names if outcomes else []:
        for number in threads:
            here = (vocabulary, number)
            found = [each for each in outcomes if (each.case.work, each.case.num_threads) == here]
            where = f"{vocabulary}, {number} thread{'s' if number > 1 else ''}"
            for phase in _PHASES:
                title = f"{where}: how many times as fast as a peer, {phase}, CPU time"
                report.section(title, tables.ratios(found, phase))
            report.section(f"{where}: figures", tables.figures(found, _PHASES))
            report.add(found)
    if len(threads) > 1 and outcomes:
        report.section("Threads: the least wall time of all rounds", tables.scaling(outcomes, "cold"))


def _wants(part: str, options: argparse.Namespace) -> bool:
    return part in options.part if options.part else not (options.text or options.files)
