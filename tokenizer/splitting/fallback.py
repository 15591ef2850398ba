r"""Split through the `regex` package: correct for every pattern that it reads, and slow.

The dialect is that of `regex` VERSION0, but nested classes and class operations are read as VERSION1, as
Rust's and Oniguruma's engines do. Ill-formed bytes count as the characters that `surrogateescape` makes of
them. Before an expression is compiled, its size is measured, since engines expand counted repetitions, and it
must not match the empty string, which is decided cautiously: each alternative needs a part that takes a
character and is not optional; look-arounds, anchors, back-references, calls, conditions and `\K` take
nothing.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting.patterns import shown

# The tokens of an expression; anything else is one literal character.
_TOKEN = regex.compile(
    r"""
    (?P<none> \(\?\#[^)]*\)                             # comments
            | \(\?[a-zA-Z0-9-]+\)                       # flags for the rest
            | \(\?(?:P=|P>|&|[+-]?\d|R)[^)]*\)          # back-references and calls
            | \(\*[^)]*\)                               # verbs
            | \\(?: [bBAZzGmMK] | [1-9]\d* | g<[^>]*> ) | [\^$] )
  | (?P<aside> \( \? (?: = | ! | <= | <! | \([^)]*\) ) )
  | (?P<open> \( (?: \? (?: P?<[^>]+> | [:>|] | [a-zA-Z0-9-]*: ) )? )
  | (?P<close> \) )
  | (?P<bar> \| )
  | (?P<repeat> (?: [*+?] | \{[^{}]*\} ) [?+]? )
  | (?P<class> \[ )
  | (?P<one> \\[pP]\{[^}]*\} | \\N\{[^}]*\} | \\. | . )
    """,
    regex.VERBOSE | regex.DOTALL,
)
_COUNTED = regex.compile(r"\{(\d*)(?:(,)(\d*))?\}")
_VERBOSE = regex.compile(r"\(\?[a-zA-Z0-9]*x")
_BLANKS = regex.compile(r"(?P<blank>(?:\s|#[^\n]*)+)")
_UNCOUNTABLE = 18  # digits; more is as good as without end


@dataclass(frozen=True, slots=True)
class Outline:
    """An expression, or a part of it.

    Attributes:
        size: its number of parts, with counted repetitions expanded.
        depth: the depth of nested groups.
        takes_text: whether every match has a character; False if that is not certain.
    """

    size: int = 0
    depth: int = 0
    takes_text: bool = False


def outline(pattern: str) -> Outline:
    """Read an expression without parsing it fully."""
    verbose = _VERBOSE.search(pattern) is not None
    groups = [_Group(aside=r"\K" in pattern)]
    position = 0
    while position < len(pattern):
        blank = _BLANKS.match(pattern, position) if verbose else None
        found = blank or _TOKEN.match(pattern, position)
        assert found is not None  # the last alternative takes anything
        position = found.end()
        match found.lastgroup:
            case "open" | "aside" as kind:
                groups.append(_Group(aside=kind == "aside"))
            case "close" if len(groups) > 1:
                closed = groups.pop().close()
                groups[-1].add(closed)
            case "bar":
                groups[-1].bar()
            case "repeat":
                groups[-1].repeat(*_counts(found[0]))
            case "class":
                position = class_end(pattern, found.start())
                groups[-1].add(Outline(1, 0, takes_text=True))
            case "one" | "none" as kind:
                groups[-1].add(Outline(1, 0, takes_text=kind == "one"))
    while len(groups) > 1:  # an invalid expression; compiling it will report that
        groups[-2].add(groups.pop().close())
    whole = groups[0].close()
    return Outline(whole.size, whole.depth - 1, whole.takes_text)


class _Group:
    """A group that is being read; `last` is the part that a quantifier would repeat."""

    def __init__(self, *, aside: bool) -> None:
        self.aside = aside
        self.size = self.depth = 0
        self.all_take = True
        self.this_takes = False
        self.last = Outline()

    def add(self, part: Outline) -> None:
        self.size += self.last.size
        self.this_takes = self.this_takes or self.last.takes_text
        self.depth = max(self.depth, part.depth)
        self.last = part

    def repeat(self, least: int, most: int) -> None:
        last = self.last
        self.last = Outline(last.size * max(most, 1), last.depth, last.takes_text and least > 0)

    def bar(self) -> None:
        self.add(Outline())
        self.all_take = self.all_take and self.this_takes
        self.this_takes = False

    def close(self) -> Outline:
        self.bar()
        return Outline(self.size, self.depth + 1, self.all_take and not self.aside)


def _counts(quantifier: str) -> tuple[int, int]:
    """Return the least number of repetitions of an item, and the number of its copies when expanded."""
    counted = _COUNTED.match(quantifier)
    if counted is None:
        return int(quantifier.startswith("+")), 1
    least, most = (int(number[:_UNCOUNTABLE] or 0) for number in (counted[1], counted[3] or ""))
    return least, max(least, most)


def class_end(pattern: str, position: int) -> int:
    """Find the end of the class that starts here; classes may hold classes, and `]` may come first.

    It is the end of the pattern if the class is not closed.
    """
    depth = 0
    while position < len(pattern):
        if pattern[position] == "\\":
            position += 1
        elif pattern.startswith("[:", position) and depth:
            position = max(pattern.find(":]", position), position) + 1
        elif pattern[position] == "[":
            depth += 1
            position += pattern.startswith("^", position + 1)
            position += pattern.startswith("]", position + 1)
        elif pattern[position] == "]":
            depth -= 1
        position += 1
        if not depth:
            return position
    return position


# A hundred times what an expression without pathological backtracking takes; CPU time, as `regex` counts it
SECONDS_AT_LEAST = 5.0
SECONDS_A_CHARACTER = 20e-6

MAX_PARTS = 100_000
MAX_DEPTH = 100

_CLASS_OPERATION = regex.compile(r"&&|--|~~")
# One character class: an optional ^, a ] that may stand first, escapes, or anything but ].
_CLASS = regex.compile(r"\\.|\[\^?(\]?(?:\\.|[^\]\\])*)\]", regex.DOTALL)


def dialect_flags(pattern: str) -> int:
    """Return the flag of the `regex` package's dialect for a pattern: 0 or `regex.VERSION1`."""
    for found in _CLASS.finditer(pattern):
        inner = regex.sub(r"\\.", "", found[1] or "", flags=regex.DOTALL)
        if "[" in inner or _CLASS_OPERATION.search(inner):
            return int(regex.VERSION1)
    return 0


