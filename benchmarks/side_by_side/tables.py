"""Tables in Markdown. What does not count stands in brackets, or is a dash where there is no time at all."""

import statistics
from collections.abc import Iterable, Sequence
from typing import TypeVar

from side_by_side.names import OURS
from side_by_side.outcomes import Clock, Outcome, ratio

T = TypeVar("T")

_NONE = "–"


def table(head: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Lay out a table; the first `left` columns are words, the others figures."""
    rule = ["---" if i < left else "---:" for i in range(len(head))]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, rule, *rows])


def ratios(outcomes: Sequence[Outcome], phase: str, clock: Clock = "cpu") -> str:
    """Say how many times as fast as each peer we are: for each text, and the geometric mean over them."""
    ours = [outcome for outcome in outcomes if outcome.side == OURS[0]]
    peers = _in_order(outcome.side for outcome in outcomes if outcome.side not in OURS)
    rows, columns = [], dict[str, list[float]]()
    for mine in ours:
        by_side = {outcome.side: outcome for outcome in outcomes if outcome.case == mine.case}
        found = {side: ratio(mine, by_side[side], phase, clock) for side in peers if side in by_side}
        for side, value in found.items():
            columns.setdefault(side, []).extend([] if value is None else [value])
        known = {side: value for side, value in found.items() if value and _same_work(by_side[side])}
        fastest = min(known, key=lambda side: known[side]) if known else None
        columns.setdefault("", []).extend([known[fastest]] if fastest else [])
        cells = [_ratio_cell(mine, by_side.get(side), phase, clock) for side in peers]
        rows.append([mine.case.text, *cells, f"**{_times(known[fastest])}** {fastest}" if fastest else _NONE])
    if len(ours) > 1:
        rows.append(["geometric mean", *(_mean(columns.get(side, []), len(ours)) for side in [*peers, ""])])
    others = {outcome.side for outcome in outcomes if not _same_work(outcome)}
    head = ["text", *(f"{side} \\*" if side in others else side for side in peers), "fastest peer"]
    width = len(peers) + 1 + (len(peers) > 1)
    written = table(head[:width], [row[:width] for row in rows])
    return f"{written}\n\n\\* does other work, see its result below" if others else written


def figures(outcomes: Sequence[Outcome], phases: Sequence[str]) -> str:
    """Say everything that was measured, a row for each side and text."""
    head = ["text", "side"]
    for phase in phases:
        head += [f"{phase} CPU s", "wall s", "MB/s of CPU"]
    rows = []
    for outcome in outcomes:
        row = [f"{outcome.case.text}, {outcome.case.num_bytes / 1e6:.1f} MB", outcome.side]
        for phase in phases:
            row += [_seconds(outcome, phase, "cpu"), _seconds(outcome, phase, "wall"), speed(outcome, phase)]
        sizes = (outcome.peak_bytes, outcome.peak_bytes - outcome.before_bytes)
        row += [f"{size / (1 << 20):,.0f}" if outcome.peak_bytes else _NONE for size in sizes]
        rows.append([*row, outcome.failure or (outcome.verdict.says if outcome.verdict else _NONE)])
    return table([*head, "peak MiB", "of it new", "result"], rows, left=2)


def memory(outcomes: Sequence[Outcome]) -> str:
    """Say, for each text, our peak memory as part of each peer's; the text itself is in both."""
    peers = _in_order(outcome.side for outcome in outcomes if outcome.side not in OURS)
    rows = []
    for mine in (outcome for outcome in outcomes if outcome.side == OURS[0]):
        by_side = {outcome.side: outcome for outcome in outcomes if outcome.case == mine.case}
        cells = []
        for side in peers:
            theirs = by_side.get(side)
            if theirs is None or not theirs.peak_bytes:
                cells.append(_NONE)
            else:
                cells.append(_bracketed(f"{mine.peak_bytes / theirs.peak_bytes:.2f}×", theirs))
        rows.append([mine.case.text, *cells])
    return table(["text", *peers], rows)


def scaling(outcomes: Sequence[Outcome], phase: str) -> str:
    """Say how much sooner several threads are done than one: the least wall time of the rounds of each.

    The least, since whatever else runs on the machine takes a core from two threads first.
    """
    numbers = sorted({outcome.case.num_threads for outcome in outcomes})
    rows = []
    for one in (outcome for outcome in outcomes if outcome.case.num_threads == numbers[0]):
        found = {
            other.case.num_threads: other
            for other in outcomes
            if (other.side, other.case.text, other.case.work) == (one.side, one.case.text, one.case.work)
        }
        times = [found[number].seconds.get(phase) for number in numbers if number in found]
        walls = [min(each["wall"]) if each else None for each in times]
        cells = [_NONE if wall is None else f"{wall:.3f}" for wall in walls]
        known = len(walls) == len(numbers) and None not in walls
        gain = f"{walls[0] / walls[-1]:.2f}×" if known else _NONE  # type: ignore[operator]
        rows.append([one.case.work, one.case.text, one.side, *cells, gain])
    head = [f"{number} thread{'s' if number > 1 else ''}, {phase} wall s" for number in numbers]
    return table(["with", "text", "side", *head, "faster"], rows, left=3)


def beside_prose(hard: Sequence[Outcome], prose: Sequence[Outcome], phase: str) -> str:
    """Say how fast each side is on hard input, and what part of its own speed on English that is."""
    english = {
        (outcome.side, outcome.case.work): outcome.speed(phase)
        for outcome in prose
        if outcome.case.text == "english" and outcome.case.num_threads == 1
    }
    sides = _in_order(outcome.side for outcome in hard)
    rows = []
    for case in _in_order(outcome.case for outcome in hard):
        cells = []
        for side in sides:
            outcome = next((found for found in hard if found.side == side and found.case == case), None)
            usual, found_speed = english.get((side, case.work)), outcome and outcome.speed(phase)
            part = f" ({found_speed / usual:.2f}×)" if usual and found_speed else ""
            cells.append(_NONE if outcome is None else speed(outcome, phase) + part)
        rows.append([case.work, case.text, *cells])
    return table(["with", "text", *sides], rows, left=2)


def notes(outcomes: Sequence[Outcome]) -> list[str]:
    """Say what does not count, and why; what is said of several texts is said once."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for outcome in outcomes:
        if not outcome.counts:
            why = outcome.failure or (outcome.verdict.says if outcome.verdict else "no round was finished")
            found.setdefault((outcome.side, outcome.case.work, why), []).append(outcome.case.text)
    places = ((side, work, ", ".join(_in_order(names)), why) for (side, work, why), names in found.items())
    return [f"- {side}, {work}, {names}: {why}" for side, work, names, why in places]


def speed(outcome: Outcome, phase: str) -> str:
    """Write megabytes a second of CPU time, in brackets unless they count."""
    value = outcome.speed(phase)
    if value is None:
        return _NONE
    return _bracketed(f"{value:.0f}" if value >= 100 else f"{value:.1f}", outcome)


def _same_work(outcome: Outcome) -> bool:
    return outcome.verdict is None or outcome.verdict.same_work


def _ratio_cell(ours: Outcome, theirs: Outcome | None, phase: str, clock: Clock) -> str:
    mine, other = ours.median(phase, clock), theirs and theirs.median(phase, clock)
    if theirs is None or mine is None or other is None:
        return _NONE
    written = _times(other / max(mine, 1e-9))
    return written if ours.counts and theirs.counts else f"({written})"


def _bracketed(written: str, outcome: Outcome) -> str:
    return written if outcome.counts else f"({written})"


def _seconds(outcome: Outcome, phase: str, clock: Clock) -> str:
    value = outcome.median(phase, clock)
    return _NONE if value is None else _bracketed(f"{value:.3f}" if value < 10 else f"{value:.1f}", outcome)


def _times(value: float) -> str:
    return f"{value:.0f}×" if value >= 20 else f"{value:.1f}×" if value >= 3 else f"{value:.2f}×"


def _mean(values: list[float], number: int) -> str:
    """Write the geometric mean, unless some texts are missing from it."""
    return _times(statistics.geometric_mean(values)) if values and len(values) == number else _NONE


def _in_order(values: Iterable[T]) -> list[T]:
    return list(dict.fromkeys(values))
