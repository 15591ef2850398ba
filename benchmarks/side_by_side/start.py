"""Import to first token: a new interpreter imports a library, loads a vocabulary and encodes two words.

tokmill appears twice: with its machine code in the cache, as on every day but the first, and with an empty
cache, as on the first; that is measured once, since it takes long. Wall time ends when the ids arrive; CPU
time is the process' until it ends, with whatever it started.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from side_by_side import tables
from side_by_side.environment import ahead_folder
from side_by_side.outcomes import Case, Outcome, Verdict
from side_by_side.processes import child_environment
from side_by_side.programs import PROGRAMS
from side_by_side.vocabularies import JSON, RANKS

_PRINT = """
print(ids, flush=True)
lines = open("/proc/self/status").read().splitlines()
print(next(line for line in lines if line.startswith("VmHWM:")).split()[1], flush=True)
"""
_FIRST_USE = "tokmill, first use"
_REFERENCE = "tiktoken"


def measure(vocabulary: str, sides: Sequence[str], repeat: int, folder: Path) -> list[Outcome]:
    """Start every side in turn, after one start of each that is not counted, which fills the caches."""
    given = {"folder": str(folder / vocabulary), "ranks": RANKS, "json": JSON, "name": vocabulary}
    given["ahead"] = str(ahead_folder())
    setting = "".join(f"{key} = {value!r}\n" for key, value in {**given, "text": "Hello world"}.items())
    case = Case(vocabulary, "Hello world", len("Hello world"), 1)
    runs = {side: PROGRAMS[side].first_token() for side in sides if side in PROGRAMS}
    runs[_FIRST_USE] = PROGRAMS["tokmill"].first_token()
    outcomes = {side: Outcome(case, side) for side in runs}
    expected: str | None = None
    for number in range(repeat + 1):
        for side in sorted(runs, key=lambda side: side != _REFERENCE):
            if outcomes[side].failure is None and (number == 1 or side != _FIRST_USE):
                print("starting", side, file=sys.stderr, flush=True)
                said, answer = _start(setting + runs[side] + _PRINT, first_use=side == _FIRST_USE)
                expected = said if expected is None else expected
                _note(outcomes[side], said, answer, expected, counted=number > 0)
    return list(outcomes.values())


def table(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Return title and body of a section."""
    rows = []
    for each in outcomes:
        wall, cpu = each.median("start", "wall"), each.median("start")
        cells = ["–", "–", "–"] if wall is None or cpu is None else [f"{wall:.2f}", f"{cpu:.2f}"]
        peak = [f"{each.peak_bytes / (1 << 20):,.0f}"] if wall is not None else []
        rows.append([each.side, *cells, *peak, each.failure or (each.verdict.says if each.verdict else "–")])
    head = ["side", "wall s", "CPU s", "peak MiB", "result"]
    return f"Import to first token, {outcomes[0].case.work}", tables.table(head, rows)


def _start(program: str, *, first_use: bool) -> tuple[str, dict[str, float]]:
    """Run a program; returns the line that it prints, and seconds and memory."""
    with tempfile.TemporaryDirectory() as empty, tempfile.TemporaryFile("w+") as errors:
        environment = child_environment(1) | ({"TOKMILL_KERNEL_CACHE": empty} if first_use else {})
        began = time.perf_counter()
        process = subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=errors, env=environment, text=True
        )
        assert process.stdout is not None
        with process.stdout as out:
            said = out.readline().strip()
            wall = time.perf_counter() - began
            kibibytes = out.readline().strip()
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        last = (errors.read().strip().splitlines() or [""])[-1]
    cpu, peak = used.ru_utime + used.ru_stime, 1024 * int(kibibytes or 0)
    return said or f"failed: {last}", {"cpu": cpu, "wall": wall, "before": 0, "peak": peak}


def _note(outcome: Outcome, said: str, answer: dict[str, float], expected: str, *, counted: bool) -> None:
    if not said.startswith("["):
        outcome.failure = said
    elif counted:
        right = json.loads(said) == json.loads(expected) if expected.startswith("[") else False
        outcome.add("start", answer, Verdict(right, "ids equal" if right else f"other ids than {_REFERENCE}"))