class Budget:
    """The CPU time that one expression may take: for each text by its length, and so for all together.

    Many documents that take a little less than one may take would otherwise take for ever.
    """

    def __init__(self) -> None:
        self._seconds = 0.0
        self._characters = 0

    @contextmanager
    def spending(self, text: str) -> Iterator[float]:
        """Yield how many seconds matching may take in the block."""
        self._characters += len(text)
        left = SECONDS_AT_LEAST + self._characters * SECONDS_A_CHARACTER - self._seconds
        began = time.thread_time()
        try:
            yield max(0.001, min(left, SECONDS_AT_LEAST + len(text) * SECONDS_A_CHARACTER))
        finally:
            self._seconds += time.thread_time() - began


@lru_cache(maxsize=128)
def budget_of(pattern: str) -> Budget:
    """Return the budget of an expression in this process."""
    return Budget()


@lru_cache(maxsize=128)
def compile_regex(pattern: str) -> regex.Pattern[str]:
    """Compile one expression with the `regex` package."""
    seen = outline(pattern)
    if seen.size > MAX_PARTS or seen.depth > MAX_DEPTH:
        raise PatternError(
            f"split_pattern={shown(pattern)} has {seen.size} parts, repetitions spelled out, and "
            f"{seen.depth} groups in each other; at most {MAX_PARTS} and {MAX_DEPTH} can be used; write it "
            "shorter and flatter"
        )
    try:
        compiled = regex.compile(pattern, dialect_flags(pattern))
    # ValueError: flags that exclude each other; OverflowError: a repetition that no text is long enough for;
    # RecursionError: the caller was deep in calls already
    except (regex.error, ValueError, OverflowError, RecursionError) as error:
        raise PatternError(f"split_pattern={shown(pattern)} is not a regular expression: {error}") from error
    for probe in ("", "a", " ", "1", "\n", "."):
        isolate(compiled, probe)
    return compiled


def empty_match(pattern: str) -> PatternError:
    """Build the error for an expression that matches the empty string."""
    return PatternError(
        f"split_pattern={shown(pattern)} can match the empty string, so it cuts nothing off; use + where it "
        "has *, or make one of its parts obligatory"
    )


def isolate(compiled: regex.Pattern[str], text: str) -> list[str]:
    """Cut a text into the matches of one expression and the stretches between them; nothing is lost."""
    cuts = [0]
    try:
        with budget_of(compiled.pattern).spending(text) as seconds:
            for found in compiled.finditer(text, timeout=seconds):
                if found.start() == found.end():
                    raise empty_match(compiled.pattern)
                cuts += found.span()
    except TimeoutError:
        raise PatternError(
            f"split_pattern={shown(compiled.pattern)} takes a hundred times as long as others, last for "
            f"{len(text)} characters of text; write it so that there is one way to match a text, e.g. a+ for "
            "(?:a|a)+"
        ) from None
    cuts.append(len(text))
    return [text[i:j] for i, j in pairwise(cuts) if i < j]


def split_segments(
    expression: str,
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Cut segments of a buffer by one expression; the plain twin of the automaton's scan.

    Returns starts and ends, shape (num_pretokens,), and offsets, shape (num_segments + 1,).
    """
    compiled = compile_regex(expression)
    spans: list[tuple[int, int]] = []
    offsets = [0]
    for start, end in zip(starts.tolist(), ends.tolist(), strict=True):
        position = start
        text = data[start:end].tobytes().decode("utf-8", "surrogateescape")
        for part in isolate(compiled, text):
            after = position + len(part.encode("utf-8", "surrogateescape"))
            spans.append((position, after))
            position = after
        offsets.append(len(spans))
    cuts = np.array(spans, dtype=np.int64).reshape(-1, 2)
    return cuts[:, 0].copy(), cuts[:, 1].copy(), np.array(offsets, dtype=np.int64)
