"""Sides take turns at a case, round after round, each in its own process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from side_by_side.checks import Check
from side_by_side.outcomes import Case, Outcome
from side_by_side.processes import Process, SideError


@dataclass(frozen=True)
class Limits:
    """How much is measured.

    Attributes:
        rounds: how often each side has its turn.
        patience: a side that has worked for so many seconds on a case gets no further turn at it.
        timeout: a side is given up after so many seconds without an answer.
    """

    rounds: int = 3
    patience: float = 10.0
    timeout: float = 120.0


@dataclass(frozen=True)
class Job:
    """A case as the workers are told of it.

    Attributes:
        case: the work.
        kind: the module that has the sides.
        text: where the text is.
        options: what the sides are made with.
        phases: of a round, in order; a fresh object is made before the first.
    """

    case: Case
    kind: str
    text: Path
    options: dict[str, Any]
    phases: Sequence[str]

    def open(self, side: str) -> dict[str, Any]:
        """Return the request that readies a side for this."""
        place = {"kind": self.kind, "side": side, "text": str(self.text)}
        return {"do": "open", **place, "options": self.options}


def together(job: Job, sides: Sequence[str], check: Check, limits: Limits) -> list[Outcome]:
    """Measure with all processes alive from the first round to the last: what was seen before may be warm."""
    outcomes = {side: Outcome(job.case, side) for side in sides}
    with ExitStack() as stack:
        processes: dict[str, Process] = {}
        for side, outcome in outcomes.items():
            processes[side] = stack.enter_context(Process(job.case.num_threads))
            _trying(outcome, partial(processes[side].ask, job.open(side), limits.timeout))
        for side in _turns(outcomes, check.reference, limits):
            act = partial(_round, processes[side], job, outcomes[side], check, limits)
            _trying(outcomes[side], act)
    return list(outcomes.values())


def one_by_one(job: Job, sides: Sequence[str], check: Check, limits: Limits) -> list[Outcome]:
    """Measure with a new process for every side and round: nothing is left of the round before."""
    outcomes = {side: Outcome(job.case, side) for side in sides}

    def turn(side: str) -> None:
        with Process(job.case.num_threads) as process:
            process.ask(job.open(side), limits.timeout)
            _round(process, job, outcomes[side], check, limits)

    for side in _turns(outcomes, check.reference, limits):
        _trying(outcomes[side], partial(turn, side))
    return list(outcomes.values())


def _turns(outcomes: dict[str, Outcome], reference: str, limits: Limits) -> Iterator[str]:
    """Yield whose turn it is. The reference opens the first round, the next side the second, and so on."""
    order = sorted(outcomes, key=lambda side: side != reference)
    for number in range(limits.rounds):
        start = number % len(order)
        for side in order[start:] + order[:start]:
            if outcomes[side].failure is None and outcomes[side].spent() < limits.patience:
                yield side


def _round(process: Process, job: Job, outcome: Outcome, check: Check, limits: Limits) -> None:
    process.ask({"do": "fresh"}, limits.timeout)
    for phase in job.phases:
        answer = process.ask({"do": "work"}, limits.timeout)
        verdict = check.judge(outcome.side, answer["evidence"])
        outcome.add(phase, answer, verdict)


def _trying(outcome: Outcome, act: Callable[[], Any]) -> None:
    try:
        act()
    except SideError as error:
        outcome.failure = str(error)
