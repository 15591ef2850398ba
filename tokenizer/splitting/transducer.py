r"""Turn a matcher, which finds one match, into a transducer, which cuts a whole text in one pass.

If a match turns out to end at the current place, the machine continues in the state of a fresh start there.
If the end may be further back (`\s+(?!\S)` gives back one space), the state also holds that of a machine
started there, whose cuts are provisional: they stay if the longer match fails, and are taken back if it does
not. A step that would need too long a memory is flagged `SLOW`, and the kernel runs the matcher from the last
cut on. A stretch that nothing matches is a pre-token of its own (state `GAP`), up to where a match certainly
begins.
"""

from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tokmill.tokenizer.splitting.matcher import DEAD, MAX_ENTRIES, Matcher
from tokmill.tokenizer.splitting.matcher import START as MATCHER_START
from tokmill.tokenizer.splitting.syntax import UnsupportedError

CUT_HERE = 1
CUT_BEFORE = 2
SLOW = 4
TAKE_BACK = 8  # times the number of cuts to take back, 0 to MAX_PENDING
MAX_PENDING = 3
MAX_ROUNDS = 100  # of looking for states that are alike; long literals need one for each character
START = 0
GAP = 1
_BEFORE_MERGING = 2  # times the entries that there may be once states that are alike are merged


class Transition(NamedTuple):
    """The effect of one symbol: take back cuts, cut before the character last read, cut before this one."""

    state: "_State"
    take_back: int = 0
    before: bool = False
    here: bool = False

    @property
    def flags(self) -> int:
        """The step as a byte of flags."""
        if isinstance(self.state, _Lost):
            return SLOW
        return TAKE_BACK * self.take_back | CUT_BEFORE * self.before | CUT_HERE * self.here


@dataclass(frozen=True, slots=True)
class _Fresh:
    """A cut has been made here, or the text begins."""


@dataclass(frozen=True, slots=True)
class _Gap:
    """Within a stretch that nothing matches."""


@dataclass(frozen=True, slots=True)
class _Lost:
    """The end of the last match is unknown here; the kernel finds it in the text."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Within a match, or text that may become one.

    Attributes:
        at: the matcher's state.
        best: the best end so far: none, after `one` character or after `more`; one
            character `back`; `far` behind, with a provisional cut there.
        inside: the state of a start from the best end; `_Lost` if unknown.
        pending: provisional cuts, from the one at the best end on.
    """

    at: int
    best: Literal["one", "more", "back", "far"]
    inside: "_State" = _Lost()
    pending: int = 0


_State: TypeAlias = _Fresh | _Gap | _Lost | _Run


@dataclass(frozen=True, slots=True)
class Transducer:
    """A machine that cuts a text into matches and stretches without a match.

    Attributes:
        next_state: int64, shape (num_states, num_classes + 1); the last column is the end of the text. State
            0 is the start, state 1 a stretch without a match.
        flags: uint8, same shape, applied in this order: with `SLOW` nothing is done, and `next_state` has no
            meaning; `TAKE_BACK` takes back the last cuts; `CUT_BEFORE` cuts before the character last
            read; `CUT_HERE` cuts before the one being read.
    """

    next_state: NDArray[np.int64]
    flags: NDArray[np.uint8]


def build_transducer(matcher: Matcher) -> Transducer:
    """Build the smallest transducer of a matcher that never matches the empty string."""
    machine = _Machine(matcher)
    numbers: dict[_State, int] = {_Fresh(): START, _Gap(): GAP, _Lost(): START}
    todo: list[_State] = [_Fresh(), _Gap()]
    next_state = []
    flags = []
    for state in todo:  # grows while it is walked
        row = [machine.step(state, symbol) for symbol in range(machine.end_symbol + 1)]
        for step in row:
            if step.state not in numbers:
                numbers[step.state] = len(todo)
                todo.append(step.state)
        if len(todo) * len(row) > _BEFORE_MERGING * MAX_ENTRIES:
            raise UnsupportedError(f"tables of more than {MAX_ENTRIES} entries")
        next_state.append([numbers[step.state] for step in row])
        flags.append([step.flags for step in row])
    return _minimized(np.array(next_state, dtype=np.int64), np.array(flags, dtype=np.uint8))


