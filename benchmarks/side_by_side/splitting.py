"""The command `split`: what is measured, and what is shown of it."""

import argparse
import tempfile
from pathlib import Path

from side_by_side import tables, texts
from side_by_side.checks import SameDocuments
from side_by_side.names import PATTERNS, PROSE, SPLITTERS
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import compile_kernels
from side_by_side.reports import Report, progress
from side_by_side.rounds import Job, Limits, together

REFERENCE = "regex"
_PHASES = ("split",)


def run(options: argparse.Namespace) -> int:
    """Measure and report; returns the exit status."""
    names = [*options.text, *map(str, options.files)] or list(PROSE)
    patterns = options.pattern or list(PATTERNS)
    report = Report("split", SPLITTERS, options.out)
    compile_kernels()
    outcomes: list[Outcome] = []
    with tempfile.TemporaryDirectory(prefix="tokmill-benchmarks-") as made:
        path = Path(made) / "text"
        for name in names:
            text = texts.load(name, int(options.megabytes * 1e6))
            text.write(path)
            for pattern in patterns:
                progress(pattern, name)
                case = Case(pattern, Path(name).name, len(text.data), len(text))
                job = Job(case, "splitters", path, {"pattern": pattern}, _PHASES)
                limits = Limits(options.repeat, options.patience, options.timeout)
                outcomes += together(job, SPLITTERS, SameDocuments(REFERENCE, "cuts"), limits)
    for pattern in patterns:
        found = [each for each in outcomes if each.case.work == pattern]
        title = f"{pattern}: how many times as fast as a peer, CPU time"
        report.section(title, tables.ratios(found, "split"))
        report.section(f"{pattern}: figures", tables.figures(found, _PHASES))
        report.add(found)
    return report.finish(lambda plots: plots.speeds(outcomes, _PHASES, "split"))
