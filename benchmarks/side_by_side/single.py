"""One short text at a time, as in a notebook: how long a call to encode, decode or count takes.

Each side has a new interpreter in each round; a figure is the median over the rounds of the median CPU time
of a call within one. Ids are compared with the reference's before a time counts.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from side_by_side import tables
from side_by_side.environment import ahead_folder
from side_by_side.outcomes import Case, Outcome, Verdict
from side_by_side.processes import child_environment
from side_by_side.programs import PROGRAMS, Program
from side_by_side.vocabularies import JSON, RANKS

TEXTS = {
    "two words": "Hello world",
    "a sentence": "The quick brown fox jumps over the lazy dog, and 12 others don't.",
    "Japanese": "吾輩は猫である。名前はまだ無い。どこで生れたかとんと見当がつかぬ。",
    "a page": "It was the best of times, it was the worst of times; nobody knew which. " * 40,
}
_REFERENCE = "tiktoken"
_CALLS = ("encode", "decode", "decode one", "count")
_TIMING = """
import json as _json, statistics, time
def per_call(call, at_least=0.02):
    number = 1
    while True:
        began = time.process_time()
        for _ in range(number):
            call()
        seconds = time.process_time() - began
        if seconds >= at_least:
            return seconds / number
        number *= 2
def timed(call):
    call()
    return statistics.median(per_call(call) for _ in range(5))
"""


def measure(vocabulary: str, sides: Sequence[str], repeat: int, folder: Path) -> list[Outcome]:
    """Measure every side on every text; returns an outcome for each, whose phases are the calls."""
    given = {"folder": str(folder / vocabulary), "ranks": RANKS, "json": JSON, "name": vocabulary}
    found = []
    for label, text in TEXTS.items():
        case = Case(vocabulary, label, len(text.encode()), 1)
        outcomes = {side: Outcome(case, side) for side in sides if side in PROGRAMS}
        expected: list[int] | None = None
        for _ in range(repeat):
            for side in sorted(outcomes, key=lambda side: side != _REFERENCE):
                answer = _run(PROGRAMS[side], given | {"text": text, "ahead": str(ahead_folder())})
                if isinstance(answer, str):
                    outcomes[side].failure = answer
                    continue
                expected = answer["ids"] if expected is None else expected
                _note(outcomes[side], answer, expected)
        found += outcomes.values()
    return found


def table(outcomes: Sequence[Outcome]) -> tuple[str, str]:
    """Return title and body of a section."""
    rows = []
    for each in outcomes:
        times = [each.median(call) for call in _CALLS]
        cells = ["–" if seconds is None else f"{seconds * 1e6:.1f}" for seconds in times]
        says = each.failure or (each.verdict.says if each.verdict else "–")
        rows.append([f"{each.case.text}, {each.case.num_bytes} bytes", each.side, *cells, says])
    head = ["text", "side", *(f"{call} µs" for call in _CALLS), "result"]
    return f"Single short texts, {outcomes[0].case.work}: CPU time of a call", tables.table(
        head, rows, left=2
    )


def _run(program: Program, given: dict[str, str]) -> dict[str, object] | str:
    """Run one side's program; returns ids and seconds per call, or why there are none."""
    setting = "".join(f"{key} = {value!r}\n" for key, value in given.items())
    calls = {"encode": program.encode, "decode": program.decode, "decode one": "tok.decode(ids[:1])"}
    calls |= {"count": program.count} if program.count else {}
    timings = "".join(f"times[{call!r}] = timed(lambda: {code})\n" for call, code in calls.items())
    code = f"{setting}{_TIMING}{program.first_token()}times = {{}}\n{timings}"
    code += "print(_json.dumps({'ids': list(ids), 'times': times}))\n"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=child_environment(1), check=False
    )
    if done.returncode:
        return f"failed: {(done.stderr.strip().splitlines() or ['nothing said'])[-1]:.120}"
    return dict(json.loads(done.stdout.splitlines()[-1]))


def _note(outcome: Outcome, answer: dict[str, object], expected: list[int]) -> None:
    right = answer["ids"] == expected
    verdict = Verdict(right, "ids equal" if right else f"other ids than {_REFERENCE}")
    for call, seconds in dict(answer["times"]).items():  # type: ignore[call-overload]
        outcome.add(call, {"cpu": seconds, "wall": seconds, "before": 0, "peak": 0}, verdict)