class _Machine:
    """The transducer's step on one symbol, derived from the matcher."""

    def __init__(self, matcher: Matcher) -> None:
        self.next_state = matcher.next_state.tolist()
        self.match_before = matcher.match_before.tolist()
        self.end_symbol = matcher.next_state.shape[1] - 1
        self.certain = _certain(matcher)

    def step(self, state: _State, symbol: int) -> Transition:
        match state:
            case _Fresh():
                return Transition(self.begin(symbol))
            case _Gap():
                return self.leave_gap(symbol)
            case _Lost():
                return Transition(_Lost())
        after = self.next_state[state.at][symbol]
        if self.match_before[state.at][symbol]:
            if after == DEAD:
                return Transition(self.begin(symbol), state.pending, here=True)
            return Transition(_Run(after, "back", self.begin(symbol)), state.pending)
        return self.end(state, symbol) if after == DEAD else self.go_on(state, after, symbol)

    def begin(self, symbol: int) -> _State:
        """Start the matcher on a symbol."""
        if symbol == self.end_symbol:
            return _Fresh()
        after = self.next_state[MATCHER_START][symbol]
        return _Gap() if after == DEAD else _Run(after, "one")

    def leave_gap(self, symbol: int) -> Transition:
        """Continue after a character that no match begins with."""
        begun = self.begin(symbol)
        if symbol == self.end_symbol:
            return Transition(begun, here=True)
        if isinstance(begun, _Run):
            return Transition(begun, here=True) if self.certain[begun.at] else Transition(_Lost())
        return Transition(begun)

    def end(self, run: _Run, symbol: int) -> Transition:
        """Fall back to the best end, since no better one can follow."""
        if run.best == "one":
            return self.leave_gap(symbol)
        if run.best == "back":
            return self.step(run.inside, symbol)._replace(before=True)
        return self.step(run.inside, symbol)

    def go_on(self, run: _Run, after: int, symbol: int) -> Transition:
        """Take one more character, hoping for a better end than the best one so far."""
        if run.best in ("one", "more"):
            return Transition(_Run(after, "more"))
        inside = self.step(run.inside, symbol)
        before = run.best == "back" or inside.before
        pending = run.pending - inside.take_back + (run.best == "back") + inside.before + inside.here
        if isinstance(inside.state, _Lost) or pending > MAX_PENDING:
            return Transition(_Run(after, "far"), run.pending)
        return Transition(_Run(after, "far", inside.state, pending), inside.take_back, before, inside.here)


def _certain(matcher: Matcher) -> NDArray[np.bool_]:
    """Find the states from which a match is found whatever follows; shape (num_states,)."""
    certain = np.ones(len(matcher.next_state), dtype=np.bool_)
    while True:
        alive = (matcher.next_state != DEAD) & certain[matcher.next_state]
        now = certain & (matcher.match_before | alive).all(axis=1)
        if (now == certain).all():
            return certain
        certain = now


def _minimized(next_state: NDArray[np.int64], flags: NDArray[np.uint8]) -> Transducer:
    """Merge equivalent states (Moore's algorithm); the first two are kept.

    A machine that takes too many rounds is not reduced fully, which is correct, only larger.
    """
    numbers = np.minimum(np.arange(len(flags)), 2)
    num_groups = 0
    for _ in range(MAX_ROUNDS):
        seen = np.hstack([numbers[:, None], flags, numbers[next_state]])
        _, first, group = np.unique(seen, axis=0, return_index=True, return_inverse=True)
        numbers = np.argsort(np.argsort(first))[group.ravel()]  # groups count in the order of first members
        if len(first) == num_groups:
            kept = np.sort(first)
            return Transducer(numbers[next_state[kept]], flags[kept])
        num_groups = len(first)
    return Transducer(next_state, flags)
