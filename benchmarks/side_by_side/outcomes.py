"""What was measured: a case, and what each side made of it."""

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Clock = Literal["cpu", "wall"]


class UnsupportedError(Exception):
    """A side cannot do a piece of work at all; the message says why, in a few words for a table."""


@dataclass(frozen=True)
class Case:
    """One piece of work that all sides do.

    Attributes:
        work: what is done, or with what: a vocabulary, a split pattern.
        text: the name of the text.
        num_bytes: of the text.
        num_documents: in it.
        num_threads: that each side may use.
    """

    work: str
    text: str
    num_bytes: int
    num_documents: int
    num_threads: int = 1


@dataclass(frozen=True)
class Verdict:
    """Whether a result is what it has to be.

    Attributes:
        right: whether it is.
        says: how that is known, in a few words.
        same_work: whether it is the result of the same work; a side that does another is never the fastest.
    """

    right: bool
    says: str
    same_work: bool = True


@dataclass
class Outcome:
    """One side's times for a case.

    Attributes:
        case: the work.
        side: who did it.
        seconds: for each phase (cold, warm, ...) and clock, one figure a round.
        before_bytes: resident memory when the first round began, the text and the side's tables in it.
        peak_bytes: the most resident memory in the first round.
        verdict: on the results; on the first wrong one if there is one.
        failure: why there is none (or no more), in a few words.
    """

    case: Case
    side: str
    seconds: dict[str, dict[Clock, list[float]]] = field(default_factory=dict)
    before_bytes: int = 0
    peak_bytes: int = 0
    verdict: Verdict | None = None
    failure: str | None = None

    @property
    def counts(self) -> bool:
        """Whether the times may be compared: there are some, and every result was right."""
        return bool(self.seconds) and self.failure is None and self.verdict is not None and self.verdict.right

    def add(self, phase: str, answer: dict[str, Any], verdict: Verdict) -> None:
        """Note what a worker answered, and what was thought of its result."""
        times = self.seconds.setdefault(phase, {"cpu": [], "wall": []})
        times["cpu"].append(answer["cpu"])
        times["wall"].append(answer["wall"])
        if not self.peak_bytes:
            self.before_bytes, self.peak_bytes = answer["before"], answer["peak"]
        if self.verdict is None or self.verdict.right:
            self.verdict = verdict

    def median(self, phase: str, clock: Clock = "cpu") -> float | None:
        """Return seconds, or None if there are none."""
        times = self.seconds.get(phase)
        return statistics.median(times[clock]) if times else None

    def speed(self, phase: str, clock: Clock = "cpu") -> float | None:
        """Return megabytes of text a second, or None if there are no times."""
        seconds = self.median(phase, clock)
        return None if seconds is None else self.case.num_bytes / 1e6 / max(seconds, 1e-9)

    def spent(self) -> float:
        """Return seconds of wall time so far."""
        return sum(sum(times["wall"]) for times in self.seconds.values())

    def as_json(self) -> dict[str, Any]:
        """Return everything as data."""
        return asdict(self)


def ratio(ours: Outcome, theirs: Outcome, phase: str, clock: Clock = "cpu") -> float | None:
    """Return how many times as fast we are, or None unless both may be compared."""
    mine, other = ours.median(phase, clock), theirs.median(phase, clock)
    if mine is None or other is None or not (ours.counts and theirs.counts):
        return None
    return other / max(mine, 1e-9)
