r"""Split through the `regex` package: correct for every pattern that it reads, and slow.

The tests compare the automaton with it, so it is as plain as it can be: cut the text
into matches and the stretches between them, and measure the parts.

Dialect: that of `regex` VERSION0, except that a pattern with nested classes or class operations
(`[\p{L}&&[^\p{Han}]]`) is read as VERSION1, as Rust's and Oniguruma's engines read it.
Bytes that are not well-formed UTF-8 count as the characters that the `surrogateescape` handler makes of them.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from itertools import pairwise

import numpy as np
import regex
from numpy.typing import NDArray

from tokmill.tokenizer.core.errors import PatternError
from tokmill.tokenizer.splitting.outline import outline
from tokmill.tokenizer.splitting.patterns import shown

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
    """Compile one expression with the `regex` package.

    Raises:
        PatternError: the expression does not parse, or it matches the empty string at the start of a text.
    """
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
    """Cut a text into the matches of one expression and the stretches between them; nothing is lost.

    Raises:
        PatternError: the expression matched the empty string, or took too long for that much text.
    """
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

    Args:
        expression: an expression that `compile_regex` accepts.
        data: shape (num_bytes,).
        starts: shape (num_segments,), where each segment begins in `data`.
        ends: shape (num_segments,), where it ends.

    Returns:
        Where pre-tokens start and end, both of shape (num_pretokens,), and offsets of shape
        (num_segments + 1,): the pre-tokens `offsets[s]:offsets[s + 1]` tile segment s.

    Raises:
        PatternError: the expression matched the empty string.
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
